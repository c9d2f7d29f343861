package doctor

import (
	"context"
	"errors"
	"math"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/brim-telemetry/brim/internal/store"
)

// A collection is what $collStats says about one. One that does not exist yet is
// all zeros.
type collection struct {
	missing bool
	why     string // not empty: it is unknown, and everything is NaN

	data, storage, free, index float64 // bytes: uncompressed; of the file; free in it; of the indexes
	documents                  float64 // of a time-series collection: buckets

	buckets, commits, measurements float64 // of a time-series collection
	closes                         [len(closeReasons)]float64
}

// closeReasons are the reasons why a time-series bucket is closed, in all
// versions of MongoDB, and the server's names of their counters.
var closeReasons = [...]struct{ label, field string }{
	{"count", "numBucketsClosedDueToCount"},
	{"size", "numBucketsClosedDueToSize"},
	{"schema_change", "numBucketsClosedDueToSchemaChange"},
	{"time_forward", "numBucketsClosedDueToTimeForward"},
	{"time_backward", "numBucketsClosedDueToTimeBackward"},
	{"memory_threshold", "numBucketsClosedDueToMemoryThreshold"},
	{"cache_pressure", "numBucketsClosedDueToCachePressure"},
	{"reopening", "numBucketsClosedDueToReopening"},
}

// Why a collection is unknown.
const (
	whyNoSizes = "the collections' sizes were not reported"
	whyNoRead  = "the user is not allowed to run $collStats: the role read on the database permits it"
)

// collectionsInterval: sizes change slowly, and asking walks every table's
// statistics.
const collectionsInterval = time.Minute

// sizes are what was last seen of a stream's collection.
type sizes struct {
	collection
	due  time.Time     // when they are asked for again
	wait time.Duration // since the failure before; 0 after an answer
}

// sampleCollections asks for the sizes that are due. While MongoDB is away all
// are unknown; the last ones hold when it is back.
func (m *Monitor) sampleCollections(parent context.Context, now *sample) {
	ctx, cancel := context.WithTimeout(parent, m.patience())
	defer cancel()
	now.collections = make(map[string]collection, len(m.config.Streams))
	why, asked, failure := "", false, error(nil)
	for _, s := range m.config.Streams {
		if !now.answered {
			now.collections[s.Name] = unseenCollection(whyAway)
			continue
		}
		last := m.sizes[s.Name]
		if !now.at.Before(last.due) {
			var err error
			if last, err = m.ask(ctx, s, last.wait, now.at); err != nil {
				failure = err
			}
			m.sizes[s.Name], asked = last, true
		}
		if last.why != "" {
			why = last.why
		}
		now.collections[s.Name] = last.collection
	}
	if asked && parent.Err() == nil {
		m.say("collections", why, failure)
	}
}

// ask asks for a collection's sizes and says when to ask again: in a minute, or
// with the next sample if it does not exist yet, which costs next to nothing.
// After a transient failure the wait doubles from one interval to a minute.
func (m *Monitor) ask(ctx context.Context, s Stream, waited time.Duration, at time.Time) (sizes, error) {
	c, err := m.measureCollection(ctx, s)
	out := sizes{collection: c, due: at.Add(collectionsInterval)}
	switch {
	case c.missing:
		out.due = at
	case err != nil && !NotPermitted(err):
		out.wait = min(max(2*waited, m.config.Interval), collectionsInterval)
		out.due = at.Add(out.wait)
	}
	return out, err
}

func unseenCollection(why string) collection {
	nan := math.NaN()
	c := collection{why: why, data: nan, storage: nan, free: nan, index: nan, documents: nan, buckets: nan, commits: nan, measurements: nan}
	for i := range c.closes {
		c.closes[i] = nan
	}
	return c
}

// measureCollection asks for one collection's sizes. With an error the
// collection says why.
func (m *Monitor) measureCollection(ctx context.Context, s Stream) (collection, error) {
	cursor, err := m.database.Collection(s.Collection).Aggregate(ctx, mongo.Pipeline{
		{{Key: "$collStats", Value: bson.D{{Key: "storageStats", Value: bson.D{}}}}},
		// The engine's statistics of every table and index are most of the answer.
		{{Key: "$project", Value: bson.D{{Key: "storageStats.wiredTiger", Value: 0}, {Key: "storageStats.indexDetails", Value: 0}}}},
	})
	var shards []bson.Raw // one document, or one of each shard
	if err == nil {
		err = cursor.All(ctx, &shards)
	}
	var server mongo.ServerError
	switch {
	case err == nil && len(shards) > 0:
		return parseCollection(shards, s.Storage == store.TimeSeries), nil
	case err == nil, errors.As(err, &server) && server.HasErrorCode(codeNamespaceNotFound):
		return collection{missing: true}, nil
	case refused(err):
		return unseenCollection(whyRefused), err
	case NotPermitted(err):
		return unseenCollection(whyNoRead), err
	default:
		return unseenCollection(whyNoSizes), err
	}
}

// parseCollection adds up what the shards say.
func parseCollection(shards []bson.Raw, timeSeries bool) collection {
	var c collection
	for _, raw := range shards {
		if raw.Validate() != nil { // else looking things up in it could panic
			return unseenCollection(whyNoSense)
		}
		in := func(name string) float64 { return Number(raw, "storageStats", name) }
		c.data += in("size")
		c.storage += in("storageSize")
		c.free += in("freeStorageSize")
		c.index += in("totalIndexSize")
		if !timeSeries {
			c.documents += in("count")
			continue
		}
		series := func(name string) float64 { return Number(raw, "storageStats", "timeseries", name) }
		c.buckets += series("bucketCount")
		c.commits += series("numCommits")
		c.measurements += series("numMeasurementsCommitted")
		for i, reason := range closeReasons {
			// A server that does not count a reason does not close for it.
			if n := series(reason.field); !math.IsNaN(n) {
				c.closes[i] += n
			}
		}
	}
	if timeSeries {
		c.documents = c.buckets
	}
	return c
}
