// Package claim prevents two processes from storing readings under one session, for example after
// a journal's folder was copied or a machine was resumed twice from a snapshot. Before a process
// stores anything, it claims each session that it uses with a small document in MongoDB:
//
//	{_id: session, beat, host, pid, dir, …}     renewed every interval, each time
//	                                            with another beat, and only if the
//	                                            document still has the last one
//
//	no document ──────────────▶ ours
//	the beat does not change ─▶ its holder ended: ours after patience
//	  … and has our lock ─────▶ likewise, at once
//	the beat changes ─────────▶ refused, with a *HeldError
//	ours has an earlier beat
//	  of this process ────────▶ claimed again: the database was restored
//	ours has another beat ────▶ lost: nothing is stored under the session any more
//
// Clocks are not compared. If two processes resume from one snapshot, the second to renew finds
// the other's beat.
//
// The claims also say which daemons run, and at which address: others.go.
package claim

import (
	"context"
	"crypto/rand"
	"encoding/base32"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/store"
)

// Collection is the name of the collection with the claims.
const Collection = "brim_sessions"

// How long a claim is valid. A write begins only if the last renewal is younger than validFor, and
// takes up to 10 s. Another process waits longer than both together before it concludes from an
// unchanged beat that the holder has ended.
const (
	interval              = 4 * time.Second     // between renewals
	validFor              = 2 * interval        // how long a renewal is valid
	expireAfter           = 5 * interval        // a claim whose beat does not change for this long can be taken over
	renewTimeout          = 5 * time.Second     // less than validFor: a renewal that took longer would be too old once confirmed
	aliveChanges          = 2                   // of a beat that prove that its holder runs; a single one may have been its last
	maxOwnBeats           = 1 << 16             // beats that are remembered
	staleAfter            = 30 * 24 * time.Hour // age at which claims of holders without a journal are removed
	removeStaleAgainAfter = 10                  // after this many renewals, the claims of a process that was killed just before the start are old enough to be removed
)

// Config configures Claims.
type Config struct {
	Database *mongo.Database // with the concerns of store.Connection.Database
	Holder   Holder
	// Sessions returns the sessions whose readings may still have to be stored,
	// that of new readings first.
	Sessions func() []string
	// OnLost is called for a session that another process has taken over, until it returns nil. It
	// must record the loss for later processes and, if the session was the one for new readings,
	// start another one.
	OnLost func(session string) error
	// LostBefore has the sessions that an earlier process with this journal lost.
	LostBefore []string
	// Unreachable returns the addresses of other holders that this process could not reach
	// recently. It is published in the claims. Nil: there are none.
	Unreachable func() []string
	// Places returns where the readings of a session are stored, by stream, for `brim move`: a
	// collection, or a target if the collection is not known yet. Nil: nothing is known.
	Places func(session string) map[string]string
	// Unstored returns the sessions with readings that a later process has to store. Their
	// claims remain when this one ends. Nil: there are none.
	Unstored   func() []string
	Logger     *slog.Logger          // nil: nothing is logged
	Registerer prometheus.Registerer // nil: metrics are kept and not registered
	Now        func() time.Time      // nil: time.Now
}

// Holder is a process that claims sessions.
type Holder struct {
	Host  string    `bson:"host"`
	Pid   int       `bson:"pid"`
	Dir   string    `bson:"dir,omitempty"`  // of the journal; empty without one
	Lock  string    `bson:"lock,omitempty"` // identity of the journal's lock file, which only one process can hold
	Boot  string    `bson:"boot,omitempty"` // ID of the machine's boot, which differs between machines
	Since time.Time `bson:"since"`

	// Used by other daemons to ask this one for unstored readings, see Others.
	Daemon  string   `bson:"daemon"`  // identifies the process; empty: an older release
	Address string   `bson:"address"` // HOST:PORT of its data listener; empty: it cannot be asked
	TLS     bool     `bson:"tls"`     // whether the listener has TLS
	Streams []string `bson:"streams"` // that it stores; none: unknown
	Columns bool     `bson:"columns"` // it can read blocks of columns; earlier releases cannot
	// LongWindows: it can find windows of up to 24 h; earlier releases cannot.
	LongWindows bool `bson:"long_windows"`
	// Generations: it reads all collections of a stream; earlier releases read one.
	Generations bool `bson:"generations"`
	// Moves: it leaves out copies of readings that `brim move` is still making.
	Moves bool `bson:"moves"`
	// Writes says where new readings go, by stream.
	Writes map[string]string `bson:"writes,omitempty"`
}

