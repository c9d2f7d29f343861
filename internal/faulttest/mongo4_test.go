package faulttest_test

import (
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/faulttest"
	"github.com/brim-telemetry/brim/internal/mongod"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
)

// TestMONGO4 stops the primary's process with requests in its sockets, and resumes it
// before or after the others have elected another. In between the daemon is killed,
// and a new one finds what the old one sent.
func TestMONGO4(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	set := s.replicaSet(form(2*time.Second, 8*time.Second))
	d := s.daemon("", smallParts...)
	s.check.MaxReadings = 20
	s.produce(d, 4, faulttest.ProducerConfig{Batch: 10, Sensors: 20})
	s.produce(d, 4, faulttest.ProducerConfig{Batch: 2, Sensors: 20, Ack: "stored"})
	pauses := form([]time.Duration{time.Second, 4 * time.Second}, randomPauses(12))
	for i, length := range pauses {
		wait(form(500*time.Millisecond, 3*time.Second))
		primary := set.Primary()
		require.NoError(t, primary.Pause())
		wait(length / 2)
		if i%2 == 0 {
			d.kill()
			d.start()
		}
		wait(length / 2)
		require.NoError(t, primary.Resume())
		set.AwaitHealthy()
		d.ready()
	}
	s.finish("MONGO-4", len(pauses))
}

// TestMONGO4Alone stops a mongod for longer than the daemon waits, without another
// member to elect: the abandoned write and its retry are both in its sockets, and both
// are executed.
func TestMONGO4Alone(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	server := mongodtest.Start(t, mongod.Config{})
	s.mongo(server.URI())
	d := s.daemon(s.uri+"&retryWrites=false", largeParts...)
	s.produce(d, 4, faulttest.ProducerConfig{Batch: 10, Sensors: 20, Rate: form(400.0, 1000)})
	pauses := form(1, 6)
	for range pauses {
		wait(time.Second)
		longPause(t, server, func() {})
	}
	s.finish("MONGO-4", pauses)
}

// writeTimeout is how long the stores wait for a command.
const writeTimeout = 10 * time.Second

// longPause stops a mongod, calls do, and resumes it after longer than the daemon waits.
func longPause(t *testing.T, server *mongod.Server, do func()) {
	t.Helper()
	require.NoError(t, syscall.Kill(server.Pid(), syscall.SIGSTOP))
	do()
	wait(writeTimeout + 1500*time.Millisecond)
	require.NoError(t, syscall.Kill(server.Pid(), syscall.SIGCONT))
}

func randomPauses(n int) []time.Duration {
	pauses := make([]time.Duration, n)
	for i := range pauses {
		pauses[i] = 3*time.Second + rand.N(12*time.Second)
	}
	return pauses
}
