package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
)

// A ShardKey is by what a cluster spreads a collection's documents over its
// shards: the paths of fields, each with 1, -1 or "hashed".
type ShardKey bson.D

// The paths of keys' fields, in the documents of a bucket stream and in the
// server's buckets of a time-series collection.
const (
	SensorPath       = "_id.s"
	SeriesSensorPath = "meta.id"
)

// String writes the key as mongosh takes it.
func (k ShardKey) String() string {
	parts := make([]string, len(k))
	for i, e := range k {
		how := fmt.Sprint(e.Value)
		if text, ok := e.Value.(string); ok {
			how = fmt.Sprintf("%q", text)
		}
		parts[i] = fmt.Sprintf("%q: %s", e.Key, how)
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

// Equal reports whether two keys are the same, whatever numbers their ones are.
func (k ShardKey) Equal(other ShardKey) bool { return k.String() == other.String() }

// Hashed reports whether the first field is spread by its hash.
func (k ShardKey) Hashed() bool { return len(k) > 0 && k[0].Value == "hashed" }

// KeepsIDsUnique reports whether documents of the same _id lie on the same shard,
// so that the shard's index on _id refuses the second, and whether an update by
// _id is sent to that shard alone. Both is so if every field is one that all
// buckets have in their _id: a router takes _id.s from an equality on _id.
func (k ShardKey) KeepsIDsUnique() bool {
	known := []string{"_id", SensorPath, "_id.b", "_id.g", "_id.p"}
	return len(k) > 0 && !slices.ContainsFunc(k, func(e bson.E) bool { return !slices.Contains(known, e.Key) })
}

// KeepsSensorsTogether reports whether the buckets of a sensor are neighbours,
// so that a query for one sensor asks one shard, or two.
func (k ShardKey) KeepsSensorsTogether() bool {
	if len(k) == 0 {
		return false
	}
	switch k[0].Key {
	case SensorPath, SeriesSensorPath, "meta":
		return true
	case "_id":
		return !k.Hashed()
	}
	return false
}

// Sharding is what a cluster knows of a collection.
type Sharding struct {
	Cluster   bool   // the server is a router of a sharded cluster; else nothing else is set
	Namespace string // under which the cluster knows the collection; empty: it is not sharded
	UUID      bson.Binary
	Key       ShardKey
	NoBalance bool // its chunks are not moved
}

// Sharded reports whether the collection is.
func (s *Sharding) Sharded() bool { return s.Namespace != "" }

// errCatalog is that a cluster does not tell by what a collection is sharded.
const errCatalog = "look by what collection %q is sharded: %w; grant the right to find in collections of the database config, " +
	"which the role brimServeShards of deploy/mongodb/roles.js has: readings are not written while it is unknown, for they might be stored twice"

// Routed reports whether the server is a router of a sharded cluster, a mongos.
func Routed(ctx context.Context, client *mongo.Client) (bool, error) {
	var hello struct {
		Message string `bson:"msg"`
	}
	if err := client.Database("admin").RunCommand(ctx, bson.D{{Key: "hello", Value: 1}}).Decode(&hello); err != nil {
		return false, fmt.Errorf("ask MongoDB what it is: %w", err)
	}
	return hello.Message == "isdbgrid", nil
}

// Sharding asks a cluster for the collection. Time-series collections are known
// there by the name of their buckets, in later versions by their own.
func (c Collection) Sharding(ctx context.Context) (*Sharding, error) {
	routed, err := Routed(ctx, c.Database.Client())
	if err != nil || !routed {
		return &Sharding{}, err
	}
	own := c.Database.Name() + "." + c.Name
	buckets := c.Database.Name() + ".system.buckets." + c.Name
	var found struct {
		Namespace    string      `bson:"_id"`
		UUID         bson.Binary `bson:"uuid"`
		Key          bson.D      `bson:"key"`
		NoBalance    bool        `bson:"noBalance"`
		Unsplittable bool        `bson:"unsplittable"` // known to the cluster, and on one shard
		Dropped      bool        `bson:"dropped"`
	}
	err = c.Database.Client().Database("config", options.Database().SetReadConcern(readconcern.Majority())).Collection("collections").
		FindOne(ctx, bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: bson.A{own, buckets}}}}}).Decode(&found)
	switch {
	case errors.Is(err, mongo.ErrNoDocuments), err == nil && (found.Unsplittable || found.Dropped):
		return &Sharding{Cluster: true}, nil
	case err != nil:
		return nil, fmt.Errorf(errCatalog, c.Name, err)
	}
	return &Sharding{Cluster: true, Namespace: found.Namespace, UUID: found.UUID, Key: ShardKey(found.Key), NoBalance: found.NoBalance}, nil
}

// CheckShardKey returns a mismatch if the collection is sharded in a way that
// lets two documents of the same _id lie on two shards: what is written again
// would then be stored again.
func (c Collection) CheckShardKey(s *Sharding) error {
	if !s.Sharded() || s.Key.KeepsIDsUnique() {
		return nil
	}
	return &MismatchError{
		Collection: c.Name, What: "shard key", Have: s.Key.String(), Want: `a key of fields of _id, like {"_id.s": "hashed"}`,
		Hint: "by this one, two shards may each hold a document of the same _id, and a reading that is sent again would be stored twice; " +
			"choose another stream name or database, and shard that by `brim shard init`, or reshard the collection (MongoDB 5.0 and later), in mongosh: " +
			fmt.Sprintf(`sh.reshardCollection(%q, {"_id.s": "hashed"})`, s.Namespace),
	}
}
