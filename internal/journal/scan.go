package journal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/brim-telemetry/brim/internal/batch"
)

// scanAhead is what a scan reads at once.
const scanAhead = 1 << 20

// A scan reads the records of all segments and collects the bad places.
type scan struct {
	files   Files
	dir     string
	check   bool   // checksums
	applied uint64 // everything before is stored, and may be unreadable
	durable uint64 // evidence so far: everything before was durable
	lost    []span // given up at an earlier start
	record  func(s *segment, r *scanned) error
}

// scanned is one good record.
type scanned struct {
	header
	key     *keyed
	encoded []byte // the batch
}

// A found segment is a file and what is in it.
type found struct {
	*segment
	headWrong string // nothing in the file can be read
	records   int
	readings  uint64
	firstSeq  uint64
	lastSeq   uint64
	bad       []badPlace
}

// all reads every segment in dir. Without repairing anything it returns what
// it found; an error is one of reading.
func (c *scan) all() ([]*found, error) {
	bases, err := segmentBases(c.files, c.dir)
	if err != nil {
		return nil, err
	}
	var out []*found
	for _, base := range bases {
		out = append(out, &found{segment: &segment{name: segmentName(base), base: base, end: base}})
	}
	if n := len(out); n > 0 {
		// A segment is made when all before it is durable, so its name says so.
		c.durable = max(c.durable, out[n-1].base)
	}
	for i, f := range out {
		var next *found
		if i+1 < len(out) {
			next = out[i+1]
		}
		if err := c.segment(f, next); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// segment reads one segment; next is the one behind it, or nil.
func (c *scan) segment(f, next *found) error {
	file, err := c.files.Open(filepath.Join(c.dir, f.name), false)
	if errors.Is(err, os.ErrNotExist) {
		f.end = f.base
		return nil // a daemon that runs beside an inspection deleted it just now
	}
	if err != nil {
		return err
	}
	defer file.Close()
	s, wrong, err := readSegmentHead(file, f.name, f.base)
	if err != nil {
		return err
	}
	if wrong != "" {
		return c.broken(f, next, file, wrong)
	}
	f.segment = s
	w := &window{file: file, limit: s.size, ahead: scanAhead}
	if next != nil {
		if limit := s.offset(next.base); limit < s.size {
			c.note(f, badPlace{offset: limit, from: next.base, to: s.position(s.size), wrong: "the segment reaches into the next one"})
			w.limit = limit
		}
	}
	if err := c.records(f, w, next); err != nil {
		return err
	}
	if next != nil && s.end < next.base {
		c.note(f, badPlace{offset: s.offset(s.end), from: s.end, to: next.base, wrong: "the segment ends here, and the next one begins later"})
	}
	return nil
}

// broken notes a segment whose header cannot be read.
func (c *scan) broken(f, next *found, file File, wrong string) error {
	size, err := file.Size()
	if err != nil {
		return err
	}
	f.size, f.headWrong = size, wrong
	b := badPlace{from: f.base, end: next == nil, wrong: wrong}
	if next != nil {
		b.to = next.base
	} else {
		some, err := hasRecord(&window{file: file, limit: size, ahead: scanAhead})
		if err != nil {
			return err
		}
		if some { // the header is durable before anything is written behind it
			c.durable = max(c.durable, f.base+1)
		}
		b.to = max(c.durable, f.base+uint64(size)+1) // only the header would tell where it ends
	}
	c.note(f, b)
	return nil
}

// records goes through the records of a segment.
func (c *scan) records(f *found, w *window, next *found) error {
	s := f.segment
	for offset := s.start; offset < w.limit; {
		if gone := lostAt(c.lost, s.position(offset)); gone != nil {
			offset = min(s.offset(gone.To), w.limit)
			s.end = s.position(offset)
			continue
		}
		r, wrong, err := c.one(f, w, offset)
		if err != nil {
			return err
		}
		if wrong == "" {
			wrong, err = c.visit(s, r)
			if err != nil {
				return err
			}
		}
		if wrong != "" {
			resume, verdict, err := c.passOver(f, w, offset, next == nil, wrong)
			if err != nil || verdict == torn {
				return err
			}
			offset = resume
			s.end = s.position(resume)
			continue
		}
		f.note(r)
		c.durable = max(c.durable, r.durable)
		offset = s.offset(r.next())
		s.end = r.next()
	}
	return nil
}

// visit passes a record on. It returns what is wrong with it, empty if nothing
// is: one whose checksum is good was not torn, whatever is in it.
func (c *scan) visit(s *segment, r *scanned) (wrong string, err error) {
	if c.record == nil {
		return "", nil
	}
	if err = c.record(s, r); errors.Is(err, errSummary) {
		c.durable = max(c.durable, r.next())
		return err.Error(), nil
	}
	return "", err
}

func (f *found) note(r *scanned) {
	if f.records == 0 {
		f.firstSeq = r.firstSeq
	}
	f.records++
	f.readings += uint64(r.readings)
	f.lastSeq = r.firstSeq + uint64(r.readings) - 1
}

// one reads the record at an offset.
func (c *scan) one(f *found, w *window, offset int64) (r *scanned, wrong string, err error) {
	h, payload, wrong, err := readRecord(w, f.segment, offset, c.check)
	if err != nil || wrong != "" {
		return nil, wrong, err
	}
	if c.check && f.records > 0 && h.firstSeq <= f.lastSeq {
		return nil, "the record's sequence does not rise", nil
	}
	r = &scanned{header: h}
	if r.key, r.encoded, wrong = splitPayload(payload, h.flags); wrong != "" {
		return nil, wrong, nil
	}
	return r, "", nil
}

// passOver notes a bad place. It returns the offset at which records continue.
func (c *scan) passOver(f *found, w *window, offset int64, last bool, wrong string) (resume int64, v verdict, err error) {
	s := f.segment
	resume, durable, err := findRecord(w, s, offset)
	if err != nil {
		return 0, 0, err
	}
	c.durable = max(c.durable, durable)
	b := badPlace{offset: offset, from: s.position(offset), end: last, wrong: wrong}
	if b.from < c.applied { // nothing before applied is needed
		resume = w.limit
		if to := s.offset(c.applied); to <= w.limit {
			resume = to
		}
	}
	b.to = s.position(resume)
	if last && resume == w.limit {
		b.to = max(b.to, c.durable)
	}
	return resume, c.note(f, b), nil
}

// findRecord searches behind a bad place for headers that are good. It returns
// the offset of the first one, w.limit if there is none, and the furthest
// position that any of them knew to be durable.
func findRecord(w *window, s *segment, bad int64) (first int64, durable uint64, err error) {
	first = w.limit
	var magic [4]byte
	binary.LittleEndian.PutUint32(magic[:], recordMagic)
	for at := bad + 1; at+headerSize <= w.limit; {
		b, err := w.peek(at, scanAhead)
		if err != nil {
			return 0, 0, err
		}
		i := bytes.Index(b, magic[:])
		if i < 0 {
			at += int64(max(len(b)-len(magic)+1, 1))
			continue
		}
		at += int64(i)
		if b, err = w.peek(at, headerSize); err != nil {
			return 0, 0, err
		}
		if len(b) == headerSize {
			if h, wrong := parseHeader(b, s.seed, s.position(at), true); wrong == "" {
				first, durable = min(first, at), max(durable, h.durable)
			}
		}
		at++
	}
	return first, durable, nil
}

// hasRecord reports whether there is anything that looks like a record.
func hasRecord(w *window) (bool, error) {
	var magic [4]byte
	binary.LittleEndian.PutUint32(magic[:], recordMagic)
	for at := int64(0); at < w.limit; {
		b, err := w.peek(at, scanAhead)
		if err != nil || bytes.Contains(b, magic[:]) {
			return err == nil, err
		}
		at += int64(max(len(b)-len(magic)+1, 1))
	}
	return false, nil
}

var errSummary = errors.New("the record holds no batch")

// summarize looks into a record's batch.
func (r *scanned) summarize(visit func(stream []byte, readings int)) (batch.Summary, error) {
	sum, err := batch.Summarize(r.encoded, visit)
	if err != nil {
		return batch.Summary{}, fmt.Errorf("%w: %w", errSummary, err)
	}
	return sum, nil
}
