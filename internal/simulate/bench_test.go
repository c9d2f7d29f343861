package simulate_test

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/brim-telemetry/brim/internal/simulate"
)

// BenchmarkUpdate measures an update by the model alone.
func BenchmarkUpdate(b *testing.B) {
	m := simulate.NewMongoDB("a.example:27017")
	for i := 0; b.Loop(); i++ {
		m.Run("brim", bson.D{{Key: "update", Value: "c"}, {Key: "updates", Value: bson.A{bson.D{
			{Key: "q", Value: bson.D{{Key: "_id", Value: strconv.Itoa(i % 1000)}, {Key: "full", Value: bson.D{{Key: "$ne", Value: true}}}}},
			{Key: "u", Value: bson.D{{Key: "$inc", Value: bson.D{{Key: "count", Value: 1}, {Key: "stats.t.n", Value: 1}}}, {Key: "$set", Value: bson.D{{Key: "w.s", Value: i}}}}},
			{Key: "upsert", Value: true},
		}}}})
		m.Replicate(1)
	}
}

// BenchmarkCommand measures an update, with the driver, the pipe and the model.
func BenchmarkCommand(b *testing.B) {
	m := simulate.NewMongoDB("a.example:27017")
	m.Immediately()
	c := connect(b, m, "client").Collection("c")
	for i := 0; b.Loop(); i++ {
		_, err := c.UpdateOne(b.Context(), bson.D{{Key: "_id", Value: strconv.Itoa(i % 1000)}, {Key: "full", Value: bson.D{{Key: "$ne", Value: true}}}},
			bson.D{{Key: "$inc", Value: bson.D{{Key: "count", Value: 1}, {Key: "stats.t.n", Value: 1}}}, {Key: "$set", Value: bson.D{{Key: "w.s", Value: i}}}}, options.UpdateOne().SetUpsert(true))
		require.NoError(b, err)
	}
}
