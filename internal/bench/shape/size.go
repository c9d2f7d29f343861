package shape

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// A Size is what a collection takes, as $collStats tells after a checkpoint. Of
// a time-series collection it is that of the collection with its buckets.
type Size struct {
	Readings  int   `json:"readings"`
	Documents int64 `json:"documents"`     // buckets, where they are such
	Logical   int64 `json:"logical_bytes"` // of the documents, as BSON
	// File and IndexFile are the sizes of the files, and the free ones the parts
	// of them that the next documents will be written to: appends leave more of it
	// than insertions, and how much hangs on when the checkpoints were.
	File      int64 `json:"file_bytes"`
	Free      int64 `json:"file_free_bytes"`
	IndexFile int64 `json:"index_file_bytes"`
	IndexFree int64 `json:"index_free_bytes"`
}

// Data is the bytes on disk that hold documents: the file without what is free in
// it.
func (s Size) Data() int64 { return s.File - s.Free }

// Index is the same of all indexes.
func (s Size) Index() int64 { return s.IndexFile - s.IndexFree }

// PerReading returns n of the collection for each reading.
func (s Size) PerReading(n int64) float64 { return float64(n) / float64(s.Readings) }

var errNoStats = errors.New("the server says nothing of it")

// Size asks for the size. What was not written by a checkpoint is not in it.
func (c *Collection) Size(ctx context.Context) (Size, error) {
	s, err := SizeOf(ctx, c.db, c.Name, c.Shape.Kind == Series || c.Shape.Kind == TimeSeries)
	s.Readings = c.Readings.Total()
	return s, err
}

// SizeOf asks for the size of any collection; it does not know its readings.
func SizeOf(ctx context.Context, db *mongo.Database, name string, timeSeries bool) (Size, error) {
	if timeSeries {
		name = "system.buckets." + name
	}
	s, err := sizeOf(ctx, db.Collection(name))
	if err != nil {
		return s, fmt.Errorf("ask for the size of collection %q: %w", name, err)
	}
	return s, nil
}

func sizeOf(ctx context.Context, coll *mongo.Collection) (s Size, err error) {
	cursor, err := coll.Aggregate(ctx, mongo.Pipeline{
		{{Key: "$collStats", Value: bson.D{{Key: "storageStats", Value: bson.D{}}}}},
		{{Key: "$project", Value: bson.D{{Key: "storageStats.wiredTiger", Value: 0}}}},
	})
	if err != nil {
		return s, err
	}
	var shards []struct {
		Stats struct {
			Count   int64               `bson:"count"`
			Size    int64               `bson:"size"`
			Storage int64               `bson:"storageSize"`
			Free    int64               `bson:"freeStorageSize"`
			Index   int64               `bson:"totalIndexSize"`
			Indexes map[string]bson.Raw `bson:"indexDetails"`
			Series  *struct {
				Buckets int64 `bson:"bucketCount"`
			} `bson:"timeseries"`
		} `bson:"storageStats"`
	}
	if err := cursor.All(ctx, &shards); err != nil {
		return s, err
	}
	if len(shards) == 0 {
		return s, errNoStats
	}
	for i := range shards {
		stats := &shards[i].Stats
		if s.Documents += stats.Count; stats.Series != nil {
			s.Documents += stats.Series.Buckets
		}
		s.Logical += stats.Size
		s.File += stats.Storage
		s.Free += stats.Free
		s.IndexFile += stats.Index
		for _, details := range stats.Indexes {
			if v, err := details.LookupErr("block-manager", "file bytes available for reuse"); err == nil {
				free, _ := v.AsInt64OK() // 0 of what is no number
				s.IndexFree += free
			}
		}
	}
	return s, nil
}
