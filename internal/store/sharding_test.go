package store

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/brim-telemetry/brim/internal/mongod/mongostest"
)

// shardedCollection is one of a cluster that answers as MongoDB's documentation
// says, see package mongostest.
func shardedCollection(t *testing.T, c *mongostest.Cluster) Collection {
	t.Helper()
	return Collection{Database: dial(t, c.URI(), "brim").Database(), Name: "readings"}
}

func TestACollectionOnAClusterIsSeen(t *testing.T) {
	t.Parallel()
	c := mongostest.StartCluster(t)
	coll := shardedCollection(t, c)
	s, err := coll.Sharding(t.Context())
	require.NoError(t, err)
	assert.True(t, s.Cluster)
	assert.False(t, s.Sharded())
	require.NoError(t, coll.CheckShardKey(s), "on one shard, an _id is unique")

	key := bson.D{{Key: "_id.s", Value: "hashed"}, {Key: "_id.b", Value: 1}}
	c.Shard("brim.system.buckets.readings", key)
	s, err = coll.Sharding(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "brim.system.buckets.readings", s.Namespace)
	assert.True(t, s.Key.Equal(ShardKey(key)), s.Key.String())
}

func TestACollectionThatIsTrackedOnOneShardIsNotSharded(t *testing.T) {
	t.Parallel()
	c := mongostest.StartCluster(t)
	c.Track("brim.readings")
	s, err := shardedCollection(t, c).Sharding(t.Context())
	require.NoError(t, err)
	assert.True(t, s.Cluster)
	assert.False(t, s.Sharded())
}

func TestAKeyByWhichIDsAreNotUniqueIsAMismatch(t *testing.T) {
	t.Parallel()
	err := Collection{Name: "readings"}.CheckShardKey(&Sharding{Cluster: true, Namespace: "brim.readings", Key: ShardKey{{Key: "sensorId", Value: "hashed"}}})
	var mismatch *MismatchError
	require.ErrorAs(t, err, &mismatch)
	assert.Equal(t, "shard key", mismatch.What)
	assert.Contains(t, err.Error(), `sh.reshardCollection("brim.readings", {"_id.s": "hashed"})`)
}

func TestACatalogThatCannotBeReadIsAnErrorThatSaysWhichRight(t *testing.T) {
	t.Parallel()
	c := mongostest.StartCluster(t)
	c.Change(func() {
		c.Refuse = func(command mongostest.Command) bson.D {
			if command.Database == "config" {
				return mongostest.Failure(13, "Unauthorized", "not authorized on config to execute command")
			}
			return nil
		}
	})
	_, err := shardedCollection(t, c).Sharding(t.Context())
	require.ErrorContains(t, err, "grant the right to find in collections of the database config")
}
