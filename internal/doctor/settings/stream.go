package settings

import (
	"context"
	"fmt"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/brim-telemetry/brim/internal/store"
)

// collectionSizes are of a stream's collection, of all shards together; bytes.
type collectionSizes struct {
	data, storage, free float64
	documents           float64 // of a time-series collection: buckets
	indexes             map[string]float64
	compressor          string // empty: not told
}

// stream asks for what is to be known of one stream.
func (g *gathering) stream(ctx context.Context, s Stream, sample time.Duration) streamFacts {
	out := streamFacts{Stream: s}
	var err error
	out.sizes, err = g.sizes(ctx, s)
	g.note(readRole, "$collStats", "the compressor of stream "+s.Name, err)
	if out.sizes == nil {
		return out
	}
	out.indexes, err = g.indexes(ctx, s.Collection)
	g.note(clusterMonitor, "$indexStats", "the indexes of stream "+s.Name, err)
	if sample > 0 && worthATrial(s, out.sizes) {
		out.trial, err = g.try(ctx, s, out.sizes, sample)
		g.note(readRole, "documents", "another compressor for stream "+s.Name, err)
	}
	return out
}

// first runs a pipeline whose answer is small and returns the documents.
func (g *gathering) first(ctx context.Context, collection string, pipeline mongo.Pipeline, out any) error {
	raw, err := g.server.run(ctx, false, bson.D{
		{Key: "aggregate", Value: collection}, {Key: "pipeline", Value: pipeline}, {Key: "cursor", Value: bson.D{{Key: "batchSize", Value: 1000}}},
	})
	if err != nil {
		return err
	}
	var answer struct {
		Cursor struct {
			Documents bson.RawValue `bson:"firstBatch"`
		} `bson:"cursor"`
	}
	if err := bson.Unmarshal(raw, &answer); err != nil {
		return fmt.Errorf("read what %s answered: %w", collection, err)
	}
	if err := answer.Cursor.Documents.Unmarshal(out); err != nil {
		return fmt.Errorf("read what %s answered: %w", collection, err)
	}
	return nil
}

// sizes adds up what the shards say; nil without an error: there is no
// collection.
func (g *gathering) sizes(ctx context.Context, s Stream) (*collectionSizes, error) {
	var shards []struct {
		Stats struct {
			Size     float64            `bson:"size"`
			Count    float64            `bson:"count"`
			Storage  float64            `bson:"storageSize"`
			Free     float64            `bson:"freeStorageSize"`
			Indexes  map[string]float64 `bson:"indexSizes"`
			InSeries struct {
				Buckets float64 `bson:"bucketCount"`
			} `bson:"timeseries"`
			Engine struct {
				Creation string `bson:"creationString"`
			} `bson:"wiredTiger"`
		} `bson:"storageStats"`
	}
	project := bson.D{}
	for _, name := range []string{"size", "count", "storageSize", "freeStorageSize", "indexSizes", "timeseries.bucketCount", "wiredTiger.creationString"} {
		project = append(project, bson.E{Key: "storageStats." + name, Value: 1})
	}
	err := g.first(ctx, s.Collection, mongo.Pipeline{
		{{Key: "$collStats", Value: bson.D{{Key: "storageStats", Value: bson.D{}}}}},
		{{Key: "$project", Value: project}},
	}, &shards)
	if err != nil || len(shards) == 0 {
		if missing(err) {
			err = nil
		}
		return nil, err
	}
	out := &collectionSizes{indexes: make(map[string]float64)}
	for _, shard := range shards {
		out.data += shard.Stats.Size
		out.storage += shard.Stats.Storage
		out.free += shard.Stats.Free
		out.documents += shard.Stats.Count + shard.Stats.InSeries.Buckets
		for name, bytes := range shard.Stats.Indexes {
			out.indexes[name] += bytes
		}
		if name := blockCompressor(shard.Stats.Engine.Creation); name != "" {
			out.compressor = name
		}
	}
	return out, nil
}

// blockCompressor is the one that a table was created with; none for none.
func blockCompressor(creation string) string {
	for part := range strings.SplitSeq(creation, ",") {
		if name, ok := strings.CutPrefix(part, "block_compressor="); ok {
			if name == "" {
				return string(store.NoneCompressor)
			}
			return name
		}
	}
	return ""
}
