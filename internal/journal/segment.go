package journal

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// A segment is a file of records that one session wrote with one set of
// settings. It begins with
//
//	0 magic · 4 version · 8 position of the first record
//	16 length of the settings · 20 CRC32C of all else · 24 settings, as JSON
//
// and a record at position p stands at p - base behind that.
type segment struct {
	name     string // of the file, in its directory
	base     uint64
	end      uint64 // behind the last record
	start    int64  // of the first record in the file
	size     int64  // of the file
	open     bool   // the committer writes to it
	settings settings
	seed     uint32
}

// settings are what the records of a segment were journaled under.
type settings struct {
	Session string            `json:"session"`
	Started time.Time         `json:"started"`
	Streams map[string]Stream `json:"streams"`
}

const (
	segmentMagic   = 0x4c4a5242 // "BRJL"
	segmentVersion = 2          // 1 had no hashes of series
	segmentHead    = 24
	maxSettings    = 16 << 20
	segmentSuffix  = ".journal"
)

func segmentName(base uint64) string { return fmt.Sprintf("%020d%s", base, segmentSuffix) }

// segmentBase returns the position that a file's name stands for.
func segmentBase(name string) (base uint64, ok bool) {
	digits, ok := strings.CutSuffix(name, segmentSuffix)
	if !ok || len(digits) != 20 {
		return 0, false
	}
	base, err := strconv.ParseUint(digits, 10, 64)
	return base, err == nil
}

// segmentBases returns the bases of the segments in a directory, in order.
func segmentBases(files Files, dir string) ([]uint64, error) {
	names, err := files.List(dir)
	if err != nil {
		return nil, err
	}
	var bases []uint64
	for _, name := range names { // sorted, which is by base: names have a fixed number of digits
		if base, ok := segmentBase(name); ok {
			bases = append(bases, base)
		}
	}
	return bases, nil
}

func (s *segment) offset(position uint64) int64 { return s.start + int64(position-s.base) }

func (s *segment) position(offset int64) uint64 { return s.base + uint64(offset-s.start) }

// granularityOf returns a function that knows the granularity of the streams.
func granularityOf(streams map[string]Stream) func(stream string) time.Duration {
	return func(stream string) time.Duration { return streams[stream].Granularity }
}

func encodeSegmentHead(base uint64, s *settings) ([]byte, error) {
	text, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("encode settings: %w", err)
	}
	b := make([]byte, segmentHead, segmentHead+len(text))
	binary.LittleEndian.PutUint32(b, segmentMagic)
	binary.LittleEndian.PutUint32(b[4:], segmentVersion)
	binary.LittleEndian.PutUint64(b[8:], base)
	binary.LittleEndian.PutUint32(b[16:], uint32(len(text)))
	b = append(b, text...)
	binary.LittleEndian.PutUint32(b[20:], checksum(checksum(0, b[:20]), b[segmentHead:]))
	return b, nil
}

// A versionError says that a later release wrote the journal.
type versionError struct {
	file    string
	version uint32
}

func (e *versionError) Error() string {
	return fmt.Sprintf("journal segment %s has version %d; this release knows only %d; start the release that wrote it until everything is stored (POST /flush), stop it, and move the file away", e.file, e.version, segmentVersion)
}

// readSegmentHead reads what stands before the first record. It returns what is
// wrong with it, empty if nothing is; an error is one of reading.
func readSegmentHead(f File, name string, base uint64) (s *segment, wrong string, err error) {
	size, err := f.Size()
	if err != nil {
		return nil, "", err
	}
	head := make([]byte, segmentHead)
	if size < segmentHead {
		return nil, "the segment ends inside its header", nil
	}
	if _, err := f.ReadAt(head, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, "", err
	}
	n := binary.LittleEndian.Uint32(head[16:])
	switch {
	case binary.LittleEndian.Uint32(head) != segmentMagic:
		return nil, "the segment's header is not one", nil
	case n > maxSettings || int64(n) > size-segmentHead:
		return nil, "the segment ends inside its settings", nil
	}
	text := make([]byte, n)
	if _, err := f.ReadAt(text, segmentHead); err != nil && !errors.Is(err, io.EOF) {
		return nil, "", err
	}
	if binary.LittleEndian.Uint32(head[20:]) != checksum(checksum(0, head[:20]), text) {
		return nil, "the checksum of the segment's header is wrong", nil
	}
	if v := binary.LittleEndian.Uint32(head[4:]); v != segmentVersion {
		return nil, "", &versionError{file: name, version: v}
	}
	if binary.LittleEndian.Uint64(head[8:]) != base {
		return nil, "the segment belongs to another position than its name says", nil
	}
	s = &segment{name: name, base: base, end: base, start: int64(segmentHead + n), size: size}
	if err := json.Unmarshal(text, &s.settings); err != nil {
		return nil, "the segment's settings are not what they should be", nil //nolint:nilerr // that is what is wrong
	}
	s.seed = sessionSeed(s.settings.Session)
	return s, "", nil
}

// createSegment makes a file whose header is durable before anything is written
// behind it, so that a broken header with records behind it is never a torn
// write.
func createSegment(files Files, dir string, base uint64, s settings) (*segment, File, error) {
	head, err := encodeSegmentHead(base, &s)
	if err != nil {
		return nil, nil, err
	}
	seg := &segment{
		name: segmentName(base), base: base, end: base,
		start: int64(len(head)), size: int64(len(head)), settings: s, seed: sessionSeed(s.Session),
	}
	path := filepath.Join(dir, seg.name)
	f, err := files.Create(path)
	if errors.Is(err, os.ErrExist) {
		// An attempt that failed could not be taken back. There are no records in it,
		// for this is where the next one is to stand.
		if err := files.Remove(path); err != nil {
			return nil, nil, err
		}
		f, err = files.Create(path)
	}
	if err != nil {
		return nil, nil, err
	}
	if _, err = f.WriteAt(head, 0); err == nil {
		if err = f.Sync(); err == nil {
			err = files.SyncDir(dir)
		}
	}
	if err != nil {
		return nil, nil, errors.Join(err, f.Close(), files.Remove(path))
	}
	return seg, f, nil
}
