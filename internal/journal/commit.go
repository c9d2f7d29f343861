package journal

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/fault"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A commit is what one fsync makes durable: the records that gathered while the
// one before was on its way.
type commit struct {
	buf     []byte
	entries []entry
	outcome *outcome
	writing *writing // what all its records are written under
}

// An outcome is what those who wait for a commit are told.
type outcome struct {
	done chan struct{}
	err  error // once done
}

// An entry is one record of a commit.
type entry struct {
	batch          *batch.Batch
	position, next uint64
	weight         int64
	flight         *flight
	waiter         *waiter
}

func newCommit() *commit { return &commit{outcome: newOutcome()} }

func newOutcome() *outcome { return &outcome{done: make(chan struct{})} }

func (c *commit) add(e *entry, record []byte) *outcome {
	c.buf = append(c.buf, record...)
	c.entries = append(c.entries, *e)
	return c.outcome
}

// reset makes the commit an empty one. Large buffers are given back.
func (c *commit) reset() {
	clear(c.entries)
	c.buf, c.entries, c.outcome = c.buf[:0], c.entries[:0], newOutcome()
	if cap(c.buf) > 2*maxRecycled {
		c.buf = nil
	}
}

// commitLoop writes what is pending until the journal is closed.
func (j *Journal) commitLoop() {
	for range j.wake {
		c, ending := j.takePending()
		for ; c != nil; c, ending = j.takePending() {
			j.commit(c)
			j.giveBack(c)
			signal(j.tidy)
		}
		if ending {
			return
		}
	}
}

// takePending takes the oldest commit that is pending; nil if there is none.
// Nothing is added any more when ending is true.
func (j *Journal) takePending() (c *commit, ending bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.filled) == 0 {
		j.fill()
	}
	if len(j.filled) > 0 {
		c = j.filled[0]
		j.filled = j.filled[1:]
	}
	return c, j.ending
}

// takeAll takes all commits that are pending, in order.
func (j *Journal) takeAll() []*commit {
	j.fill()
	all := j.filled
	j.filled = nil
	return all
}

// fill puts an empty commit in place of the pending one, if there is something
// in that.
func (j *Journal) fill() {
	if len(j.pending.entries) == 0 {
		return
	}
	j.filled = append(j.filled, j.pending)
	if j.pending, j.spare = j.spare, nil; j.pending == nil {
		j.pending = newCommit()
	}
}

func (j *Journal) giveBack(c *commit) {
	c.reset()
	j.mu.Lock()
	defer j.mu.Unlock()
	j.spare = c
}

// commit brings c to the disk and tells everybody.
func (j *Journal) commit(c *commit) {
	faults := j.cfg.Faults
	defer j.space.landed(int64(len(c.buf)))
	if faults.Off(fault.Fsync) {
		j.settle(c)
		if err := j.write(c); err != nil {
			j.fail(errFailed(fmt.Errorf("write the journal: %w", err)))
		}
		j.endFilled()
		return
	}
	if err := j.write(c); err != nil {
		j.writeFailed(c, err)
		return
	}
	faults.At(fault.AfterAppend)
	faults.At(fault.BeforeFsync)
	begin := time.Now()
	if err := j.activeFile.Sync(); err != nil && !faults.Off(fault.StopOnFsync) {
		// What the file holds now nobody knows, and asking again would not tell.
		err = fmt.Errorf("sync journal segment %s: %w", j.active.name, err)
		j.fail(errFailed(err))
		j.refuse(c, errUnknownOutcome("the journal's disk did not confirm the readings; they may be stored after a restart", err))
		return
	}
	if j.gone.Load() {
		j.published.add(c.entries) // they are still in memory, so they can be stored
		j.refuse(c, errUnknownOutcome("the journal's folder was removed or replaced; the readings may be stored", ErrGone))
		return
	}
	j.metrics.fsync.Observe(time.Since(begin).Seconds())
	j.metrics.requests.Observe(float64(len(c.entries)))
	faults.At(fault.AfterFsync)
	j.tellWritten()
	j.settle(c)
	j.endFilled()
}

// write writes c behind what is there, in a new segment if that is due.
func (j *Journal) write(c *commit) error {
	from, to := c.entries[0].position, c.entries[len(c.entries)-1].next
	if a := j.active; a == nil || !j.fits(c) {
		if !j.hasFolder() { // else a file is closed that cannot be opened again
			return ErrGone
		}
		switch {
		case a == nil:
		case a.end > a.base:
			j.endSegment()
		default:
			j.discardSegment()
		}
		if err := j.beginSegment(from, c.writing); err != nil {
			return err
		}
	}
	a := j.active
	if _, err := j.activeFile.WriteAt(c.buf, a.offset(from)); err != nil {
		return fmt.Errorf("write journal segment %s: %w", a.name, err)
	}
	j.segMu.Lock()
	a.end, a.size = to, a.offset(to)
	j.segMu.Unlock()
	return nil
}

