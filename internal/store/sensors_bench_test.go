package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/brim-telemetry/brim/internal/store/storetest"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

const (
	listedSensors = 300
	listedWindows = 100 // of each sensor
)

// BenchmarkSensors lists sensors with 100 windows each: as a store does, which
// skips from sensor to sensor, and by grouping all documents on the server.
//
//	go test -run '^$' -bench Sensors ./internal/store
func BenchmarkSensors(b *testing.B) {
	s, coll := sides()[0].fill(b, 0)
	insertWindows(b, coll)
	b.Run("skipping", func(b *testing.B) {
		for b.Loop() {
			require.Len(b, all(b, s.Sensors(b.Context(), telemetry.SensorQuery{})), listedSensors)
		}
		b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*listedSensors), "us/sensor")
	})
	b.Run("grouping", func(b *testing.B) {
		group := bson.D{{Key: "$group", Value: bson.D{{Key: "_id", Value: "$_id.s"}, {Key: "newest", Value: bson.D{{Key: "$max", Value: "$last"}}}}}}
		for b.Loop() {
			cursor, err := coll.Aggregate(b.Context(), bson.A{group})
			require.NoError(b, err)
			var docs []bson.Raw
			require.NoError(b, cursor.All(b.Context(), &docs))
			require.Len(b, docs, listedSensors)
		}
		b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*listedSensors), "us/sensor")
	})
}

func insertWindows(b *testing.B, coll *mongo.Collection) {
	b.Helper()
	for n := range listedSensors {
		docs := make([]any, 0, listedWindows)
		for w := range listedWindows {
			start := bson.NewDateTimeFromTime(storetest.Base.Add(time.Duration(w) * 5 * time.Minute))
			measurements := make(bson.A, 60)
			for i := range measurements {
				measurements[i] = bson.D{{Key: "ts", Value: start}, {Key: "v", Value: float64(i)}}
			}
			docs = append(docs, bson.D{
				{Key: "_id", Value: bson.D{{Key: "s", Value: fmt.Sprintf("sensor-%05d", n)}, {Key: "b", Value: start}, {Key: "g", Value: int32(300)}, {Key: "p", Value: int32(0)}}},
				{Key: "count", Value: int32(len(measurements))}, {Key: "first", Value: start}, {Key: "last", Value: start}, {Key: "measurements", Value: measurements},
			})
		}
		_, err := coll.InsertMany(b.Context(), docs, options.InsertMany().SetOrdered(false))
		require.NoError(b, err)
	}
}
