package journal

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/brim-telemetry/brim/internal/batch"
)

// The files of a journal's directory; all numbers in them are little endian:
//
//	<20 digits>.journal          a segment: the records from the position in its name on
//	<20 digits>.journal.keys     idempotency keys of a deleted segment
//	<20 digits>.journal.corrupt  a copy of a damaged segment
//	mark                         how far the journal is durable and stored
//	trimmed-sensors              sensors with more readings stored than the mark says (JSON)
//	lost                         ranges that were given up because they were damaged (JSON)
//	lost-sessions                sessions that another process also uses (JSON)
//	lock                         held by the process that has the journal open

// formatError describes invalid content that was read without an error.
type formatError string

func (e formatError) Error() string { return string(e) }

// checksum continues a CRC32C.
func checksum(seed uint32, b []byte) uint32 {
	return crc32.Update(seed, crc32.MakeTable(crc32.Castagnoli), b)
}

// A segment is a file of records that one session wrote under one set of settings.
// It begins with
//
//	0 magic · 4 version · 8 position of the first record
//	16 length of the settings · 20 CRC32C of the rest · 24 settings, as JSON
//
// and the record at position p is p - base bytes after that.
type segment struct {
	name     string // of the file, without the directory
	base     uint64
	end      uint64 // after the last record
	start    int64  // offset of the first record
	size     int64  // of the file
	settings settings
	seed     uint32

	unstored atomic.Int64 // requests that are not stored; counted in memory only

	mu   sync.Mutex
	file File // shared by all cursors until the segment is deleted; nil: not open
}

// open returns the segment's file.
func (s *segment) open(files Files, dir string) (File, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var err error
	if s.file == nil {
		s.file, err = files.Open(filepath.Join(dir, s.name), false)
	}
	return s.file, err
}

func (s *segment) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file == nil {
		return nil
	}
	err := s.file.Close()
	s.file = nil
	return err
}

// settings are the settings at the time when the records of a segment were journaled.
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

// segmentBase returns the position in the name of a segment.
func segmentBase(name string) (base uint64, ok bool) {
	digits, ok := strings.CutSuffix(name, segmentSuffix)
	if !ok || len(digits) != 20 {
		return 0, false
	}
	base, err := strconv.ParseUint(digits, 10, 64)
	return base, err == nil
}

// segmentBases returns the bases of the segments in a directory, in order.
func segmentBases(files Files, dir string) (bases []uint64, err error) {
	names, err := files.List(dir)
	for _, name := range names { // sorted, and the number of digits is fixed
		if base, ok := segmentBase(name); ok {
			bases = append(bases, base)
		}
	}
	return bases, err
}

func (s *segment) offset(position uint64) int64 { return s.start + int64(position-s.base) }

func (s *segment) position(offset int64) uint64 { return s.base + uint64(offset-s.start) }

// granularityOf returns a function that knows the granularity of the streams.
func granularityOf(streams map[string]Stream) func(stream string) time.Duration {
	return func(stream string) time.Duration { return streams[stream].Granularity }
}

// sessionSeed begins the checksums of a session's record headers.
func sessionSeed(session string) uint32 { return checksum(0, []byte(session)) }

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

// createSegment creates a segment with a durable header. So a broken header before a record is
// never a torn write.
func createSegment(files Files, dir string, base uint64, s settings) (*segment, error) {
	head, err := encodeSegmentHead(base, &s)
	if err != nil {
		return nil, err
	}
	size := int64(len(head))
	seg := &segment{name: segmentName(base), base: base, end: base, start: size, size: size, settings: s, seed: sessionSeed(s.Session)}
	path := filepath.Join(dir, seg.name)
	f, err := files.Create(path)
	if errors.Is(err, os.ErrExist) {
		// Left by a failed attempt. It has no records, since the next record belongs at
		// its position.
		if err := files.Remove(path); err != nil {
			return nil, err
		}
		f, err = files.Create(path)
	}
	if err != nil {
		return nil, err
	}
	if _, err = f.WriteAt(head, 0); err == nil {
		if err = f.Sync(); err == nil {
			err = files.SyncDir(dir)
		}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close(), files.Remove(path))
	}
	seg.file = f
	return seg, nil
}

