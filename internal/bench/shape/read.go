package shape

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// between returns the time range of a portion, to being exclusive.
func (c *Collection) between(s Portion) (from, to time.Time) {
	return c.Readings.Time(s.First), c.Readings.Time(s.First + uint64(s.Count)) //nolint:gosec // counts from 0
}

func within(from, to time.Time) bson.D {
	return bson.D{{Key: "$gte", Value: bson.NewDateTimeFromTime(from)}, {Key: "$lt", Value: bson.NewDateTimeFromTime(to)}}
}

// ReadAll is Read, and fails unless all readings come.
func (c *Collection) ReadAll(ctx context.Context, s Portion) {
	if n := c.Read(ctx, s); n != s.Count {
		bench.Check(fmt.Errorf("read %s: got %d readings, not %d", c.Shape, n, s.Count))
	}
}

// Read reads a portion in time order, through the production store if the shape is Brim's, and
// returns the number of readings.
func (c *Collection) Read(ctx context.Context, s Portion) (n int) {
	if c.store != nil {
		from, to := c.between(s)
		query := telemetry.Query{Sensor: c.Readings.Source.ID(s.Sensor), From: from.UnixMilli(), To: to.UnixMilli(), Limit: s.Count}
		for _, err := range c.store.Readings(ctx, query) {
			bench.Check(err)
			n++
		}
		return n
	}
	cursor, err := c.coll.Find(ctx, c.match(s), options.Find().SetSort(bson.D{{Key: store.TimeKey, Value: 1}}))
	bench.Checkf(err, "find readings")
	defer cursor.Close(context.WithoutCancel(ctx))
	for ; cursor.Next(ctx); n++ {
		decoder := store.Decoder{Skip: []string{"_id", sensorKey, "tags"}}
		bench.Must(decoder.Reading(cursor.Current, nil))
	}
	bench.Checkf(cursor.Err(), "find readings")
	return n
}

// match selects a portion in a collection that has or presents a document per reading.
func (c *Collection) match(s Portion) bson.D {
	from, to := c.between(s)
	id, times := c.Readings.Source.ID(s.Sensor), bson.E{Key: store.TimeKey, Value: within(from, to)}
	switch {
	case c.Shape.Kind == TimeSeries || c.Shape.Kind == Native:
		return bson.D{{Key: "sensor.id", Value: id}, times}
	case c.named():
		return bson.D{{Key: sensorKey, Value: id}, times}
	}
	return bson.D{times}
}

// A Way is how to compute a mean from buckets.
type Way string

// The ways.
const (
	Unwind Way = "unwind" // from the readings, each unwound into a document
	Stats  Way = "stats"  // from bucket statistics, with readings only at the ends of the portion
)

var errNoMean = errors.New("make the mean of a portion: nothing is in it")

// Mean makes the database compute the mean of a field over a portion. The way matters only for
// buckets. Packed buckets are read the way a daemon summarizes.
func (c *Collection) Mean(ctx context.Context, s Portion, field string, way Way) float64 {
	if c.Shape.Packed() {
		from, to := c.between(s)
		query := telemetry.SummaryQuery{Query: telemetry.Query{Sensor: c.Readings.Source.ID(s.Sensor), From: from.UnixMilli(), To: to.UnixMilli()}}
		for summary, err := range c.store.Summary(ctx, query) {
			bench.Check(err)
			for _, f := range summary.Fields {
				if f.Name == field {
					return f.Mean()
				}
			}
		}
	} else {
		type sum struct {
			Sum   float64 `bson:"sum"`
			Count float64 `bson:"n"`
		}
		if out := bench.Aggregate[sum](ctx, c.coll, c.meanOf(s, field, way)); len(out) > 0 && out[0].Count > 0 {
			return out[0].Sum / out[0].Count
		}
	}
	bench.Check(errNoMean)
	return 0
}

func (c *Collection) meanOf(s Portion, field string, way Way) mongo.Pipeline {
	group := func(sum, n any) bson.D {
		return bson.D{{Key: "$group", Value: bson.D{
			{Key: "_id", Value: nil}, {Key: "sum", Value: bson.D{{Key: "$sum", Value: sum}}}, {Key: "n", Value: bson.D{{Key: "$sum", Value: n}}},
		}}}
	}
	if c.Shape.Kind != Buckets {
		return mongo.Pipeline{{{Key: "$match", Value: c.match(s)}}, group("$"+field, 1)}
	}
	from, to := c.between(s)
	buckets := bson.D{{Key: "$match", Value: bson.D{{Key: "_id", Value: bson.D{
		{Key: "$gte", Value: c.bound(s.Sensor, from.Add(1-c.Shape.Granularity))},
		{Key: "$lt", Value: c.bound(s.Sensor, to)},
	}}}}}
	if way == Unwind {
		return mongo.Pipeline{
			buckets,
			{{Key: "$unwind", Value: "$measurements"}},
			{{Key: "$match", Value: bson.D{{Key: "measurements." + store.TimeKey, Value: within(from, to)}}}},
			group("$measurements."+field, 1),
		}
	}
	return mongo.Pipeline{buckets, {{Key: "$project", Value: partly(from, to, field)}}, group("$sum", "$n")}
}

// bound is an _id before all parts of a sensor's buckets that begin at a time or later.
func (c *Collection) bound(sensor int, at time.Time) bson.D {
	return bson.D{{Key: "s", Value: c.Readings.Source.ID(sensor)}, {Key: "b", Value: bson.NewDateTimeFromTime(at)}}
}

