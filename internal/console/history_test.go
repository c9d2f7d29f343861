package console

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRatesAndLatenciesAreThoseBetweenTwoLooks(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, noon)
	c := d.console(t, nil)
	d.ingested.WithLabelValues("http").Add(1e6) // before anybody looked
	c.look()
	first, ok := c.history.recent()
	require.True(t, ok)
	assert.True(t, first.First)
	assert.True(t, math.IsNaN(float64(first.In)))

	d.ingested.WithLabelValues("http").Add(100)
	d.ingested.WithLabelValues("grpc").Add(50)
	d.streams["readings"].Wrote(2*time.Millisecond, 30, 0.42)
	d.streams["readings"].Wrote(2*time.Millisecond, 10, 0.67)
	d.lag.Observe(0.5)
	d.queue.Set(77)
	d.sleep(2 * time.Second)
	c.look()
	s, _ := c.history.recent()
	assert.InDelta(t, 75, s.In, 1e-3, "readings per second")
	assert.InDelta(t, 20, s.Stored, 1e-3)
	assert.InDelta(t, 1, s.Updates, 1e-3)
	assert.InDelta(t, 20, s.merging(), 1e-3)
	assert.InEpsilon(t, 0.5, s.LagP99, 0.1)
	assert.InDelta(t, 77, s.Queue, 0)
	w := s.of(c.history.stream("readings"))
	assert.InEpsilon(t, 0.002, w.P50, 0.1)
	assert.InEpsilon(t, 0.002, w.P99, 0.1)
	assert.InDelta(t, 0.55, w.Fill, 1e-6, "the mean of the middles of 40-50 and 60-70")
	assert.Equal(t, w, s.of(0), "all is that of the one stream that was written")
	assert.True(t, math.IsNaN(float64(s.of(c.history.stream("plant <b>2</b>")).P50)))

	d.sleep(time.Second)
	c.look()
	s, _ = c.history.recent()
	assert.Zero(t, s.In)
	assert.True(t, math.IsNaN(float64(s.of(0).P99)), "nothing was written")
}

func TestHistoryKeepsAQuarterOfAnHour(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, noon)
	c := d.console(t, nil)
	for range 1000 {
		d.sleep(time.Second)
		c.look()
	}
	h := c.history
	assert.Len(t, h.seconds, 900)
	assert.LessOrEqual(t, len(h.checkpoints), 16)
	assert.Less(t, d.Now().UnixMilli()-h.seconds[0].At, span.Milliseconds())

	d.sleep(-time.Hour)
	c.look()
	assert.Len(t, h.seconds, 1, "what a clock that was set back left in the future is dropped")
	d.sleep(2 * time.Hour)
	c.look()
	assert.Len(t, h.seconds, 1)
}

func TestStreamsWithoutEndTakeNoRoomWithoutEnd(t *testing.T) {
	t.Parallel()
	h := newHistory(time.Second)
	for i := range 100 {
		h.index(string(rune('A' + i)))
	}
	assert.Len(t, h.names, maxStreams+1)
	assert.Equal(t, -1, h.index("one more"))
	assert.Equal(t, 1, h.index("A"))
}

func TestCountersThatBeginAnewAreFollowed(t *testing.T) {
	t.Parallel()
	assert.Equal(t, 5.0, rise(10, 15))
	assert.Equal(t, 3.0, rise(10, 3), "it began anew")
	assert.Equal(t, 3.0, rise(math.NaN(), 3))
	assert.Zero(t, rise(3, math.NaN()))

	d := newDaemon(t, noon)
	c := d.console(t, nil)
	c.look()
	d.rejected.WithLabelValues("field_name").Add(100)
	d.run(c, 3)
	fresh := newDaemon(t, d.Now())
	c.cfg.Gatherer = fresh.registry
	fresh.rejected.WithLabelValues("field_name").Add(7)
	fresh.ingested.WithLabelValues("http").Add(40)
	d.sleep(time.Second)
	c.look()
	s, _ := c.history.recent()
	assert.InDelta(t, 40, s.In, 1e-3)
}

func TestGapsAndStartsAreSeen(t *testing.T) {
	t.Parallel()
	at := func(s int64, first bool) second {
		return second{At: s * 1000, First: first, Queue: float32(s)}
	}
	line := newTimeline([]second{at(1, true), at(2, false), at(12, true), at(13, false)}, 14_000, 1, wide)
	y := line.line(func(s *second) float32 { return s.Queue })
	gaps := 0
	for i, x := range line.x {
		if x > -12 && x < -2 {
			assert.True(t, math.IsNaN(y[i]), "at %v", x)
			gaps++
		}
	}
	assert.Equal(t, 9, gaps)
	assert.Equal(t, []float64{-2}, line.marks, "the first start of all is no news")
	assert.Equal(t, -60.0, line.x[0])
	assert.Zero(t, line.x[len(line.x)-1])
}

func TestSecondsWithoutAWriteAreBridged(t *testing.T) {
	t.Parallel()
	nan := float32(math.NaN())
	var seconds []second
	for i, v := range []float32{1, nan, nan, 4, nan} {
		seconds = append(seconds, second{At: int64(i+1) * 1000, Queue: v})
	}
	line := newTimeline(seconds, 5000, 1, wide)
	y := line.line(func(s *second) float32 { return s.Queue })
	assert.Equal(t, []float64{1, 2, 3, 4}, y[1:5])
	assert.True(t, math.IsNaN(y[5]), "nobody knows what comes next")
}

func BenchmarkLook(b *testing.B) {
	d := newDaemon(b, noon)
	c := d.console(b, nil)
	second := 0
	for b.Loop() {
		b.StopTimer()
		d.work(second)
		second++
		d.sleep(time.Second)
		b.StartTimer()
		c.look()
	}
}

func BenchmarkFragment(b *testing.B) {
	d := newDaemon(b, noon)
	c := d.console(b, nil)
	d.run(c, 900)
	size := 0
	for b.Loop() {
		clear(c.rendered)
		html, err := c.render(view{})
		require.NoError(b, err)
		size = len(html)
	}
	b.ReportMetric(float64(size), "bytes")
}
