package faulttest_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/brim-telemetry/brim/internal/faulttest"
)

// TestRACE1: four daemons write the same 50 sensors across many buckets. They race to
// create and fill parts; most readings have other tags than their part.
func TestRACE1(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.shared()
	s.check.MaxReadings = 20
	for range 4 {
		d := s.daemon("", smallParts...)
		// 50 sensors in 10 s of event time, so 6 requests per window.
		s.produce(d, 2, faulttest.ProducerConfig{Batch: 50, Sensors: 50, Step: 200 * time.Millisecond, Late: 2 * time.Minute, Rate: form(500., 1000.)})
	}
	wait(form(3*time.Second, time.Minute))
	buckets, err := s.db.Collection("readings").CountDocuments(t.Context(), bson.D{{Key: "_id.p", Value: 0}})
	require.NoError(t, err)
	s.finish("RACE-1", int(buckets))
}
