package journal

import (
	"fmt"
	"sort"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/fault"
)

// readAhead is what a cursor reads from the disk at once.
const readAhead = 256 << 10

// A cursor walks along the journal: in memory where it keeps up, else on disk.
type cursor struct {
	journal  *Journal
	part     batch.Part
	position uint64
	hint     uint64 // number of the next record in the tail

	// Of the segment at hand, while reading the disk.
	segment *segment
	end     uint64 // of the segment, as far as it was known
	file    File
	window  window
}

// Next implements batch.Cursor.
func (c *cursor) Next() (batch.Record, bool, error) {
	for {
		r, number, found, more := c.journal.published.find(c.position, c.hint)
		if found {
			c.leaveDisk()
			c.position, c.hint = r.Next, number+1
			return r, true, nil
		}
		if !more {
			c.leaveDisk() // its segment may be deleted while nothing comes
			return batch.Record{}, false, nil
		}
		if s := lostAt(c.journal.lost, c.position); s != nil {
			c.position = s.To
			continue
		}
		r, err := c.read()
		if err != nil {
			return batch.Record{}, false, err
		}
		c.position = r.Next
		return r, true, nil
	}
}

// Position implements batch.Cursor.
func (c *cursor) Position() uint64 { return c.position }

// Close implements batch.Cursor.
func (c *cursor) Close() { c.leaveDisk() }

func (c *cursor) leaveDisk() {
	if c.file != nil {
		c.file.Close()
		c.file, c.segment, c.window = nil, nil, window{}
	}
}

// read returns the record at the cursor from the disk.
func (c *cursor) read() (batch.Record, error) {
	if err := c.enterSegment(); err != nil {
		return batch.Record{}, err
	}
	r, err := c.decode()
	if err != nil {
		where := fmt.Errorf("read journal segment %s at position %d: %w", c.segment.name, c.position, err)
		c.leaveDisk()
		return batch.Record{}, where
	}
	return r, nil
}

// enterSegment opens the segment that the cursor stands in.
func (c *cursor) enterSegment() error {
	if c.file != nil && c.position >= c.segment.base && c.position < c.end {
		return nil
	}
	j := c.journal
	j.segMu.RLock()
	i := sort.Search(len(j.segments), func(i int) bool { return j.segments[i].end > c.position })
	var s *segment
	if i < len(j.segments) && j.segments[i].base <= c.position {
		s = j.segments[i]
		c.end = s.end
	}
	j.segMu.RUnlock()
	if s == nil {
		return fmt.Errorf("read the journal at position %d: it was trimmed", c.position)
	}
	if s != c.segment || c.file == nil {
		c.leaveDisk()
		f, err := j.openSegment(s)
		if err != nil {
			return fmt.Errorf("open journal segment: %w", err)
		}
		c.segment, c.file = s, f
	}
	c.window = window{file: c.file, ahead: readAhead, buf: c.window.buf[:0]}
	c.window.limit = s.offset(c.end)
	return nil
}

// decode returns the record at the cursor, in the segment at hand.
func (c *cursor) decode() (batch.Record, error) {
	j, s := c.journal, c.segment
	check := !j.cfg.Faults.Off(fault.Checksum)
	h, payload, wrong, err := readRecord(&c.window, s, s.offset(c.position), check)
	if err != nil {
		return batch.Record{}, err
	}
	if wrong != "" {
		return batch.Record{}, fmt.Errorf("%s", wrong)
	}
	_, encoded, wrong := splitPayload(payload, h.flags)
	if wrong != "" {
		return batch.Record{}, fmt.Errorf("%s", wrong)
	}
	origin := batch.Origin{
		Session: s.settings.Session, FirstSeq: h.firstSeq, Recovered: !j.isOwn(s.settings.Session), Granularity: granularityOf(s.settings.Streams),
		Interner: j.cfg.Interner, Part: c.part,
	}
	if j.cfg.Faults.Off(fault.Granularity) {
		origin.Granularity = nil
	}
	b, err := batch.Decode(encoded, origin)
	c.window.drop()
	if err != nil {
		return batch.Record{}, err
	}
	b.Tracker = j.waiters.tracker(h.position)
	return batch.Record{Batch: b, Position: h.position, Next: h.next()}, nil
}

// readRecord reads the record at an offset. It returns what is wrong with it,
// empty if nothing is; an error is one of reading. The payload is valid until
// the window is used again.
func readRecord(w *window, s *segment, offset int64, check bool) (h header, payload []byte, wrong string, err error) {
	head, err := w.peek(offset, headerSize)
	if err != nil {
		return header{}, nil, "", err
	}
	if len(head) < headerSize {
		return header{}, nil, "the record's header is cut off", nil
	}
	if h, wrong = parseHeader(head, s.seed, s.position(offset), check); wrong != "" {
		return header{}, nil, wrong, nil
	}
	if int64(h.length) > w.limit-offset-headerSize {
		return h, nil, "the record is cut off", nil
	}
	whole, err := w.peek(offset, headerSize+int(h.length))
	if err != nil {
		return header{}, nil, "", err
	}
	if len(whole) < headerSize+int(h.length) {
		return h, nil, "the record is cut off", nil
	}
	payload = whole[headerSize:]
	if check && checksum(0, payload) != h.crc {
		return h, nil, "the checksum of the record is wrong", nil
	}
	return h, payload, "", nil
}
