package faulttest_test

import (
	"testing"
	"time"

	"github.com/brim-telemetry/brim/internal/fault"
	"github.com/brim-telemetry/brim/internal/faulttest"
)

// TestTS1LostAnswers is MONGO-1 on a time-series stream, which no guard can
// protect: Brim looks before it sends again.
func TestTS1LostAnswers(t *testing.T) {
	faultTest{
		name: "TS-1", sabotages: []sabotage{without(fault.SeriesLook)},
		run: func(s *scene) outcome {
			s.shared()
			s.check.TimeSeries = true
			proxy, uri := s.proxy()
			d := s.daemon(uri, "--storage", "timeseries", "--flush-interval", "20ms")
			proxy.Set(faulttest.Faults{Decide: faulttest.Randomly(0.3, faulttest.CutAnswer, faulttest.Drop)})
			s.produce(d, 4, faulttest.ProducerConfig{Batch: 10, Rate: 2000})
			s.produce(d, 2, faulttest.ProducerConfig{Ack: "stored"})
			wait(form(s, 3*time.Second, time.Minute))
			proxy.Set(faulttest.Faults{})
			return s.finish(proxy.Counts().Faults())
		},
	}.test(t)
}

// TestTS1Crashes is CRASH-1 on a time-series stream.
func TestTS1Crashes(t *testing.T) {
	faultTest{
		name: "TS-1", sabotages: []sabotage{without(fault.SeriesLook)},
		run: func(s *scene) outcome {
			s.shared()
			s.check.TimeSeries = true
			return crashes(s, "--storage", "timeseries", "--flush-interval", "20ms")
		},
	}.test(t)
}
