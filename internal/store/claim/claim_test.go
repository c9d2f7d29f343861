package claim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/faulttest"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
	"github.com/brim-telemetry/brim/internal/store"
)

func TestMain(m *testing.M) { mongodtest.Main(m) }

// process is a process that uses sessions, with its own clock.
type process struct {
	*Claims
	sessions []string
	now      time.Time
	redrawn  int
	lost     []string
}

func newProcess(db *mongo.Database, pid int, lock string, sessions ...string) *process {
	p := &process{sessions: sessions, now: time.Now()}
	p.Claims = New(Config{
		Database: db, Holder: Holder{Host: "h", Pid: pid, Dir: "/journals/" + lock, Lock: lock, Boot: "b", Since: p.now},
		Sessions: func() []string { return slices.Clone(p.sessions) },
		OnLost: func(session string) error {
			p.lost = append(p.lost, session)
			if p.sessions[0] == session {
				p.redrawn++
				p.sessions = append([]string{fmt.Sprint("redrawn", p.redrawn)}, p.sessions...)
			}
			return nil
		},
		Now: func() time.Time { return p.now },
	})
	return p
}

// later calls Ensure once the claims are due.
func (p *process) later(t *testing.T) error {
	p.now = p.now.Add(validFor)
	return p.Ensure(t.Context())
}

// connect returns a database with production's settings.
func connect(t *testing.T, uri, database string) *mongo.Database {
	t.Helper()
	c, err := store.Connect(store.ConnectionConfig{URI: uri, Database: database, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close(context.Background())) })
	return c.Database()
}

func fresh(t *testing.T) *mongo.Database {
	t.Helper()
	return connect(t, mongodtest.URI(t), mongodtest.Database(t).Name())
}

// claims returns the claimed sessions, and the process of each.
func claims(t *testing.T, db *mongo.Database) map[string]int {
	t.Helper()
	cursor, err := db.Collection(Collection).Find(t.Context(), bson.D{})
	require.NoError(t, err)
	var found []claimed
	require.NoError(t, cursor.All(t.Context(), &found))
	out := make(map[string]int)
	for _, f := range found {
		out[f.Session] = f.Pid
	}
	return out
}

func TestSessionInUseIsRefused(t *testing.T) {
	t.Parallel()
	db := fresh(t)
	first := newProcess(db, 1, "1:1", "new1", "old")
	require.NoError(t, first.Ensure(t.Context()))
	copied := newProcess(db, 2, "1:2", "new2", "old")
	require.ErrorIs(t, copied.Ensure(t.Context()), errWatching)
	require.ErrorIs(t, copied.Ensure(t.Context()), errWatching, "the first has done nothing since")
	require.NoError(t, first.later(t))
	require.ErrorIs(t, copied.Ensure(t.Context()), errWatching, "that may have been its last renewal, which the majority shows only now")
	require.NoError(t, first.later(t))

	err := copied.Ensure(t.Context())
	var held *HeldError
	require.ErrorAs(t, err, &held)
	assert.Equal(t, "old", held.Session)
	assert.ErrorContains(t, err, "process 1 on h with the journal in /journals/1:1, since "+first.cfg.Holder.Since.UTC().Format(time.RFC3339))
	require.NoError(t, first.later(t), "the first does not notice")

	first.sessions = []string{"new1"} // it has stored its backlog
	require.NoError(t, first.later(t))
	require.NoError(t, copied.Ensure(t.Context()))
	assert.Equal(t, map[string]int{"new1": 1, "new2": 2, "old": 2}, claims(t, db))
	first.Close(t.Context())
	copied.Close(t.Context())
	assert.Empty(t, claims(t, db))
}

func TestSameJournalIsClaimedAtOnceAfterAKill(t *testing.T) {
	t.Parallel()
	db := fresh(t)
	require.NoError(t, newProcess(db, 1, "1:1", "old").Ensure(t.Context()))
	next := newProcess(db, 2, "1:1", "new", "old")
	require.NoError(t, next.Ensure(t.Context()))
	assert.Equal(t, map[string]int{"new": 2, "old": 2}, claims(t, db))
}

func TestUnchangedBeatFreesAClaim(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Holder){
		"another folder":             func(h *Holder) { h.Lock = "1:2" },
		"another machine":            func(h *Holder) { h.Host = "other" },
		"the machine, started again": func(h *Holder) { h.Boot = "other" },
		"without a journal":          func(h *Holder) { h.Lock = "" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := fresh(t)
			require.NoError(t, newProcess(db, 1, "1:1", "old").Ensure(t.Context()))
			next := newProcess(db, 2, "1:1", "new", "old")
			change(&next.cfg.Holder)
			require.ErrorIs(t, next.Ensure(t.Context()), errWatching)
			next.now = next.now.Add(expireAfter - time.Second)
			require.ErrorIs(t, next.Ensure(t.Context()), errWatching)
			next.now = next.now.Add(time.Second)
			require.NoError(t, next.Ensure(t.Context()))
			assert.Equal(t, 2, claims(t, db)["old"])
		})
	}
}

