package journal

import (
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
)

// The mark is a small file that says how far the journal is durable, and how far
// its readings are at rest. It is written without fsync, mostly; of its two places
// the one that was synced last is left alone, so that a torn write leaves that.
// Both have their room from the start:
// nothing can be deleted from a full disk before the mark says so. An old mark
// is always safe: it only lets more be looked at again.
const (
	markName  = "mark"
	markMagic = 0x4d4a5242 // "BRJM"
	markSize  = 4 + 8 + 8 + 8 + 4
	// The places are in blocks of their own.
	markPlace = 4096
)

type mark struct {
	number  uint64 // counts writes; the greater one counts
	durable uint64
	applied uint64
	place   int64 // in the file, 0 or 1
}

func (m mark) encode() []byte {
	b := make([]byte, markSize)
	binary.LittleEndian.PutUint32(b, markMagic)
	binary.LittleEndian.PutUint64(b[4:], m.number)
	binary.LittleEndian.PutUint64(b[12:], m.durable)
	binary.LittleEndian.PutUint64(b[20:], m.applied)
	binary.LittleEndian.PutUint32(b[28:], checksum(0, b[:28]))
	return b
}

func decodeMark(b []byte) (m mark, ok bool) {
	if len(b) < markSize || binary.LittleEndian.Uint32(b) != markMagic ||
		binary.LittleEndian.Uint32(b[28:]) != checksum(0, b[:28]) {
		return mark{}, false
	}
	m = mark{
		number:  binary.LittleEndian.Uint64(b[4:]),
		durable: binary.LittleEndian.Uint64(b[12:]),
		applied: binary.LittleEndian.Uint64(b[20:]),
	}
	return m, m.applied <= m.durable
}

// readMark returns the last mark; ok is false where there is none that can be
// believed.
func readMark(files Files, dir string) (m mark, ok bool, err error) {
	f, err := files.Open(filepath.Join(dir, markName), false)
	if errors.Is(err, os.ErrNotExist) {
		return mark{}, false, nil
	}
	if err != nil {
		return mark{}, false, err
	}
	defer f.Close()
	for place := range int64(2) {
		b := make([]byte, markSize)
		if _, err := f.ReadAt(b, place*markPlace); err != nil && !errors.Is(err, io.EOF) {
			return mark{}, false, err
		}
		if one, good := decodeMark(b); good && (!ok || one.number > m.number) {
			m, ok = one, true
			m.place = place
		}
	}
	return m, ok, nil
}

// A marker writes marks.
type marker struct {
	files Files
	dir   string
	file  File // nil: the next mark goes to a fresh one
	last  mark
	// synced is the place of the last mark that was. It is left alone until the
	// other one is, for a loss of power may tear all that was not.
	synced int64
}

// openMarker makes a fresh file in place of the old one, so that from now on the
// file says at least this much, durably.
func openMarker(files Files, dir string, first mark) (*marker, error) {
	name := filepath.Join(dir, markName)
	first.number++
	first.place = 0
	content := make([]byte, markPlace+markSize)
	copy(content, first.encode())
	if err := writeWhole(files, name, content); err != nil {
		return nil, err
	}
	f, err := files.Open(name, true)
	if err != nil {
		return nil, err
	}
	return &marker{files: files, dir: dir, file: f, last: first}, nil
}

// resumeMarker goes on in the file that holds the old mark, where there is no
// room for a fresh one.
func resumeMarker(files Files, dir string, old mark) *marker {
	m := &marker{files: files, dir: dir, last: old, synced: old.place}
	if f, err := files.Open(filepath.Join(dir, markName), true); err == nil {
		m.file = f
	}
	return m
}

// write notes how far it has come, if that is news.
func (m *marker) write(durable, applied uint64) error {
	if m.file == nil {
		return m.renew(durable, applied)
	}
	if durable == m.last.durable && applied == m.last.applied {
		return nil
	}
	next := mark{number: m.last.number + 1, durable: durable, applied: applied, place: 1 - m.synced}
	if _, err := m.file.WriteAt(next.encode(), next.place*markPlace); err != nil {
		return err
	}
	m.last = next
	return nil
}

// sync makes the last mark durable. After an error the next mark goes to another
// file, for a failed sync is never tried again on the same one.
func (m *marker) sync() error {
	if err := m.file.Sync(); err != nil {
		return errors.Join(err, m.close())
	}
	m.synced = m.last.place
	return nil
}

func (m *marker) renew(durable, applied uint64) error {
	fresh, err := openMarker(m.files, m.dir, mark{number: m.last.number, durable: durable, applied: applied})
	if err != nil {
		return err
	}
	*m = *fresh
	return nil
}

func (m *marker) close() error {
	if m.file == nil {
		return nil
	}
	err := m.file.Close()
	m.file = nil
	return err
}
