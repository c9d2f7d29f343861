package doctor

import (
	"context"
	"math"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/internal/store/generation"
)

// A collection is what $collStats says about the collection that a stream is
// written to now. All zeros: it does not exist yet.
type collection struct {
	name    string
	missing bool
	why     string // not empty: it is unknown, and everything is NaN

	data, storage, free, index float64 // bytes: uncompressed; of the file; free in it; of the indexes
	documents                  float64 // of a time-series collection: buckets

	indexes    map[string]float64 // bytes by name
	compressor string             // of the file's blocks; empty: unknown

	buckets, commits, measurements float64 // of a time-series collection
	closes                         [len(closeReasons)]float64
}

// closeReasons are the reasons for which any version of MongoDB closes a
// time-series bucket, with the server's names of their counters.
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

// sizes are the last known sizes of a stream's collection.
type sizes struct {
	collection
	due time.Time // when to ask again
}

// sampleCollections asks for the sizes that are due: every minute, or with
// every sample if the collection does not exist yet, which costs almost
// nothing. While MongoDB is away all are unknown; once it is back, the last
// ones hold.
func (m *Monitor) sampleCollections(parent context.Context, now *sample) {
	ctx, cancel := context.WithTimeout(parent, m.patience())
	defer cancel()
	now.collections = make(map[string]collection, len(m.config.Streams))
	for _, s := range m.config.Streams {
		if !now.answered {
			now.collections[s.Name] = unseenCollection(whyAway)
			continue
		}
		last := m.sizes[s.Name]
		if !now.at.Before(last.due) {
			var err error
			last.collection, err = m.measureCollection(ctx, s)
			m.say(parent, "collection of "+s.Name, last.why, err)
			if last.due = now.at; !last.missing {
				last.due = now.at.Add(collectionsInterval)
			}
			m.sizes[s.Name] = last
		}
		now.collections[s.Name] = last.collection
	}
}

func unseenCollection(why string) collection {
	nan := math.NaN()
	c := collection{why: why, data: nan, storage: nan, free: nan, index: nan, documents: nan, buckets: nan, commits: nan, measurements: nan}
	for i := range c.closes {
		c.closes[i] = nan
	}
	return c
}

// measureCollection asks for the sizes of the collection that a stream is written
// to. On an error, the collection's why is set.
func (m *Monitor) measureCollection(ctx context.Context, s Stream) (collection, error) {
	name := s.Name
	list, err := generation.Read(ctx, m.database, s.Name)
	if list != nil {
		name = list.Written(generation.Target{Storage: s.Storage, Compressor: s.Compressor}).Collection
	}
	c := unseenCollection("")
	if err == nil {
		c, err = m.sizesOf(ctx, name, s.Storage == store.TimeSeries)
	}
	switch {
	case err == nil:
	case refused(err):
		c.why = whyRefused
	case NotPermitted(err):
		c.why = whyNoRead
	default:
		c.why = whyNoSizes
	}
	c.name = name
	return c, err
}

func (m *Monitor) sizesOf(ctx context.Context, name string, timeSeries bool) (collection, error) {
	needed := bson.D{} // the engine's statistics of every table and index are most of the answer
	for _, name := range []string{"size", "count", "storageSize", "freeStorageSize", "totalIndexSize", "indexSizes", "timeseries", "wiredTiger.creationString"} {
		needed = append(needed, bson.E{Key: "storageStats." + name, Value: 1})
	}
	shards, err := m.aggregate(ctx, name, mongo.Pipeline{
		{{Key: "$collStats", Value: bson.D{{Key: "storageStats", Value: bson.D{}}}}}, {{Key: "$project", Value: needed}},
	}, math.MaxInt)
	switch {
	case err == nil && len(shards) > 0:
		return parseCollection(shards, timeSeries), nil
	case err == nil, hasCode(err, codeNamespaceNotFound):
		return collection{missing: true}, nil
	}
	return unseenCollection(""), err
}

// parseCollection adds up the answers of the shards, one document each.
func parseCollection(shards []bson.Raw, timeSeries bool) collection {
	c := collection{indexes: make(map[string]float64)}
	for _, raw := range shards {
		if raw.Validate() != nil { // otherwise a lookup could panic
			return unseenCollection(whyNoSense)
		}
		in := func(name string) float64 { return number(raw, "storageStats", name) }
		c.data += in("size")
		c.storage += in("storageSize")
		c.free += in("freeStorageSize")
		c.index += in("totalIndexSize")
		if names, ok := lookUp(raw, "storageStats", "indexSizes"); ok {
			document, _ := names.DocumentOK()
			elements, _ := document.Elements() // the document is valid
			for _, e := range elements {
				c.indexes[e.Key()] += number(document, e.Key())
			}
		}
		if name, ok := blockCompressor(text(raw, "storageStats", "wiredTiger", "creationString")); ok {
			c.compressor = name
		}
		if !timeSeries {
			c.documents += in("count")
			continue
		}
		series := func(name string) float64 { return number(raw, "storageStats", "timeseries", name) }
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

// blockCompressor returns the compressor that a table was created with.
func blockCompressor(creation string) (name string, ok bool) {
	_, after, ok := strings.Cut(","+creation, ",block_compressor=")
	name, _, _ = strings.Cut(after, ",")
	if ok && name == "" {
		name = string(store.NoneCompressor)
	}
	return name, ok
}
