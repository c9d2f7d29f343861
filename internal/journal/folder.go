package journal

import (
	"errors"
	"time"

	"github.com/brim-telemetry/brim/internal/fault"
)

// ErrGone says that the journal's folder was removed or replaced while the journal
// was open. No later process finds the files written so far, unless the folder was
// moved.
var ErrGone = errors.New("the journal's folder was removed or replaced while the daemon was running")

// goneError is ErrGone with its cause.
type goneError struct{ error }

// Is implements errors.Is.
func (goneError) Is(target error) bool { return target == ErrGone }

// folderInterval is how often the folder is checked. An operator who replaces it must
// wait that long before starting another daemon there; until then both acknowledge
// readings.
const folderInterval = time.Second

// watchFolder checks the folder until the journal is closed.
func (j *Journal) watchFolder() {
	tick := time.NewTicker(folderInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if !j.hasFolder() {
				return
			}
		case <-j.quiet:
			return
		}
	}
}

// hasFolder reports whether the folder is still the one that was locked. Once it is
// not, the journal acknowledges nothing and creates and deletes nothing there,
// since the folder may be another daemon's. Readings in memory or in open files
// are still stored.
func (j *Journal) hasFolder() bool {
	if j.lock == nil || j.cfg.Faults.Off(fault.Home) {
		return true
	}
	if !j.gone.Load() {
		if err := j.lock.Held(); err != nil && j.gone.CompareAndSwap(false, true) {
			j.fail(errGone(err))
		}
	}
	return !j.gone.Load()
}

// A borrowed file is closed by its owner.
type borrowed struct{ File }

func (borrowed) Close() error { return nil }

// openSegment opens a segment for reading. The active segment can be read even
// when the folder is gone.
func (j *Journal) openSegment(s *segment) (File, error) {
	if j.gone.Load() {
		j.segMu.RLock()
		defer j.segMu.RUnlock()
		if s == j.active {
			return borrowed{j.activeFile}, nil
		}
	}
	return j.cfg.Files.Open(j.path(s.name), false)
}
