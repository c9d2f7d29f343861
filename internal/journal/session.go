package journal

import (
	"fmt"
	"slices"
	"time"

	"github.com/brim-telemetry/brim/internal/batch"
)

// writing has the session and settings of new records. The session is replaced while the process
// runs if another process may use it: a machine that is resumed from a snapshot does not know
// that the original kept running, and would assign sequences that the original has used.
type writing struct {
	settings
	seed uint32 // of the session
}

// ownSession is a session that this process created.
type ownSession struct {
	session string
	begin   uint64 // position of its first record
	end     uint64 // position after its last record; never: it is in use
}

func newWriting(s settings) *writing { return &writing{settings: s, seed: sessionSeed(s.Session)} }

// maxStep is more than the steps of clocks in normal operation.
const maxStep = 5 * time.Second

// clockOffset is how far the wall clock is ahead of the process's monotonic clock. It jumps when a
// machine is resumed.
func (c *Config) clockOffset() time.Duration {
	return time.Duration(c.Now().UnixNano()) - c.Elapsed()
}

// watchClock replaces the session if the wall clock has jumped ahead.
func (j *Journal) watchClock() {
	former, before := j.writing.Session, j.offset
	if j.offset = j.cfg.clockOffset(); j.offset-before > maxStep {
		j.replaceSession()
		j.cfg.Logger.Warn("the clock jumped ahead, as on a machine that was resumed; further readings are written under a new session",
			"former", former, "session", j.writing.Session)
	}
}

// replaceSession replaces the session of new records.
func (j *Journal) replaceSession() {
	j.closePending() // all records of a commit have the same session
	s := j.writing.settings
	s.Session, s.Started = batch.NewSession(), j.cfg.Now().UTC()
	j.own[len(j.own)-1].end = j.nextPos
	j.writing, j.own = newWriting(s), append(j.own, ownSession{s.Session, j.nextPos, never})
}

// Lose gives up a session that another process also uses, and records that durably: no later
// process may replay its readings in this journal, because the other process stores readings
// with the same sequences. New records get another session, even if Lose returns an error.
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
		j.replaceSession()
	}
	if err != nil {
		return fmt.Errorf("remember that session %s is lost: %w", session, err)
	}
	j.lostSessions = lost
	return nil
}

const lostSessionsName = "lost-sessions"

// LostSessions returns the sessions whose readings must not be stored, see Lose.
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

// isOwn reports whether this process created the session.
func (j *Journal) isOwn(session string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.ContainsFunc(j.own, func(s ownSession) bool { return s.session == session })
}

// Sessions returns the sessions with readings that may not be stored yet; the session of new
// records is the first one.
func (j *Journal) Sessions() []string { return j.sessionsWith(never) }

// Unstored returns the sessions with records that a later process would have to store; none if
// the journal is in memory.
func (j *Journal) Unstored() []string {
	if j.cfg.Memory {
		return nil
	}
	return j.sessionsWith(j.End())
}

// sessionsWith returns the sessions with unapplied records, except lost ones. end is the end of
// the current session.
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
		if end := min(d.end, end); end > d.begin {
			add(d.session, end)
		}
	}
	j.mu.Unlock()
	j.segMu.RLock()
	defer j.segMu.RUnlock()
	for _, s := range j.segments {
		add(s.settings.Session, s.end)
	}
	return sessions
}
