package journal

import (
	"fmt"

	"github.com/brim-telemetry/brim/internal/fault"
)

// recover reads what earlier processes left, mends its end, and makes the
// journal ready for more.
func (j *Journal) recover() error {
	cfg := &j.cfg
	last, marked, err := readMark(cfg.Files, cfg.Dir)
	if err != nil {
		return fmt.Errorf("read the journal's mark: %w", err)
	}
	if j.lost, err = readLost(cfg.Files, cfg.Dir); err != nil {
		return fmt.Errorf("read what was given up of the journal: %w", err)
	}
	if err := j.loadKeys(); err != nil {
		return fmt.Errorf("read idempotency keys: %w", err)
	}
	r := &recovery{journal: j, applied: last.applied, unapplied: make(map[unappliedKey]int)}
	s := &scan{
		files: cfg.Files, dir: cfg.Dir, check: !cfg.Faults.Off(fault.Checksum), applied: last.applied, durable: last.durable,
		lost: j.lost, record: r.record,
	}
	segments, err := s.all()
	if err != nil {
		return fmt.Errorf("read the journal in %s: %w", cfg.Dir, err)
	}
	if marked && len(segments) > 0 && segments[0].base > last.applied && !s.excused(last.applied, segments[0].base) {
		segments[0].bad = append([]badPlace{{
			segment: segments[0].name, position: last.applied, resume: segments[0].base, wrong: "the segments before this one are missing",
		}}, segments[0].bad...)
	}
	if err := r.acceptDamage(segments, s); err != nil {
		return err
	}
	if segments, err = r.mend(segments, s); err != nil {
		return fmt.Errorf("mend the journal in %s: %w", cfg.Dir, err)
	}
	return r.settle(segments, s, last)
}

type unappliedKey struct{ session, stream string }

// A recovery gathers what is left in the journal.
type recovery struct {
	journal   *Journal
	applied   uint64
	unapplied map[unappliedKey]int // index in the journal's list
}

// record takes note of one good record.
func (r *recovery) record(s *segment, one *scanned) error {
	j := r.journal
	var visit func([]byte, int)
	left := one.position >= r.applied
	if left {
		visit = func(stream []byte, n int) { r.count(s, string(stream), uint64(n)) }
	}
	sum, err := one.summarize(visit)
	if err != nil {
		return fmt.Errorf("segment %s at position %d: %w", s.name, one.position, err)
	}
	if left {
		j.published.taken += uint64(sum.Readings)
		j.published.arrived(one.position, sum.Received.UnixNano())
	}
	if one.key != nil {
		j.keys.load(keyEntry{
			id: one.key.id, bodyHash: one.key.bodyHash, end: one.next(), taken: sum.Received.UnixNano(), answer: string(one.key.answer),
		})
	}
	return nil
}

func (r *recovery) count(s *segment, stream string, n uint64) {
	j, key := r.journal, unappliedKey{s.settings.Session, stream}
	i, ok := r.unapplied[key]
	if !ok {
		i = len(j.unapplied)
		r.unapplied[key] = i
		j.unapplied = append(j.unapplied, Unapplied{Session: key.session, Stream: stream, Settings: s.settings.Streams[stream]})
	}
	j.unapplied[i].Readings += n
}

// acceptDamage refuses a damaged journal, or gives up what cannot be read and
// remembers it.
func (r *recovery) acceptDamage(segments []*found, s *scan) error {
	j := r.journal
	damage := r.damage(segments, s)
	if len(damage) == 0 {
		return nil
	}
	first := damage[0]
	e := &CorruptionError{
		File: j.path(first.segment), Offset: first.offset, Position: first.position, Wrong: first.wrong, Durable: s.durable,
	}
	if !j.cfg.AcceptLoss {
		return e
	}
	lost := j.lost
	for _, b := range damage {
		copied := j.path(b.segment) + corruptSuffix
		if err := copyFile(j.cfg.Files, j.path(b.segment), copied); err != nil {
			return fmt.Errorf("keep a copy of damaged journal segment %s: %w", b.segment, err)
		}
		lost = addLost(lost, span{From: b.position, To: b.resume, File: copied, When: j.cfg.Now().UTC()})
		j.cfg.Logger.Error("gave up a part of the journal that cannot be read", "segment", b.segment, "offset", b.offset,
			"from", b.position, "to", b.resume, "bytes", b.resume-b.position, "wrong", b.wrong, "copy", copied)
	}
	if err := writeLost(j.cfg.Files, j.cfg.Dir, lost); err != nil {
		return fmt.Errorf("remember what was given up of the journal: %w", err)
	}
	j.lost, s.lost = lost, lost
	return nil
}

