package journal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sort"

	"github.com/brim-telemetry/brim/internal/batch"
)

// scanAhead is what a scan reads at once.
const scanAhead = 1 << 20

// A scan goes through the records of all segments and tells torn writes from
// damage: a bad place is damage if anything says that it was durable once.
type scan struct {
	files   Files
	dir     string
	check   bool   // checksums
	applied uint64 // everything before is at rest, and may be unreadable
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

// A badPlace is where there should be a record and is none.
type badPlace struct {
	segment  string // empty where a file is missing
	offset   int64
	position uint64
	resume   uint64 // position at which records go on
	wrong    string
	torn     bool // never acknowledged: the end of what was being written
	atRest   bool // before applied
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
	names, err := c.files.List(c.dir)
	if err != nil {
		return nil, err
	}
	var out []*found
	for _, name := range names {
		if base, ok := segmentBase(name); ok {
			out = append(out, &found{segment: &segment{name: name, base: base, end: base}})
		}
	}
	sort.Slice(out, func(i, k int) bool { return out[i].base < out[k].base })
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
			f.bad = append(f.bad, badPlace{
				segment: s.name, offset: limit, position: next.base, resume: next.base, atRest: next.base < c.applied,
				wrong: "the segment reaches into the next one",
			})
			w.limit = limit
		}
	}
	if err := c.records(f, w, next); err != nil {
		return err
	}
	if next != nil && s.end < next.base && !c.excused(s.end, next.base) {
		f.bad = append(f.bad, badPlace{
			segment: s.name, offset: s.offset(s.end), position: s.end, resume: next.base, wrong: "the segment ends here, and the next one begins later",
		})
	}
	return nil
}

// broken judges a segment whose header cannot be read. The header is durable
// before anything is written behind it.
func (c *scan) broken(f, next *found, file File, wrong string) error {
	size, err := file.Size()
	if err != nil {
		return err
	}
	f.size, f.headWrong = size, wrong
	b := badPlace{segment: f.name, position: f.base, wrong: wrong}
	if next != nil {
		b.resume = next.base
		b.atRest = next.base <= c.applied
	} else {
		some, err := hasRecord(&window{file: file, limit: size, ahead: scanAhead})
		if err != nil {
			return err
		}
		b.torn = !some && c.durable <= f.base
		b.resume = max(c.durable, f.base+1)
	}
	if next != nil && c.excused(f.base, next.base) {
		return nil
	}
	f.bad = append(f.bad, b)
	return nil
}

// excused reports whether it is known that nothing is between the positions:
// it is at rest, or was given up.
func (c *scan) excused(from, to uint64) bool {
	for from < to {
		if from < c.applied {
			from = c.applied
			continue
		}
		s := lostAt(c.lost, from)
		if s == nil {
			return false
		}
		from = s.To
	}
	return true
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
			resume, torn, err := c.judge(f, w, offset, next == nil, wrong)
			if err != nil || torn {
				return err
			}
			offset = resume
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

// judge decides what a bad place is. Where it is not the torn end of the
// journal, resume is the offset at which records go on.
func (c *scan) judge(f *found, w *window, offset int64, last bool, wrong string) (resume int64, torn bool, err error) {
	s := f.segment
	b := badPlace{segment: s.name, offset: offset, position: s.position(offset), wrong: wrong}
	after, durable, err := findRecord(w, s, offset)
	if err != nil {
		return 0, false, err
	}
	c.durable = max(c.durable, durable)
	switch {
	case b.position < c.applied:
		b.atRest = true
		resume = w.limit
		if to := s.offset(c.applied); to <= w.limit {
			resume = to
		}
	case last && c.durable <= b.position:
		b.torn, b.resume = true, b.position
		f.bad = append(f.bad, b)
		return 0, true, nil
	default:
		resume = after
	}
	b.resume = s.position(resume)
	if last && resume == w.limit {
		b.resume = max(b.resume, c.durable)
	}
	s.end = s.position(resume)
	f.bad = append(f.bad, b)
	return resume, false, nil
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
