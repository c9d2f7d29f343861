package faulttest_test

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/fault"
	"github.com/brim-telemetry/brim/internal/faulttest"
)

// TestCRASH4 copies the journal of a killed daemon, as someone does who
// restores a machine: two daemons go on from it side by side. A third one is
// started on the very directory of a running one, and has to give up.
func TestCRASH4(t *testing.T) {
	faultTest{
		name: "CRASH-4", run: copiedJournal,
		sabotages: []sabotage{without(fault.NewSession), without(fault.Look), without(fault.Lock)},
	}.test(t)
}

func copiedJournal(s *scene) outcome {
	s.shared()
	s.check.MaxReadings = 20
	proxy, uri := s.proxy()
	first := s.daemon(uri, smallParts...)
	copied := s.daemon(uri, smallParts...)
	copied.stop()
	faults := 0
	for range form(s, 2, 20) {
		s.produce(first, 4, faulttest.ProducerConfig{Batch: 10, Rate: 2000})
		wait(form(s, 300*time.Millisecond, time.Second))
		// What is applied now is not known to be.
		proxy.Set(faulttest.Faults{Decide: faulttest.Randomly(0.5, faulttest.CutAnswer)})
		wait(500 * time.Millisecond)
		first.kill()
		for _, p := range s.producers {
			p.Stop()
		}
		proxy.Set(faulttest.Faults{})
		require.NoError(s.t, os.RemoveAll(copied.journal()))
		require.NoError(s.t, os.CopyFS(copied.journal(), os.DirFS(first.journal())))
		faults++
		first.start()
		copied.start()
		first.ready()
		copied.ready()
		p := s.produce(copied, 2, faulttest.ProducerConfig{Batch: 10, Rate: 1000})
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
