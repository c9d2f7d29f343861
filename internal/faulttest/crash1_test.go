package faulttest_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/brim-telemetry/brim/internal/faulttest"
)

// TestCRASH1 kills the daemon every few seconds under load. Each process has another
// merge policy.
func TestCRASH1(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.shared()
	s.check.MaxReadings = 20
	s.finish("CRASH-1", s.kills(smallParts...))
}

// kills kills a daemon repeatedly, sometimes before it is ready, and returns how often.
func (s *scene) kills(flags ...string) int {
	s.t.Helper()
	d := s.daemon("", flags...)
	s.produce(d, 4, faulttest.ProducerConfig{Batch: 10, Rate: 2000})
	s.produce(d, 4, faulttest.ProducerConfig{Rate: 200})
	s.produce(d, 2, faulttest.ProducerConfig{Batch: 2, Ack: "stored", LineProtocol: true})
	kills := form(4, 20)
	for range kills {
		wait(form(400*time.Millisecond, time.Second) + rand.N(form(400*time.Millisecond, 2*time.Second)))
		if s.timeSeries {
			s.kill(d)
		} else {
			d.kill()
		}
		d.start(s.policy()...)
	}
	d.ready()
	return kills
}
