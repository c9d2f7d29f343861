package console

import (
	"math"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/scrape"
)

func TestRatesAndLatenciesBetweenSamples(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, noon)
	c := d.console(t, nil)
	d.ingested.WithLabelValues("http").Add(1e6) // before the first sample
	c.sample()
	require.Len(t, c.history.seconds, 1)
	first := c.history.seconds[0]
	assert.True(t, math.IsNaN(float64(first.In)))

	d.ingested.WithLabelValues("http").Add(100)
	d.ingested.WithLabelValues("grpc").Add(50)
	d.streams["readings"].Wrote(2*time.Millisecond, 30, 0.42)
	d.streams["readings"].Wrote(2*time.Millisecond, 10, 0.67)
	d.lag.Observe(0.5)
	d.queue.Set(77)
	d.pastDue.Set(3)
	d.oldest.WithLabelValues("readings").Set(20)
	d.oldest.WithLabelValues("plant <b>2</b>").Set(90)
	d.sleep(2 * time.Second)
	c.sample()
	s := c.history.seconds[len(c.history.seconds)-1]
	assert.InDelta(t, 75, s.In, 1e-3, "readings per second")
	assert.InDelta(t, 20, s.Stored, 1e-3)
	assert.InDelta(t, 1, s.Updates, 1e-3)
	assert.InDelta(t, 20, s.merging(), 1e-3)
	assert.InEpsilon(t, 0.5, s.Lag, 0.1)
	assert.InDelta(t, 90, s.Oldest, 0, "of all streams")
	assert.InDelta(t, 3, s.PastDue, 0)
	assert.InDelta(t, 77, s.Queue, 0)
	w := s.of("readings")
	assert.InEpsilon(t, 0.002, w.P50, 0.1)
	assert.InEpsilon(t, 0.002, w.P99, 0.1)
	assert.InDelta(t, 0.55, w.Fill, 1e-6, "the mean of the middles of 40-50 and 60-70")
	all := s.of("")
	all.Stream = w.Stream
	assert.Equal(t, w, all, "all is that of the one stream that was written")
	assert.True(t, math.IsNaN(float64(s.of("plant <b>2</b>").P50)))

	d.sleep(time.Second)
	c.sample()
	s = c.history.seconds[len(c.history.seconds)-1]
	assert.Zero(t, s.In)
	assert.True(t, math.IsNaN(float64(s.of("").P99)), "nothing was written")
}

func TestHistoryKeepsFifteenMinutes(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, noon)
	c := d.console(t, nil)
	for range 1000 {
		d.sleep(time.Second)
		c.sample()
	}
	h := c.history
	assert.Len(t, h.seconds, 900)
	assert.LessOrEqual(t, len(h.minutes), 15)
	assert.Less(t, d.Now().UnixMilli()-h.seconds[0].At, span.Milliseconds())

	d.sleep(-time.Hour)
	c.sample()
	assert.Len(t, h.seconds, 1, "what a clock that was set back left in the future is dropped")
	d.sleep(2 * time.Hour)
	c.sample()
	assert.Len(t, h.seconds, 1)
}

// written returns a sample of some streams, each written n times.
func written(t *testing.T, streams, n int) scrape.Sample {
	t.Helper()
	registry := prometheus.NewRegistry()
	took := prometheus.NewHistogramVec(scrape.WithNative(prometheus.HistogramOpts{Name: metricWrite}), []string{"stream", "fill"})
	require.NoError(t, registry.Register(took))
	for i := range streams {
		for range n {
			took.WithLabelValues(strconv.Itoa(i), "0-10").Observe(0.001)
		}
	}
	sample, err := scrape.Gather(registry)
	require.NoError(t, err)
	return sample
}

// TestNewStreamInHistory: the stream had written nothing before.
func TestNewStreamInHistory(t *testing.T) {
	t.Parallel()
	h := newHistory(time.Second)
	h.add(noon, written(t, 1, 3))
	h.add(noon.Add(time.Second), written(t, 2, 3))
	s := h.seconds[1]
	assert.Zero(t, s.of("0").Rate)
	assert.InDelta(t, 3, s.of("1").Rate, 1e-6)
	assert.InDelta(t, 3, s.of("").Rate, 1e-6)
}

// TestSumsCoverFifteenMinutes of a daemon that ran longer.
func TestSumsCoverFifteenMinutes(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, noon)
	c := d.console(t, nil)
	d.write("readings", 5, 1, 0.001, 0.15)
	for range 2400 {
		d.rejected.WithLabelValues("field_name").Add(1)
		d.sleep(time.Second)
		c.sample()
	}
	d.write("readings", 1, 1, 0.001, 0.15)
	d.sleep(time.Second)
	c.sample()
	g := c.glance("")
	refused := g.counts(metricRejected)
	require.Len(t, refused, 1)
	assert.EqualValues(t, 1, g.tenths()[1].Count, "earlier updates do not count")
	assert.InDelta(t, 870, refused[0].Recent, 30)
	assert.InDelta(t, 2400, refused[0].Total, 0)
}

func BenchmarkSample(b *testing.B) {
	d := newDaemon(b, noon)
	c := d.console(b, nil)
	second := 0
	for b.Loop() {
		b.StopTimer()
		d.work(second)
		second++
		d.sleep(time.Second)
		b.StartTimer()
		c.sample()
	}
}

func BenchmarkRender(b *testing.B) {
	d := newDaemon(b, noon)
	c := d.console(b, nil)
	d.run(c, 900)
	size := 0
	for b.Loop() {
		clear(c.rendered)
		html, err := c.render("")
		require.NoError(b, err)
		size = len(html)
	}
	b.ReportMetric(float64(size), "bytes")
}
