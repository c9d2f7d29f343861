package faulttest_test

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/faulttest"
)

// TestCRASH4 copies a killed daemon's journal, like restoring a machine. Two daemons
// continue from it concurrently, without the claims that would make the second wait.
// A third one is started on a running daemon's directory, and must exit.
func TestCRASH4(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.shared()
	s.check.MaxReadings = 20
	proxy, uri := s.proxy()
	calm := withoutClaims(faulttest.Randomly(0))
	proxy.Set(calm)
	first := s.daemon(uri, smallParts...)
	copied := s.daemon(uri, smallParts...)
	copied.stop()
	copies := form(2, 20)
	for range copies {
		p := s.produce(first, 4, faulttest.ProducerConfig{Batch: 10, Rate: form(600.0, 2000)})
		wait(form(300*time.Millisecond, time.Second))
		// The daemon gets no reply to updates applied from now on.
		proxy.Set(withoutClaims(faulttest.Randomly(0.5, faulttest.CutAnswer)))
		wait(500 * time.Millisecond)
		first.kill()
		p.Stop()
		proxy.Set(calm)
		copyJournal(t, first, copied)
		first.start()
		copied.start()
		first.ready()
		copied.ready()
		p = s.produce(copied, 2, faulttest.ProducerConfig{Batch: 10, Rate: form(300.0, 1000)})
		wait(form(500*time.Millisecond, 2*time.Second))
		p.Stop()
		s.flush(copied) // its journal will be replaced
		copied.stop()
	}
	third := newDaemon(t, append([]string{"--mongo-uri", uri, "--database", s.db.Name()}, smallParts...)...)
	third.start("--journal-dir", first.journal())
	third.awaitReady()
	assert.True(t, third.ended(), "two daemons run on one journal")
	third.kill()
	s.finish("CRASH-4", copies+1)
}

// TestCRASH4Series copies the journal of a daemon that was killed while MongoDB
// was away, and starts two daemons with it. No guard prevents duplicates if both
// replay it, so one of them must wait or exit.
func TestCRASH4Series(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.shared()
	s.timeSeries = true
	proxy, uri := s.proxy()
	flags := []string{"--storage", "timeseries", "--flush-interval", "20ms"}
	first := s.daemon(uri, flags...)
	copied := s.daemon(uri, flags...)
	copied.stop()
	copies := form(1, 5)
	for range copies {
		p := s.produce(first, 4, faulttest.ProducerConfig{Batch: 50, Sensors: 50, Rate: form(1000.0, 8000)})
		wait(300 * time.Millisecond)
		proxy.Set(faulttest.Faults{Decide: faulttest.Randomly(1, faulttest.Drop)})
		wait(time.Second)
		first.kill()
		p.Stop()
		proxy.Set(faulttest.Faults{})
		copyJournal(t, first, copied)
		first.start()
		copied.start()
		first.ready()
		s.flush(first)
		if err := copied.flush(form(time.Minute, 5*time.Minute)); err != nil && !copied.await(copied.ended) {
			s.stuck = err // neither stored nor refused
		}
		copied.stop()
	}
	s.finish("CRASH-4", copies)
}

// copyJournal copies the journal of one daemon to another that is not running.
func copyJournal(t testing.TB, from, to *daemon) {
	t.Helper()
	require.NoError(t, os.RemoveAll(to.journal()))
	require.NoError(t, os.CopyFS(to.journal(), os.DirFS(from.journal())))
}
