package shard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/brim-telemetry/brim/internal/store"
)

// A Step is one command.
type Step struct {
	Database string
	Command  bson.D
	Why      string
}

// A Plan is what is left to do for a stream. It is empty when all is as asked.
type Plan struct {
	Stream string
	Key    store.ShardKey // in the documents of the stream's collection
	Steps  []Step
	Notes  []string // what to know beside

	cluster *Cluster
}

// A planner is what is known of a stream's collection while its plan is made.
type planner struct {
	*Plan
	stream    Stream
	asked     Options
	info      *store.Info // nil: there is no collection yet
	sharding  *store.Sharding
	known     bool // the cluster has the database
	empty     bool
	namespace string // under which chunks and zones are known
	zones     []zoneRange
	chunks    []chunk // as they are; nil while the collection is not sharded
}

// Plan looks at the stream's collection, and says what has to be done. It changes
// nothing.
func (c *Cluster) Plan(ctx context.Context, stream Stream, o Options) (*Plan, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	if stream.Storage == store.Memory {
		return nil, fmt.Errorf("stream %s is stored in memory: there is nothing of it to spread", stream.Name)
	}
	if stream.Storage == store.TimeSeries && !c.atLeast(6, 0) {
		return nil, fmt.Errorf("the cluster runs MongoDB %s, which spreads no time series; allowed are 6.0 and later", c.Version)
	}
	for _, z := range o.Zones {
		for _, s := range z.Shards {
			if c.shard(s) == nil {
				return nil, fmt.Errorf("zone %s names a shard %q, which is not there; allowed are %s", z.Name, s, strings.Join(c.shardNames(), ", "))
			}
		}
	}
	p := &planner{Plan: &Plan{Stream: stream.Name, cluster: c}, stream: stream, asked: o}
	if err := p.look(ctx); err != nil {
		return nil, fmt.Errorf("plan stream %s: %w", stream.Name, err)
	}
	for _, step := range []func(context.Context) error{p.chooseKey, p.checkData, p.choosePoints} {
		if err := step(ctx); err != nil {
			return nil, fmt.Errorf("plan stream %s: %w", stream.Name, err)
		}
	}
	p.create()
	p.addZones()
	p.shard()
	p.split()
	p.spread()
	return p.Plan, nil
}

func (p *planner) add(database, why string, command bson.D) {
	p.Steps = append(p.Steps, Step{Database: database, Command: command, Why: why})
}

func (p *planner) note(format string, args ...any) {
	p.Notes = append(p.Notes, fmt.Sprintf(format, args...))
}

// name is the namespace that people know the collection by.
func (p *planner) name() string { return p.cluster.db.Name() + "." + p.stream.Name }

func (p *planner) look(ctx context.Context) error {
	c := store.Collection{Database: p.cluster.db, Name: p.stream.Name}
	var err error
	if p.info, err = c.Look(ctx); err != nil {
		return err
	}
	if p.info != nil {
		if err := c.CheckType(p.info, typeOf(p.stream.Storage)); err != nil {
			return err
		}
		if err := c.CheckShape(p.info); err != nil {
			return err
		}
	}
	if p.sharding, err = c.Sharding(ctx); err != nil {
		return err
	}
	p.namespace = p.sharding.Namespace
	if !p.sharding.Sharded() {
		p.namespace = p.name()
		if p.stream.Storage == store.TimeSeries {
			p.namespace = p.cluster.db.Name() + ".system.buckets." + p.stream.Name
		}
	} else if p.chunks, err = p.cluster.chunksOf(ctx, p.sharding); err != nil {
		return err
	}
	if p.stream.Storage == store.Bucket {
		if err := c.CheckShardKey(p.sharding); err != nil {
			return err
		}
	}
	if p.known, err = p.cluster.knownDatabase(ctx); err != nil {
		return err
	}
	p.zones, err = p.cluster.zonesOf(ctx, p.namespace)
	return err
}

// typeOf is how the server calls the collections of a storage.
func typeOf(s store.Storage) string {
	if s == store.TimeSeries {
		return "timeseries"
	}
	return "collection"
}

// chooseKey settles on a key: the one that is there, or the one that is asked
// for.
func (p *planner) chooseKey(context.Context) error {
	by := p.asked.By
	if by == "" && (len(p.asked.Zones) > 0 || len(p.asked.Points) > 0) {
		by = ByRange
	}
	if p.sharding.Sharded() {
		p.Key = p.sharding.Key
		have := ByRange
		if p.Key.Hashed() {
			have = ByHash
		}
		switch {
		case have == ByHash && p.asked.Chunks > 0:
			p.note("the collection is spread by %s already, and keeps the chunks that it has: --chunks changes nothing", p.Key)
		case by == "" && p.asked.Chunks > 1:
			by = ByRange // chunks are cut by sensors
		}
		if by != "" && (by != have || p.Key[0].Key != p.sensorPath()) {
			return fmt.Errorf("collection %q is sharded by %s already, and by %s of sensors is asked: leave that out, or reshard it (MongoDB 5.0 and later), in mongosh: sh.reshardCollection(%q, %s)",
				p.stream.Name, p.Key, by, p.name(), keyOf(p.stream.Storage, by))
		}
		p.asked.By = have
		return nil
	}
	if by == "" {
		by = ByHash
	}
	p.asked.By, p.Key = by, keyOf(p.stream.Storage, by)
	return nil
}

