package journal

import (
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/brim-telemetry/brim/internal/batch"
)

// writing is what new records are written under. The session is replaced while the
// process runs if another process may be using it, too: a machine that is resumed
// from a snapshot does not know that the original kept running, and would give its
// next readings sequences that the original has used.
type writing struct {
	settings
	seed     uint32 // of the session
	firstSeq uint64 // that may be drawn under it
}

// former is a session of this process that no record comes under any more. Its
// last ones may not be in a segment yet.
type former struct {
	session string
	end     uint64 // position behind them
}

func newWriting(s settings) *writing { return &writing{settings: s, seed: sessionSeed(s.Session)} }

// A clock detects that the wall clock jumped ahead of the monotonic clock of the
// process, as it does when a machine is resumed.
type clock struct {
	wall    time.Time
	elapsed time.Duration
}

// mostAhead is more than clocks are stepped by in normal operation.
const mostAhead = 5 * time.Second

// newClock returns one that begins now: before the first reading, because an idle
// machine can be resumed, too.
func newClock(wall time.Time, elapsed time.Duration) clock {
	return clock{wall.Round(0), elapsed} // without Go's own monotonic time, which would hide the jump
}

func (c *clock) jumped(wall time.Time, elapsed time.Duration) bool {
	ahead := wall.Sub(c.wall) - (elapsed - c.elapsed)
	*c = newClock(wall, elapsed)
	return ahead > mostAhead
}

// Lose ends the use of a session that another process uses, too, and remembers that
// durably: what this journal holds of it is not replayed by a later process, which
// would find the other's readings stored under the same sequences. New records get
// another session, also where an error says that it could not be remembered.
func (j *Journal) Lose(session string) error {
	j.losing.Lock()
	defer j.losing.Unlock()
	var err error
	lost := j.LostSessions()
	if !slices.Contains(lost, session) {
		if err = j.rememberLost(append(lost, session)); err != nil {
			err = fmt.Errorf("remember that session %s is lost: %w", session, err)
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.writing.Session == session {
		j.redraw()
	}
	return err
}

func (j *Journal) rememberLost(sessions []string) error {
	if !j.hasFolder() {
		return ErrGone
	}
	if err := writeLostSessions(j.cfg.Files, j.cfg.Dir, sessions); err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lostSessions = sessions
	return nil
}

// LostSessions are those whose readings may not be stored, see Lose.
func (j *Journal) LostSessions() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.lostSessions)
}

const lostSessionsName = "lost-sessions"

func readLostSessions(files Files, dir string) (sessions []string, err error) {
	err = readJSON(files, filepath.Join(dir, lostSessionsName), &sessions)
	return sessions, err
}

func writeLostSessions(files Files, dir string, sessions []string) error {
	return writeJSON(files, filepath.Join(dir, lostSessionsName), sessions)
}

func (j *Journal) redraw() {
	j.fill() // the records of a commit have the same session
	s := j.writing.settings
	s.Session, s.Started = batch.NewSession(), j.cfg.Now().UTC()
	if j.nextSeq > j.writing.firstSeq {
		j.former = append(j.former, former{j.writing.Session, j.nextPos})
	}
	j.writing = newWriting(s)
	j.writing.firstSeq = j.nextSeq
	j.own = append(j.own, s.Session)
}

// watchClock redraws the session if the clock has jumped ahead.
func (j *Journal) watchClock() {
	if j.clock.jumped(j.cfg.Now(), j.cfg.Elapsed()) {
		former := j.writing.Session
		j.redraw()
		j.cfg.Logger.Warn("the clock jumped ahead, as on a machine that was resumed; further readings are written under a new session",
			"former", former, "session", j.writing.Session)
	}
}

// session returns the session of new records.
func (j *Journal) session() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.writing.Session
}

// isOwn reports whether this process created the session.
func (j *Journal) isOwn(session string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Contains(j.own, session)
}

// Sessions returns the sessions whose readings may still have to be stored, that
// of new records first.
func (j *Journal) Sessions() []string {
	sessions, lost := []string{j.session()}, j.LostSessions()
	applied := j.progress.applied.Load()
	j.mu.Lock()
	j.former = slices.DeleteFunc(j.former, func(f former) bool { return f.end <= applied })
	for _, f := range j.former {
		if !slices.Contains(lost, f.session) {
			sessions = append(sessions, f.session)
		}
	}
	j.mu.Unlock()
	j.segMu.RLock()
	defer j.segMu.RUnlock()
	for _, s := range j.segments {
		if s.end > applied && !slices.Contains(sessions, s.settings.Session) && !slices.Contains(lost, s.settings.Session) {
			sessions = append(sessions, s.settings.Session)
		}
	}
	return sessions
}

// discardSegment removes the active segment from the list. Nothing was written to
// it, and the next one has its place and its name.
func (j *Journal) discardSegment() {
	a := j.active
	if err := j.activeFile.Close(); err != nil {
		j.cfg.Logger.Warn("close a journal segment", "segment", a.name, "err", err)
	}
	j.bytes.Add(-a.size)
	j.segMu.Lock()
	j.segments = slices.DeleteFunc(j.segments, func(s *segment) bool { return s == a })
	j.active, j.activeFile = nil, nil
	j.segMu.Unlock()
}