// damage lists the bad places that held something which is needed.
func (r *recovery) damage(segments []*found, s *scan) []badPlace {
	var out []badPlace
	torn := false
	for _, f := range segments {
		for _, b := range f.bad {
			torn = torn || b.torn
			if !b.torn && !b.atRest {
				out = append(out, b)
			}
		}
	}
	end, name := uint64(0), markName
	if n := len(segments); n > 0 {
		last := segments[n-1]
		end, name = last.end, last.name
		if len(last.bad) > 0 && !torn {
			end = max(end, last.bad[len(last.bad)-1].resume)
		}
	}
	if end < s.durable && !s.excused(end, s.durable) {
		from := max(end, s.applied)
		out = append(out, badPlace{segment: name, position: from, resume: s.durable, wrong: "the journal ends here"})
	}
	return out
}

// mend cuts off a torn end and removes the files that hold nothing. What is
// left is durable when it returns.
func (r *recovery) mend(segments []*found, s *scan) ([]*found, error) {
	j := r.journal
	files := j.cfg.Files
	var left []*found
	for i, f := range segments {
		last := i == len(segments)-1
		if f.headWrong != "" || (last && f.records == 0 && len(f.bad) == 0) || (last && f.end == f.base) {
			j.cfg.Logger.Info("removed a journal segment with nothing in it that is needed", "segment", f.name, "wrong", f.headWrong)
			if err := files.Remove(j.path(f.name)); err != nil {
				return nil, err
			}
			continue
		}
		left = append(left, f)
		if !last {
			continue
		}
		if err := r.mendEnd(f); err != nil {
			return nil, err
		}
	}
	return left, files.SyncDir(j.cfg.Dir)
}

// mendEnd cuts off what was torn at the end of the last segment.
func (r *recovery) mendEnd(f *found) error {
	j := r.journal
	file, err := j.cfg.Files.Open(j.path(f.name), true)
	if err != nil {
		return err
	}
	defer file.Close()
	good := f.offset(f.end)
	torn := len(f.bad) > 0 && f.bad[len(f.bad)-1].torn && good < f.size
	if torn && !j.cfg.Faults.Off(fault.RepairTail) {
		j.cfg.Logger.Warn("cut off a torn write at the end of the journal; none of it was acknowledged", "segment", f.name,
			"offset", good, "bytes", f.size-good, "wrong", f.bad[len(f.bad)-1].wrong)
		if err := file.Truncate(good); err != nil {
			return fmt.Errorf("cut off a torn write: %w", err)
		}
		f.size = good
	}
	// A process that was killed may have written what it did not sync.
	if err := file.Sync(); err != nil {
		return fmt.Errorf("sync journal segment %s: %w", f.name, err)
	}
	return nil
}

// settle takes over what is left.
func (r *recovery) settle(segments []*found, s *scan, last mark) error {
	j := r.journal
	end := max(s.durable, last.applied)
	oldest := last.applied
	for i, f := range segments {
		if f.settings.Session == j.cfg.Session && !j.cfg.Faults.Off(fault.NewSession) {
			return fmt.Errorf("session %s is in the journal already; a session is never used twice", j.cfg.Session)
		}
		if i == 0 {
			oldest = max(oldest, f.base)
		}
		end = max(end, f.end)
		if i == len(segments)-1 && j.cfg.Faults.Off(fault.RepairTail) {
			end = max(end, f.position(f.size))
		}
		j.segments = append(j.segments, f.segment)
		j.bytes.Add(f.size)
	}
	if len(segments) == 0 {
		oldest = end
	}
	j.nextPos, j.published.end, j.oldest = end, end, oldest
	j.progress.applied.Store(oldest)
	var err error
	if j.marker, err = openMarker(j.cfg.Files, j.cfg.Dir, mark{number: last.number, durable: end, applied: oldest}); err != nil {
		return fmt.Errorf("write the journal's mark: %w", err)
	}
	if n := j.published.taken; n > 0 {
		j.cfg.Logger.Info("the journal holds readings that are not known to be stored", "dir", j.cfg.Dir, "readings", n,
			"segments", len(segments), "bytes", end-oldest)
	}
	return nil
}