// ID identifies the process's journal or, without a journal, the process.
func (h *Holder) ID() string {
	if h.Dir == "" {
		return fmt.Sprintf("%s:%d", h.Host, h.Pid)
	}
	return h.Host + ":" + h.Dir
}

// sameLock reports whether both have locked the same file, which means that one of them has ended.
func (h *Holder) sameLock(other *Holder) bool {
	return h.Lock != "" && h.Lock == other.Lock && h.Host == other.Host && h.Boot == other.Boot
}

// String describes the process.
func (h *Holder) String() string {
	s := fmt.Sprintf("process %d on %s", h.Pid, h.Host)
	if h.Dir != "" {
		s += " with the journal in " + h.Dir
	}
	return s + ", since " + h.Since.UTC().Format(time.RFC3339)
}

// A HeldError says that a session is in use by another process. Retrying helps once that process
// has ended, or has stored everything that it accepted under the session.
type HeldError struct {
	Session string
	By      Holder

	// Abandoned: this process has written nothing under the session and must never do so, see
	// Abandon.
	Abandoned bool
}

// Error implements error.
func (e *HeldError) Error() string {
	return fmt.Sprintf("readings of session %s are being stored by another daemon, %s: two that replay the same journal would store them twice. "+
		"If this journal is a copy of the other daemon's, start with an empty --journal-dir; otherwise stop the other daemon first", e.Session, &e.By)
}

// errWatching says that it is not known yet whether a claim's holder has ended.
var errWatching = errors.New("another process has claimed a session of this journal; waiting some seconds to see whether it still runs")

// errLostBefore is why readings of a session that an earlier process lost become dead letters: if
// the other process stored readings with the same sequences, the guard would consider these
// stored.
var errLostBefore = errors.New("the session was also used by another daemon; the reading may be stored already")

var errLostMeanwhile = errors.New("a session was lost while readings were being written")

// Claims has the claims of one process. It is safe for concurrent use.
type Claims struct {
	cfg    Config
	losses prometheus.Counter
	held   atomic.Pointer[time.Time] // when the last successful renewal began; nil: none yet
	lost   atomic.Pointer[map[string]*HeldError]

	sem        chan struct{} // semaphore, held during requests to MongoDB; guards the following fields
	sessions   map[string]*session
	ownBeats   []string  // the newest beats of this process, including those that may not have been written
	unreported []string  // lost sessions for which OnLost has not returned nil yet
	stopped    bool      // Close has begun
	failed     time.Time // when the last renewal failed; failure is its error
	failure    error

	others otherClaims
}

// session is what is known about one claim.
type session struct {
	ours bool
	beat string // last known beat in the document

	watched string    // the beat of another process
	since   time.Time // when it was first seen
	changes int       // of it
}

// claimed is a claim's document.
type claimed struct {
	Session     string   `bson:"_id"`
	Beat        string   `bson:"beat"`
	Unreachable []string `bson:"unreachable"`

	Places    map[string]string `bson:"places,omitempty"` // see Config
	Stopped   bool              `bson:"stopped"`          // the holder has ended, with readings left to store
	Abandoned bool              `bson:"abandoned"`        // see Abandon
	Holder    `bson:",inline"`
}

// New returns Claims without any claim; it does no I/O.
func New(cfg Config) *Claims {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	c := &Claims{cfg: cfg, sem: make(chan struct{}, 1), sessions: make(map[string]*session)}
	c.losses = promauto.With(cfg.Registerer).NewCounter(prometheus.CounterOpts{
		Name: "brim_store_sessions_lost_total",
		Help: "Sessions of this daemon that another daemon stored readings under; what this one had not stored of them becomes dead letters at the next start.",
	})
	c.lost.Store(&map[string]*HeldError{})
	return c
}

// Lost returns why readings of a session must not be stored; nil if they may be.
func (c *Claims) Lost(session string) error {
	if e := (*c.lost.Load())[session]; e != nil {
		return e
	}
	return nil
}

// Err returns why readings of some sessions are not stored; nil if none is lost.
func (c *Claims) Err() error {
	var errs []error
	lost := *c.lost.Load()
	for _, session := range slices.Sorted(maps.Keys(lost)) {
		errs = append(errs, lost[session])
	}
	return errors.Join(errs...)
}

// Ensure returns nil once the claims are valid, usually without a request to MongoDB. It must be
// called before each write. A *HeldError is final; other errors may be temporary.
func (c *Claims) Ensure(ctx context.Context) error {
	if c.isFresh() {
		return nil
	}
	asked := c.cfg.Now()
	if err := c.lock(ctx); err != nil {
		return err
	}
	defer c.unlock()
	switch {
	case c.isFresh(): // another caller has renewed them
		return nil
	case c.failed.After(asked):
		return c.failure
	}
	return c.renew(ctx)
}

