package faulttest_test

import (
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/fault"
	"github.com/brim-telemetry/brim/internal/faulttest"
)

// TestMONGO4 stops the primary's process with requests in its sockets, and resumes it
// before the others have elected another, and after. In between the daemon is killed,
// and a new one finds what the old one had sent.
func TestMONGO4(t *testing.T) {
	faultTest{
		name: "MONGO-4", electionTimeout: map[bool]time.Duration{false: 2 * time.Second, true: 8 * time.Second}[full()],
		run: pausedPrimaries, sabotages: []sabotage{without(fault.Replay)},
	}.test(t)
}

func pausedPrimaries(s *scene) outcome {
	set := s.replicaSet()
	d := s.daemon("", smallParts...)
	s.check.MaxReadings = 20
	s.produce(d, 4, faulttest.ProducerConfig{Batch: 10, Sensors: 20})
	s.produce(d, 4, faulttest.ProducerConfig{Batch: 2, Sensors: 20, Ack: "stored"})
	pauses := form(s, []time.Duration{time.Second, 4 * time.Second}, randomPauses(12))
	if s.sabotaged {
		pauses = pauses[:1] // with the kill
	}
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

// TestMONGO4Alone stops a mongod for longer than the daemon waits, with no other member
// to elect: the abandoned write and its retry are both in its sockets, and both are
// applied.
func TestMONGO4Alone(t *testing.T) {
	faultTest{
		name: "MONGO-4", ownServer: true, sabotages: []sabotage{without(fault.Guard)},
		run: func(s *scene) outcome {
			s.own()
			d := s.daemon(s.uri+"&retryWrites=false", largeParts...)
			s.produce(d, 4, faulttest.ProducerConfig{Batch: 10, Sensors: 20, Rate: form(s, 400.0, 1000)})
			pauses := rounds(s, 1, 6)
			for range pauses {
				wait(time.Second)
				s.longPause(func() {})
			}
			return s.finish(pauses)
		},
	}.test(t)
}

// writeTimeout is how long the stores wait for a command.
const writeTimeout = 10 * time.Second

// longPause calls do, and then stops the test's own server for longer than the daemon
// waits.
func (s *scene) longPause(do func()) {
	require.NoError(s.t, syscall.Kill(s.server.Pid(), syscall.SIGSTOP))
	do()
	wait(writeTimeout + 1500*time.Millisecond)
	require.NoError(s.t, syscall.Kill(s.server.Pid(), syscall.SIGCONT))
}

func randomPauses(n int) []time.Duration {
	pauses := make([]time.Duration, n)
	for i := range pauses {
		pauses[i] = 3*time.Second + rand.N(12*time.Second)
	}
	return pauses
}
