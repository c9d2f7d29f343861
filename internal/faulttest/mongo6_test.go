package faulttest_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/brimtest"
	"github.com/brim-telemetry/brim/internal/faulttest"
)

// TestMONGO6 disconnects MongoDB for minutes at full rate, with the default policy. The
// journal grows to its limit, but the daemon's memory does not; then requests get 503. Once
// MongoDB is back, the journal shrinks on its own, and everything is stored while more
// readings arrive.
func TestMONGO6(t *testing.T) {
	alone(t)
	s := newScene(t)
	s.shared()
	outage, rate := form(2*time.Second, 5*time.Minute), form(5000., 20_000.)
	limit, limitBytes := form("1MiB", "192MiB"), form(1., 192.)*(1<<20)
	proxy, uri := s.proxy()
	d := s.daemon(uri, "--journal-max-bytes", limit, "--granularity", "1h", "--flush-budget", "2%")
	p := s.produce(d, 8, faulttest.ProducerConfig{Batch: 250, Sensors: form(1000, 10_000), Step: 5 * time.Millisecond, Rate: rate})
	wait(form(500*time.Millisecond, 30*time.Second))
	before := d.rss()
	proxy.Set(faulttest.Faults{Refuse: true})
	proxy.CutAll()
	highest, largest := before, 0.
	for began := time.Now(); time.Since(began) < outage || p.Counts.Refused.Load() == 0; wait(100 * time.Millisecond) {
		highest, largest = max(highest, d.rss()), max(largest, d.metric("brim_journal_bytes"))
		require.LessOrEqual(t, largest, 1.1*limitBytes, "the journal grows beyond its limit")
		require.Less(t, time.Since(began), outage+patience, "the journal does not grow to its limit")
	}
	refused, backlog := p.Counts.Refused.Load(), d.metric("brim_queue_readings")
	proxy.Set(faulttest.Faults{})
	began := time.Now()
	require.Eventually(t, func() bool { return d.metric("brim_journal_bytes") < 0.8*limitBytes }, form(patience, 5*time.Minute), 100*time.Millisecond, "the journal does not shrink")
	room := time.Since(began)
	s.flush(d) // while more readings arrive
	t.Logf("memory %d MiB before, at most %d MiB without MongoDB; journal at most %.1f MiB; %d requests refused; %.0f readings waiting, room after %v, flushed in %v",
		before>>20, highest>>20, largest/(1<<20), refused, backlog, room, time.Since(began))
	assert.LessOrEqual(t, highest-before, maxGrowth, "bytes by which memory grew")
	s.finish("MONGO-6", 1)
}

// maxGrowth is how much memory, in bytes, an outage may add: twice the default of
// --queue-max-bytes, for the garbage collector, and a margin. The race detector needs several
// times as much.
var maxGrowth = int64(320<<20) * map[bool]int64{false: 1, true: 6}[brimtest.Race]
