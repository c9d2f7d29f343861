package faulttest_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/brim-telemetry/brim/internal/fault"
	"github.com/brim-telemetry/brim/internal/faulttest"
)

// TestRACE1 lets four daemons write the same 50 sensors across many buckets. They race
// to create and fill the parts of each; the tags of most readings are not those of
// their part.
func TestRACE1(t *testing.T) {
	faultTest{name: "RACE-1", run: fourDaemons, sabotages: []sabotage{without(fault.DocumentRule), without(fault.PartTags)}}.test(t)
}

func fourDaemons(s *scene) outcome {
	s.shared()
	s.check.MaxReadings = 20
	for range 4 {
		d := s.daemon("", smallParts...)
		// 50 sensors in 10 s of event time, so a window in 6 requests.
		s.produce(d, 2, faulttest.ProducerConfig{Batch: 50, Sensors: 50, Step: 200 * time.Millisecond, Late: 2 * time.Minute, Rate: form(s, 500., 1000.)})
	}
	s.run(3*time.Second, time.Minute)
	buckets, err := s.db.Collection("readings").CountDocuments(context.Background(), bson.D{{Key: "_id.p", Value: 0}})
	require.NoError(s.t, err)
	return s.finish(int(buckets))
}