// keyOf is the key of a stream's collection as the command shardCollection takes
// it. A time-series collection is known by its fields there, by those of the
// server's buckets afterwards.
func keyOf(s store.Storage, by By) store.ShardKey {
	path, how := store.SensorPath, any(1)
	if s == store.TimeSeries {
		path = seriesField
	}
	if by == ByHash {
		how = "hashed"
	}
	return store.ShardKey{{Key: path, Value: how}}
}

// seriesField is where a time-series stream keeps the sensor's id.
const seriesField = "sensor.id"

// sensorPath is the field of the key in the cluster's catalog.
func (p *planner) sensorPath() string {
	if p.stream.Storage == store.TimeSeries {
		return store.SeriesSensorPath
	}
	return store.SensorPath
}

// checkData looks whether there are readings already, and refuses what is no
// stream's.
func (p *planner) checkData(ctx context.Context) error {
	p.empty = true
	if p.info == nil {
		return nil
	}
	for _, direction := range []int{1, -1} {
		find := options.FindOne().SetProjection(bson.D{{Key: "_id", Value: 1}})
		if p.stream.Storage == store.Bucket {
			find.SetSort(bson.D{{Key: "_id", Value: direction}})
		}
		doc, err := p.cluster.db.Collection(p.stream.Name).FindOne(ctx, bson.D{}, find).Raw()
		switch {
		case errors.Is(err, mongo.ErrNoDocuments):
			return nil
		case err != nil:
			return fmt.Errorf("look for readings: %w", err)
		}
		p.empty = false
		// The first and the last in the order of types and values: what lies between
		// two documents is a document.
		if _, ours := doc.Lookup("_id", "s").StringValueOK(); p.stream.Storage == store.Bucket && !ours {
			return fmt.Errorf("collection %q has documents that are no buckets, with an _id like %s, and cannot be spread by sensors; choose another stream name or database",
				p.stream.Name, doc.Lookup("_id"))
		}
	}
	if !p.sharding.Sharded() && !p.asked.ExistingData {
		return fmt.Errorf("collection %q has readings already, all on one shard: sharded now, it begins there, and the balancer moves it bit by bit under the daemons' load; "+
			"`--existing-data` does it", p.stream.Name)
	}
	return nil
}

// Sensors that are looked at for each chunk, to find where it begins, and at most.
const (
	sampleForChunk = 100
	sampleAtMost   = 100_000
)

// choosePoints finds points among the readings that are there, if chunks are
// asked for and no points.
func (p *planner) choosePoints(ctx context.Context) error {
	if p.asked.By == ByHash || p.asked.Chunks <= 1 || len(p.asked.Points) > 0 {
		return nil
	}
	if p.empty {
		return errors.New("by range, the chunks of an empty collection need points to begin at: give ids by --sensors FILE, or --sensors-prefix PREFIX")
	}
	field := "$" + store.SensorPath
	if p.stream.Storage == store.TimeSeries {
		field = "$" + seriesField
	}
	cursor, err := p.cluster.db.Collection(p.stream.Name).Aggregate(ctx, mongo.Pipeline{
		{{Key: "$sample", Value: bson.D{{Key: "size", Value: min(sampleForChunk*p.asked.Chunks, sampleAtMost)}}}},
		{{Key: "$project", Value: bson.D{{Key: "_id", Value: 0}, {Key: "id", Value: field}}}},
	})
	var sample []struct {
		ID string `bson:"id"`
	}
	if err == nil {
		err = cursor.All(ctx, &sample)
	}
	if err != nil {
		return fmt.Errorf("take a sample of sensors: %w", err)
	}
	ids := make([]string, len(sample))
	for i, one := range sample {
		ids[i] = one.ID
	}
	p.asked.Points = PointsOf(ids, p.asked.Chunks)
	return nil
}

// zoneSpans are the ranges that are asked for, in the order of their sensors.
func (p *planner) zoneSpans() []zoneRange {
	spans := make([]zoneRange, 0, len(p.asked.Zones))
	for _, z := range p.asked.Zones {
		s := z.span()
		to := any(s.To)
		if s.To == "" {
			to = bson.MaxKey{}
		}
		spans = append(spans, zoneRange{Min: p.at(s.From), Max: p.at(to), Zone: z.Name})
	}
	slices.SortFunc(spans, func(a, b zoneRange) int { return compareAt(a.Min, b.Min) })
	return spans
}

// at is a key that begins with a sensor's id, or with an end of all keys. What
// follows in a longer key begins, or ends, with it.
func (p *planner) at(sensor any) bson.D {
	key := p.Key
	if len(key) == 0 {
		return nil
	}
	out := bson.D{{Key: p.sensorPath(), Value: sensor}}
	for _, e := range key[1:] {
		rest := any(bson.MinKey{})
		if sensor == (bson.MaxKey{}) {
			rest = bson.MaxKey{}
		}
		out = append(out, bson.E{Key: e.Key, Value: rest})
	}
	return out
}

// compareAt orders keys of sensors' ids and the ends of all keys.
func compareAt(a, b bson.D) int {
	rank := func(key bson.D) (int, string) {
		switch v := key[0].Value.(type) {
		case bson.MinKey:
			return 0, ""
		case string:
			return 1, v
		}
		return 2, ""
	}
	ra, sa := rank(a)
	rb, sb := rank(b)
	if ra != rb {
		return ra - rb
	}
	return strings.Compare(sa, sb)
}
