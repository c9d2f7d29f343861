package faulttest_test

import (
	"testing"
	"time"

	"github.com/brim-telemetry/brim/internal/faulttest"
)

// TestMONGO5 puts a slow link between Brim and MongoDB that is repeatedly cut, and
// at times refuses connections.
func TestMONGO5(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.shared()
	proxy, uri := s.proxy()
	d := s.daemon(uri, largeParts...)
	slow := faulttest.Faults{Delay: 200 * time.Millisecond, BytesPerSecond: 64 << 10, Decide: faulttest.EveryNth(6, faulttest.CutAnswer)}
	proxy.Set(slow)
	s.produce(d, 2, faulttest.ProducerConfig{Batch: 10, Sensors: 5, Rate: 200})
	s.produce(d, 4, faulttest.ProducerConfig{Sensors: 5, Ack: "stored"})
	for range form(3, 60) {
		wait(form(1500*time.Millisecond, 2*time.Second))
		proxy.CutAll()
		refusing := slow
		refusing.Refuse = true
		proxy.Set(refusing)
		wait(100 * time.Millisecond)
		proxy.Set(slow)
	}
	s.stopProducers()
	proxy.Set(faulttest.Faults{})
	s.finish("MONGO-5", proxy.Counts().Faults())
}
