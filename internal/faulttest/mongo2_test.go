package faulttest_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/fault"
	"github.com/brim-telemetry/brim/internal/faulttest"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
)

// replicaSet makes a set of three the scene's MongoDB. Its clients notice within
// a second or two what happens to a member, and writes are not repeated by the
// driver.
func (s *scene) replicaSet(electionTimeout time.Duration) *mongodtest.ReplicaSet {
	s.t.Helper()
	set := mongodtest.StartReplicaSet(s.t, electionTimeout)
	s.mongo(set.URI("heartbeatFrequencyMS=500", "connectTimeoutMS=1000", "retryWrites=false"))
	return set
}

// TestMONGO2 steps the primary down again and again, in the middle of bulks of
// hundreds of updates.
func TestMONGO2(t *testing.T) {
	faultTest{name: "MONGO-2", run: stepDowns, sabotages: []sabotage{without(fault.Guard)}}.test(t)
}

func stepDowns(s *scene) outcome {
	set := s.replicaSet(time.Second)
	d := s.daemon("", smallParts...)
	s.check.MaxReadings = 20
	s.produce(d, 4, faulttest.ProducerConfig{Batch: 200, Sensors: 400, Rate: form(s, 5000., 20_000.)})
	s.produce(d, 4, faulttest.ProducerConfig{Batch: 2, Sensors: 20, Ack: "stored"})
	rounds := form(s, 3, 20)
	for range rounds {
		wait(form(s, time.Second, 5*time.Second))
		require.NoError(s.t, set.StepDown())
	}
	set.AwaitHealthy()
	return s.finish(rounds)
}

// TestMONGO3 kills the primary. Each time, the others have been kept from
// replicating for a while, so that only what a majority holds outlives it:
// with w:1 readings must be lost.
func TestMONGO3(t *testing.T) {
	faultTest{name: "MONGO-3", run: killedPrimaries, sabotages: []sabotage{without(fault.Majority)}}.test(t)
}

func killedPrimaries(s *scene) outcome {
	set := s.replicaSet(time.Second)
	d := s.daemon("", smallParts...)
	s.check.MaxReadings = 20
	s.produce(d, 4, faulttest.ProducerConfig{Batch: 10, Sensors: 20})
	s.produce(d, 4, faulttest.ProducerConfig{Batch: 2, Sensors: 20, Ack: "stored"})
	rounds := form(s, 2, 10)
	for range rounds {
		wait(form(s, 500*time.Millisecond, 3*time.Second))
		primary := set.Primary()
		holdReplication(s, set, primary, "alwaysOn")
		wait(time.Second)
		primary.Kill()
		holdReplication(s, set, primary, "off")
		set.Primary()
		wait(form(s, 500*time.Millisecond, 3*time.Second))
		primary.Restart(s.t)
		set.AwaitHealthy()
	}
	return s.finish(rounds)
}

// holdReplication keeps all but the primary from fetching what it writes.
func holdReplication(s *scene, set *mongodtest.ReplicaSet, primary *mongodtest.Member, mode string) {
	s.t.Helper()
	for _, m := range set.Members {
		if m != primary {
			require.NoError(s.t, m.SetFailPoint(context.Background(), "stopReplProducer", mode))
		}
	}
}

// TestMONGO4 stops the primary's process, with requests in its sockets, and
// lets it go on: before the others have elected another, and after. In between
// the daemon is killed, and a new one finds what the old one had sent.
func TestMONGO4(t *testing.T) {
	faultTest{name: "MONGO-4", run: pausedPrimaries, sabotages: []sabotage{without(fault.Guard), without(fault.Replay)}}.test(t)
}

func pausedPrimaries(s *scene) outcome {
	set := s.replicaSet(form(s, 2*time.Second, 8*time.Second))
	d := s.daemon("", smallParts...)
	s.check.MaxReadings = 20
	s.produce(d, 4, faulttest.ProducerConfig{Batch: 10, Sensors: 20})
	s.produce(d, 4, faulttest.ProducerConfig{Batch: 2, Sensors: 20, Ack: "stored"})
	pauses := form(s, []time.Duration{time.Second, 4 * time.Second}, randomPauses(12))
	for i, length := range pauses {
		wait(form(s, 500*time.Millisecond, 3*time.Second))
		primary := set.Primary()
		require.NoError(s.t, primary.Pause())
		wait(length / 2)
		if i%2 == 0 {
			d.kill()
			d.start()
		}
		wait(length / 2)
		require.NoError(s.t, primary.Resume())
		set.AwaitHealthy()
		d.ready()
	}
	return s.finish(len(pauses))
}

func randomPauses(n int) []time.Duration {
	pauses := make([]time.Duration, n)
	for i := range pauses {
		pauses[i] = 3*time.Second + rand.N(12*time.Second)
	}
	return pauses
}