// lock waits until no other caller is sending requests for the claims.
func (c *Claims) lock(ctx context.Context) error {
	select {
	case c.sem <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for the renewal of the claims: %w", ctx.Err())
	}
}

func (c *Claims) unlock() { <-c.sem }

// isFresh also checks the wall clock: after a machine was suspended, it is ahead of the monotonic
// clock.
func (c *Claims) isFresh() bool {
	held := c.held.Load()
	if held == nil {
		return false
	}
	now := c.cfg.Now()
	return now.Sub(*held) < validFor && now.Round(0).Sub(held.Round(0)) < expireAfter
}

// Run renews the claims until ctx ends.
func (c *Claims) Run(ctx context.Context) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for round := 0; ; round++ {
		if round == 0 || round == removeStaleAgainAfter {
			c.removeStale(ctx)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if c.lock(ctx) != nil {
				return
			}
			if err := c.renew(ctx); err != nil && ctx.Err() == nil {
				c.cfg.Logger.Debug("renew the claims on the sessions", "err", err)
			}
			c.unlock()
		}
	}
}

// renew writes all claims. If it finds another process's beat in one, it decides which of the two
// processes has the session.
func (c *Claims) renew(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, renewTimeout)
	defer cancel()
	begin := c.cfg.Now()
	defer func() {
		if err != nil {
			c.failed, c.failure = c.cfg.Now(), err
		}
	}()
	c.reportLosses()
	inUse := slices.DeleteFunc(c.cfg.Sessions(), func(s string) bool { return c.Lost(s) != nil })
	for _, s := range inUse {
		if c.sessions[s] == nil {
			c.sessions[s] = &session{}
		}
	}
	others, err := c.write(ctx, inUse)
	if err != nil {
		return err
	}
	free, err := c.resolveConflicts(ctx, others)
	if err != nil {
		return err
	}
	if others, err = c.write(ctx, free); err != nil {
		return err
	}
	if len(others) > 0 {
		return errWatching // a third process was quicker
	}
	for _, session := range c.cfg.Sessions() {
		if s := c.sessions[session]; c.Lost(session) == nil && (s == nil || !s.ours) {
			return c.renew(ctx) // it replaces one that was lost just now
		}
	}
	c.held.Store(&begin)
	c.release(ctx, inUse)
	return nil
}

// write writes a new beat into the claims of the sessions, in one command, and returns the
// sessions whose claims have an unexpected beat. A beat is never sent twice, because a process
// that resumed from the same snapshot would take it for its own.
func (c *Claims) write(ctx context.Context, sessions []string) (others []string, err error) {
	if len(sessions) == 0 {
		return nil, nil
	}
	beat := newBeat()
	if len(c.ownBeats) == maxOwnBeats {
		c.ownBeats = slices.Clone(c.ownBeats[maxOwnBeats/2:])
	}
	c.ownBeats = append(c.ownBeats, beat)
	var unreachable []string
	if c.cfg.Unreachable != nil {
		unreachable = c.cfg.Unreachable()
	}
	updates := make(bson.A, len(sessions))
	for i, name := range sessions {
		s := c.sessions[name]
		// An upsert, so that each claim that does not match is reported as a separate error.
		next := claimed{Session: name, Beat: beat, Unreachable: unreachable, Holder: c.cfg.Holder, Stopped: c.stopped}
		if c.cfg.Places != nil {
			next.Places = c.cfg.Places(name)
		}
		updates[i] = bson.D{
			{Key: "q", Value: bson.D{{Key: "_id", Value: name}, {Key: "beat", Value: s.beat}}},
			{Key: "u", Value: bson.D{
				{Key: "$set", Value: next},
				{Key: "$currentDate", Value: bson.D{{Key: "renewed", Value: true}}},
			}},
			{Key: "upsert", Value: true},
		}
	}
	refused, err := c.run(ctx, bson.D{{Key: "update", Value: Collection}, {Key: "updates", Value: updates}})
	if err != nil {
		return nil, fmt.Errorf("claim the sessions: %w", err)
	}
	for i, name := range sessions {
		if refused[i] {
			others = append(others, name)
			continue
		}
		*c.sessions[name] = session{ours: true, beat: beat}
	}
	return others, nil
}