// partly projects a bucket to the sum and count of its readings in a time span: from its
// statistics if the whole bucket is inside.
func partly(from, to time.Time, field string) bson.D {
	begin, end := bson.NewDateTimeFromTime(from), bson.NewDateTimeFromTime(to)
	inside := bson.D{{Key: "$and", Value: bson.A{
		bson.D{{Key: "$gte", Value: bson.A{"$first", begin}}}, bson.D{{Key: "$lt", Value: bson.A{"$last", end}}},
	}}}
	those := bson.D{{Key: "$filter", Value: bson.D{
		{Key: "input", Value: "$measurements"}, {Key: "as", Value: "m"},
		{Key: "cond", Value: bson.D{{Key: "$and", Value: bson.A{
			bson.D{{Key: "$gte", Value: bson.A{"$$m." + store.TimeKey, begin}}}, bson.D{{Key: "$lt", Value: bson.A{"$$m." + store.TimeKey, end}}},
		}}}},
	}}}
	sum := bson.D{{Key: "$sum", Value: bson.D{{Key: "$map", Value: bson.D{
		{Key: "input", Value: those}, {Key: "as", Value: "m"}, {Key: "in", Value: "$$m." + field},
	}}}}}
	either := func(whole, parts any) bson.D { return bson.D{{Key: "$cond", Value: bson.A{inside, whole, parts}}} }
	return bson.D{
		{Key: "_id", Value: 0},
		{Key: "sum", Value: either("$stats."+field+".sum", sum)},
		{Key: "n", Value: either("$count", bson.D{{Key: "$size", Value: those}})},
	}
}

// codeMemoryLimit is the server's QueryExceededMemoryLimitNoDiskUseAllowed.
const codeMemoryLimit = 292

// Sort makes the database sort all readings by time without an index, keeping only the last. It
// does not work on packed readings. It reports whether the sort fitted the server's memory
// limit.
func (c *Collection) Sort(ctx context.Context, disk bool) (fits bool) {
	order, last := store.TimeKey, mongo.Pipeline{}
	if c.Shape.Kind == Buckets {
		order, last = "measurements."+store.TimeKey, mongo.Pipeline{{{Key: "$unwind", Value: "$measurements"}}}
	}
	last = append(last,
		bson.D{{Key: "$sort", Value: bson.D{{Key: order, Value: 1}}}},
		bson.D{{Key: "$skip", Value: c.Readings.Sensors*c.Readings.Count - 1}})
	opts := options.Aggregate().SetAllowDiskUse(disk)
	if c.Shape.Kind == Documents { // bypasses its index on time
		opts.SetHint(bson.D{{Key: "$natural", Value: 1}})
	}
	var got []bson.Raw
	cursor, err := c.coll.Aggregate(ctx, last, opts)
	if err == nil {
		err = cursor.All(ctx, &got)
	}
	var server mongo.ServerError
	if errors.As(err, &server) && server.HasErrorCode(codeMemoryLimit) {
		return false
	}
	bench.Checkf(err, "sort all readings by time")
	if len(got) != 1 {
		bench.Check(fmt.Errorf("sort all readings by time: %d came, not the last one", len(got)))
	}
	return true
}

// A Size is a collection's size in bytes, as $collStats reports it after a checkpoint. For a
// time series, it is the size of the bucket collection.
type Size struct {
	Documents int64 // or buckets of a time series
	Logical   int64 // of the documents, as BSON
	// File and IndexFile are file sizes; Free and IndexFree are the reusable parts of them.
	// Appends leave more free space than inserts do, and how much depends on the timing of
	// checkpoints.
	File, Free, IndexFile, IndexFree int64
	URI                              string // of the WiredTiger table
}

// Data is the bytes on disk that hold documents: the file without its free space.
func (s Size) Data() int64 { return s.File - s.Free }

// Index is Data for all indexes.
func (s Size) Index() int64 { return s.IndexFile - s.IndexFree }

// Size returns the collection's size, which covers only what a checkpoint has written.
func (c *Collection) Size(ctx context.Context) Size {
	return SizeOf(ctx, c.coll.Database(), c.Name, c.Shape.native() || c.Shape.Kind == TimeSeries)
}

// SizeOf returns the size of any collection.
func SizeOf(ctx context.Context, db *mongo.Database, name string, timeSeries bool) (s Size) {
	if timeSeries {
		name = "system.buckets." + name
	}
	type shard struct {
		Stats struct {
			Count   int64               `bson:"count"`
			Size    int64               `bson:"size"`
			Storage int64               `bson:"storageSize"`
			Free    int64               `bson:"freeStorageSize"`
			Index   int64               `bson:"totalIndexSize"`
			Indexes map[string]bson.Raw `bson:"indexDetails"`
			Series  struct {
				Buckets int64 `bson:"bucketCount"`
			} `bson:"timeseries"`
			WiredTiger struct {
				URI string `bson:"uri"`
			} `bson:"wiredTiger"`
		} `bson:"storageStats"`
	}
	shards := bench.Aggregate[shard](ctx, db.Collection(name), mongo.Pipeline{{{Key: "$collStats", Value: bson.D{{Key: "storageStats", Value: bson.D{}}}}}})
	if len(shards) == 0 {
		bench.Check(fmt.Errorf("read the size of collection %q: the server has no statistics of it", name))
	}
	for i := range shards {
		stats := &shards[i].Stats
		s.Documents += stats.Count + stats.Series.Buckets
		s.Logical += stats.Size
		s.File += stats.Storage
		s.Free += stats.Free
		s.IndexFile += stats.Index
		s.URI = stats.WiredTiger.URI
		for _, details := range stats.Indexes {
			if v, err := details.LookupErr("block-manager", "file bytes available for reuse"); err == nil {
				free, _ := v.AsInt64OK() // 0 if it is not a number
				s.IndexFree += free
			}
		}
	}
	return s
}
