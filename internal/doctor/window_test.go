package doctor

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/brim-telemetry/brim/internal/mongod"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
)

// TestTheHistoryWindowIsAskedForAgain, since it can change at any time.
func TestTheHistoryWindowIsAskedForAgain(t *testing.T) {
	t.Parallel()
	db := mongodtest.DatabaseAt(t, mongodtest.Start(t, mongod.Config{}).URI())
	b := newBench(t, Config{Database: db})
	for _, seconds := range []int{300, 0, 20} {
		require.NoError(t, db.Client().Database("admin").RunCommand(t.Context(), bson.D{
			{Key: "setParameter", Value: 1}, {Key: "minSnapshotHistoryWindowInSeconds", Value: seconds},
		}).Err())
		b.Sample(t.Context())
		window := b.Seen().Server.HistoryWindowSeconds
		require.NotNil(t, window)
		assert.InDelta(t, float64(seconds), *window, 0)
	}
}

// TestTheHistoryWindowIsNotGuessed: a standalone server keeps none, and an
// unreported one is unknown.
func TestTheHistoryWindowIsNotGuessed(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{Database: nowhere(t).Database("brim")})
	alone := sample{server: &status{topology: "standalone"}}
	b.sampleWindow(t.Context(), &alone)
	assert.Zero(t, alone.historyWindow)
	for _, now := range []sample{{}, {server: &status{}, serverWhy: whyMongos}, {server: &status{topology: "replica_set"}}} {
		b.sampleWindow(t.Context(), &now)
		s := newSeen(sample{}, now, nil)
		assert.Nil(t, s.Server.HistoryWindowSeconds)
		assert.False(t, s.keepsNoHistory())
	}
}
