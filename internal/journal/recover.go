package journal

import (
	"errors"
	"fmt"
	"slices"

	"github.com/brim-telemetry/brim/internal/fault"
)

// recover reads what earlier processes left, mends its end, and makes the
// journal ready for more.
func (j *Journal) recover() error {
	cfg := &j.cfg
	if err := removeTemporary(cfg.Files, cfg.Dir); err != nil {
		return fmt.Errorf("remove what was half written in %s: %w", cfg.Dir, err)
	}
	last, marked, err := readMark(cfg.Files, cfg.Dir)
	if err != nil {
		return fmt.Errorf("read the journal's mark: %w", err)
	}
	if j.lost, err = readLost(cfg.Files, cfg.Dir); err != nil {
		return fmt.Errorf("read what was given up of the journal: %w", err)
	}
	if j.lostSessions, err = readLostSessions(cfg.Files, cfg.Dir); err != nil {
		return fmt.Errorf("read which sessions the journal has lost: %w", err)
	}
	if err := j.loadKeys(); err != nil {
		return fmt.Errorf("read idempotency keys: %w", err)
	}
	if err := j.renewLast(last.applied); err != nil {
		return fmt.Errorf("rewrite the last journal segment: %w", err)
	}
	r := &recovery{journal: j, tally: newTally(last.applied)}
	s := &scan{
		files: cfg.Files, dir: cfg.Dir, check: !cfg.Faults.Off(fault.Checksum), applied: last.applied, durable: last.durable,
		lost: j.lost, record: r.record,
	}
	segments, err := s.all()
	if err != nil {
		return fmt.Errorf("read the journal in %s: %w", cfg.Dir, err)
	}
	if err := r.acceptDamage(s.badPlaces(segments, marked), s); err != nil {
		return err
	}
	if segments, err = r.mend(segments); err != nil {
		return fmt.Errorf("mend the journal in %s: %w", cfg.Dir, err)
	}
	return r.settle(segments, s, last)
}

// renewLast rewrites the last segment to a new file of the same name before any
// record in it is trusted. An earlier process may have written data there that it
// did not sync, or could not: after a failed fsync the page cache shows data that
// the disk does not have, and a later sync of the same file succeeds without
// writing it. Whatever is read from the new file is durable. Earlier segments were
// synced before the last one was created, and stored records are no longer needed.
// The scan reports what is wrong with the segment.
func (j *Journal) renewLast(applied uint64) error {
	files := j.cfg.Files
	bases, err := segmentBases(files, j.cfg.Dir)
	if err != nil || len(bases) == 0 || j.cfg.Faults.Off(fault.Renew) {
		return err
	}
	base := bases[len(bases)-1]
	name := j.path(segmentName(base))
	f, err := files.Open(name, false)
	if err != nil {
		return err
	}
	s, _, err := readSegmentHead(f, segmentName(base), base)
	if err = errors.Join(err, f.Close()); err == nil && s != nil && s.position(s.size) <= applied {
		return nil
	}
	if err = copyFile(files, name, name); !noSpace(err) {
		return err
	}
	// It must be possible to drain a journal on a full disk: there the same bytes
	// are rewritten in place, so that the next sync has something to write.
	j.cfg.Logger.Warn("the journal's disk is full; its last segment is rewritten in place", "segment", segmentName(base))
	if f, err = files.Open(name, true); err != nil {
		return err
	}
	return errors.Join(copyContent(files, name, f), f.Close())
}

// A recovery gathers what is left in the journal.
type recovery struct {
	journal *Journal
	tally   *tally
}

// record takes note of one good record.
func (r *recovery) record(s *segment, one *scanned) error {
	j := r.journal
	received, left, err := r.tally.add(s, one)
	if err != nil {
		return err
	}
	if left {
		j.published.arrived(one.position, received.UnixNano())
	}
	if one.key != nil {
		j.keys.load(keyEntry{
			id: one.key.id, bodyHash: one.key.bodyHash, end: one.next(), taken: received.UnixNano(), answer: string(one.key.answer),
		})
	}
	return nil
}

