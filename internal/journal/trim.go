package journal

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/brim-telemetry/brim/internal/fault"
)

// markPause is the least time between two writes of the mark.
const markPause = 5 * time.Millisecond

// Trim says that everything before the position is at rest. It returns at once;
// segments that nobody needs are deleted soon.
func (j *Journal) Trim(position uint64) {
	if j.progress.advance(position) {
		signal(j.tidy)
	}
}

// keep writes marks and deletes segments until the journal is closed.
func (j *Journal) keep() {
	pause := time.NewTimer(markPause)
	defer pause.Stop()
	for {
		select {
		case <-j.tidy:
		case <-j.quiet:
			return
		}
		if err := j.tidyUp(); err != nil {
			j.cfg.Logger.Warn("tidy up the journal", "dir", j.cfg.Dir, "err", err)
		}
		pause.Reset(markPause)
		select {
		case <-pause.C:
		case <-j.quiet:
			return
		}
	}
}

func (j *Journal) tidyUp() error {
	applied := j.progress.applied.Load()
	j.published.forget(applied)
	if err := j.marker.write(j.End(), applied); err != nil {
		return fmt.Errorf("write the mark: %w", err)
	}
	done := j.atRest(applied)
	if len(done) == 0 {
		return nil
	}
	j.cfg.Faults.At(fault.BeforeTrim)
	// A segment that is gone and that the mark says is needed would be damage.
	if err := j.marker.sync(); err != nil {
		return fmt.Errorf("sync the mark: %w", err)
	}
	for _, s := range done {
		if err := j.delete(s); err != nil {
			return fmt.Errorf("delete journal segment %s: %w", s.name, err)
		}
	}
	if err := j.cfg.Files.SyncDir(j.cfg.Dir); err != nil {
		return fmt.Errorf("sync the journal's directory: %w", err)
	}
	j.cfg.Faults.At(fault.AfterTrim)
	return j.dropKeys()
}

// atRest returns the segments of which nothing is needed, but not the one that
// is being written.
func (j *Journal) atRest(applied uint64) []*segment {
	j.segMu.RLock()
	defer j.segMu.RUnlock()
	n := 0
	for n < len(j.segments) && j.segments[n].end <= applied && !j.isActive(n) {
		n++
	}
	return j.segments[:n:n]
}

// isActive reports whether segment i may still be written to: the last one, if
// this process made it.
func (j *Journal) isActive(i int) bool {
	return i == len(j.segments)-1 && j.segments[i].settings.Started.Equal(j.settings.Started) && j.segments[i].settings.Session == j.cfg.Session
}

// delete takes a segment away, after its keys are safe elsewhere.
func (j *Journal) delete(s *segment) error {
	if err := j.saveKeys(s); err != nil {
		return err
	}
	if err := j.cfg.Files.Remove(j.path(s.name)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	j.segMu.Lock()
	j.segments = j.segments[1:]
	j.segMu.Unlock()
	j.bytes.Add(-s.size)
	return nil
}

// lastMark writes down where the journal ends, durably.
func (j *Journal) lastMark() error {
	if err := j.marker.write(j.End(), j.progress.applied.Load()); err != nil {
		return fmt.Errorf("write the mark: %w", err)
	}
	if err := j.marker.sync(); err != nil {
		return fmt.Errorf("sync the mark: %w", err)
	}
	return nil
}