// fits reports whether c goes into the active segment.
func (j *Journal) fits(c *commit) bool {
	a := j.active
	return a.settings.Session == c.writing.Session && (a.end == a.base || a.size+int64(len(c.buf)) <= j.cfg.SegmentBytes)
}

// beginSegment begins a segment. Everything in those before is durable by now,
// which is what the mere name of the file tells at the next start.
func (j *Journal) beginSegment(base uint64, w *writing) error {
	seg, f, err := createSegment(j.cfg.Files, j.cfg.Dir, base, w.settings)
	if err != nil {
		return fmt.Errorf("create a journal segment: %w", err)
	}
	seg.open = true
	j.bytes.Add(seg.size)
	j.segMu.Lock()
	j.active, j.activeFile = seg, f
	j.segments = append(j.segments, seg)
	j.segMu.Unlock()
	return nil
}

// endSegment ends the active segment, which has records: what comes next goes to
// another one, and the keeper may delete it.
func (j *Journal) endSegment() {
	if err := j.activeFile.Close(); err != nil {
		j.cfg.Logger.Warn("close a journal segment", "segment", j.active.name, "err", err)
	}
	j.segMu.Lock()
	j.active.open = false
	j.active, j.activeFile = nil, nil
	j.segMu.Unlock()
}

// endFilled ends the active segment once it has its size, so that it does not
// wait for the next request to be deleted. Hence what is left when everything is
// at rest is less than half of MaxBytes, and any request has room beside it.
func (j *Journal) endFilled() {
	if a := j.active; a != nil && a.end > a.base && a.size >= j.cfg.SegmentBytes && j.hasFolder() {
		j.endSegment()
	}
}

// settle publishes a commit and answers those who wait for it.
func (j *Journal) settle(c *commit) {
	for i := range c.entries {
		if e := &c.entries[i]; e.flight != nil {
			j.keys.taken(e.flight, e.next)
		}
	}
	j.published.add(c.entries)
	j.finish(c, nil)
}

// refuse answers those who wait for a commit of which nothing is promised.
func (j *Journal) refuse(c *commit, err error) {
	for i := range c.entries {
		e := &c.entries[i]
		if e.flight != nil {
			j.keys.failed(e.flight, err)
		}
	}
	j.finish(c, err)
}

func (j *Journal) finish(c *commit, err error) {
	weight := int64(0)
	for i := range c.entries {
		weight += c.entries[i].weight
	}
	j.limiter.Release(weight)
	c.outcome.err = err
	close(c.outcome.done)
}

// writeFailed takes back what was written of c. If that works, nothing of c nor
// of what gathered behind it was taken, and the next request may try again.
func (j *Journal) writeFailed(c *commit, cause error) {
	if errors.Is(cause, ErrGone) {
		j.refuse(c, errGone(cause))
		return
	}
	if err := j.takeBack(c); err != nil {
		j.fail(errFailed(err))
		j.refuse(c, errUnknownOutcome("the journal could not be written; the readings may be stored after a restart", errors.Join(cause, err)))
		return
	}
	j.tellDiskFull(cause)
	j.mu.Lock()
	behind := j.takeAll()
	j.nextPos = c.entries[0].position
	j.mu.Unlock()
	for _, one := range behind {
		j.space.landed(int64(len(one.buf)))
	}
	for _, one := range append([]*commit{c}, behind...) {
		j.bytes.Add(-int64(len(one.buf)))
		j.refuse(one, errDiskFull(cause))
	}
}

func (j *Journal) takeBack(c *commit) error {
	a := j.active
	if a == nil || a.end != c.entries[0].position {
		return nil // not even the segment was made
	}
	if err := j.activeFile.Truncate(a.offset(a.end)); err != nil {
		return fmt.Errorf("cut off what was written of journal segment %s: %w", a.name, err)
	}
	if err := j.activeFile.Sync(); err != nil {
		return fmt.Errorf("sync journal segment %s: %w", a.name, err)
	}
	return nil
}

// fail stops the journal for good. Waiting and later requests get the refusal.
func (j *Journal) fail(refusal *telemetry.Error) {
	j.mu.Lock()
	j.failed = refusal
	behind := j.takeAll()
	j.mu.Unlock()
	j.cfg.Logger.Error("the journal failed; no readings are accepted until the daemon is restarted", "dir", j.cfg.Dir, "err", refusal)
	for _, one := range behind {
		j.refuse(one, refusal)
	}
}

func (j *Journal) path(name string) string { return filepath.Join(j.cfg.Dir, name) }