// run runs a write command without the driver's retries: of two processes that resume from one
// snapshot, the second would get the result of the first one's command. It returns the operations
// that found a claim of another process.
func (c *Claims) run(ctx context.Context, command bson.D) (refused map[int]bool, err error) {
	const duplicateKey = 11000
	err = c.cfg.Database.RunCommand(ctx, append(command,
		bson.E{Key: "ordered", Value: false},
		bson.E{Key: "writeConcern", Value: bson.D{{Key: "w", Value: "majority"}, {Key: "j", Value: true}}})).Err()
	var failed mongo.WriteException
	if !errors.As(err, &failed) || failed.WriteConcernError != nil {
		return nil, err
	}
	refused = make(map[int]bool)
	for _, e := range failed.WriteErrors {
		if e.Code != duplicateKey {
			return nil, err
		}
		refused[e.Index] = true
	}
	return refused, nil
}

// resolveConflicts handles sessions whose claims have an unexpected beat, and returns those that
// this process may claim: their holders have ended, or are this process.
func (c *Claims) resolveConflicts(ctx context.Context, sessions []string) (free []string, err error) {
	if len(sessions) == 0 {
		return nil, nil
	}
	found, err := store.FindAll[claimed](ctx, c.cfg.Database.Collection(Collection), bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: sessions}}}})
	if err != nil {
		return nil, fmt.Errorf("read the claims on the sessions: %w", err)
	}
	if len(found) < len(sessions) {
		err = errWatching // a claim was released just now, or is not visible to a majority read yet
	}
	now := c.cfg.Now()
	for i := range found {
		theirs := &found[i]
		s := c.sessions[theirs.Session]
		switch {
		case slices.Contains(c.ownBeats, theirs.Beat): // the reply to an earlier attempt was lost, or the database was restored
			s.beat = theirs.Beat
			free = append(free, theirs.Session)
		case s.ours, theirs.Abandoned:
			c.lose(&HeldError{Session: theirs.Session, By: theirs.Holder, Abandoned: !s.ours})
		case theirs.Stopped, c.cfg.Holder.sameLock(&theirs.Holder), theirs.Beat == s.watched && now.Sub(s.since) >= expireAfter:
			s.beat = theirs.Beat
			free = append(free, theirs.Session)
		case s.watched == "":
			s.watched, s.since = theirs.Beat, now
			err = errWatching
			c.cfg.Logger.Info("a session of this journal is claimed by another process; waiting to see whether it still runs",
				"session", theirs.Session, "by", theirs.String(), "at_most", expireAfter)
		case theirs.Beat != s.watched && s.changes+1 == aliveChanges:
			return nil, &HeldError{Session: theirs.Session, By: theirs.Holder}
		case theirs.Beat != s.watched:
			s.watched, s.since, s.changes = theirs.Beat, now, s.changes+1
			err = errWatching
		default:
			err = errWatching
		}
	}
	return free, err
}

// lose stops using a session that another process has taken over.
func (c *Claims) lose(e *HeldError) {
	lost := maps.Clone(*c.lost.Load())
	lost[e.Session] = e
	c.lost.Store(&lost)
	c.held.Store(nil) // the session that replaces this one is not claimed yet
	c.losses.Inc()
	delete(c.sessions, e.Session)
	c.unreported = append(c.unreported, e.Session)
	c.cfg.Logger.Error("another process stores readings under a session of this one; readings that this one accepted under it and did not store stay in the journal, and become dead letters at the next start, since the readings of the two cannot be distinguished",
		"session", e.Session, "by", e.By.String())
	c.reportLosses()
}

// reportLosses calls OnLost for lost sessions.
func (c *Claims) reportLosses() {
	c.unreported = slices.DeleteFunc(c.unreported, func(session string) bool {
		err := c.cfg.OnLost(session)
		if err != nil {
			c.cfg.Logger.Error("a lost session could not be recorded in the journal; until it is, the daemon must not be started again with this journal", "session", session, "err", err)
		}
		return err == nil
	})
}

// release removes the claims of sessions that are not in use. A claim that cannot be removed is
// harmless.
func (c *Claims) release(ctx context.Context, inUse []string) {
	var deletes bson.A
	for _, name := range slices.Sorted(maps.Keys(c.sessions)) {
		if slices.Contains(inUse, name) {
			continue
		}
		s := c.sessions[name]
		delete(c.sessions, name)
		deletes = append(deletes, bson.D{
			{Key: "q", Value: bson.D{{Key: "_id", Value: name}, {Key: "beat", Value: s.beat}}}, {Key: "limit", Value: 1},
		})
	}
	c.remove(ctx, deletes)
}

