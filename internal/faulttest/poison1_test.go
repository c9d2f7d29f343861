package faulttest_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/brim-telemetry/brim/internal/fault"
	"github.com/brim-telemetry/brim/internal/faulttest"
)

// TestPOISON1 mixes bad readings of every kind into requests, and spoils parts
// in the database, so that their readings seem bad to Brim.
func TestPOISON1(t *testing.T) {
	faultTest{name: "POISON-1", run: badReadings, sabotages: []sabotage{without(fault.Isolate)}}.test(t)
}

func badReadings(s *scene) outcome {
	s.shared()
	s.check.MaxReadings = 20
	spoiled := form(s, 30, 600)
	coll := s.db.Collection("readings")
	for i := range spoiled {
		_, err := coll.InsertOne(context.Background(), spoiledPart(fmt.Sprintf("s-%d", i%3), windowStart.Add(time.Duration(i)*time.Minute)))
		require.NoError(s.t, err)
	}
	d := s.daemon("", smallParts...)
	s.produce(d, 4, faulttest.ProducerConfig{Batch: 20, Poison: form(s, 0.05, 0.01), Rate: form(s, 800.0, 2000)})
	s.produce(d, 2, faulttest.ProducerConfig{Batch: 5, Poison: form(s, 0.05, 0.01), Ack: "stored"})
	s.run(3*time.Second, time.Minute)
	for _, p := range s.producers {
		p.Stop()
	}
	sent := 0
	for _, p := range s.producers {
		sent += int(p.Counts.Poisoned.Load())
	}
	return s.finish(sent + spoiled)
}

// spoiledPart is a first part that every update fails on.
func spoiledPart(sensor string, start time.Time) bson.D {
	return bson.D{
		{Key: "_id", Value: bson.D{
			{Key: "s", Value: sensor}, {Key: "b", Value: bson.NewDateTimeFromTime(start)}, {Key: "g", Value: int32(60)}, {Key: "p", Value: int32(0)},
		}},
		{Key: "count", Value: 1}, {Key: "bytes", Value: 40}, {Key: "measurements", Value: "no array"}, {Key: faulttest.Spoiled, Value: true},
	}
}