// acceptDamage refuses a damaged journal, or gives up what cannot be read and
// remembers it.
func (r *recovery) acceptDamage(bad []badPlace, s *scan) error {
	j := r.journal
	damage := slices.DeleteFunc(bad, func(b badPlace) bool { return b.verdict != damaged })
	if len(damage) == 0 {
		return nil
	}
	first := damage[0]
	e := &CorruptionError{
		File: j.path(first.segment), Missing: first.segment == "", Offset: first.offset, Position: first.from, Wrong: first.wrong, Durable: s.durable,
	}
	if !j.cfg.AcceptLoss {
		return e
	}
	lost := j.lost
	for _, b := range damage {
		copied, err := r.keepCopy(b.segment)
		if err != nil {
			return err
		}
		lost = addLost(lost, span{From: b.from, To: b.to, File: copied, When: j.cfg.Now().UTC()})
		j.cfg.Logger.Error("gave up a part of the journal that cannot be read", "segment", b.segment, "offset", b.offset,
			"from", b.from, "to", b.to, "bytes", b.to-b.from, "wrong", b.wrong, "copy", copied)
	}
	if err := writeLost(j.cfg.Files, j.cfg.Dir, lost); err != nil {
		return fmt.Errorf("remember what was given up of the journal: %w", err)
	}
	j.lost, s.lost = lost, lost
	return nil
}

// keepCopy keeps a damaged segment as it is, if there is one.
func (r *recovery) keepCopy(segment string) (copied string, err error) {
	if segment == "" {
		return "", nil
	}
	j := r.journal
	copied = j.path(segment) + corruptSuffix
	if err := copyFile(j.cfg.Files, j.path(segment), copied); err != nil {
		return "", fmt.Errorf("keep a copy of damaged journal segment %s: %w", segment, err)
	}
	return copied, nil
}

// mend cuts off a torn end and removes the files that hold nothing. What is
// left is durable when it returns.
func (r *recovery) mend(segments []*found) ([]*found, error) {
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
	n := len(f.bad)
	if n == 0 || f.bad[n-1].verdict != torn || j.cfg.Faults.Off(fault.RepairTail) {
		return nil
	}
	file, err := j.cfg.Files.Open(j.path(f.name), true)
	if err != nil {
		return err
	}
	defer file.Close()
	good := f.offset(f.end)
	j.cfg.Logger.Warn("cut off a torn write at the end of the journal; none of it was acknowledged", "segment", f.name,
		"offset", good, "bytes", f.size-good, "wrong", f.bad[n-1].wrong)
	if err := file.Truncate(good); err != nil {
		return fmt.Errorf("cut off a torn write: %w", err)
	}
	f.size = good
	if err := file.Sync(); err != nil {
		return fmt.Errorf("sync journal segment %s: %w", f.name, err)
	}
	return nil
}

// settle takes over what is left.
func (r *recovery) settle(segments []*found, s *scan, last mark) error {
	j := r.journal
	j.published.taken, j.unapplied = r.tally.readings, r.tally.unapplied
	end := max(s.durable, last.applied)
	if n := len(j.lost); n > 0 {
		end = max(end, j.lost[n-1].To) // what stands there is left out when it is read
	}
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
	j.lostSessions = slices.DeleteFunc(j.lostSessions, func(session string) bool {
		return !slices.ContainsFunc(j.unapplied, func(u Unapplied) bool { return u.Session == session })
	})
	j.nextPos, j.published.end, j.oldest = end, end, oldest
	j.progress.applied.Store(oldest)
	if err := j.beginMarks(last, mark{number: last.number, durable: end, applied: oldest}); err != nil {
		return err
	}
	if n := j.published.taken; n > 0 {
		j.cfg.Logger.Info("the journal holds readings that are not known to be stored", "dir", j.cfg.Dir, "readings", n,
			"segments", len(segments), "bytes", end-oldest)
	}
	return nil
}

// beginMarks writes the first mark. A full disk does not stop it, or the journal
// could never be drained: the old mark stands until the next one.
func (j *Journal) beginMarks(old, first mark) (err error) {
	j.marker, err = openMarker(j.cfg.Files, j.cfg.Dir, first)
	if err == nil {
		return nil
	}
	if !noSpace(err) {
		return fmt.Errorf("write the journal's mark: %w", err)
	}
	j.markFailures.Add(1)
	j.marker = resumeMarker(j.cfg.Files, j.cfg.Dir, old)
	j.cfg.Logger.Warn("the journal's disk is full; it is opened with the mark of the last time", "dir", j.cfg.Dir,
		"applied", old.applied, "err", err)
	return nil
}