func (c *Claims) remove(ctx context.Context, deletes bson.A) {
	if len(deletes) == 0 {
		return
	}
	if _, err := c.run(ctx, bson.D{{Key: "delete", Value: Collection}, {Key: "deletes", Value: deletes}}); err != nil {
		c.cfg.Logger.Debug("remove claims on sessions", "err", err)
	}
}

// removeStale removes claims that are not needed any more: those of earlier processes with this
// journal whose sessions the journal no longer has, and those of processes without a journal that
// have not been renewed for long. It only uses MongoDB's clock. Claims of processes with other
// journals are kept, because those may hold readings, see Uses.
func (c *Claims) removeStale(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, renewTimeout)
	defer cancel()
	before := func(age time.Duration) bson.E {
		return bson.E{Key: "$expr", Value: bson.D{{Key: "$lt", Value: bson.A{"$renewed", bson.D{{Key: "$subtract", Value: bson.A{"$$NOW", age.Milliseconds()}}}}}}}
	}
	deletes := bson.A{bson.D{{Key: "q", Value: bson.D{{Key: "dir", Value: bson.D{{Key: "$exists", Value: false}}}, before(staleAfter)}}, {Key: "limit", Value: 0}}}
	if h := &c.cfg.Holder; h.Lock != "" {
		// This process has the journal's lock, so it knows all its sessions.
		deletes = append(deletes, bson.D{{Key: "q", Value: bson.D{
			{Key: "host", Value: h.Host}, {Key: "dir", Value: h.Dir}, {Key: "lock", Value: h.Lock},
			{Key: "_id", Value: bson.D{{Key: "$nin", Value: c.cfg.Sessions()}}},
			{Key: "abandoned", Value: bson.D{{Key: "$ne", Value: true}}}, before(expireAfter),
		}}, {Key: "limit", Value: 0}})
	}
	c.remove(ctx, deletes)
}

// Close releases the claims, within ctx, except those of sessions with readings that a later
// process has to store. Nothing may be written afterwards.
func (c *Claims) Close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, renewTimeout)
	defer cancel()
	if c.lock(ctx) != nil {
		return // claims that are not released expire
	}
	defer c.unlock()
	var kept []string
	if c.cfg.Unstored != nil {
		kept = slices.DeleteFunc(c.cfg.Unstored(), func(name string) bool { return c.sessions[name] == nil || !c.sessions[name].ours })
	}
	c.stopped = true
	if _, err := c.write(ctx, kept); err != nil {
		c.cfg.Logger.Debug("mark claims on sessions as those of a daemon that has stopped", "err", err)
	}
	c.release(ctx, kept)
}

// A Store writes pending rows, see queue.Store.
type Store interface {
	Write(ctx context.Context, writes []*batch.Pending)
}

// Guard returns a store that writes only readings of claimed sessions.
func (c *Claims) Guard(s Store) Store { return &guarded{c, s} }

type guarded struct {
	claims *Claims
	store  Store
}

// Write implements Store.
func (g *guarded) Write(ctx context.Context, writes []*batch.Pending) {
	if err := g.claims.Ensure(ctx); err != nil {
		for _, s := range writes {
			s.Verdict, s.Err = batch.Wait, err
		}
		return
	}
	lost := g.claims.lost.Load()
	ctx = store.WithPermit(ctx, func() error {
		if err := g.claims.Ensure(ctx); err != nil {
			return err
		}
		if g.claims.lost.Load() != lost {
			return errLostMeanwhile
		}
		return nil
	})
	if len(*lost) == 0 && len(g.claims.cfg.LostBefore) == 0 {
		g.store.Write(ctx, writes)
		return
	}
	var good []*batch.Pending
	for _, s := range writes {
		if slices.Contains(g.claims.cfg.LostBefore, s.Session) {
			s.Verdict, s.Err = batch.Poison, errLostBefore
		} else if err := (*lost)[s.Session]; err != nil && err.Abandoned {
			s.Verdict, s.Err = batch.Poison, errLostBefore
		} else if err != nil {
			s.Verdict, s.Err = batch.Wait, err
		} else {
			good = append(good, s)
		}
	}
	if len(good) > 0 {
		g.store.Write(ctx, good)
	}
}

// newBeat returns a random beat. It includes the time, because two machines that resume from one
// snapshot may generate the same random bytes.
func newBeat() string {
	var b [16]byte
	_, _ = rand.Read(b[:8])                                          // never fails
	binary.BigEndian.PutUint64(b[8:], uint64(time.Now().UnixNano())) //nolint:gosec // bits
	return base32.HexEncoding.WithPadding(base32.NoPadding).EncodeToString(b[:])
}
