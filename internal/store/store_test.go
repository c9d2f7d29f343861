package store

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/brim-telemetry/brim/internal/config"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
)

func TestMain(m *testing.M) { mongodtest.Main(m) }

// TestEveryTimeHasOneWindow: the key of a bucket relies on it.
func TestEveryTimeHasOneWindow(t *testing.T) {
	t.Parallel()
	granularities := []time.Duration{time.Minute, 90 * time.Second, 5 * time.Minute, 15 * time.Minute, time.Hour}
	rapid.Check(t, func(rt *rapid.T) {
		g := rapid.SampledFrom(granularities).Draw(rt, "granularity")
		ms := rapid.Int64Range(0, 253_402_300_799_999).Draw(rt, "ms")
		start := WindowStart(ms, g)
		require.LessOrEqual(rt, start, ms)
		require.Less(rt, ms, start+g.Milliseconds())
		require.Zero(rt, start%g.Milliseconds())
		require.Equal(rt, WindowStart(start, time.Hour), WindowStart(ms, time.Hour), "no window straddles an hour")
	})
}

func TestGranularity(t *testing.T) {
	t.Parallel()
	for _, good := range []string{"1m", "61s60ms", "90s", "5m", "7m30s", "12m", "1h"} {
		g, err := time.ParseDuration(good)
		require.NoError(t, err)
		if good == "61s60ms" {
			require.Error(t, CheckGranularity(g, Documents))
			continue
		}
		require.NoError(t, CheckGranularity(g, Documents), good)
	}
	for _, bad := range []time.Duration{0, -time.Minute, 59 * time.Second, 30 * time.Second, 7 * time.Minute, 61 * time.Second, 2 * time.Hour} {
		require.ErrorContains(t, CheckGranularity(bad, Documents), "granularity "+config.FormatDuration(bad)+" is invalid")
	}
	for _, good := range []time.Duration{time.Minute, 5 * time.Minute, 45 * time.Minute, time.Hour, 80 * time.Minute, 2 * time.Hour, 12 * time.Hour, 24 * time.Hour} {
		require.NoError(t, CheckGranularity(good, Columns), good)
	}
	for _, bad := range []time.Duration{0, 59 * time.Second, 7 * time.Minute, 5 * time.Hour, 36 * time.Hour, 48 * time.Hour, 2*time.Hour + time.Millisecond} {
		require.ErrorContains(t, CheckGranularity(bad, Columns), "granularity "+config.FormatDuration(bad)+" is invalid: it must divide a day")
	}
}

func TestLongWindows(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		ms := rapid.Int64Range(1, 253_402_300_799_999).Draw(rt, "ms")
		var want []int64
		for seconds := int64(3601); seconds <= 86_400; seconds++ { // every possible granularity
			g := time.Duration(seconds) * time.Second
			if start := WindowStart(ms, g); CheckGranularity(g, Columns) == nil && start+MaxGranularity.Milliseconds() <= ms {
				want = append(want, start)
			}
		}
		slices.Sort(want)
		require.Equal(rt, slices.Compact(want), LongWindows(ms))
	})
	require.Empty(t, LongWindows(math.MinInt64))
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	a, err := NewMetrics(reg, "a", Bucket, time.Hour)
	require.NoError(t, err)
	b, err := NewMetrics(reg, "b", TimeSeries, time.Minute)
	require.NoError(t, err)
	a.Wrote(2*time.Millisecond, 12, 0.05)
	a.Wrote(2*time.Millisecond, 12, 1)
	a.Wrote(2*time.Millisecond, 12, 0.999)
	b.Wrote(2*time.Millisecond, 1, 0.5)
	a.Found(12, false)
	a.Found(0, false)
	b.Found(12, true)
	a.Unknown.Inc()
	b.Unknown.Inc()
	problems, err := testutil.GatherAndLint(reg)
	require.NoError(t, err)
	assert.Empty(t, problems)
	families, err := reg.Gather()
	require.NoError(t, err)
	counts := make(map[string]uint64)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			key := f.GetName()
			for _, l := range m.GetLabel() {
				key += " " + l.GetValue()
			}
			counts[key] = m.GetHistogram().GetSampleCount() + uint64(m.GetCounter().GetValue())
		}
	}
	assert.Equal(t, uint64(1), counts["brim_store_write_seconds 0-10 bucket a"])
	assert.Equal(t, uint64(2), counts["brim_store_write_seconds 90-100 bucket a"])
	assert.Equal(t, uint64(1), counts["brim_store_write_seconds 50-60 timeseries b"])
	assert.Contains(t, counts, "brim_store_write_seconds 10-20 bucket a", "every fill is there from the start")
	assert.Equal(t, uint64(5), counts["brim_store_update_readings"])
	assert.Equal(t, uint64(24), counts["brim_store_duplicates_prevented_total"])
	assert.Equal(t, uint64(2), counts["brim_store_unknown_outcomes_total"])
	assert.Contains(t, counts, "brim_store_bucket_window_ratio b")
}

func TestFillIsTheGreaterOfWindowAndPart(t *testing.T) {
	t.Parallel()
	assert.InDelta(t, 0.5, Fill(90_000, 60_000, time.Minute, 0.1), 1e-9)
	assert.InDelta(t, 0.8, Fill(90_000, 60_000, time.Minute, 0.8), 1e-9)
}
