package faulttest_test

import (
	"testing"
	"time"

	"github.com/brim-telemetry/brim/internal/faulttest"
)

// TestCLI1: clients send a third of their requests twice concurrently, and
// repeat all of them until they are answered, even by the next process.
func TestCLI1(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.shared()
	s.check.MaxReadings = 20
	d := s.daemon("", smallParts...)
	s.produce(d, 4, faulttest.ProducerConfig{Batch: 5, Rate: 1000, Keys: true, Repeat: 0.3})
	s.produce(d, 4, faulttest.ProducerConfig{Batch: 2, Rate: 500, Keys: true, Repeat: 0.3, Ack: "stored"})
	for range form(3, 20) {
		wait(form(700*time.Millisecond, 2*time.Second))
		d.kill()
		d.start(s.policy()...).ready()
	}
	wait(form(500*time.Millisecond, 2*time.Second))
	repeated := 0
	for _, p := range s.producers {
		repeated += int(p.Counts.Repeated.Load())
	}
	s.finish("CLI-1", repeated)
}
