//go:build unix

package mongodtest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// TestReplicaSetOutlivesItsPrimaries loses the primary in every way there is;
// what was written by majority stays.
func TestReplicaSetOutlivesItsPrimaries(t *testing.T) {
	t.Parallel()
	set := StartReplicaSet(t, time.Second)
	client, err := mongo.Connect(options.Client().ApplyURI(set.URI("heartbeatFrequencyMS=500", "connectTimeoutMS=1000")).SetTimeout(operationTimeout))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Disconnect(context.Background())) })
	coll := client.Database("db").Collection("c")
	write := func(id string) {
		t.Helper()
		_, err := coll.InsertOne(t.Context(), bson.D{{Key: "_id", Value: id}})
		require.NoError(t, err)
	}
	write("at first")

	before := set.Primary()
	require.NoError(t, set.StepDown())
	assert.NotEqual(t, before.Host, set.Primary().Host)
	write("after a step-down")

	killed := set.Primary()
	killed.Kill()
	assert.NotEqual(t, killed.Host, set.Primary().Host)
	write("with two of three")
	killed.Restart(t)
	set.AwaitHealthy()

	paused := set.Primary()
	require.NoError(t, paused.Pause())
	require.Eventually(t, func() bool { return set.Primary().Host != paused.Host }, electionPatience, 50*time.Millisecond)
	require.NoError(t, paused.Resume())
	set.AwaitHealthy()
	write("after one stood still")

	n, err := coll.CountDocuments(t.Context(), bson.D{})
	require.NoError(t, err)
	assert.EqualValues(t, 4, n)
}
