package faulttest_test

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/fault"
	"github.com/brim-telemetry/brim/internal/faulttest"
)

// TestCRASH4 copies the journal of a killed daemon, as restoring a machine does. Two
// daemons continue from it concurrently, without the claims that would make the
// second wait. A third is started on the directory of a running one, and must exit.
func TestCRASH4(t *testing.T) {
	faultTest{
		name: "CRASH-4", run: copiedJournal,
		sabotages: []sabotage{without(fault.NewSession), without(fault.Look), without(fault.Lock)},
	}.test(t)
}

// TestCRASH4Series copies the journal of a daemon that was killed while MongoDB
// was away, and starts both on it. No guard prevents duplicates if both replay it:
// one of them must wait or exit.
func TestCRASH4Series(t *testing.T) {
	faultTest{name: "CRASH-4", run: copiedSeries, sabotages: []sabotage{without(fault.Claim)}}.test(t)
}

func copiedSeries(s *scene) outcome {
	s.shared()
	s.check.TimeSeries = true
	proxy, uri := s.proxy()
	flags := []string{"--storage", "timeseries", "--flush-interval", "20ms"}
	first := s.daemon(uri, flags...)
	copied := s.daemon(uri, flags...)
	copied.stop()
	copies := rounds(s, 1, 5)
	for range copies {
		p := s.produce(first, 4, faulttest.ProducerConfig{Batch: 50, Sensors: 50, Rate: form(s, 1000.0, 8000)})
		wait(300 * time.Millisecond)
		proxy.Set(faulttest.Faults{Decide: faulttest.Randomly(1, faulttest.Drop)})
		wait(time.Second)
		first.kill()
		p.Stop()
		proxy.Set(faulttest.Faults{})
		copyJournal(s.t, first, copied)
		first.start()
		copied.start()
		first.ready()
		s.flush(first)
		if err := copied.flush(form(s, time.Minute, 5*time.Minute)); err != nil && !copied.await(copied.ended) {
			s.stuck = err // neither stored nor refused
		}
		copied.stop()
	}
	return s.finish(copies)
}

// copyJournal copies the journal of one daemon to another that is not running.
func copyJournal(t testing.TB, from, to *daemon) {
	t.Helper()
	require.NoError(t, os.RemoveAll(to.journal()))
	require.NoError(t, os.CopyFS(to.journal(), os.DirFS(from.journal())))
}

func copiedJournal(s *scene) outcome {
	s.shared()
	s.off = append(s.off, fault.Claim)
	s.check.MaxReadings = 20
	proxy, uri := s.proxy()
	first := s.daemon(uri, smallParts...)
	copied := s.daemon(uri, smallParts...)
	copied.stop()
	faults := 0
	for range rounds(s, 2, 20) {
		s.produce(first, 4, faulttest.ProducerConfig{Batch: 10, Rate: form(s, 600.0, 2000)})
		wait(form(s, 300*time.Millisecond, time.Second))
		// The daemon gets no reply to updates that are applied now.
		proxy.Set(faulttest.Faults{Decide: faulttest.Randomly(0.5, faulttest.CutAnswer)})
		wait(500 * time.Millisecond)
		first.kill()
		for _, p := range s.producers {
			p.Stop()
		}
		proxy.Set(faulttest.Faults{})
		copyJournal(s.t, first, copied)
		faults++
		first.start()
		copied.start()
		first.ready()
		copied.ready()
		p := s.produce(copied, 2, faulttest.ProducerConfig{Batch: 10, Rate: form(s, 300.0, 1000)})
		wait(form(s, 500*time.Millisecond, 2*time.Second))
		p.Stop()
		s.flush(copied) // its journal is about to be replaced
		copied.stop()
	}
	out := s.third(first)
	last := s.finish(faults + 1)
	last.broken = append(last.broken, out...)
	return last
}

// third starts a daemon on the journal of another, which must not be.
func (s *scene) third(running *daemon) (broken []string) {
	d := newDaemon(s.t, running.off, running.flags[len(running.flags)-len(smallParts)-4:]...)
	d.start("--journal-dir", running.journal())
	s.daemons = append(s.daemons, d)
	d.await(func() bool {
		code, _, err := d.ask("GET", "/readyz")
		return err == nil && code == 200
	})
	if d.ended() {
		return nil
	}
	d.kill()
	return []string{"two daemons ran on one journal"}
}