// snapshot gives a second process the state of the first.
func snapshot(of, twin *process) {
	for name, s := range of.Claims.sessions {
		twin.Claims.sessions[name] = new(*s)
	}
	twin.ownBeats = slices.Clone(of.ownBeats)
}

// recorder records the writes that it gets.
type recorder struct{ sessions []string }

func (r *recorder) Write(_ context.Context, writes []*batch.Pending) {
	for _, s := range writes {
		r.sessions = append(r.sessions, s.Session)
		s.Verdict = batch.Stored
	}
}

// TestOneOfTwoResumedMachinesContinues, although both have the same claims and beats.
func TestOneOfTwoResumedMachinesContinues(t *testing.T) {
	t.Parallel()
	db := fresh(t)
	one, two := newProcess(db, 1, "1:1", "s", "old"), newProcess(db, 1, "1:1", "s", "old")
	require.NoError(t, one.Ensure(t.Context()))
	snapshot(one, two)
	require.NoError(t, one.later(t))
	require.NoError(t, two.later(t), "it goes on under another session")
	assert.Equal(t, 1, two.redrawn)
	require.Error(t, two.Lost("s"))
	require.ErrorContains(t, two.Err(), "session old")
	assert.ElementsMatch(t, []string{"s", "old"}, two.lost)
	assert.InDelta(t, 2, testutil.ToFloat64(two.losses), 0)
	assert.InDelta(t, 0, testutil.ToFloat64(one.losses), 0)
	require.NoError(t, one.later(t))
	require.NoError(t, one.Err())

	var wrote recorder
	writes := []*batch.Pending{{Session: "s"}, {Session: "redrawn1"}, {Session: "old"}}
	two.Guard(&wrote).Write(t.Context(), writes)
	assert.Equal(t, []string{"redrawn1"}, wrote.sessions)
	assert.Equal(t, batch.Wait, writes[0].Verdict)
	assert.ErrorContains(t, writes[0].Err, "session s")
	assert.Equal(t, batch.Stored, writes[1].Verdict)
	require.NoError(t, two.later(t))
	assert.Contains(t, claims(t, db), "redrawn1")
	assert.NotContains(t, two.Claims.sessions, "s")
}

// TestRestoredClaimIsClaimedAgain: mongorestore --drop under a running daemon
// restores one of its own beats.
func TestRestoredClaimIsClaimedAgain(t *testing.T) {
	t.Parallel()
	db := fresh(t)
	p, twin := newProcess(db, 1, "1:1", "s"), newProcess(db, 1, "1:1", "s")
	require.NoError(t, p.Ensure(t.Context()))
	var dump bson.D
	require.NoError(t, db.Collection(Collection).FindOne(t.Context(), bson.D{}).Decode(&dump))
	snapshot(p, twin)
	for range 3 {
		require.NoError(t, p.later(t))
	}
	_, err := db.Collection(Collection).ReplaceOne(t.Context(), bson.D{{Key: "_id", Value: "s"}}, dump)
	require.NoError(t, err)
	require.NoError(t, p.later(t))
	require.NoError(t, p.Err())

	require.NoError(t, twin.later(t))
	require.Error(t, twin.Lost("s"), "it did not write the beat that it finds")
	require.NoError(t, p.later(t))
	require.NoError(t, p.Err())
}

// TestOneOfTwoResumedAttemptsContinues, although neither knows the outcome of its attempt.
func TestOneOfTwoResumedAttemptsContinues(t *testing.T) {
	t.Parallel()
	db := fresh(t)
	one, two := newProcess(db, 1, "1:1", "s"), newProcess(db, 1, "1:1", "s")
	require.NoError(t, one.Ensure(t.Context()))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	one.now = one.now.Add(validFor)
	require.Error(t, one.Ensure(ended))
	snapshot(one, two)
	require.NoError(t, one.later(t))
	require.NoError(t, two.later(t))
	require.NoError(t, one.Err())
	require.Error(t, two.Lost("s"))
}

// TestLostSessionIsNotReplayed: the guard would take its readings for stored if
// the other process had stored some with the same sequences.
func TestLostSessionIsNotReplayed(t *testing.T) {
	t.Parallel()
	p := newProcess(fresh(t), 1, "1:1", "s")
	p.cfg.LostBefore = []string{"old"}
	var wrote recorder
	writes := []*batch.Pending{{Session: "old", Recovered: true}, {Session: "s"}}
	p.Guard(&wrote).Write(t.Context(), writes)
	assert.Equal(t, []string{"s"}, wrote.sessions)
	assert.Equal(t, batch.Poison, writes[0].Verdict, "it becomes a dead letter")
	assert.ErrorContains(t, writes[0].Err, "the reading may be stored already")
}

