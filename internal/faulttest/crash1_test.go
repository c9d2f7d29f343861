package faulttest_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/brim-telemetry/brim/internal/fault"
	"github.com/brim-telemetry/brim/internal/faulttest"
)

// TestCRASH1 kills the daemon every few seconds under load.
func TestCRASH1(t *testing.T) {
	faultTest{
		name: "CRASH-1",
		run: func(s *scene) outcome {
			s.shared()
			s.check.MaxReadings = 20
			return crashes(s, smallParts...)
		},
		sabotages: []sabotage{without(fault.Replay), without(fault.Look), without(fault.NewSession)},
	}.test(t)
}

// crashes kills the daemon again and again, sometimes before it was ready.
func crashes(s *scene, flags ...string) outcome {
	d := s.daemon("", flags...)
	s.produce(d, 4, faulttest.ProducerConfig{Batch: 10, Rate: 2000})
	s.produce(d, 4, faulttest.ProducerConfig{Rate: 200})
	s.produce(d, 2, faulttest.ProducerConfig{Batch: 2, Ack: "stored", LineProtocol: true})
	kills := form(s, 4, 20)
	for range kills {
		wait(form(s, 400*time.Millisecond, time.Second) + rand.N(form(s, 400*time.Millisecond, 2*time.Second)))
		d.kill()
		d.start()
		if s.wrong() {
			break
		}
	}
	d.ready()
	return s.finish(kills)
}
