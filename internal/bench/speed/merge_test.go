package speed

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// few is a course that takes a few seconds.
func few() course {
	return course{name: "few", sensors: 400, interval: 2 * time.Second, flushMax: 2 * time.Second, speedup: 2, flags: []string{"--flush-interval", "100ms"}}
}

func TestMerge(t *testing.T) {
	t.Parallel()
	c := few()
	r := inLab(t, func(ctx context.Context, x *trial) { x.merge(ctx, c) })
	merge := r.Table("merge")
	require.Len(t, merge.Rows, 3)
	for _, side := range []string{nothingDone, insertedRaw, throughBrim} {
		assert.Contains(t, merge.Rows[0].Name, "time 2 times as fast")
		assert.Positive(t, merge.Median(c.row(side), mongodOf), side)
	}
	assert.Positive(t, merge.Median(c.row(throughBrim), brimOf))
	assert.GreaterOrEqual(t, merge.Median(c.row(throughBrim), perUpdateOf), 1.)
	sum := 0.
	for _, trigger := range triggers {
		sum += r.Table("triggers").Median(c.row(throughBrim), trigger)
	}
	assert.InDelta(t, 1, sum, 1e-9, "each reading was sent by one of the triggers")
}

func TestSpedUpCoursesKeepTheirRates(t *testing.T) {
	t.Parallel()
	for _, c := range []course{often(), eachMinute()} {
		fast := c.faster()
		assert.InEpsilon(t, c.rate(), fast.rate(), 0.01, c.name)
		assert.Equal(t, sped, fast.waits(), c.name)
		assert.Equal(t, c.flags, c.serve(), c.name)
		assert.True(t, strings.HasSuffix(strings.Join(fast.serve(), " "), "--flush-max 20s"), fast.serve())
	}
}

func TestRateIsTriedAndShown(t *testing.T) {
	t.Parallel()
	c := few()
	r := inLab(t, func(ctx context.Context, x *trial) {
		x.rate(ctx, climb{course: c, rates: []int{100}, length: time.Second})
	})
	row := c.row("100/s")
	assert.Positive(t, r.Table("rates").Median(row, rateOf))
	assert.Positive(t, r.Table("rates").Median(row, peakOf))
	highest := r.Table("highest").Median(c.row(throughBrim), rateOf)
	assert.InDelta(t, 100*r.Table("rates").Median(row, heldOf), highest, 0)
}

// TestWaiting queries waiting readings. The experiment itself checks the answers.
func TestWaiting(t *testing.T) {
	t.Parallel()
	b := backlog{sensors: 500, each: 3, queries: 5, listed: 2}
	r := inLab(t, func(ctx context.Context, x *trial) { x.waiting(ctx, b) })
	for _, query := range []string{pageQuery, latestQuery, summaryQuery, sensorsQuery} {
		assert.Positive(t, r.Table("waiting").Median(query, p99Of), query)
	}
	assert.Positive(t, r.Table("backlog").Median("1,500 readings of 500 sensors", "journal per reading"))
	require.Len(t, r.Rows, 1)
}

func TestCurve(t *testing.T) {
	t.Parallel()
	r := inLab(t, func(ctx context.Context, x *trial) {
		x.curve(ctx, bend{perUpdate: []int{1, 60}, sensors: 20, fields: 2, writers: 2, length: 200 * time.Millisecond})
	})
	curve := r.Table("curve")
	require.Len(t, curve.Rows, 2)
	for _, way := range []string{bucketsOf, seriesOf, insertedRaw} {
		assert.Positive(t, curve.Median("60", way), way)
	}
	assert.InDelta(t, curve.Median("1", insertedRaw), curve.Median("60", insertedRaw), 0)
}

func TestCurveEndsEachHourWithAnUpdate(t *testing.T) {
	t.Parallel()
	for _, k := range fullBend().perUpdate {
		assert.Zero(t, int(time.Hour/bendInterval)%k, k)
	}
}

func TestCrossing(t *testing.T) {
	t.Parallel()
	x := []float64{1, 10, 100}
	assert.InDelta(t, 10, crossing(x, []float64{1000, 10, 1}, 10-1e-9), 0.001)
	assert.InDelta(t, math.Sqrt(10), crossing(x, []float64{100, 1, 0.1}, 10), 1e-9)
	assert.True(t, math.IsNaN(crossing(x, []float64{100, 50, 20}, 10)), "it stays above")
	assert.True(t, math.IsNaN(crossing(x, []float64{5, 3, 2}, 10)), "it is never above")
}
