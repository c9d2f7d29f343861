package faulttest_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/fault"
	"github.com/brim-telemetry/brim/internal/faulttest"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
)

// TestMONGO3 kills the primary after replication was stopped for a while, so that
// only what a majority holds survives. With w:1, by sabotage or by the operator's
// setting, readings must be lost.
func TestMONGO3(t *testing.T) {
	faultTest{name: "MONGO-3", electionTimeout: time.Second, run: func(s *scene) outcome { return killedPrimaries(s) }, sabotages: []sabotage{
		without(fault.Majority),
		{name: "write-concern", run: func(s *scene) outcome { return killedPrimaries(s, "--write-concern", "1") }},
	}}.test(t)
}

func killedPrimaries(s *scene, flags ...string) outcome {
	set := s.replicaSet()
	d := s.daemon("", append(flags, smallParts...)...)
	s.check.MaxReadings = 20
	s.produce(d, 4, faulttest.ProducerConfig{Batch: 10, Sensors: 20})
	s.produce(d, 4, faulttest.ProducerConfig{Batch: 2, Sensors: 20, Ack: "stored"})
	kills := form(s, 2, 10)
	for range kills {
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
		if s.wrong() {
			break
		}
	}
	return s.finish(kills)
}

// holdReplication stops or resumes replication from the primary.
func holdReplication(s *scene, set *mongodtest.ReplicaSet, primary *mongodtest.Member, mode string) {
	s.t.Helper()
	for _, m := range set.Members {
		if m != primary {
			require.NoError(s.t, m.SetFailPoint(context.Background(), "stopReplProducer", mode))
		}
	}
}
