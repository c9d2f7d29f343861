package faulttest_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/brim-telemetry/brim/internal/faulttest"
)

// TestCRASH3 repeatedly kills the daemon while it replays an earlier process's
// journal; every process cuts the readings differently.
func TestCRASH3(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.shared()
	s.check.MaxReadings = 20
	proxy, uri := s.proxy()
	d := s.daemon(uri, smallParts...)
	proxy.Set(faulttest.Faults{Refuse: true})
	proxy.CutAll()
	s.produce(d, 2, faulttest.ProducerConfig{Batch: 50, Sensors: 20, Most: form[int64](2000, 40_000)}).Wait()
	d.kill()
	// Some answers are lost, so that readings stay unreleased.
	proxy.Set(faulttest.Faults{Decide: faulttest.Randomly(0.2, faulttest.CutAnswer)})
	kills := form(6, 60)
	for range kills {
		d.Crash = fmt.Sprintf("update@readings.%s:%d", []string{"before", "after"}[rand.IntN(2)], 1+rand.IntN(6))
		d.start(
			"--max-readings-per-update", strconv.Itoa([]int{0, 1, 3, 7}[rand.IntN(4)]),
			"--bucket-max-readings", strconv.Itoa([]int{20, 13, 5}[rand.IntN(3)]),
			"--merge-readings", strconv.Itoa([]int{60, 5}[rand.IntN(2)]),
			"--lanes", strconv.Itoa(1+rand.IntN(6)))
		d.await(d.drained) // unless it crashes
		d.kill()
	}
	proxy.Set(faulttest.Faults{})
	d.Crash = ""
	d.start().ready()
	s.finish("CRASH-3", kills+proxy.Counts().Faults())
}
