package faulttest_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/faulttest"
)

// TestCAP1Readings fills buckets far beyond a part's cap on readings.
func TestCAP1Readings(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.check.MaxReadings = 20
	s.overfill("--bucket-max-readings", "20", "7")
}

// TestCAP1Bytes fills buckets beyond the cap on bytes: some 25 readings per part, then 12.
func TestCAP1Bytes(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.check.MaxBytes = 2 << 10
	s.overfill("--bucket-max-bytes", "2KiB", "1KiB")
}

// overfill writes 20 times the cap to each of five buckets, while requests are
// delayed and the daemon is killed. Each process has a different cap than the
// previous one, so parts are closed that still have room for a delayed update.
func (s *scene) overfill(flag, most, less string) {
	s.t.Helper()
	s.shared()
	proxy, uri := s.proxy()
	d := s.daemon(uri, "--flush-interval", "20ms", flag, most)
	proxy.Set(faulttest.Faults{Decide: faulttest.Randomly(0.3, faulttest.Hold, faulttest.Hold, faulttest.CutAnswer)})
	rnd := rand.New(rand.NewPCG(2, 2))
	kills := form(4, 30)
	for round := range kills {
		// A single window, since the step is short.
		start := windowStart.Add(time.Duration(round) * time.Minute)
		s.produce(d, 2, faulttest.ProducerConfig{Batch: 10, Sensors: 5, Step: time.Millisecond, Start: start, Rate: 3000, Most: 1000})
		wait(form(500*time.Millisecond, 2*time.Second))
		// A busy machine needs longer for as many faults.
		for enough := time.Now().Add(10 * time.Second); proxy.Counts().Faults() < form(12, 30)*(round+1) && time.Now().Before(enough); {
			wait(20 * time.Millisecond)
		}
		d.kill()
		if round%2 == 0 {
			d.start(flag, less)
		} else {
			d.start(flag, most)
		}
		d.ready()
		wait(300 * time.Millisecond)
		proxy.Release(rnd)
	}
	s.stopProducers()
	proxy.Set(faulttest.Faults{})
	s.flush(d)
	proxy.Release(rnd)
	s.finish("CAP-1", kills+proxy.Counts().Faults())
}

// TestCAP1Shared holds back an update of 6 readings for a part of 12, whose cap is 20.
// Another daemon adds 5. Then the 6 arrive, and do not fit.
func TestCAP1Shared(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.shared()
	s.check.MaxReadings = 20
	proxy, uri := s.proxy()
	flags := []string{"--flush-interval", "20ms", "--bucket-max-readings", "20"}
	d, other := s.daemon(uri, flags...), s.daemon("", flags...)
	s.sendOnce(d, 12)
	s.flush(d)
	s.holdUpdate(proxy, func() { s.sendOnce(d, 6) })
	s.sendOnce(other, 5)
	s.flush(other)
	proxy.Release(rand.New(rand.NewPCG(2, 2)))
	proxy.Set(faulttest.Faults{})
	s.finish("CAP-1", proxy.Counts().Faults())
}

// TestCAP1Late lets a request arrive in a part that its readings have left. It holds back
// an update of 6 readings for a part of 12, whose cap is 20. The next process has a cap of
// 7, so it goes on to the next part. Then the 6 arrive, for which the old part has room.
func TestCAP1Late(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.shared()
	s.check.MaxReadings = 20
	proxy, uri := s.proxy()
	d := s.daemon(uri, "--flush-interval", "20ms", "--bucket-max-readings", "20")
	s.sendOnce(d, 12)
	s.flush(d)
	s.holdUpdate(proxy, func() { s.sendOnce(d, 6) })
	d.kill()
	proxy.Set(faulttest.Faults{})
	d.start("--bucket-max-readings", "7").ready()
	s.flush(d)
	proxy.Release(rand.New(rand.NewPCG(2, 2)))
	s.finish("CAP-1", 1+proxy.Counts().Faults())
}

// sendOnce sends n readings of one bucket in one request.
func (s *scene) sendOnce(d *daemon, n int) {
	s.produce(d, 1, faulttest.ProducerConfig{
		Batch: n, Most: int64(n), Sensors: 1, Start: windowStart, Step: time.Millisecond,
	}).Wait()
}

// holdUpdate holds back all readings from now on. It calls meanwhile, and returns once
// some of the readings that it sent are held.
func (s *scene) holdUpdate(proxy *faulttest.Proxy, meanwhile func()) {
	s.t.Helper()
	proxy.Set(faulttest.Faults{Decide: func(c faulttest.Command) faulttest.Fate {
		if slices.ContainsFunc(c.Operations, carriesReadings) { // not the renewal of a claim
			return faulttest.Hold
		}
		return faulttest.Pass
	}})
	meanwhile()
	require.Eventually(s.t, func() bool { return proxy.Holding() > 0 }, patience, time.Millisecond)
}
