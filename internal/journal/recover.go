package journal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/brim-telemetry/brim/internal/batch"
)

// recover reads the files of earlier processes, repairs the end of the journal, and prepares it
// for new records.
func (j *Journal) recover() error {
	cfg := &j.cfg
	if err := removeTemporary(cfg.Files, cfg.Dir); err != nil {
		return fmt.Errorf("remove incomplete files in %s: %w", cfg.Dir, err)
	}
	last, marked, err := readMark(cfg.Files, cfg.Dir)
	if err != nil {
		return fmt.Errorf("read the journal's mark: %w", err)
	}
	if err := readJSON(cfg.Files, j.path(lostName), &j.lost); err != nil {
		return fmt.Errorf("read what was given up of the journal: %w", err)
	}
	if err := readJSON(cfg.Files, j.path(lostSessionsName), &j.lostSessions); err != nil {
		return fmt.Errorf("read which sessions the journal has lost: %w", err)
	}
	if err := j.loadTrimmed(); err != nil {
		return err
	}
	if err := j.loadKeys(); err != nil {
		return fmt.Errorf("read idempotency keys: %w", err)
	}
	if err := j.rewriteLast(last.applied); err != nil {
		return fmt.Errorf("rewrite the last journal segment: %w", err)
	}
	s := newScan(cfg.Files, cfg.Dir, last)
	s.lost, s.visit = j.lost, j.load
	if err := s.run(); err != nil {
		return fmt.Errorf("read the journal in %s: %w", cfg.Dir, err)
	}
	if err := j.acceptDamage(s, s.badRanges(marked)); err != nil {
		return err
	}
	segments, err := j.repair(s.segments)
	if err != nil {
		return fmt.Errorf("repair the journal in %s: %w", cfg.Dir, err)
	}
	return j.adopt(segments, s, last)
}

// load notes the arrival and the key of a good record.
func (j *Journal) load(r *record, received time.Time, unapplied bool) {
	if unapplied {
		j.published.arrived(r.position, received)
	}
	if r.key != nil {
		j.keys.load(keyEntry{id: r.key.id, bodyHash: r.key.bodyHash, end: r.next(), taken: received.UnixNano(), answer: string(r.key.answer)})
	}
}

