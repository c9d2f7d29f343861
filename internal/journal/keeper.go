package journal

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/brim-telemetry/brim/internal/fault"
)

const (
	markPause = 5 * time.Millisecond // between two writes of the mark
	tidyPause = time.Second          // before a failed attempt to tidy up is repeated
)

// Trim says that everything before the position is stored. It returns at once;
// segments that are not needed are deleted soon.
func (j *Journal) Trim(position uint64) {
	if j.applied.advance(position) {
		signal(j.tidy)
	}
}

// Secure makes durable how far everything is stored, so that no later process
// takes it for unapplied, not even after a power failure.
func (j *Journal) Secure(ctx context.Context) error {
	done := make(chan error, 1)
	select {
	case j.secure <- done:
	case <-j.closed:
		return errStopping()
	case <-ctx.Done():
		return fmt.Errorf("wait for the mark of the journal: %w", ctx.Err())
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("wait for the mark of the journal: %w", ctx.Err())
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
			if j.hasFolder() {
				done <- j.writeMark(true)
			} else {
				done <- ErrGone
			}
			continue
		case <-j.closed:
			return
		}
		err := j.tidyUp()
		again = nil
		switch {
		case err != nil && !j.untidy:
			j.cfg.Logger.Warn("cannot tidy up the journal; will try again", "dir", j.cfg.Dir, "err", err)
		case err == nil && j.untidy:
			j.cfg.Logger.Info("the journal is tidied up again", "dir", j.cfg.Dir)
		}
		if j.untidy = err != nil; j.untidy {
			// On a full disk no request would come and cause another attempt.
			again = time.After(tidyPause)
		}
		pause.Reset(markPause)
		select {
		case <-pause.C:
		case <-j.closed:
			return
		}
	}
}

// tidyUp writes the mark and deletes the segments that are not needed.
func (j *Journal) tidyUp() error {
	j.published.forget(j.applied.Load())
	if !j.hasFolder() {
		return nil // the files in the folder may be another journal's
	}
	if err := j.writeMark(false); err != nil {
		return err
	}
	done := j.notNeeded()
	if len(done) == 0 {
		return j.saveLateKeys()
	}
	j.cfg.Faults.At(fault.BeforeTrim)
	// A segment that is gone and that the durable mark needs would count as damage.
	if err := j.writeMark(true); err != nil {
		return err
	}
	var err error
	for _, s := range done {
		if err = j.delete(s); err != nil {
			err = fmt.Errorf("delete journal segment %s: %w", s.name, err)
			break
		}
	}
	j.segMu.Lock()
	j.segments = slices.DeleteFunc(j.segments, func(s *segment) bool { return s.deleted })
	j.segMu.Unlock()
	j.logRoom()
	if err != nil {
		return err
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

// notNeeded returns the complete segments that are stored.
func (j *Journal) notNeeded() (done []*segment) {
	applied := j.marker.last.applied
	j.segMu.RLock()
	defer j.segMu.RUnlock()
	for _, s := range j.segments {
		stored := s.end <= applied || j.cfg.Memory && s.unstored.Load() == 0
		if stored && !s.open {
			done = append(done, s)
		} else if !j.cfg.Memory {
			break
		}
	}
	return done
}

// delete removes a segment after its keys are saved. On a full disk the keys are
// saved later, since nothing else would give them room.
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
	s.deleted = true
	j.bytes.Add(-s.size)
	return nil
}

// writeMark writes how far the journal has come, and makes it durable if asked to.
func (j *Journal) writeMark(durably bool) error {
	applied := j.applied.Load() // first, so that it is not behind the end
	err := j.marker.write(j.End(), applied)
	if err == nil && durably {
		err = j.marker.sync()
	}
	if err != nil {
		j.markFailures.Add(1)
		return fmt.Errorf("write the mark: %w", err)
	}
	return nil
}

// lastTidy saves what only this process knows before the journal is closed.
func (j *Journal) lastTidy() error {
	if !j.hasFolder() {
		return nil
	}
	if err := j.saveLateKeys(); err != nil {
		j.cfg.Logger.Error("idempotency keys are lost: a repeated request may be stored twice", "dir", j.cfg.Dir,
			"segments", len(j.lateKeys), "err", err)
	}
	err := j.writeMark(true)
	if noSpace(err) { // the mark before is good enough
		j.cfg.Logger.Warn("the journal's disk is full; it is closed with an older mark", "dir", j.cfg.Dir, "err", err)
		return nil
	}
	return err
}

// A marker writes marks.
type marker struct {
	files  Files
	dir    string
	file   File // nil: the next mark goes to a new file
	last   mark
	synced int64 // place of the last mark that was synced; the next one goes to the other
}

// openMarker replaces the file of marks, so that from now on it durably says at
// least this much. Both places are allocated at once: nothing can be deleted from a
// full disk before the mark says so.
func openMarker(files Files, dir string, first mark) (*marker, error) {
	name := filepath.Join(dir, markName)
	first.number++
	first.place = 0
	content := make([]byte, markPlace+markSize)
	copy(content, first.encode())
	if err := writeFile(files, name, content); err != nil {
		return nil, err
	}
	f, err := files.Open(name, true)
	if err != nil {
		return nil, err
	}
	return &marker{files: files, dir: dir, file: f, last: first}, nil
}

// write notes how far the journal has come, if that is news.
func (m *marker) write(durable, applied uint64) error {
	if m.file == nil {
		fresh, err := openMarker(m.files, m.dir, mark{number: m.last.number, durable: durable, applied: applied})
		if err == nil {
			*m = *fresh
		}
		return err
	}
	if durable == m.last.durable && applied == m.last.applied {
		return nil
	}
	next := mark{number: m.last.number + 1, durable: durable, applied: applied, place: 1 - m.synced}
	if _, err := m.file.WriteAt(next.encode(), next.place*markPlace); err != nil {
		return err
	}
	m.last = next
	return nil
}

// sync makes the last mark durable. After an error the next mark goes to another
// file, since a failed fsync is never repeated on the same one.
func (m *marker) sync() error {
	if err := m.file.Sync(); err != nil {
		return errors.Join(err, m.close())
	}
	m.synced = m.last.place
	return nil
}

func (m *marker) close() error {
	if m.file == nil {
		return nil
	}
	err := m.file.Close()
	m.file = nil
	return err
}

// ErrGone means that the journal's folder was removed or replaced while the journal
// was open. No later process finds the files written so far, unless the folder was
// moved.
var ErrGone = errors.New("the journal's folder was removed or replaced while the daemon was running")

// goneError is ErrGone with its cause.
type goneError struct{ error }

// Is implements errors.Is.
func (goneError) Is(target error) bool { return target == ErrGone }

// folderInterval is how often the folder is checked. An operator who replaces it
// must wait that long before starting another daemon there; until then both
// acknowledge readings.
const folderInterval = time.Second

// watchFolder checks the folder until the journal is closed.
func (j *Journal) watchFolder() {
	tick := time.NewTicker(folderInterval)
	defer tick.Stop()
	for j.hasFolder() {
		select {
		case <-tick.C:
		case <-j.closed:
			return
		}
	}
}

// hasFolder reports whether the folder is still the one that was locked. Once it is
// not, the journal acknowledges nothing, and creates and deletes nothing there,
// since the folder may be another daemon's. Readings in memory or in open files are
// still stored.
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
