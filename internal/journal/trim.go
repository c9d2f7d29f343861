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

// tidyAgain is when it is tried again to tidy up, after that failed.
const tidyAgain = time.Second

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
	var again <-chan time.Time
	for {
		select {
		case <-j.tidy:
		case <-again:
		case done := <-j.secure:
			done <- j.secureMark()
			continue
		case <-j.quiet:
			return
		}
		// Where nothing can be taken, nobody else would ask for another attempt.
		again = nil
		err := j.tidyUp()
		if err != nil {
			again = time.After(tidyAgain)
		}
		j.tellTidy(err)
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
	if !j.hasFolder() {
		return nil // nothing in the folder is known to be this journal's
	}
	if err := j.writeMark(applied); err != nil {
		return err
	}
	done := j.atRest(applied)
	if len(done) == 0 {
		return j.saveLateKeys()
	}
	j.cfg.Faults.At(fault.BeforeTrim)
	// A segment that is gone and that the mark says is needed would be damage.
	if err := j.syncMark(); err != nil {
		return err
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
	if err := j.saveLateKeys(); err != nil {
		return err
	}
	return j.dropKeys()
}

// tellTidy logs when tidying up begins to fail, and when it works again.
func (j *Journal) tellTidy(err error) {
	switch {
	case err != nil && !j.untidy:
		j.cfg.Logger.Warn("cannot tidy up the journal, will try again", "dir", j.cfg.Dir, "err", err)
	case err == nil && j.untidy:
		j.cfg.Logger.Info("the journal is tidied up again", "dir", j.cfg.Dir)
	}
	j.untidy = err != nil
}

// atRest returns the segments of which nothing is needed, but not the one that
// is being written.
func (j *Journal) atRest(applied uint64) []*segment {
	j.segMu.RLock()
	defer j.segMu.RUnlock()
	n := 0
	for n < len(j.segments) && j.segments[n].end <= applied && !j.segments[n].open {
		n++
	}
	return j.segments[:n:n]
}

// delete takes a segment away, after its keys are safe elsewhere. On a full disk
// they come after it, for nothing else would give them room.
func (j *Journal) delete(s *segment) error {
	err := j.saveKeys(s)
	late := noSpace(err)
	if err != nil && !late {
		return err
	}
	if err := j.cfg.Files.Remove(j.path(s.name)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if late {
		j.lateKeys = append(j.lateKeys, s)
	}
	j.segMu.Lock()
	j.segments = j.segments[1:]
	j.segMu.Unlock()
	j.bytes.Add(-s.size)
	j.tellRoom()
	return nil
}

func (j *Journal) writeMark(applied uint64) error {
	if err := j.marker.write(j.End(), applied); err != nil {
		j.markFailures.Add(1)
		return fmt.Errorf("write the mark: %w", err)
	}
	return nil
}

func (j *Journal) syncMark() error {
	if err := j.marker.sync(); err != nil {
		j.markFailures.Add(1)
		return fmt.Errorf("sync the mark: %w", err)
	}
	return nil
}

// lastMark writes down where the journal ends, durably. On a full disk the one
// before is good enough.
func (j *Journal) lastMark() error {
	if !j.hasFolder() {
		return nil
	}
	err := j.writeMark(j.progress.applied.Load())
	if err == nil {
		err = j.syncMark()
	}
	if noSpace(err) {
		j.cfg.Logger.Warn("the journal's disk is full; it is closed with an older mark", "dir", j.cfg.Dir, "err", err)
		return nil
	}
	return err
}
