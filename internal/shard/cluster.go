// Package shard stands beside the way of a reading: it spreads the collections of
// streams over the shards of a cluster, before their first reading if it can be,
// and tells how they lie. It only sends commands to a router, a mongos; what they
// do is MongoDB's.
//
//	Look ─▶ Cluster ─┬─ Plan ─▶ steps ─┬─ shown (a dry run)
//	                 │                 └─ Run, one after another
//	                 └─ Status ─▶ key, chunks, data and zones of a stream
//
// A bucket stream is sharded by _id.s, by its hash or in its order: then all
// documents of one _id lie on one shard, whose index on _id keeps them unique,
// which is what writing exactly once rests on.
package shard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"

	"github.com/brim-telemetry/brim/internal/store"
)

// ErrNoCluster is that there is nothing to spread over.
var ErrNoCluster = errors.New("this MongoDB is not a sharded cluster: give the address of a mongos by --mongo-uri; " +
	"a replica set is not made one by Brim, see docs/growing.md")

// A Stream is one whose collection is to be spread, as it is configured.
type Stream struct {
	Name        string // also of the collection
	Storage     store.Storage
	Granularity time.Duration
	Compressor  store.Compressor
	Retention   time.Duration // 0: for ever
}

// A Shard is a replica set of the cluster.
type Shard struct {
	Name  string   `json:"name" bson:"_id"`
	Zones []string `json:"zones" bson:"tags"`
}

// A Cluster is what was seen of one at a moment, and the way to it.
type Cluster struct {
	Version string
	Shards  []Shard

	db     *mongo.Database
	admin  *mongo.Database
	config *mongo.Database // majority reads: what they show is not rolled back
	major  int
	minor  int
}

// Look asks the server behind a database what it is; ErrNoCluster is one answer.
func Look(ctx context.Context, db *mongo.Database) (*Cluster, error) {
	client := db.Client()
	routed, err := store.Routed(ctx, client)
	if err != nil {
		return nil, err
	}
	if !routed {
		return nil, ErrNoCluster
	}
	c := &Cluster{db: db, admin: client.Database("admin"), config: client.Database("config", options.Database().SetReadConcern(readconcern.Majority()))}
	var build struct {
		Version string `bson:"version"`
		Numbers []int  `bson:"versionArray"`
	}
	if err := c.admin.RunCommand(ctx, bson.D{{Key: "buildInfo", Value: 1}}).Decode(&build); err != nil {
		return nil, fmt.Errorf("ask for MongoDB's version: %w", err)
	}
	if len(build.Numbers) < 2 {
		return nil, errors.New("ask for MongoDB's version: the answer names none")
	}
	c.Version, c.major, c.minor = build.Version, build.Numbers[0], build.Numbers[1]
	const oldest = 5 // of earlier ones the catalog has another form
	if c.major < oldest {
		return nil, fmt.Errorf("the cluster runs MongoDB %s; allowed are 5.0 and later", c.Version)
	}
	var list struct {
		Shards []Shard `bson:"shards"`
	}
	if err := c.admin.RunCommand(ctx, bson.D{{Key: "listShards", Value: 1}}).Decode(&list); err != nil {
		return nil, fmt.Errorf("list the shards: %w", err)
	}
	if len(list.Shards) == 0 {
		return nil, errors.New("the cluster has no shards; add one in mongosh: sh.addShard(\"SET/HOST:PORT\")")
	}
	slices.SortFunc(list.Shards, func(a, b Shard) int { return strings.Compare(a.Name, b.Name) })
	c.Shards = list.Shards
	return c, nil
}

// atLeast reports whether the cluster runs this version or a later one.
func (c *Cluster) atLeast(major, minor int) bool {
	return c.major > major || c.major == major && c.minor >= minor
}

// shard returns one by its name, nil if there is none.
func (c *Cluster) shard(name string) *Shard {
	for i := range c.Shards {
		if c.Shards[i].Name == name {
			return &c.Shards[i]
		}
	}
	return nil
}

func (c *Cluster) shardNames() []string {
	names := make([]string, len(c.Shards))
	for i, s := range c.Shards {
		names[i] = s.Name
	}
	return names
}

// A chunk is a range of keys that lies on one shard.
type chunk struct {
	Min   bson.D `bson:"min"`
	Max   bson.D `bson:"max"`
	Shard string `bson:"shard"`
	Jumbo bool   `bson:"jumbo"` // too large to be moved
}

// A zoneRange says on which shards a range of keys has to lie.
type zoneRange struct {
	Min  bson.D `bson:"min"`
	Max  bson.D `bson:"max"`
	Zone string `bson:"tag"`
}

// chunksOf lists the chunks of a sharded collection, in the order of their keys.
func (c *Cluster) chunksOf(ctx context.Context, s *store.Sharding) ([]chunk, error) {
	var chunks []chunk
	err := c.find(ctx, "chunks", bson.D{{Key: "uuid", Value: s.UUID}}, &chunks)
	return chunks, err
}

// zonesOf lists the ranges of a collection, whether it is sharded yet or not.
func (c *Cluster) zonesOf(ctx context.Context, namespace string) ([]zoneRange, error) {
	var zones []zoneRange
	err := c.find(ctx, "tags", bson.D{{Key: "ns", Value: namespace}}, &zones)
	return zones, err
}

// find reads documents of the cluster's catalog that have a min and a max.
func (c *Cluster) find(ctx context.Context, name string, filter bson.D, into any) error {
	fields := bson.D{}
	for _, f := range []string{"min", "max", "shard", "jumbo", "tag"} {
		fields = append(fields, bson.E{Key: f, Value: 1})
	}
	cursor, err := c.config.Collection(name).Find(ctx, filter, options.Find().SetSort(bson.D{{Key: "min", Value: 1}}).SetProjection(fields))
	if err == nil {
		err = cursor.All(ctx, into)
	}
	if err != nil {
		return fmt.Errorf("read config.%s: %w", name, err)
	}
	return nil
}

// knownDatabase reports whether the cluster has the database already.
func (c *Cluster) knownDatabase(ctx context.Context) (bool, error) {
	var found struct {
		Partitioned *bool `bson:"partitioned"`
	}
	err := c.config.Collection("databases").FindOne(ctx, bson.D{{Key: "_id", Value: c.db.Name()}}).Decode(&found)
	switch {
	case errors.Is(err, mongo.ErrNoDocuments):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("read config.databases: %w", err)
	}
	// From 6.0 on every database that is there may have sharded collections.
	return c.atLeast(6, 0) || found.Partitioned != nil && *found.Partitioned, nil
}
