package faulttest_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/faulttest"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
)

// TestMONGO3 kills the primary after replication was stopped for a while, so that
// only what a majority has survives.
func TestMONGO3(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	set := s.replicaSet(time.Second)
	d := s.daemon("", smallParts...)
	s.check.MaxReadings = 20
	s.produce(d, 4, faulttest.ProducerConfig{Batch: 10, Sensors: 20})
	s.produce(d, 4, faulttest.ProducerConfig{Batch: 2, Sensors: 20, Ack: "stored"})
	kills := form(2, 10)
	for range kills {
		wait(form(500*time.Millisecond, 3*time.Second))
		primary := set.Primary()
		holdReplication(s, set, primary, "alwaysOn")
		wait(time.Second)
		primary.Kill()
		holdReplication(s, set, primary, "off")
		set.Primary()
		wait(form(500*time.Millisecond, 3*time.Second))
		primary.Restart(t)
		set.AwaitHealthy()
	}
	s.finish("MONGO-3", kills)
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
