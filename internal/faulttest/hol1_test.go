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

// TestHOL1 lets the writes of one bucket fail for a minute, with more for it
// than a lane can hold: no other reading may have to wait for that.
func TestHOL1(t *testing.T) {
	faultTest{name: "HOL-1", alone: true, run: stuckBucket, sabotages: []sabotage{without(fault.SetAside)}}.test(t)
}

func stuckBucket(s *scene) outcome {
	s.shared()
	// One lane: all buckets are neighbours of the stuck one.
	d := s.daemon("", "--flush-interval", "20ms", "--lanes", "1", "--queue-max-bytes", "2MiB", "--granularity", "1h")
	// All in one window; the stuck sensor is the first.
	s.produce(d, 2, faulttest.ProducerConfig{Batch: 500, Sensors: 1, Step: time.Millisecond, Rate: form(s, 20_000., 5000)})
	others := s.produce(d, 4, faulttest.ProducerConfig{Batch: 2, FirstSensor: 1, Sensors: 200, Step: time.Millisecond, Rate: 200, Ack: "stored", Timed: true})
	wait(form(s, 2*time.Second, 20*time.Second))
	const slowest = 0.01
	before := others.Counts.Slowest(slowest)
	s.validate(bson.D{{Key: "sensorId", Value: bson.D{{Key: "$ne", Value: "s-0"}}}})
	wait(form(s, 4*time.Second, time.Minute))
	s.validate(bson.D{})
	out := s.finish(1)
	during := others.Counts.Slowest(slowest) // with those that could be stored only now
	s.t.Logf("99 %% of the other sensors' readings were stored within %v before, within %v beside the stuck bucket", before, during)
	if most := max(5*before, time.Second); during > most {
		out.broken = append(out.broken, fmt.Sprintf("readings of other sensors took %v, before %v", during, before))
	}
	return out
}

// validate makes the collection refuse what the expression does not match, or
// take everything again.
func (s *scene) validate(expression bson.D) {
	s.t.Helper()
	err := s.db.RunCommand(context.Background(), bson.D{{Key: "collMod", Value: "readings"}, {Key: "validator", Value: expression}}).Err()
	require.NoError(s.t, err)
}
