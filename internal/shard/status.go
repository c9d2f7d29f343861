package shard

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/brim-telemetry/brim/internal/store"
)

// What a stream's key is worth.
const (
	Right     = "right"     // a sensor is on one shard, and _ids are unique
	Scattered = "scattered" // _ids are unique, and all shards are asked for a sensor
	Wrong     = "wrong"     // _ids are not unique: readings may be stored twice
	Unsharded = "unsharded" // on one shard
	Missing   = "missing"   // there is no collection
)

// A Status is how a stream's collection lies on the shards.
type Status struct {
	Stream    string         `json:"stream"`
	Storage   store.Storage  `json:"storage"`
	Verdict   string         `json:"verdict"`
	Why       string         `json:"why"`
	Key       store.ShardKey `json:"-"`
	KeyText   string         `json:"key,omitempty"`
	Shards    []Part         `json:"shards"`
	Imbalance float64        `json:"imbalance,omitempty"` // bytes of the fullest shard, over the mean of all that may hold some
	Chunks    int            `json:"chunks"`
	Jumbo     int            `json:"jumbo_chunks"`
	Balanced  bool           `json:"balanced"` // its chunks may be moved
	Zones     []StatusZone   `json:"zones"`
	Notes     []string       `json:"notes"`
}

// A Part is what one shard has of a stream.
type Part struct {
	Shard     string `json:"shard"`
	Chunks    int    `json:"chunks"`
	Documents int64  `json:"documents"` // of a time series: the server's buckets
	Bytes     int64  `json:"bytes"`     // before compression
	Storage   int64  `json:"storage_bytes"`
}

// A StatusZone is a range of sensors that has to lie on some shards.
type StatusZone struct {
	Zone   string   `json:"zone"`
	From   string   `json:"from"`
	To     string   `json:"to"` // empty: no end
	Shards []string `json:"shards"`
}

// A Balancer is what moves chunks.
type Balancer struct {
	Mode    string `json:"mode"` // full or off
	Running bool   `json:"in_round"`
}

// Balancer asks whether chunks are moved at all.
func (c *Cluster) Balancer(ctx context.Context) (Balancer, error) {
	var reply struct {
		Mode    string `bson:"mode"`
		Running bool   `bson:"inBalancerRound"`
	}
	if err := c.admin.RunCommand(ctx, bson.D{{Key: "balancerStatus", Value: 1}}).Decode(&reply); err != nil {
		return Balancer{}, fmt.Errorf("ask for the balancer: %w", err)
	}
	return Balancer(reply), nil
}

// Status looks how a stream lies.
func (c *Cluster) Status(ctx context.Context, stream Stream) (*Status, error) {
	s := &Status{Stream: stream.Name, Storage: stream.Storage, Shards: []Part{}, Zones: []StatusZone{}, Notes: []string{}}
	coll := store.Collection{Database: c.db, Name: stream.Name}
	info, err := coll.Look(ctx)
	if err != nil {
		return nil, err
	}
	if info == nil {
		s.Verdict, s.Why = Missing, "there is no collection yet: `brim shard init` makes and spreads it before the first reading"
		return s, nil
	}
	sharding, err := coll.Sharding(ctx)
	if err != nil {
		return nil, err
	}
	s.judge(stream, sharding)
	parts := make(map[string]*Part)
	for _, shard := range c.Shards {
		parts[shard.Name] = &Part{Shard: shard.Name}
	}
	if sharding.Sharded() {
		if err := c.countChunks(ctx, s, sharding, parts); err != nil {
			return nil, err
		}
	}
	if err := c.measure(ctx, stream.Name, parts); err != nil {
		return nil, err
	}
	for _, shard := range c.Shards {
		if p := parts[shard.Name]; sharding.Sharded() || p.Documents > 0 || p.Storage > 0 {
			s.Shards = append(s.Shards, *p)
		}
	}
	s.weigh(sharding.Sharded())
	return s, nil
}

// judge says what the key is worth.
func (s *Status) judge(stream Stream, sharding *store.Sharding) {
	s.Key, s.Balanced = sharding.Key, sharding.Sharded() && !sharding.NoBalance
	if sharding.Sharded() {
		s.KeyText = sharding.Key.String()
	}
	switch {
	case !sharding.Sharded():
		s.Verdict, s.Why = Unsharded, "the whole collection lies on one shard; `brim shard init` spreads it"
	case stream.Storage == store.Bucket && !sharding.Key.KeepsIDsUnique():
		s.Verdict = Wrong
		s.Why = "two shards may each hold a document of the same _id, so a reading that is sent again may be stored twice; daemons refuse the stream. " +
			fmt.Sprintf(`Reshard it (MongoDB 5.0 and later), in mongosh: sh.reshardCollection(%q, {"_id.s": "hashed"})`, sharding.Namespace)
	case !sharding.Key.KeepsSensorsTogether():
		s.Verdict, s.Why = Scattered, "the buckets of a sensor lie on all shards, which are all asked for it"
	default:
		s.Verdict, s.Why = Right, "a sensor's buckets are neighbours"
		if stream.Storage == store.Bucket {
			s.Why += ", and _ids are unique"
		}
	}
}

