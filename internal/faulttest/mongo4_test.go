package faulttest_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/fault"
	"github.com/brim-telemetry/brim/internal/faulttest"
)

// TestMONGO4 stops the primary's process, with requests in its sockets, and
// lets it go on: before the others have elected another, and after. In between
// the daemon is killed, and a new one finds what the old one had sent.
func TestMONGO4(t *testing.T) {
	faultTest{name: "MONGO-4", run: pausedPrimaries, sabotages: []sabotage{without(fault.Guard), without(fault.Replay)}}.test(t)
}

func pausedPrimaries(s *scene) outcome {
	set := s.replicaSet(form(s, 2*time.Second, 8*time.Second))
	d := s.daemon("", smallParts...)
	s.check.MaxReadings = 20
	s.produce(d, 4, faulttest.ProducerConfig{Batch: 10, Sensors: 20})
	s.produce(d, 4, faulttest.ProducerConfig{Batch: 2, Sensors: 20, Ack: "stored"})
	pauses := form(s, []time.Duration{time.Second, 4 * time.Second}, randomPauses(12))
	for i, length := range pauses {
		wait(form(s, 500*time.Millisecond, 3*time.Second))
		primary := set.Primary()
		require.NoError(s.t, primary.Pause())
		wait(length / 2)
		if i%2 == 0 {
			d.kill()
			d.start()
		}
		wait(length / 2)
		require.NoError(s.t, primary.Resume())
		set.AwaitHealthy()
		d.ready()
	}
	return s.finish(len(pauses))
}

func randomPauses(n int) []time.Duration {
	pauses := make([]time.Duration, n)
	for i := range pauses {
		pauses[i] = 3*time.Second + rand.N(12*time.Second)
	}
	return pauses
}
