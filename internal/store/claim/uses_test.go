package claim

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/brim-telemetry/brim/internal/batch"
)

// places makes the process publish where its sessions' readings go.
func (p *process) places(collection string) *process {
	p.cfg.Places = func(string) map[string]string { return map[string]string{"readings": collection} }
	return p
}

// leaves stops the process with readings left in these sessions.
func (p *process) leaves(sessions ...string) *process {
	p.cfg.Unstored = func() []string { return sessions }
	return p
}

// uses returns the uses of the stream readings, by session.
func uses(t *testing.T, db *mongo.Database) map[string]Use {
	t.Helper()
	found, err := Uses(t.Context(), db, "readings")
	require.NoError(t, err)
	out := make(map[string]Use)
	for _, u := range found {
		out[u.Session] = u
	}
	return out
}

// age makes all claims as old as those of killed processes.
func age(t *testing.T, db *mongo.Database) {
	t.Helper()
	_, err := db.Collection(Collection).UpdateMany(t.Context(), bson.D{}, bson.D{{Key: "$set", Value: bson.D{{Key: "renewed", Value: time.Now().Add(-2 * expireAfter)}}}})
	require.NoError(t, err)
}

// TestClaimsOfWhatIsLeftSurviveAStop until a process with the same journal, which need not wait,
// has stored it.
func TestClaimsOfWhatIsLeftSurviveAStop(t *testing.T) {
	t.Parallel()
	db := fresh(t)
	first := newProcess(db, 1, "1:1", "new", "old", "older").places("readings").leaves("old", "never claimed")
	require.NoError(t, first.Ensure(t.Context()))
	assert.True(t, uses(t, db)["older"].Alive)
	first.Close(t.Context())
	assert.Equal(t, map[string]int{"old": 1}, claims(t, db))
	left := uses(t, db)["old"]
	assert.True(t, left.Stopped)
	assert.False(t, left.Alive, "it has ended, and says so")
	assert.Equal(t, map[string]string{"readings": "readings"}, left.Places)
	assert.Equal(t, "h:/journals/1:1", left.Holder.ID())

	next := newProcess(db, 2, "other", "newest", "old") // on another machine, with the same volume
	next.cfg.Holder.Host = "other"
	require.NoError(t, next.Ensure(t.Context()), "nothing is waited for")
	next.places("readings")
	require.NoError(t, next.later(t))
	assert.True(t, uses(t, db)["old"].Alive)
	assert.False(t, uses(t, db)["old"].Stopped)
	next.sessions = []string{"newest"}
	require.NoError(t, next.later(t))
	assert.NotContains(t, uses(t, db), "old")
	next.Close(t.Context())
	assert.Empty(t, claims(t, db), "all is stored")
}

// TestASessionThatWasLostIsNotKept, since it is another process's.
func TestASessionThatWasLostIsNotKept(t *testing.T) {
	t.Parallel()
	db := fresh(t)
	one, two := newProcess(db, 1, "1:1", "s", "old"), newProcess(db, 1, "1:1", "s", "old").leaves("s", "old", "redrawn1")
	require.NoError(t, one.Ensure(t.Context()))
	snapshot(one, two)
	require.NoError(t, one.later(t))
	for range 3 { // it draws another session and claims it
		_ = two.later(t)
	}
	two.Close(t.Context())
	assert.True(t, uses(t, db)["redrawn1"].Stopped)
	assert.False(t, uses(t, db)["s"].Stopped)
	require.NoError(t, one.later(t))
	require.NoError(t, one.Err())
}

// TestUsesAreThoseOfTheStream, and of processes that do not publish their streams.
func TestUsesAreThoseOfTheStream(t *testing.T) {
	t.Parallel()
	db := fresh(t)
	older := newProcess(db, 1, "1:1", "older")
	knows := newProcess(db, 2, "1:2", "knows")
	knows.cfg.Holder.Streams = []string{"readings"}
	other := newProcess(db, 3, "1:3", "other")
	other.cfg.Holder.Streams = []string{"other"}
	elsewhere := newProcess(db, 4, "1:4", "elsewhere")
	elsewhere.cfg.Places = func(string) map[string]string { return map[string]string{"other": "other"} }
	mover := newProcess(db, 5, "1:5", Lease("readings"))
	for _, p := range []*process{older, knows, other, elsewhere, mover} {
		require.NoError(t, p.Ensure(t.Context()))
	}
	found := uses(t, db)
	assert.Len(t, found, 2)
	assert.Contains(t, found, "older")
	assert.Contains(t, found, "knows")
	age(t, db)
	for _, u := range uses(t, db) {
		assert.False(t, u.Alive)
		assert.False(t, u.Stopped, "it was killed")
	}
}

// TestAnAbandonedSessionIsLost when its process comes back, unless that happens first.
func TestAnAbandonedSessionIsLost(t *testing.T) {
	t.Parallel()
	db := fresh(t)
	killed := newProcess(db, 1, "1:1", "s", "old").places("readings")
	require.NoError(t, killed.Ensure(t.Context()))
	stale := uses(t, db)["old"]
	require.NoError(t, killed.later(t))
	taken, err := Abandon(t.Context(), db, &stale)
	require.NoError(t, err)
	assert.False(t, taken, "it has renewed its claim since")

	age(t, db)
	left := uses(t, db)["old"]
	taken, err = Abandon(t.Context(), db, &left)
	require.NoError(t, err)
	require.True(t, taken)
	assert.NotContains(t, uses(t, db), "old")
	assert.Contains(t, uses(t, db), "s")

	next := newProcess(db, 2, "1:1", "new", "s", "old").places("readings")
	require.NoError(t, next.Ensure(t.Context()))
	assert.Equal(t, []string{"old"}, next.lost)
	require.Error(t, next.Lost("old"))
	require.NoError(t, next.Lost("s"))
	var wrote recorder
	writes := []*batch.Pending{{Session: "old", Recovered: true}, {Session: "s", Recovered: true}, {Session: "new"}}
	next.Guard(&wrote).Write(t.Context(), writes)
	assert.Equal(t, []string{"s", "new"}, wrote.sessions)
	assert.NotEqual(t, batch.Stored, writes[0].Verdict)
	assert.NotContains(t, uses(t, db), "old", "it stays abandoned")
	for range 3 {
		require.NoError(t, next.later(t))
	}
	assert.NotContains(t, uses(t, db), "old")
	assert.Equal(t, []string{"old"}, next.lost)
}

// TestOthersAreNoneThatHaveEnded or that only move readings: there is nothing to ask them for.
func TestOthersAreNoneThatHaveEnded(t *testing.T) {
	t.Parallel()
	db := fresh(t)
	asks := newDaemon(t, newProcess(db, 1, "1:1", "s1"), "asks", "a:1")
	stops := newDaemon(t, newProcess(db, 2, "1:2", "s2"), "stops", "a:2").leaves("s2")
	newDaemon(t, newProcess(db, 3, "1:3", "s3"), "killed", "a:3")
	newDaemon(t, newProcess(db, 4, "1:4", Lease("readings")), "brim move", "")
	assert.Equal(t, []string{"killed@a:3", "stops@a:2"}, asks.daemons(t))
	stops.Close(t.Context())
	assert.Equal(t, []string{"killed@a:3"}, asks.daemons(t))
	age(t, db)
	left := uses(t, db)["s3"]
	taken, err := Abandon(t.Context(), db, &left)
	require.NoError(t, err)
	require.True(t, taken)
	assert.Empty(t, asks.daemons(t))
}
