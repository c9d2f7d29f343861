package journal

import (
	"fmt"
	"slices"
	"time"

	"github.com/brim-telemetry/brim/internal/batch"
)

// writing is what new records are written under. The session is replaced while the
// process runs if another process may use it, too: a machine that is resumed from a
// snapshot does not know that the original kept running, and would give its next
// readings sequences that the original has used.
type writing struct {
	settings
	seed uint32 // of the session
}

// drawn is a session that this process drew.
type drawn struct {
	session string
	end     uint64 // position behind its records; never: it is in use
}

func newWriting(s settings) *writing { return &writing{settings: s, seed: sessionSeed(s.Session)} }

// maxStep is more than clocks are stepped by in normal operation.
const maxStep = 5 * time.Second

// clockOffset is how far the wall clock is ahead of the monotonic clock of the
// process. It jumps when a machine is resumed.
func (c *Config) clockOffset() time.Duration {
	return time.Duration(c.Now().UnixNano()) - c.Elapsed()
}

// watchClock replaces the session if the wall clock has jumped ahead.
func (j *Journal) watchClock() {
	former, before := j.writing.Session, j.offset
	if j.offset = j.cfg.clockOffset(); j.offset-before > maxStep {
		j.redraw()
		j.cfg.Logger.Warn("the clock jumped ahead, as on a machine that was resumed; further readings are written under a new session",
			"former", former, "session", j.writing.Session)
	}
}

// redraw replaces the session of new records.
func (j *Journal) redraw() {
	j.closePending() // the records of a commit have the same session
	s := j.writing.settings
	s.Session, s.Started = batch.NewSession(), j.cfg.Now().UTC()
	j.own[len(j.own)-1].end = j.nextPos
	j.writing, j.own = newWriting(s), append(j.own, drawn{s.Session, never})
}

// Lose ends the use of a session that another process uses, too, and remembers that
// durably: no later process replays what this journal holds of it, because the other's
// readings are stored under the same sequences. New records get another session, even
// if an error says that it could not be remembered.
func (j *Journal) Lose(session string) error {
	j.losing.Lock()
	defer j.losing.Unlock()
	var err error
	lost := j.LostSessions()
	if !slices.Contains(lost, session) {
		lost = append(lost, session)
		if err = ErrGone; j.hasFolder() {
			err = writeJSON(j.cfg.Files, j.path(lostSessionsName), lost)
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.writing.Session == session {
		j.redraw()
	}
	if err != nil {
		return fmt.Errorf("remember that session %s is lost: %w", session, err)
	}
	j.lostSessions = lost
	return nil
}

const lostSessionsName = "lost-sessions"

// LostSessions are those whose readings may not be stored, see Lose.
func (j *Journal) LostSessions() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.lostSessions)
}

// session returns the session of new records.
func (j *Journal) session() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.writing.Session
}

// isOwn reports whether this process drew the session.
func (j *Journal) isOwn(session string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.ContainsFunc(j.own, func(d drawn) bool { return d.session == session })
}

// Sessions returns the sessions whose readings may still have to be stored, that of
// new records first.
func (j *Journal) Sessions() []string { return j.sessionsWith(never) }

// Unstored returns the sessions with records that a later process has to store; none if the
// journal is in memory.
func (j *Journal) Unstored() []string {
	if j.cfg.Memory {
		return nil
	}
	return j.sessionsWith(j.End())
}

// sessionsWith returns the sessions that are not lost and have records that are not applied, if
// those of the session in use end there.
func (j *Journal) sessionsWith(end uint64) (sessions []string) {
	applied := j.applied.Load()
	j.mu.Lock()
	lost := j.lostSessions
	add := func(session string, end uint64) {
		if end > applied && !slices.Contains(sessions, session) && !slices.Contains(lost, session) {
			sessions = append(sessions, session)
		}
	}
	for _, d := range slices.Backward(j.own) { // their last records may not be in a segment yet
		add(d.session, min(d.end, end))
	}
	j.mu.Unlock()
	j.segMu.RLock()
	defer j.segMu.RUnlock()
	for _, s := range j.segments {
		add(s.settings.Session, s.end)
	}
	return sessions
}
