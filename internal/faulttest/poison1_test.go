package faulttest_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/brim-telemetry/brim/internal/faulttest"
)

// TestPOISON1 mixes invalid readings of every kind into requests, and spoils
// parts in the database, so that Brim takes their readings for invalid.
func TestPOISON1(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.shared()
	s.check.MaxReadings = 20
	spoiled := form(30, 600)
	coll := s.db.Collection("readings")
	for i := range spoiled {
		_, err := coll.InsertOne(t.Context(), spoiledPart(fmt.Sprintf("s-%d", i%3), windowStart.Add(time.Duration(i)*time.Minute)))
		require.NoError(t, err)
	}
	d := s.daemon("", smallParts...)
	good := s.produce(d, 4, faulttest.ProducerConfig{Batch: 20, Poison: form(0.05, 0.01), Rate: form(800.0, 2000)})
	stored := s.produce(d, 2, faulttest.ProducerConfig{Batch: 5, Poison: form(0.05, 0.01), Ack: "stored"})
	wait(form(3*time.Second, time.Minute))
	s.stopProducers()
	s.finish("POISON-1", int(good.Counts.Poisoned.Load()+stored.Counts.Poisoned.Load())+spoiled)
}

// spoiledPart is a first part for which every update fails.
func spoiledPart(sensor string, start time.Time) bson.D {
	return bson.D{
		{Key: "_id", Value: bson.D{
			{Key: "s", Value: sensor}, {Key: "b", Value: bson.NewDateTimeFromTime(start)}, {Key: "g", Value: int32(60)}, {Key: "p", Value: int32(0)},
		}},
		{Key: "count", Value: 1}, {Key: "bytes", Value: 40}, {Key: "measurements", Value: "no array"}, {Key: faulttest.Spoiled, Value: true},
	}
}
