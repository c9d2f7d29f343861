package store

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// Strangers lists the streams that the database has a collection of and that
// are not among those that are known: buckets by their view, time series by
// their fields. It reads the catalog only.
func Strangers(ctx context.Context, db *mongo.Database, known []string) ([]string, error) {
	cursor, err := db.ListCollections(ctx, bson.D{{Key: "type", Value: bson.D{{Key: "$in", Value: bson.A{"view", "timeseries"}}}}})
	if err != nil {
		return nil, fmt.Errorf("list the database's collections: %w", err)
	}
	var found []struct {
		Name    string   `bson:"name"`
		Type    string   `bson:"type"`
		Options bson.Raw `bson:"options"`
	}
	if err := cursor.All(ctx, &found); err != nil {
		return nil, fmt.Errorf("list the database's collections: %w", err)
	}
	var out []string
	for _, f := range found {
		info := Info{Type: f.Type, Options: f.Options}
		stream, isView := strings.CutSuffix(f.Name, ViewSuffix)
		meta, _ := f.Options.Lookup("timeseries", "metaField").StringValueOK()
		time, _ := f.Options.Lookup("timeseries", "timeField").StringValueOK()
		ours := isView && info.ours(stream) || meta == "sensor" && time == TimeKey && !strings.Contains(f.Name, ".")
		if ours && !slices.Contains(known, stream) {
			out = append(out, stream)
		}
	}
	slices.Sort(out)
	return out, nil
}
