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
	faultTest{name: "MONGO-2", electionTimeout: time.Second, run: stepDowns, sabotages: []sabotage{without(fault.Guard)}}.test(t)
}

func stepDowns(s *scene) outcome {
	set := s.replicaSet()
	d := s.daemon("", largeParts...)
	s.produce(d, 4, faulttest.ProducerConfig{Batch: 200, Sensors: 400, Rate: form(s, 2000.0, 5000)})
	s.produce(d, 4, faulttest.ProducerConfig{Batch: 2, Sensors: 20, Ack: "stored"})
	stepDowns := rounds(s, 3, 20)
	for range stepDowns {
		wait(form(s, time.Second, 5*time.Second))
		require.NoError(s.t, set.StepDown())
		if s.wrong() {
			break
		}
	}
	set.AwaitHealthy()
	return s.finish(stepDowns)
}
