package faulttest_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/brim-telemetry/brim/internal/fault"
	"github.com/brim-telemetry/brim/internal/faulttest"
)

// TestCAP1Readings fills buckets far beyond the cap of a part, by readings.
func TestCAP1Readings(t *testing.T) {
	faultTest{
		name: "CAP-1", run: func(s *scene) outcome {
			s.check.MaxReadings = 20
			return overfill(s, "--bucket-max-readings", "20", "7")
		},
		sabotages: []sabotage{without(fault.Fence), without(fault.DocumentRule), without(fault.Look)},
	}.test(t)
}

// TestCAP1Bytes does so by bytes: some 25 readings in a part, then 12.
func TestCAP1Bytes(t *testing.T) {
	faultTest{
		name: "CAP-1", run: func(s *scene) outcome {
			s.check.MaxBytes = 2 << 10
			return overfill(s, "--bucket-max-bytes", "2KiB", "1KiB")
		},
	}.test(t)
}

// overfill puts 20 times the cap into each of five buckets, while requests
// are held back that arrive later, and the daemon is killed. Each process has
// another cap than the one before: parts are closed that could take what is
// still on its way.
func overfill(s *scene, flag, most, less string) outcome {
	s.shared()
	proxy, uri := s.proxy()
	d := s.daemon(uri, "--flush-interval", "20ms", flag, most)
	proxy.Set(faulttest.Faults{Decide: faulttest.Randomly(0.3, faulttest.Hold, faulttest.Hold, faulttest.CutAnswer)})
	rnd := rand.New(rand.NewPCG(2, 2))
	rounds := form(s, 4, 30)
	for round := range rounds {
		// One window: the step is short.
		start := windowStart.Add(time.Duration(round) * time.Minute)
		s.produce(d, 2, faulttest.ProducerConfig{Batch: 10, Sensors: 5, Step: time.Millisecond, Start: start, Rate: 3000, Most: 1000})
		wait(form(s, 500*time.Millisecond, 2*time.Second))
		d.kill()
		if round%2 == 0 {
			d.start(flag, less)
		} else {
			d.start(flag, most)
		}
		d.ready()
		wait(300 * time.Millisecond)
		proxy.Release(rnd)
	}
	for _, p := range s.producers {
		p.Stop()
	}
	proxy.Set(faulttest.Faults{})
	s.flush(d)
	proxy.Release(rnd)
	return s.finish(rounds + proxy.Counts().Faults())
}
