package faulttest_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/fault"
	"github.com/brim-telemetry/brim/internal/faulttest"
)

// TestMONGO2 steps the primary down again and again, in the middle of bulks of
// hundreds of updates.
func TestMONGO2(t *testing.T) {
	faultTest{name: "MONGO-2", run: stepDowns, sabotages: []sabotage{without(fault.Guard)}}.test(t)
}

func stepDowns(s *scene) outcome {
	set := s.replicaSet(time.Second)
	d := s.daemon("", largeParts...)
	s.produce(d, 4, faulttest.ProducerConfig{Batch: 200, Sensors: 400, Rate: 5000})
	s.produce(d, 4, faulttest.ProducerConfig{Batch: 2, Sensors: 20, Ack: "stored"})
	rounds := form(s, 3, 20)
	for range rounds {
		wait(form(s, time.Second, 5*time.Second))
		require.NoError(s.t, set.StepDown())
	}
	set.AwaitHealthy()
	return s.finish(rounds)
}
