package faulttest_test

import (
	"testing"
	"time"

	"github.com/brim-telemetry/brim/internal/fault"
	"github.com/brim-telemetry/brim/internal/faulttest"
)

// TestSET1 changes the granularity while the journal has readings that are not known
// to be stored.
func TestSET1(t *testing.T) {
	faultTest{name: "SET-1", run: otherSettings, sabotages: []sabotage{without(fault.Granularity)}}.test(t)
}

func otherSettings(s *scene) outcome {
	s.shared()
	s.check.MaxReadings = 20
	proxy, uri := s.proxy()
	d := s.daemon(uri, smallParts...)
	changes := form(s, []string{"5m", "1m"}, []string{"5m", "1h", "2m", "15m", "1m", "30m", "1m", "10m"})
	for _, granularity := range changes {
		s.produce(d, 2, faulttest.ProducerConfig{Batch: 10, Rate: form(s, 400.0, 1000)})
		wait(form(s, 500*time.Millisecond, 3*time.Second))
		// All is applied, and no answer comes.
		proxy.Set(faulttest.Faults{Decide: faulttest.EveryNth(1, faulttest.CutAnswer)})
		wait(time.Second)
		d.kill()
		proxy.Set(faulttest.Faults{})
		d.start(append(s.policy(), "--granularity", granularity)...).ready()
	}
	return s.finish(len(changes) + proxy.Counts().Faults())
}