// readSegmentHead reads the header of a segment. The error is a formatError if the header is
// invalid.
func readSegmentHead(f File, base uint64) (*segment, error) {
	name := segmentName(base)
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	if size < segmentHead {
		return nil, formatError("the segment ends inside its header")
	}
	head := make([]byte, segmentHead)
	if _, err := f.ReadAt(head, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	n := binary.LittleEndian.Uint32(head[16:])
	switch {
	case binary.LittleEndian.Uint32(head) != segmentMagic:
		return nil, formatError("the file does not begin with a segment header")
	case n > maxSettings || int64(n) > size-segmentHead:
		return nil, formatError("the segment ends inside its settings")
	}
	text := make([]byte, n)
	if _, err := f.ReadAt(text, segmentHead); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if binary.LittleEndian.Uint32(head[20:]) != checksum(checksum(0, head[:20]), text) {
		return nil, formatError("the checksum of the segment header is wrong")
	}
	if v := binary.LittleEndian.Uint32(head[4:]); v != segmentVersion {
		return nil, fmt.Errorf("journal segment %s has version %d; this release knows only %d; start the release that wrote it until everything is stored (POST /flush), stop it, and move the file away", name, v, segmentVersion)
	}
	if binary.LittleEndian.Uint64(head[8:]) != base {
		return nil, formatError("the segment header belongs to another position than the file name")
	}
	s := &segment{name: name, base: base, end: base, start: int64(segmentHead + n), size: size}
	if err := json.Unmarshal(text, &s.settings); err != nil {
		return nil, formatError("the settings of the segment are not valid JSON")
	}
	s.seed = sessionSeed(s.settings.Session)
	return s, nil
}

// A record is a header and a payload:
//
//	 0 magic · 4 length of the payload · 8 CRC32C of the payload · 12 readings
//	16 first sequence · 24 position
//	32 the position before which everything was durable when this was written
//	40 flags · 44 CRC32C of the header, seeded with the CRC32C of the session's name
//
//	payload: [key: id 16, body hash 8, length of the answer 4, answer] batch
//
// The header's checksum covers its position and its session. So bytes of another
// file, or of an earlier use of the same disk blocks, are never taken for a record.
const (
	recordMagic  = 0x6e9a7b1d
	headerSize   = 48
	keyHead      = 16 + 8 + 4
	flagKey      = 1
	maxPayload   = 1 << 30
	maxAnswer    = 64 << 10
	headerCRCPos = 44
)

type header struct {
	length   uint32
	crc      uint32
	readings uint32
	flags    uint32
	firstSeq uint64
	position uint64
	durable  uint64
}

// next is the position after the record.
func (h *header) next() uint64 { return h.position + headerSize + uint64(h.length) }

// put writes the header to the beginning of b.
func (h *header) put(b []byte, seed uint32) {
	binary.LittleEndian.PutUint32(b, recordMagic)
	binary.LittleEndian.PutUint32(b[4:], h.length)
	binary.LittleEndian.PutUint32(b[8:], h.crc)
	binary.LittleEndian.PutUint32(b[12:], h.readings)
	binary.LittleEndian.PutUint64(b[16:], h.firstSeq)
	binary.LittleEndian.PutUint64(b[24:], h.position)
	binary.LittleEndian.PutUint64(b[32:], h.durable)
	binary.LittleEndian.PutUint32(b[40:], h.flags)
	binary.LittleEndian.PutUint32(b[headerCRCPos:], checksum(seed, b[:headerCRCPos]))
}

// parseHeader parses the header at the beginning of b, which has at least headerSize bytes.
func parseHeader(b []byte, seed uint32, position uint64) (header, error) {
	if binary.LittleEndian.Uint32(b) != recordMagic {
		return header{}, formatError("there is no record")
	}
	if binary.LittleEndian.Uint32(b[headerCRCPos:]) != checksum(seed, b[:headerCRCPos]) {
		return header{}, formatError("the checksum of the record header is wrong")
	}
	h := header{
		length:   binary.LittleEndian.Uint32(b[4:]),
		crc:      binary.LittleEndian.Uint32(b[8:]),
		readings: binary.LittleEndian.Uint32(b[12:]),
		firstSeq: binary.LittleEndian.Uint64(b[16:]),
		position: binary.LittleEndian.Uint64(b[24:]),
		durable:  binary.LittleEndian.Uint64(b[32:]),
		flags:    binary.LittleEndian.Uint32(b[40:]),
	}
	switch {
	case h.position != position:
		return header{}, formatError("the record belongs to another position")
	case h.length > maxPayload:
		return header{}, formatError("the length of the record is impossible")
	}
	return h, nil
}

// keyed is the idempotency key in a payload.
type keyed struct {
	id       keyID
	bodyHash uint64
	answer   []byte
}

// appendPayload adds a payload to dst.
func appendPayload(dst []byte, b *batch.Batch, key *keyed) []byte {
	if key != nil {
		dst = append(dst, key.id[:]...)
		dst = binary.LittleEndian.AppendUint64(dst, key.bodyHash)
		dst = binary.LittleEndian.AppendUint32(dst, uint32(len(key.answer)))
		dst = append(dst, key.answer...)
	}
	return batch.AppendBinary(dst, b)
}

// A record as it was read.
type record struct {
	header
	key     *keyed // nil: it has none
	encoded []byte // the batch
}

// readRecord reads the record at an offset. The error is a formatError if the
// record is broken. The result is valid until the window is used again.
func readRecord(w *window, s *segment, offset int64) (record, error) {
	head, err := w.peek(offset, headerSize)
	if err != nil {
		return record{}, err
	}
	if len(head) < headerSize {
		return record{}, formatError("the record header is cut off")
	}
	h, err := parseHeader(head, s.seed, s.position(offset))
	if err != nil {
		return record{}, err
	}
	size := headerSize + int(h.length)
	if int64(size) > w.limit-offset {
		return record{}, formatError("the record is cut off")
	}
	whole, err := w.peek(offset, size)
	if err != nil {
		return record{}, err
	}
	if len(whole) < size {
		return record{}, formatError("the record is cut off")
	}
	r := record{header: h, encoded: whole[headerSize:]}
	if checksum(0, r.encoded) != h.crc {
		return record{}, formatError("the checksum of the record is wrong")
	}
	if h.flags&flagKey == 0 {
		return r, nil
	}
	if len(r.encoded) < keyHead {
		return record{}, formatError("the key in the record is cut off")
	}
	n := uint64(binary.LittleEndian.Uint32(r.encoded[24:]))
	if n > uint64(len(r.encoded)-keyHead) {
		return record{}, formatError("the answer in the record is cut off")
	}
	r.key = &keyed{id: keyID(r.encoded[:16]), bodyHash: binary.LittleEndian.Uint64(r.encoded[16:]), answer: r.encoded[keyHead:][:n]}
	r.encoded = r.encoded[keyHead+n:]
	return r, nil
}

// The keys of a deleted segment are kept in a file until all of them have expired:
//
//	0 magic · 4 version · 8 number of keys · 12 CRC32C of what follows
//	key: id 16, body hash 8, position after its record 8, time 8, answer (4, …)
const (
	keysSuffix  = ".keys"
	keysMagic   = 0x4b4a5242 // "BRJK"
	keysVersion = 1
	keysHead    = 16
	keyFixed    = 16 + 8 + 8 + 8 + 4
	maxKeyFile  = 1 << 30
)

func encodeKeys(entries []keyEntry) []byte {
	b := make([]byte, keysHead, keysHead+len(entries)*(keyFixed+32))
	for i := range entries {
		e := &entries[i]
		b = append(b, e.id[:]...)
		b = binary.LittleEndian.AppendUint64(b, e.bodyHash)
		b = binary.LittleEndian.AppendUint64(b, e.end)
		b = binary.LittleEndian.AppendUint64(b, uint64(e.taken))
		b = binary.LittleEndian.AppendUint32(b, uint32(len(e.answer)))
		b = append(b, e.answer...)
	}
	binary.LittleEndian.PutUint32(b, keysMagic)
	binary.LittleEndian.PutUint32(b[4:], keysVersion)
	binary.LittleEndian.PutUint32(b[8:], uint32(len(entries)))
	binary.LittleEndian.PutUint32(b[12:], checksum(0, b[keysHead:]))
	return b
}

func decodeKeys(b []byte) ([]keyEntry, error) {
	if len(b) < keysHead || binary.LittleEndian.Uint32(b) != keysMagic {
		return nil, formatError("it is not a file of keys")
	}
	if v := binary.LittleEndian.Uint32(b[4:]); v != keysVersion {
		return nil, fmt.Errorf("it has version %d; this release knows only %d", v, keysVersion)
	}
	n := binary.LittleEndian.Uint32(b[8:])
	rest := b[keysHead:]
	if binary.LittleEndian.Uint32(b[12:]) != checksum(0, rest) || uint64(n)*keyFixed > uint64(len(rest)) {
		return nil, formatError("its checksum is wrong")
	}
	out := make([]keyEntry, 0, n)
	for range n {
		if len(rest) < keyFixed {
			return nil, formatError("it is cut off")
		}
		e := keyEntry{
			id: keyID(rest[:16]), bodyHash: binary.LittleEndian.Uint64(rest[16:]),
			end: binary.LittleEndian.Uint64(rest[24:]), taken: int64(binary.LittleEndian.Uint64(rest[32:])),
		}
		size := uint64(binary.LittleEndian.Uint32(rest[40:]))
		if rest = rest[keyFixed:]; size > uint64(len(rest)) {
			return nil, formatError("it is cut off")
		}
		e.answer, rest = string(rest[:size]), rest[size:]
		out = append(out, e)
	}
	return out, nil
}

// A mark says how far the journal is durable and how far it is stored. An old mark is always
// safe: recovery only reads more. The file has two places for marks, each in its own block. The
// one that was synced last is not overwritten, so a torn write leaves it intact.
type mark struct {
	number  uint64 // counts writes; the mark with the greater number is valid
	durable uint64
	applied uint64 // everything before is stored
	place   int64  // in the file, 0 or 1
}

const (
	markName  = "mark"
	markMagic = 0x4d4a5242 // "BRJM"
	markSize  = 4 + 8 + 8 + 8 + 4
	markPlace = 4096
)

func (m mark) encode() []byte {
	b := make([]byte, markSize)
	binary.LittleEndian.PutUint32(b, markMagic)
	binary.LittleEndian.PutUint64(b[4:], m.number)
	binary.LittleEndian.PutUint64(b[12:], m.durable)
	binary.LittleEndian.PutUint64(b[20:], m.applied)
	binary.LittleEndian.PutUint32(b[28:], checksum(0, b[:28]))
	return b
}

// readMark returns the last valid mark; ok is false if there is none.
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
		one := mark{
			number: binary.LittleEndian.Uint64(b[4:]), durable: binary.LittleEndian.Uint64(b[12:]),
			applied: binary.LittleEndian.Uint64(b[20:]), place: place,
		}
		valid := binary.LittleEndian.Uint32(b) == markMagic && binary.LittleEndian.Uint32(b[28:]) == checksum(0, b[:28]) && one.applied <= one.durable
		if valid && (!ok || one.number > m.number) {
			m, ok = one, true
		}
	}
	return m, ok, nil
}
