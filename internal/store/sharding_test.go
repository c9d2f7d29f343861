package store

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
)

// TestShardKeyMustKeepIDsUnique: the test writes a cluster's catalog entries.
func TestShardKeyMustKeepIDsUnique(t *testing.T) {
	t.Parallel()
	db := mongodtest.Database(t)
	for name, tt := range map[string]struct {
		key     bson.D
		more    bson.D
		sharded bool
		bad     bool
	}{
		"by a field of the document":       {key: bson.D{{Key: "sensorId", Value: "hashed"}}, bad: true},
		"by a field of it besides":         {key: bson.D{{Key: "_id.s", Value: 1}, {Key: "bucketStart", Value: 1}}, bad: true},
		"by hash":                          {key: bson.D{{Key: "_id.s", Value: "hashed"}}, sharded: true},
		"in order, cut by time":            {key: bson.D{{Key: "_id.s", Value: 1}, {Key: "_id.b", Value: 1}}, sharded: true},
		"by _id":                           {key: bson.D{{Key: "_id", Value: 1}}, sharded: true},
		"known to the cluster, on a shard": {key: bson.D{{Key: "_id", Value: 1}}, more: bson.D{{Key: "unsplittable", Value: true}}},
		"dropped":                          {key: bson.D{{Key: "sensorId", Value: 1}}, more: bson.D{{Key: "dropped", Value: true}}},
		"not sharded":                      {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := Collection{Database: db, Name: name}
			namespace := db.Name() + "." + name
			if tt.key != nil {
				_, err := db.Client().Database("config").Collection("collections").InsertOne(t.Context(),
					append(bson.D{{Key: "_id", Value: namespace}, {Key: "key", Value: tt.key}}, tt.more...))
				require.NoError(t, err)
			}
			sharded, err := c.shardedBy(t.Context())
			assert.Equal(t, tt.sharded, sharded)
			if !tt.bad {
				require.NoError(t, err)
				return
			}
			var mismatch *MismatchError
			require.ErrorAs(t, err, &mismatch, "it is final")
			assert.Equal(t, "shard key", mismatch.What)
			assert.ErrorContains(t, err, `sh.reshardCollection("`+namespace+`", {"_id.s": "hashed"})`)
		})
	}
}

func TestNothingIsShardedWithoutACluster(t *testing.T) {
	t.Parallel()
	sharded, err := Collection{Database: mongodtest.Database(t), Name: "readings"}.Sharded(t.Context())
	require.NoError(t, err)
	assert.False(t, sharded)
}

func TestUnreadableCatalogNamesTheMissingPrivilege(t *testing.T) {
	t.Parallel()
	c := dialAs(t, "may not see the catalog")
	failing(t, c, bson.D{{Key: "errorCode", Value: 13}, {Key: "failCommands", Value: bson.A{"find"}}})("alwaysOn")
	_, err := Collection{Database: c.Database(), Name: "readings"}.shardedBy(t.Context())
	require.ErrorContains(t, err, "grant the right to find in collections of the database config, which the role brimServeShards")
	var mismatch *MismatchError
	assert.NotErrorAs(t, err, &mismatch, "the right may be granted while the daemon runs")
}
