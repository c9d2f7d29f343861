package faulttest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/brimtest"
	"github.com/brim-telemetry/brim/internal/faulttest"
)

// TestMERGE1 repeatedly kills the daemon while most accepted readings wait to be merged:
// thousands of sensors send, with the default policy. Each new process must be ready soon,
// return the waiting readings in queries, and not write them all at once.
func TestMERGE1(t *testing.T) {
	alone(t)
	s := newScene(t)
	s.shared()
	d := s.daemon("", "--flush-budget", "2%", "--granularity", "5m")
	const groups = 4
	for i := range int64(groups) {
		s.produce(d, 1, faulttest.ProducerConfig{
			Batch: 100, FirstSensor: i * int64(gatheringSensors) / groups, Sensors: gatheringSensors / groups, Rate: 1000, Step: 2 * time.Millisecond,
		})
	}
	kills := form(2, 10)
	for round := range kills {
		target := (round + 1) * gatheringSensors
		require.True(t, d.await(func() bool { return s.log.Acked() > target }), "the producers get no answers")
		wait(form(0, copiedAfter))
		s.produce(d, 1, faulttest.ProducerConfig{
			Batch: knownSensors, FirstSensor: int64(gatheringSensors), Sensors: knownSensors, Most: knownSensors * knownReadings, Rate: 1e6,
			Start: windowStart.Add(time.Duration(round) * time.Second), Step: time.Millisecond,
		}).Wait()
		s.readKnown(d, round, "before")
		accepted, waiting := s.log.Acked(), d.metric("brim_queue_readings")
		assert.Greater(t, waiting, float64(accepted)/4, "too few readings wait")
		d.kill()
		began := time.Now()
		d.start().ready()
		ready := time.Since(began)
		s.readKnown(d, round, "after")
		wait(time.Second)
		assert.LessOrEqual(t, ready, longestStart, "until it is ready")
		updates, most := d.metric("brim_queue_updates_total"), affordable(time.Since(began))
		assert.LessOrEqual(t, updates, most, "updates at once")
		t.Logf("%d readings accepted, %.0f of them waiting; ready after %v; %.0f updates, of at most %.0f", accepted, waiting, ready, updates, most)
	}
	s.finish("MERGE-1", kills)
}

// gatheringSensors exceeds the updates that the budget allows in some seconds.
var gatheringSensors = form(3000, 10_000)

const (
	// Sensors whose readings are all known to be accepted, for reading back.
	knownSensors  = 20
	knownReadings = 5 // per sensor, between kills
	// longestStart is generous: a start takes a quarter of a second.
	longestStart = 30 * time.Second
)

// copiedAfter is longer than it takes until waiting readings are copied to their bucket.
const copiedAfter = 6 * time.Second

// affordable returns twice the number of updates that the default budget allows within a
// time: 2 % of a core, plus ten seconds' savings, at 300 µs each.
func affordable(elapsed time.Duration) float64 {
	return 2 * (10*time.Second + elapsed).Seconds() * 0.02 / 300e-6
}

// readKnown reads back the known sensors' readings of this and earlier rounds: a query
// returns each once.
func (s *scene) readKnown(d *daemon, round int, when string) {
	s.t.Helper()
	for i := range knownSensors {
		var page struct {
			Readings []struct{ Fields faulttest.Mark }
		}
		path := fmt.Sprintf("/v1/sensors/s-%d/readings?limit=100000", gatheringSensors+i)
		require.True(s.t, d.await(func() bool {
			code, body := s.get(d.HTTP + path)
			return code == http.StatusOK && json.Unmarshal(body, &page) == nil
		}), "no answer to a query %s the kill", when)
		seen := make(map[faulttest.Mark]bool)
		for _, r := range page.Readings {
			seen[r.Fields] = true
		}
		want := (round + 1) * knownReadings
		assert.Len(s.t, page.Readings, want, "%s kill %d", when, round+1)
		assert.Len(s.t, seen, want, "different ones, %s kill %d", when, round+1)
	}
}

// get sends a request, and returns code 0 if there is no answer.
func (s *scene) get(url string) (code int, body []byte) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	require.NoError(s.t, err)
	code, text, err := brimtest.CarryOut(req)
	if err != nil {
		return 0, nil
	}
	return code, []byte(text)
}