// removeTemporary deletes incomplete files of a killed process. It does not touch files that do
// not belong to the journal.
func removeTemporary(files Files, dir string) error {
	names, err := files.List(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		whole, ok := strings.CutSuffix(name, tempSuffix)
		if !ok {
			continue
		}
		_, ofSegment := segmentBase(strings.TrimSuffix(strings.TrimSuffix(whole, keysSuffix), corruptSuffix))
		if !ofSegment && whole != markName && whole != lostName && whole != trimmedName {
			continue
		}
		if err := files.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// rewriteLast copies the last segment to a new file of the same name before any of its records is
// trusted. An earlier process may have written data there without syncing it, or fsync may have
// failed: then the page cache has data that the disk does not have, and a later fsync of the
// same file succeeds without writing it. Records in the new file are durable. Earlier segments
// were synced before the last one was created, and stored records are not needed any more.
func (j *Journal) rewriteLast(applied uint64) error {
	files := j.cfg.Files
	bases, err := segmentBases(files, j.cfg.Dir)
	if err != nil || len(bases) == 0 {
		return err
	}
	base := bases[len(bases)-1]
	name := j.path(segmentName(base))
	f, err := files.Open(name, false)
	if err != nil {
		return err
	}
	s, _ := readSegmentHead(f, base) // the scan reports the error
	if err := f.Close(); err != nil {
		return err
	}
	if s != nil && s.position(s.size) <= applied {
		return nil
	}
	err = replaceFile(files, name, func(to File) error { return copyContent(files, name, to) })
	if !noSpace(err) {
		return err
	}
	// On a full disk the same bytes are rewritten in place, so that the next fsync writes them.
	// Otherwise a journal on a full disk could never be drained.
	j.cfg.Logger.Warn("the journal's disk is full; its last segment is rewritten in place", "segment", segmentName(base))
	if f, err = files.Open(name, true); err != nil {
		return err
	}
	if err = copyContent(files, name, f); err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// acceptDamage returns an error for a damaged journal, or with AcceptLoss gives up the damaged
// ranges and records that.
func (j *Journal) acceptDamage(s *scan, bad []badRange) error {
	bad = slices.DeleteFunc(bad, func(b badRange) bool { return b.verdict != damaged })
	if len(bad) == 0 {
		return nil
	}
	if !j.cfg.AcceptLoss {
		return &CorruptionError{Problem: bad[0].Problem, Missing: bad[0].missing, Durable: s.durable}
	}
	lost := j.lost
	for _, b := range bad {
		saved := ""
		if !b.missing {
			saved = b.File + corruptSuffix
			if err := replaceFile(j.cfg.Files, saved, func(to File) error { return copyContent(j.cfg.Files, b.File, to) }); err != nil {
				return fmt.Errorf("copy damaged journal segment %s: %w", b.File, err)
			}
		}
		lost = addLost(lost, span{From: b.Position, To: b.to, Copy: saved, When: j.cfg.Now().UTC()})
		j.cfg.Logger.Error("gave up an unreadable part of the journal", "file", b.File, "offset", b.Offset,
			"from", b.Position, "to", b.to, "bytes", b.to-b.Position, "wrong", b.Wrong, "copy", saved)
	}
	if err := writeJSON(j.cfg.Files, j.path(lostName), lost); err != nil {
		return fmt.Errorf("record the given-up part of the journal: %w", err)
	}
	j.lost = lost
	return nil
}

// repair truncates a torn write at the end and removes files without needed records. The rest is
// durable when it returns.
func (j *Journal) repair(segments []*scannedSegment) (left []*scannedSegment, err error) {
	for i, f := range segments {
		last := i == len(segments)-1
		if f.unreadable || last && (f.records == 0 && len(f.bad) == 0 || f.end == f.base) {
			j.cfg.Logger.Info("removed a journal segment that holds nothing needed", "segment", f.name)
			if err := j.cfg.Files.Remove(j.path(f.name)); err != nil {
				return nil, err
			}
			continue
		}
		left = append(left, f)
		if n := len(f.bad); last && n > 0 && f.bad[n-1].verdict == torn {
			if err := j.truncate(f); err != nil {
				return nil, err
			}
		}
	}
	return left, j.cfg.Files.SyncDir(j.cfg.Dir)
}

// truncate removes the torn write at the end of the last segment.
func (j *Journal) truncate(f *scannedSegment) error {
	file, err := j.cfg.Files.Open(j.path(f.name), true)
	if err != nil {
		return err
	}
	defer file.Close()
	good := f.offset(f.end)
	j.cfg.Logger.Warn("cut off a torn write at the end of the journal; none of it was acknowledged", "segment", f.name,
		"offset", good, "bytes", f.size-good, "wrong", f.bad[len(f.bad)-1].Wrong)
	if err := file.Truncate(good); err != nil {
		return fmt.Errorf("cut off a torn write: %w", err)
	}
	f.size = good
	if err := file.Sync(); err != nil {
		return fmt.Errorf("sync journal segment %s: %w", f.name, err)
	}
	return nil
}

// adopt takes over the remaining segments, and writes the first mark.
func (j *Journal) adopt(segments []*scannedSegment, s *scan, last mark) error {
	j.published.taken, j.unapplied = s.readings, s.unapplied
	end := max(s.durable, last.applied)
	if n := len(j.lost); n > 0 {
		end = max(end, j.lost[n-1].To) // no new record may be in a range that was given up
	}
	oldest := last.applied
	for i, f := range segments {
		if f.settings.Session == j.cfg.Session {
			return fmt.Errorf("session %s is in the journal already; a session is never used twice", j.cfg.Session)
		}
		if i == 0 {
			oldest = max(oldest, f.base)
		}
		end = max(end, f.end)
		j.segments = append(j.segments, f.segment)
		j.bytes.Add(f.size)
	}
	if len(segments) == 0 {
		oldest = end
	}
	j.lostSessions = slices.DeleteFunc(j.lostSessions, func(session string) bool {
		return !slices.ContainsFunc(j.unapplied, func(u Unapplied) bool { return u.Session == session })
	})
	j.forgetTrimmed(end)
	j.nextPos, j.published.end, j.oldest = end, end, oldest
	j.own[0].begin = end
	j.saved, j.deleted = oldest, oldest
	if len(segments) > 0 {
		j.saved, j.deleted = segments[0].base, segments[0].base
	}
	j.applied.Store(oldest)
	j.marker = &marker{files: j.cfg.Files, name: j.path(markName), last: last, synced: last.place}
	if err := j.writeMark(true); noSpace(err) {
		// Otherwise the journal could never be drained: the old mark stays valid until
		// the next one is written to its file.
		j.cfg.Logger.Warn("the journal's disk is full; it is opened with an older mark", "dir", j.cfg.Dir, "applied", last.applied, "err", err)
		if f, err := j.cfg.Files.Open(j.path(markName), true); err == nil {
			j.marker.file = f
		}
	} else if err != nil {
		return err
	}
	if n := j.published.taken; n > 0 {
		j.cfg.Logger.Info("the journal holds readings that are not known to be stored", "dir", j.cfg.Dir, "readings", n,
			"segments", len(segments), "bytes", end-oldest)
	}
	return nil
}

// A span is a range of the journal that was given up because it could not be read.
// Spans are kept in a file for later starts.
type span struct {
	From uint64    `json:"from"`
	To   uint64    `json:"to"`
	Copy string    `json:"file"` // of the damaged file; empty if it was missing
	When time.Time `json:"when"`
}

const (
	lostName      = "lost"
	corruptSuffix = ".corrupt"
)

// lostAt returns the span that covers a position, or nil.
func lostAt(lost []span, position uint64) *span {
	i := sort.Search(len(lost), func(i int) bool { return lost[i].To > position })
	if i < len(lost) && lost[i].From <= position {
		return &lost[i]
	}
	return nil
}

// givenUp returns the bytes of all spans.
func givenUp(lost []span) (n uint64) {
	for _, s := range lost {
		n += s.To - s.From
	}
	return n
}

// addLost returns the spans with another one, sorted and without overlaps.
func addLost(lost []span, s span) []span {
	lost = append(lost, s)
	sort.Slice(lost, func(i, k int) bool { return lost[i].From < lost[k].From })
	out := lost[:1]
	for _, one := range lost[1:] {
		last := &out[len(out)-1]
		if one.From < last.To {
			last.To = max(last.To, one.To)
			continue
		}
		out = append(out, one)
	}
	return out
}

// A scan reads the records of all segments, collects the bad ranges, and counts
// what is not known to be stored. It repairs nothing.
type scan struct {
	files   Files
	dir     string
	applied uint64 // everything before is stored, and may be unreadable
	durable uint64 // everything before was durable
	lost    []span // given up at an earlier start
	visit   func(r *record, received time.Time, unapplied bool)

	segments  []*scannedSegment
	readings  uint64 // that are not known to be stored
	unapplied []Unapplied
	at        map[[2]string]int // index in unapplied by session and stream
}

// A scannedSegment is a segment and what a scan found in it.
type scannedSegment struct {
	*segment
	unreadable bool // its header is broken
	records    int
	readings   uint64
	firstSeq   uint64
	lastSeq    uint64
	bad        []badRange
}

// scanAhead is how much a scan reads at a time.
const scanAhead = 1 << 20

func newScan(files Files, dir string, last mark) *scan {
	return &scan{files: files, dir: dir, applied: last.applied, durable: last.durable, at: make(map[[2]string]int)}
}

// run reads every segment. It returns only errors of reading files, not damage.
func (c *scan) run() error {
	bases, err := segmentBases(c.files, c.dir)
	if err != nil || len(bases) == 0 {
		return err
	}
	// A segment is created when everything before it is durable.
	c.durable = max(c.durable, bases[len(bases)-1])
	for i, base := range bases {
		f := &scannedSegment{segment: &segment{name: segmentName(base), base: base, end: base}}
		c.segments = append(c.segments, f)
		next := uint64(0)
		if i+1 < len(bases) {
			next = bases[i+1]
		}
		if err := c.readSegment(f, next); err != nil {
			return err
		}
	}
	return nil
}

// readSegment reads one segment; next is the base of the following one, 0 for the last one.
func (c *scan) readSegment(f *scannedSegment, next uint64) error {
	file, err := c.files.Open(filepath.Join(c.dir, f.name), false)
	if errors.Is(err, os.ErrNotExist) {
		return nil // the daemon deleted it during an inspection
	}
	if err != nil {
		return err
	}
	defer file.Close()
	s, err := readSegmentHead(file, f.base)
	if wrong, ok := errors.AsType[formatError](err); ok {
		return c.unreadable(f, next, file, string(wrong))
	}
	if err != nil {
		return err
	}
	f.segment = s
	w := &window{file: file, limit: s.size, ahead: scanAhead}
	if limit := s.offset(next); next > 0 && limit < s.size {
		b := c.bad(f, limit, next, "the segment overlaps the next one")
		b.to = s.position(s.size)
		c.note(f, b)
		w.limit = limit
	}
	if err := c.readRecords(f, w, next == 0); err != nil {
		return err
	}
	if next > 0 && s.end < next {
		b := c.bad(f, s.offset(s.end), s.end, "the segment ends here, and the next one begins later")
		b.to = next
		c.note(f, b)
	}
	return nil
}

// unreadable notes a segment whose header is broken.
func (c *scan) unreadable(f *scannedSegment, next uint64, file File, wrong string) error {
	size, err := file.Size()
	if err != nil {
		return err
	}
	f.size, f.unreadable = size, true
	b := c.bad(f, 0, f.base, wrong)
	b.to, b.end = next, next == 0
	if next == 0 {
		for _, err := range magics(&window{file: file, limit: size, ahead: scanAhead}, 0) {
			if err != nil {
				return err
			}
			c.durable = max(c.durable, f.base+1) // the header was durable before any record was written
			break
		}
		b.to = max(c.durable, f.base+uint64(size)+1) // an upper bound, since the size of the header is unknown
	}
	c.note(f, b)
	return nil
}

// readRecords reads the records of a segment.
func (c *scan) readRecords(f *scannedSegment, w *window, last bool) error {
	s := f.segment
	for offset := s.start; offset < w.limit; {
		if gone := lostAt(c.lost, s.position(offset)); gone != nil {
			offset = min(s.offset(gone.To), w.limit)
			s.end = s.position(offset)
			continue
		}
		err := c.readRecord(f, w, offset)
		if wrong, ok := errors.AsType[formatError](err); ok {
			resume, verdict, err := c.skipBad(f, w, offset, last, string(wrong))
			if err != nil || verdict == torn {
				return err
			}
			offset = resume
			s.end = s.position(resume)
			continue
		}
		if err != nil {
			return err
		}
		offset = s.offset(s.end)
	}
	return nil
}

// readRecord reads and counts the record at an offset.
func (c *scan) readRecord(f *scannedSegment, w *window, offset int64) error {
	r, err := readRecord(w, f.segment, offset)
	if err != nil {
		return err
	}
	if f.records > 0 && r.firstSeq <= f.lastSeq {
		return formatError("the sequence of the record does not rise")
	}
	received, streams, err := batch.Summarize(r.encoded)
	if err != nil {
		c.durable = max(c.durable, r.next()) // its checksum is correct, so it is not a torn write
		return formatError("the record holds no batch: " + err.Error())
	}
	unapplied := r.position >= c.applied
	if unapplied {
		for _, one := range streams {
			c.count(f.segment, one)
		}
	}
	c.visit(&r, received, unapplied)
	if f.records == 0 {
		f.firstSeq = r.firstSeq
	}
	f.records++
	f.readings += uint64(r.readings)
	f.lastSeq = r.firstSeq + uint64(r.readings) - 1
	f.end = r.next()
	c.durable = max(c.durable, r.durable)
	return nil
}

// count adds to the readings that are not known to be stored.
func (c *scan) count(s *segment, one batch.StreamCount) {
	c.readings += one.Readings
	key := [2]string{s.settings.Session, one.Stream}
	i, ok := c.at[key]
	if !ok {
		i = len(c.unapplied)
		c.at[key] = i
		c.unapplied = append(c.unapplied, Unapplied{Session: key[0], Stream: key[1], Settings: s.settings.Streams[key[1]]})
	}
	c.unapplied[i].Readings += one.Readings
}

// skipBad notes a bad range that begins at offset. It returns the offset of the next good record.
func (c *scan) skipBad(f *scannedSegment, w *window, offset int64, last bool, wrong string) (resume int64, v verdict, err error) {
	s := f.segment
	resume = w.limit
	// Later good headers say how far the journal was durable.
	for at, err := range magics(w, offset+1) {
		if err != nil {
			return 0, 0, err
		}
		b, err := w.peek(at, headerSize)
		if err != nil {
			return 0, 0, err
		}
		if len(b) < headerSize {
			break
		}
		if h, err := parseHeader(b, s.seed, s.position(at)); err == nil {
			resume, c.durable = min(resume, at), max(c.durable, h.durable)
		}
	}
	b := c.bad(f, offset, s.position(offset), wrong)
	b.end = last
	if b.Position < c.applied { // nothing before applied is needed
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

// magics yields every offset, from at on, where a record may begin.
func magics(w *window, at int64) iter.Seq2[int64, error] {
	var magic [4]byte
	binary.LittleEndian.PutUint32(magic[:], recordMagic)
	return func(yield func(int64, error) bool) {
		for at < w.limit {
			b, err := w.peek(at, scanAhead)
			i := bytes.Index(b, magic[:])
			switch {
			case err != nil:
				yield(0, err)
				return
			case i < 0:
				at += int64(max(len(b)-len(magic)+1, 1))
			case !yield(at+int64(i), nil):
				return
			default:
				at += int64(i) + 1
			}
		}
	}
}

// A badRange is a range of positions that should have readable records and has none:
//
//	problem                                range
//	a record                               from it to the next good one, or to the end of the segment
//	the header of a segment                the whole segment
//	a segment that overlaps the next       everything after the start of the next
//	a segment that is missing              the gap: before the first, between two, or after the last
type badRange struct {
	Problem // where the range begins; the file is the directory if none is left

	to      uint64
	missing bool // no file exists
	end     bool // the journal ends in it
	verdict verdict
}

// bad returns a range that begins in a segment.
func (c *scan) bad(f *scannedSegment, offset int64, from uint64, wrong string) badRange {
	return badRange{Problem: Problem{File: filepath.Join(c.dir, f.name), Offset: offset, Position: from, Wrong: wrong}}
}

// A verdict classifies a bad range by how far the journal is stored (applied) and durable, and by
// what was given up:
//
//	range                                 verdict   what recovery does
//	everything in it is stored            stored    ignores it: it is never read again
//	its unstored part was given up        skipped   ignores it: it was reported before
//	the end, after everything durable     torn      truncates it: it was never acknowledged
//	any other                             damaged   fails; with AcceptLoss it keeps a copy of the file and gives the range up
//
// Every readable record is durable, see rewriteLast.
type verdict int

const (
	damaged verdict = iota
	stored
	skipped
	torn
)

func (c *scan) classify(b *badRange) verdict {
	switch {
	case b.to <= c.applied:
		return stored
	case c.isGivenUp(max(b.Position, c.applied), b.to):
		return skipped
	case b.end && b.Position >= c.durable:
		return torn
	}
	return damaged
}

// isGivenUp reports whether everything between two positions was given up.
func (c *scan) isGivenUp(from, to uint64) bool {
	for from < to {
		s := lostAt(c.lost, from)
		if s == nil {
			return false
		}
		from = s.To
	}
	return true
}

// note adds a bad range to a segment, and returns the verdict on it.
func (c *scan) note(f *scannedSegment, b badRange) verdict {
	b.verdict = c.classify(&b)
	f.bad = append(f.bad, b)
	return b.verdict
}

// badRanges returns the bad ranges of all segments and the gaps where segments are
// missing, in order, without what was given up.
func (c *scan) badRanges(marked bool) []badRange {
	var all []badRange
	// Segments are deleted only after the mark durably says that they are stored.
	// Without a mark it is unknown where the journal begins.
	if marked && len(c.segments) > 0 && c.segments[0].base > c.applied {
		first := c.segments[0]
		b := c.bad(first, 0, c.applied, "the segments before this one are missing")
		b.to = first.base
		all = append(all, b)
	}
	for _, f := range c.segments {
		all = append(all, f.bad...)
	}
	if b := c.missingEnd(); b.Position < b.to {
		all = append(all, b)
	}
	left := all[:0]
	for _, b := range all { // classify again, since durable may have grown
		b.verdict = c.classify(&b)
		b.Torn, b.Stored = b.verdict == torn, b.verdict == stored
		if b.verdict != skipped {
			left = append(left, b)
		}
	}
	return left
}

// missingEnd returns the range of durable records that is missing after the last record; it is
// empty if none is missing.
func (c *scan) missingEnd() badRange {
	b := badRange{Problem: Problem{File: c.dir}, to: c.durable, missing: true}
	if n := len(c.segments); n > 0 {
		last := c.segments[n-1]
		b.File, b.Position, b.Offset, b.missing = filepath.Join(c.dir, last.name), last.end, last.size, false
		for _, one := range last.bad {
			b.Position = max(b.Position, one.to)
		}
	}
	next := segmentName(b.Position)
	b.Position = max(b.Position, c.applied)
	if !b.missing {
		b.Wrong = fmt.Sprintf("the journal ends here: either this segment was cut short, or the next one, %s, is missing; it should hold positions %d to %d",
			next, b.Position, b.to)
		return b
	}
	b.Wrong = fmt.Sprintf("the segment that should hold positions %d to %d is missing: %s", b.Position, b.to, segmentName(b.Position))
	if b.Position > 0 {
		b.Wrong += " or one with a smaller number"
	}
	return b
}
