package faulttest_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/brim-telemetry/brim/internal/faulttest"
	"github.com/brim-telemetry/brim/internal/mongod"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
)

// smallParts make every bucket go through several parts.
var smallParts = []string{"--bucket-max-readings", "20", "--flush-interval", "20ms"}

// largeParts makes the guard the only protection against applying an update twice: a
// part that the first update had filled would refuse the second.
var largeParts = []string{"--flush-interval", "20ms"}

// TestMONGO1 loses answers: writes are committed, or arrive late, and Brim
// does not know.
func TestMONGO1(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.shared()
	s.lostAnswers()
}

// TestMONGO1Standalone does the same where there is no majority and no memory
// of sessions.
func TestMONGO1Standalone(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.mongo(mongodtest.Start(t, mongod.Config{Standalone: true}).URI())
	s.lostAnswers()
}

// lostAnswers runs producers while every third write of the daemon is cut off
// in one way or another, and what was held back arrives later.
func (s *scene) lostAnswers() {
	s.t.Helper()
	proxy, uri := s.proxy()
	d := s.daemon(uri, smallParts...)
	s.check.MaxReadings = 20
	proxy.Set(faulttest.Faults{Decide: faulttest.Randomly(0.3, faulttest.CutAnswer, faulttest.CutAnswer, faulttest.Hold, faulttest.Drop)})
	s.produce(d, 4, faulttest.ProducerConfig{Batch: 10, Sensors: 5})
	s.produce(d, 2, faulttest.ProducerConfig{Batch: 3, Sensors: 5, LineProtocol: true, Ack: "stored"})
	rnd := rand.New(rand.NewPCG(1, 1))
	enough := time.Now().Add(30 * time.Second) // a busy machine takes longer to meet as many faults
	for i := 0; i < form(12, 200) || proxy.Counts().Faults() < 60 && time.Now().Before(enough); i++ {
		wait(250 * time.Millisecond)
		proxy.Release(rnd)
	}
	// The last of what is held arrives when its readings are long stored.
	proxy.Set(faulttest.Faults{})
	s.stopProducers()
	s.flush(d)
	proxy.Release(rnd)
	s.finish("MONGO-1", proxy.Counts().Faults())
}
