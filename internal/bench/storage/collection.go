package storage

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/brim-telemetry/brim/internal/bench"
)

// deleteQuarter deletes a quarter of the documents, as they follow each other in
// the file, and returns how many there were.
func deleteQuarter(ctx context.Context, coll *mongo.Collection, pattern string) (documents int64, err error) {
	cursor, err := coll.Find(ctx, bson.D{}, options.Find().SetProjection(bson.D{{Key: "_id", Value: 1}}).SetHint(bson.D{{Key: "$natural", Value: 1}}))
	if err != nil {
		return 0, fmt.Errorf("list the buckets: %w", err)
	}
	var found []struct {
		ID bson.RawValue `bson:"_id"`
	}
	if err := cursor.All(ctx, &found); err != nil {
		return 0, fmt.Errorf("list the buckets: %w", err)
	}
	var ids []bson.RawValue
	for i, one := range found {
		if inQuarter(pattern, i, len(found)) {
			ids = append(ids, one.ID)
		}
	}
	const atOnce = 1000
	for len(ids) > 0 {
		n := min(atOnce, len(ids))
		filter := bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: ids[:n]}}}}
		if _, err := coll.DeleteMany(ctx, filter); err != nil {
			return 0, fmt.Errorf("delete buckets: %w", err)
		}
		ids = ids[n:]
	}
	return int64(len(found)), nil
}

// inQuarter reports whether document i of n is among those that a pattern
// deletes.
func inQuarter(pattern string, i, n int) bool {
	if pattern == contiguous {
		return i >= n/4 && i < n/2
	}
	return i%4 == 1
}

// measure asks for a collection's sizes.
func measure(ctx context.Context, coll *mongo.Collection) (sizes, error) {
	stats, err := storageStats(ctx, coll)
	return sizes{number(stats.Size), number(stats.StorageSize), number(stats.FreeStorageSize)}, err
}

type collectionStats struct {
	Size            float64 `bson:"size"`
	StorageSize     float64 `bson:"storageSize"`
	FreeStorageSize float64 `bson:"freeStorageSize"`
	WiredTiger      struct {
		URI string `bson:"uri"`
	} `bson:"wiredTiger"`
}

func storageStats(ctx context.Context, coll *mongo.Collection) (collectionStats, error) {
	var found []struct {
		Stats collectionStats `bson:"storageStats"`
	}
	cursor, err := coll.Aggregate(ctx, mongo.Pipeline{{{Key: "$collStats", Value: bson.D{{Key: "storageStats", Value: bson.D{}}}}}})
	if err == nil {
		err = cursor.All(ctx, &found)
	}
	switch {
	case err != nil:
		return collectionStats{}, fmt.Errorf("ask for the sizes of %s: %w", coll.Name(), err)
	case len(found) == 0:
		return collectionStats{}, fmt.Errorf("ask for the sizes of %s: there is no answer", coll.Name())
	}
	return found[0].Stats, nil
}

// fileOf returns a collection's file in a mongod of the experiment's own; empty:
// it is the user's.
func fileOf(ctx context.Context, m *bench.MongoDB, coll *mongo.Collection) (string, error) {
	if m.DBPath() == "" {
		return "", nil
	}
	stats, err := storageStats(ctx, coll)
	if err != nil {
		return "", err
	}
	path := filepath.Join(m.DBPath(), strings.TrimPrefix(stats.WiredTiger.URI, "statistics:table:")+".wt")
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("find the file of %s: %w", coll.Name(), err)
	}
	return path, nil
}
