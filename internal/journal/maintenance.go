package journal

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"
)

const (
	markPause = 5 * time.Millisecond // minimum time between two writes of the mark
	tidyPause = time.Second          // until a failed tidyUp is retried
)

// Trim says that everything before the position is stored. It returns at once;
// segments that are not needed are deleted soon.
func (j *Journal) Trim(position uint64) {
	for old := j.applied.Load(); position > old; old = j.applied.Load() {
		if j.applied.CompareAndSwap(old, position) {
			signal(j.tidy)
			return
		}
	}
}

// Secure makes it durable how far everything is stored, so that no later process stores it
// again, even after a power failure.
func (j *Journal) Secure() error {
	if !j.hasFolder() {
		return ErrGone
	}
	return j.writeMark(true)
}

// maintain writes marks and deletes segments until the journal is closed.
func (j *Journal) maintain() {
	pause := time.NewTimer(markPause)
	defer pause.Stop()
	var again <-chan time.Time
	for {
		select {
		case <-j.tidy:
		case <-again:
		case <-j.closed:
			return
		}
		err := j.tidyUp()
		switch {
		case err != nil && again == nil:
			j.cfg.Logger.Warn("cannot tidy up the journal; will try again", "dir", j.cfg.Dir, "err", err)
		case err == nil && again != nil:
			j.cfg.Logger.Info("the journal is tidied up again", "dir", j.cfg.Dir)
		}
		again = nil
		if err != nil {
			// On a full disk no requests are accepted, which would cause another attempt.
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

// tidyUp writes the mark and deletes segments that are not needed any more.
func (j *Journal) tidyUp() error {
	applied := j.applied.Load()
	j.published.forget(applied)
	if !j.hasFolder() {
		return nil // the files in the folder may belong to another journal
	}
	if err := j.writeMark(false); err != nil {
		return err
	}
	done := j.notNeeded(applied)
	if len(done) == 0 {
		return j.saveKeys(j.deleted)
	}
	// Recovery treats a missing segment as damage, unless the durable mark says that it was stored.
	if err := j.writeMark(true); err != nil {
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
	if err := j.saveKeys(j.deleted); err != nil {
		return err
	}
	return j.dropKeys()
}

// notNeeded returns the ended segments that are stored.
func (j *Journal) notNeeded(applied uint64) (done []*segment) {
	j.segMu.RLock()
	defer j.segMu.RUnlock()
	for _, s := range j.segments {
		stored := s.end <= applied || j.cfg.Memory && s.unstored.Load() == 0
		if stored && s != j.active {
			done = append(done, s)
		} else if !j.cfg.Memory {
			break
		}
	}
	return done
}

// delete removes a segment after its keys are saved. On a full disk the keys are saved later,
// since only the deletion makes space for them.
func (j *Journal) delete(s *segment) error {
	if err := j.saveKeys(s.end); err != nil && !noSpace(err) {
		return err
	}
	if err := j.cfg.Files.Remove(j.path(s.name)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	j.segMu.Lock()
	j.segments = slices.DeleteFunc(j.segments, func(one *segment) bool { return one == s })
	j.segMu.Unlock()
	j.bytes.Add(-s.size)
	j.deleted = max(j.deleted, s.end)
	return s.close()
}

// writeMark writes how far the journal has come, and makes it durable if asked to.
func (j *Journal) writeMark(durably bool) error {
	applied := j.applied.Load() // first, so that it is not after the end
	if err := j.marker.write(j.End(), applied, durably); err != nil {
		j.markFailures.Add(1)
		return fmt.Errorf("write the mark: %w", err)
	}
	return nil
}

// lastTidy saves keys and the mark before the journal is closed.
func (j *Journal) lastTidy() error {
	if !j.hasFolder() {
		return nil
	}
	if err := j.saveKeys(j.deleted); err != nil {
		j.cfg.Logger.Error("idempotency keys are lost: a repeated request may be stored twice", "dir", j.cfg.Dir, "err", err)
	}
	err := j.writeMark(true)
	if noSpace(err) { // the previous mark is good enough
		j.cfg.Logger.Warn("the journal's disk is full; it is closed with an older mark", "dir", j.cfg.Dir, "err", err)
		return nil
	}
	return err
}

// A marker writes marks.
type marker struct {
	files Files
	name  string

	mu     sync.Mutex
	closed bool
	file   File // nil: the next mark goes to a new file
	last   mark
	synced int64 // place of the last synced mark; the next one goes to the other place
}

// write writes a mark if it differs from the last one. After a failed sync, the next mark goes to
// a new file, since fsync must not be retried on the same file.
func (m *marker) write(durable, applied uint64, durably bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	next := mark{number: m.last.number + 1, durable: durable, applied: applied, place: 1 - m.synced}
	switch {
	case m.closed:
		return os.ErrClosed
	case m.file == nil:
		return m.replace(next)
	case durable != m.last.durable || applied != m.last.applied:
		if _, err := m.file.WriteAt(next.encode(), next.place*markPlace); err != nil {
			return err
		}
		m.last = next
	}
	if !durably {
		return nil
	}
	if err := m.file.Sync(); err != nil {
		err = errors.Join(err, m.file.Close())
		m.file = nil
		return err
	}
	m.synced = m.last.place
	return nil
}

// replace replaces the file with a durable one with this mark. It allocates both places, so that
// the mark can be written on a full disk: segments are deleted only after that.
func (m *marker) replace(next mark) error {
	next.place = 0
	content := make([]byte, markPlace+markSize)
	copy(content, next.encode())
	err := writeFile(m.files, m.name, content)
	if err == nil {
		m.file, err = m.files.Open(m.name, true)
	}
	if err == nil {
		m.last, m.synced = next, 0
	}
	return err
}

func (m *marker) close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	if m.file == nil {
		return nil
	}
	return m.file.Close()
}

// ErrGone means that the journal's folder was removed or replaced while the journal was open. No
// later process will find its files, unless the folder was moved.
var ErrGone = errors.New("the journal's folder is gone")

// folderInterval is how often the folder is checked. If an operator replaces it and starts
// another daemon there, both acknowledge readings for that long.
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

// hasFolder reports whether the folder is still the one that was locked. If it is not, the journal
// acknowledges nothing, and creates and deletes nothing there, since the folder may belong to
// another daemon. Readings in memory or in open files are still stored.
func (j *Journal) hasFolder() bool {
	if j.lock == nil {
		return true
	}
	if !j.gone.Load() {
		if err := j.lock.Held(); err != nil && j.gone.CompareAndSwap(false, true) {
			j.fail(codeGone, fmt.Errorf("%w: %w", ErrGone, err))
		}
	}
	return !j.gone.Load()
}
