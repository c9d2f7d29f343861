package faulttest_test

import (
	"testing"
	"time"

	"github.com/brim-telemetry/brim/internal/faulttest"
)

// TestSET1 changes the granularity while the journal has readings not known to be
// stored.
func TestSET1(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.shared()
	s.check.MaxReadings = 20
	proxy, uri := s.proxy()
	d := s.daemon(uri, smallParts...)
	changes := form([]string{"5m", "1m"}, []string{"5m", "1h", "2m", "15m", "1m", "30m", "1m", "10m"})
	for _, granularity := range changes {
		s.produce(d, 2, faulttest.ProducerConfig{Batch: 10, Rate: form(400.0, 1000)})
		wait(form(500*time.Millisecond, 3*time.Second))
		// Everything is applied, but no answer arrives.
		proxy.Set(faulttest.Faults{Decide: faulttest.EveryNth(1, faulttest.CutAnswer)})
		wait(time.Second)
		d.kill()
		proxy.Set(faulttest.Faults{})
		d.start(append(s.policy(), "--granularity", granularity)...).ready()
	}
	s.finish("SET-1", len(changes)+proxy.Counts().Faults())
}