// countChunks counts the chunks of each shard, and lists the zones.
func (c *Cluster) countChunks(ctx context.Context, s *Status, sharding *store.Sharding, parts map[string]*Part) error {
	chunks, err := c.chunksOf(ctx, sharding)
	if err != nil {
		return err
	}
	s.Chunks = len(chunks)
	for _, one := range chunks {
		if p := parts[one.Shard]; p != nil {
			p.Chunks++
		}
		if one.Jumbo {
			s.Jumbo++
		}
	}
	zones, err := c.zonesOf(ctx, sharding.Namespace)
	if err != nil {
		return err
	}
	for _, z := range zones {
		one := StatusZone{Zone: z.Zone, From: bound(z.Min), To: bound(z.Max), Shards: []string{}}
		for _, shard := range c.Shards {
			if slices.Contains(shard.Zones, z.Zone) {
				one.Shards = append(one.Shards, shard.Name)
			}
		}
		s.Zones = append(s.Zones, one)
	}
	return nil
}

// bound is the sensor's id of a key, empty at the ends of all keys.
func bound(key bson.D) string {
	if len(key) == 0 {
		return ""
	}
	switch v := key[0].Value.(type) {
	case string:
		return v
	case bson.MinKey, bson.MaxKey:
		return ""
	default:
		return fmt.Sprint(v)
	}
}

// measure asks every shard for the size of its part.
func (c *Cluster) measure(ctx context.Context, collection string, parts map[string]*Part) error {
	cursor, err := c.db.Collection(collection).Aggregate(ctx, mongo.Pipeline{
		{{Key: "$collStats", Value: bson.D{{Key: "storageStats", Value: bson.D{}}}}},
		{{Key: "$project", Value: bson.D{
			{Key: "shard", Value: 1}, {Key: "storageStats.size", Value: 1}, {Key: "storageStats.count", Value: 1},
			{Key: "storageStats.storageSize", Value: 1}, {Key: "storageStats.timeseries.bucketCount", Value: 1},
		}}},
	})
	var found []struct {
		Shard string `bson:"shard"`
		Stats struct {
			Size    int64 `bson:"size"`
			Count   int64 `bson:"count"`
			Storage int64 `bson:"storageSize"`
			Series  struct {
				Buckets int64 `bson:"bucketCount"`
			} `bson:"timeseries"`
		} `bson:"storageStats"`
	}
	if err == nil {
		err = cursor.All(ctx, &found)
	}
	if err != nil {
		return fmt.Errorf("ask the shards for the size of collection %q: %w", collection, err)
	}
	for _, f := range found {
		if p := parts[f.Shard]; p != nil {
			p.Documents, p.Bytes, p.Storage = f.Stats.Count+f.Stats.Series.Buckets, f.Stats.Size, f.Stats.Storage
		}
	}
	return nil
}

// Chunks of this size are what the balancer moves by default; it evens shards out
// that differ by more than three of them.
const (
	chunkBytes   = 128 << 20
	evenedChunks = 3
)

// weigh says what is uneven, and what cannot be moved.
func (s *Status) weigh(sharded bool) {
	if !sharded || len(s.Shards) == 0 {
		return
	}
	var all int64
	for _, p := range s.Shards {
		all += p.Bytes
	}
	most := slices.MaxFunc(s.Shards, func(a, b Part) int { return cmp.Compare(a.Bytes, b.Bytes) })
	least := slices.MinFunc(s.Shards, func(a, b Part) int { return cmp.Compare(a.Bytes, b.Bytes) })
	if all > 0 {
		s.Imbalance = float64(most.Bytes) * float64(len(s.Shards)) / float64(all)
	}
	if len(s.Zones) == 0 && most.Bytes-least.Bytes > evenedChunks*chunkBytes {
		s.Notes = append(s.Notes, fmt.Sprintf("%s has more than three chunks of data more than %s: the balancer is at it, or off", most.Shard, least.Shard))
	}
	if !s.Balanced {
		s.Notes = append(s.Notes, "chunks of this collection are not moved: in mongosh, sh.enableBalancing(…) lets them")
	}
	if s.Jumbo > 0 {
		s.Notes = append(s.Notes, fmt.Sprintf("%d chunks are too large to be moved, most likely each of one sensor: let a sensor be cut by time; "+
			"in mongosh: sh.status() names them, refineCollectionShardKey adds \"_id.b\" to the key (docs/growing.md)", s.Jumbo))
	}
}

// Describe names what a cluster consists of.
func (c *Cluster) Describe() string {
	return fmt.Sprintf("MongoDB %s, shards %s", c.Version, strings.Join(c.shardNames(), ", "))
}