func TestLossIsReportedUntilItIsRecorded(t *testing.T) {
	t.Parallel()
	db := fresh(t)
	one, two := newProcess(db, 1, "1:1", "s"), newProcess(db, 1, "1:1", "s")
	require.NoError(t, one.Ensure(t.Context()))
	snapshot(one, two)
	require.NoError(t, one.later(t))
	lose, failures := two.cfg.OnLost, 2
	two.cfg.OnLost = func(session string) error {
		if failures--; failures >= 0 {
			return errors.New("the disk is full")
		}
		return lose(session)
	}
	two.sessions = append([]string{"other"}, two.sessions...)
	for range 4 {
		require.NoError(t, two.later(t))
	}
	assert.Equal(t, []string{"s"}, two.lost)
}

// TestNothingIsWrittenOnAnOldClaim, since another process may have taken over a
// claim that was not renewed.
func TestNothingIsWrittenOnAnOldClaim(t *testing.T) {
	t.Parallel()
	proxy, err := faulttest.NewProxy(options.Client().ApplyURI(mongodtest.URI(t)).Hosts[0])
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, proxy.Close()) })
	db := connect(t, "mongodb://"+proxy.Addr()+"/?directConnection=true", mongodtest.Database(t).Name())
	p := newProcess(db, 1, "1:1", "s")
	var wrote recorder
	guarded := p.Guard(&wrote)
	write := func() batch.Verdict {
		pending := &batch.Pending{Session: "s"}
		guarded.Write(t.Context(), []*batch.Pending{pending})
		return pending.Verdict
	}
	require.Equal(t, batch.Stored, write())

	proxy.Set(faulttest.Faults{Decide: faulttest.Randomly(1, faulttest.CutAnswer)})
	p.now = p.now.Add(validFor - time.Millisecond)
	require.Equal(t, batch.Stored, write(), "without asking")
	p.now = p.now.Add(time.Millisecond)
	require.Equal(t, batch.Wait, write())
	p.now = p.now.Add(time.Millisecond)
	require.Equal(t, batch.Wait, write())

	proxy.Set(faulttest.Faults{})
	p.now = p.now.Add(time.Millisecond)
	require.Equal(t, batch.Stored, write(), "the answers were lost, and the renewals were not")
	require.NoError(t, p.Err())
}

// slow is a store that sends one command per write, and calls behind after each.
type slow struct {
	recorder
	behind func()
}

func (s *slow) Write(ctx context.Context, writes []*batch.Pending) {
	for _, one := range writes {
		if err := store.Permitted(ctx); err != nil {
			one.Verdict, one.Err = batch.Unsent, err
			continue
		}
		s.recorder.Write(ctx, []*batch.Pending{one})
		s.behind()
	}
}

func TestEachCommandOfAWriteNeedsTheClaim(t *testing.T) {
	t.Parallel()
	db := fresh(t)
	p, next := newProcess(db, 1, "1:1", "s"), newProcess(db, 2, "1:2", "new", "s")
	wrote := &slow{behind: func() {
		p.now = p.now.Add(expireAfter)
		require.ErrorIs(t, next.Ensure(t.Context()), errWatching)
		next.now = next.now.Add(expireAfter)
		require.NoError(t, next.Ensure(t.Context()))
	}}
	writes := []*batch.Pending{{Session: "s"}, {Session: "s"}}
	p.Guard(wrote).Write(t.Context(), writes)
	assert.Len(t, wrote.sessions, 1)
	assert.Equal(t, batch.Unsent, writes[1].Verdict)
	assert.ErrorIs(t, writes[1].Err, errLostMeanwhile)
}

// TestOldClaimsAreRemoved if unneeded. Other journals may hold readings forever.
func TestOldClaimsAreRemoved(t *testing.T) {
	t.Parallel()
	db := fresh(t)
	p := newProcess(db, 1, "1:1", "s")
	p.cfg.Holder.Dir = "/journal"
	require.NoError(t, p.Ensure(t.Context()))
	add := func(name string, age time.Duration, more ...bson.E) {
		_, err := db.Collection(Collection).InsertOne(t.Context(), append(bson.D{{Key: "_id", Value: name}, {Key: "renewed", Value: time.Now().Add(-age)}}, more...))
		require.NoError(t, err)
	}
	ours := []bson.E{{Key: "host", Value: p.cfg.Holder.Host}, {Key: "dir", Value: "/journal"}, {Key: "lock", Value: "1:1"}}
	add("without a journal", staleAfter+time.Hour)
	add("stored by an earlier process", time.Hour, ours...)
	add("abandoned", time.Hour, append(ours, bson.E{Key: "abandoned", Value: true})...)
	add("maybe alive", 0, ours...)
	add("another journal", staleAfter+time.Hour, bson.E{Key: "dir", Value: "/other"})
	p.removeStale(t.Context())
	var left []string
	for name := range claims(t, db) {
		left = append(left, name)
	}
	assert.ElementsMatch(t, []string{"s", "abandoned", "maybe alive", "another journal"}, left)
}
