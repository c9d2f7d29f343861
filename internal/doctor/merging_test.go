package doctor

import (
	"math"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/scrape"
)

// queues is a daemon's metrics.
type queues struct {
	registry          *prometheus.Registry
	updates, readings *prometheus.CounterVec
	stored            *prometheus.HistogramVec
	late              prometheus.Gauge
}

func newQueues() *queues {
	labels := []string{"stream", "trigger"}
	q := &queues{
		registry: prometheus.NewRegistry(),
		updates:  prometheus.NewCounterVec(prometheus.CounterOpts{Name: "brim_queue_updates_total", Help: "Updates."}, labels),
		readings: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "brim_queue_updated_readings_total", Help: "Readings in them."}, labels),
		stored:   prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: metricWriteSeconds, Help: "Round trips."}, []string{"stream", "storage"}),
		late:     prometheus.NewGauge(prometheus.GaugeOpts{Name: "brim_queue_past_due_seconds", Help: "How late."}),
	}
	q.registry.MustRegister(q.updates, q.readings, q.stored, q.late)
	return q
}

// send counts updates, and the commands that stored them.
func (q *queues) send(stream, storage, trigger string, updates, stored int, readings float64) {
	q.updates.WithLabelValues(stream, trigger).Add(float64(updates))
	q.readings.WithLabelValues(stream, trigger).Add(readings)
	for range stored {
		q.stored.WithLabelValues(stream, storage).Observe(0.001)
	}
}

func (q *queues) path(t *testing.T) WritePath {
	t.Helper()
	l, err := scrape.Gather(q.registry)
	require.NoError(t, err)
	return WritePathOf(l)
}

// Updates with few readings that cost much over ten seconds lead to advice that
// names their trigger.
func TestFewReadingsInAnUpdate(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		send     func(q *queues)
		evidence []string // nil: no finding
		action   string
	}{
		"clients that wait": {
			func(q *queues) {
				q.send("readings", "bucket", "request", 18_000, 18_000, 20_000)
				q.send("readings", "bucket", "age", 2000, 2000, 6000)
			},
			[]string{"updates carry 1.3 readings on average, 2,000 of them a second", "60 % of a core", "90 % are sent because a client waits"}, "ack=journaled",
		},
		"sensors that rarely send": {
			func(q *queues) { q.send("readings", "bucket", "age", 20_000, 20_000, 40_000) },
			[]string{"carry 2 readings", "readings have waited for --flush-max"}, "raise --flush-max",
		},
		"a large budget": {
			func(q *queues) { q.send("readings", "timeseries", "budget", 20_000, 20_000, 40_000) }, []string{"--flush-budget allows it"}, "lower --flush-budget",
		},
		"no merging at all": {
			func(q *queues) { q.send("readings", "bucket", "request", 20_000, 20_000, 20_000) }, []string{"updates carry one reading on average"}, "ack=journaled",
		},
		"little memory": {
			func(q *queues) { q.send("readings", "bucket", "memory", 20_000, 20_000, 40_000) }, []string{"memory"}, "raise --queue-max-bytes",
		},
		"a limit for each": {
			func(q *queues) { q.send("readings", "bucket", "age", 1000, 20_000, 20_000) }, []string{"--max-readings-per-update splits them"}, "set --max-readings-per-update 0",
		},
		"few updates": {func(q *queues) { q.send("readings", "bucket", "age", 6000, 6000, 6000) }, nil, ""},
		"many readings in each": {
			func(q *queues) { q.send("readings", "bucket", "age", 20_000, 20_000, 120_000) }, nil, "",
		},
		"a stream in memory": {func(q *queues) { q.send("scratch", "memory", "budget", 20_000, 20_000, 20_000) }, nil, ""},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			q := newQueues()
			q.send("readings", "bucket", "age", 5, 5, 3000)
			before, now := twoSamples()
			before.path = q.path(t)
			c.send(q)
			now.path = q.path(t)
			found := (&facts{view: newView(now, *newView(before, view{}, nil), nil)}).judge([]settingRule{{"", fewReadings}})
			if c.evidence == nil {
				assert.Empty(t, found)
				return
			}
			require.Len(t, found, 1)
			assert.Equal(t, Setting, found[0].Kind)
			assert.Equal(t, "setting_merging", found[0].Name)
			for _, text := range c.evidence {
				assert.Contains(t, found[0].Evidence, text)
			}
			assert.Contains(t, found[0].Action, c.action)
			assert.NotEmpty(t, found[0].Cost)
		})
	}
}

// A single sample, or a restart of the daemon between two, gives no finding.
func TestMergingIsUnknown(t *testing.T) {
	t.Parallel()
	q := newQueues()
	q.send("readings", "bucket", "age", 20_000, 20_000, 20_000)
	now := q.path(t).writes
	assert.True(t, math.IsNaN(mergingBetween(Writes{}, now, time.Second).readings))
	assert.True(t, math.IsNaN(mergingBetween(now, newQueues().path(t).writes, time.Second).readings))
}

func TestEveryTriggerHasARemedy(t *testing.T) {
	t.Parallel()
	for _, trigger := range []string{"request", "flush", "readings", "age", "budget", "memory", "journal", "retry"} {
		assert.NotEmpty(t, triggerRemedies[trigger].action, trigger)
	}
}

// Late updates are listed as a consequence of another finding, or alone if there is none.
// More merging is advised only where updates carry few readings.
func TestLateUpdates(t *testing.T) {
	t.Parallel()
	q := newQueues()
	q.late.Set(30)
	before, now := twoSamples()
	before.path = q.path(t)
	q.send("readings", "bucket", "request", 100, 100, 120)
	now.path = q.path(t)
	found := slowOnes(Diagnose(newSeen(before, now, nil)))
	assert.Equal(t, []string{foundLate}, names(found))
	assert.Equal(t, Degrading, found[0].Class)
	assert.Len(t, found, 3, "with more merging")
	assert.Contains(t, found[1].Action, "raise --flush-max")

	q.send("readings", "bucket", "readings", 100, 100, 60_000)
	now.path = q.path(t)
	assert.Len(t, slowOnes(Diagnose(newSeen(before, now, nil))), 2)

	now.server, now.answered, now.serverWhy, now.away = nil, false, whyAway, "connection refused"
	found = slowOnes(Diagnose(newSeen(before, now, nil)))
	assert.Equal(t, []string{foundAway, foundLate}, names(found))
	assert.Contains(t, found[len(found)-1].Evidence, "It may follow from what stands above: unresponsive")

	q.late.Set(9)
	now.path = q.path(t)
	assert.Equal(t, []string{foundAway}, names(slowOnes(Diagnose(newSeen(before, now, nil)))))
}

// TestSealLag uses the stream that is furthest behind, both in the daemon and from outside.
func TestSealLag(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	lag := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "brim_seal_lag_seconds", Help: "How late."}, []string{"stream"})
	registry.MustRegister(lag)
	lag.WithLabelValues("a").Set(100)
	lag.WithLabelValues("b").Set(7200)
	look, err := scrape.Gather(registry)
	require.NoError(t, err)
	assert.InDelta(t, 7200, WritePathOf(look).writes.SealLag, 0)
	assert.InDelta(t, 7200, NewPace(func() (Writes, error) { return WritesOf(look), nil }).Sample(t.Context()).writes.SealLag, 0)
}
