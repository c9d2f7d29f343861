package faulttest_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/faulttest"
)

// TestMONGO2 repeatedly steps down the primary in the middle of bulk writes
// with hundreds of updates.
func TestMONGO2(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	set := s.replicaSet(time.Second)
	d := s.daemon("", largeParts...)
	s.produce(d, 4, faulttest.ProducerConfig{Batch: 200, Sensors: 400, Rate: form(2000.0, 5000)})
	s.produce(d, 4, faulttest.ProducerConfig{Batch: 2, Sensors: 20, Ack: "stored"})
	stepDowns := form(3, 20)
	for range stepDowns {
		wait(form(time.Second, 5*time.Second))
		require.NoError(t, set.StepDown())
	}
	set.AwaitHealthy()
	s.finish("MONGO-2", stepDowns)
}
