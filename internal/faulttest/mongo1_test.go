package faulttest_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/brim-telemetry/brim/internal/faulttest"
	"github.com/brim-telemetry/brim/internal/mongod"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
)

// smallParts split every bucket into several parts.
var smallParts = []string{"--bucket-max-readings", "20", "--flush-interval", "20ms"}

// largeParts make the guard the only protection against applying an update twice: a
// part filled by the first update would refuse the second.
var largeParts = []string{"--flush-interval", "20ms"}

// TestMONGO1 loses answers: writes are committed, or arrive late, without Brim
// knowing.
func TestMONGO1(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.shared()
	s.lostAnswers()
}

// TestMONGO1Standalone does the same without a majority and a memory of
// sessions.
func TestMONGO1Standalone(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.mongo(mongodtest.Start(t, mongod.Config{Standalone: true}).URI())
	s.lostAnswers()
}

// lostAnswers runs producers while every third write of the daemon is disrupted
// in one way or another, and held requests arrive later.
func (s *scene) lostAnswers() {
	s.t.Helper()
	proxy, uri := s.proxy()
	d := s.daemon(uri, smallParts...)
	s.check.MaxReadings = 20
	proxy.Set(faulttest.Faults{Decide: faulttest.Randomly(0.3, faulttest.CutAnswer, faulttest.CutAnswer, faulttest.Hold, faulttest.Drop)})
	s.produce(d, 4, faulttest.ProducerConfig{Batch: 10, Sensors: 5})
	s.produce(d, 2, faulttest.ProducerConfig{Batch: 3, Sensors: 5, LineProtocol: true, Ack: "stored"})
	rnd := rand.New(rand.NewPCG(1, 1))
	enough := time.Now().Add(30 * time.Second) // a busy machine needs longer for as many faults
	for i := 0; i < form(12, 200) || proxy.Counts().Faults() < 60 && time.Now().Before(enough); i++ {
		wait(250 * time.Millisecond)
		proxy.Release(rnd)
	}
	// The last held requests arrive when their readings are long stored.
	proxy.Set(faulttest.Faults{})
	s.stopProducers()
	s.flush(d)
	proxy.Release(rnd)
	s.finish("MONGO-1", proxy.Counts().Faults())
}
