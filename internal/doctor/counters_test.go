package doctor

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
)

func TestCountersGiveDifferences(t *testing.T) {
	t.Parallel()
	db := mongodtest.Database(t)
	before, err := ReadCounters(t.Context(), db.Client())
	require.NoError(t, err)
	_, err = db.Collection("c").InsertOne(t.Context(), bson.D{{Key: "a", Value: make([]byte, 10_000)}})
	require.NoError(t, err)
	after, err := ReadCounters(t.Context(), db.Client())
	require.NoError(t, err)
	assert.GreaterOrEqual(t, after.Since(before, "operations_total write"), 1.0)
	assert.Positive(t, after.Value("cache_max_bytes"))
	assert.True(t, math.IsNaN(after.Value("no such figure")))
	assert.Equal(t, "replica_set", after.Topology)
	assert.NotEmpty(t, after.Version)
	assert.True(t, after.At.After(before.At))
	assert.Contains(t, []string{"nvme", "ssd", "hdd", "unknown"}, DiskKind(t.TempDir()))
}
