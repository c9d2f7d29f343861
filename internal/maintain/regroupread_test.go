package maintain

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/store/bucket"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// TestReadersSeeTheSameBeforeAndAfter reads through a store what lies in buckets
// of several granularities, tombstones among them.
func TestReadersSeeTheSameBeforeAndAfter(t *testing.T) {
	t.Parallel()
	coll := testCollection(t)
	s, err := bucket.New(bucket.Config{
		Database: coll.Database(), Stream: coll.Name(), Granularity: time.Minute, MaxReadings: 1000, MaxBytes: 256 << 10, Registerer: prometheus.NewRegistry(),
	})
	require.NoError(t, err)
	parts := []testPart{
		{start: 0, grain: 3600, full: true, times: []int64{3_000_000, 5_000, 61_000}},
		{start: 0, grain: 60, full: true, times: []int64{10_000, 5_000}},
		{start: 0, grain: 60, number: 1, times: []int64{7_000}},
		{start: 60, grain: 60, times: []int64{61_000, 61_000, 60_000}},
		{start: 3540, grain: 60, times: []int64{3_599_999}},
	}
	group, readings := testGroup(t, parts...)
	insertAll(t, coll, group)
	query := telemetry.Query{Sensor: "s", From: groupStart + 5_000, To: groupStart + 3_599_999}
	read := func() (out []telemetry.Reading) {
		for r, err := range s.Readings(t.Context(), query) {
			require.NoError(t, err)
			out = append(out, r)
		}
		return out
	}
	before := read()
	require.Len(t, before, int(readings)-1)
	all := []time.Duration{time.Minute, 5 * time.Minute, 15 * time.Minute, time.Hour}
	for _, to := range []time.Duration{15 * time.Minute, time.Minute, time.Hour, 5 * time.Minute} {
		group = reshape(t, newRegroup(t, RegroupConfig{Granularity: to, Found: all, MaxReadings: 2}), group)
		require.NoError(t, coll.Drop(t.Context()))
		insertAll(t, coll, group)
		after := read()
		for i := range after[1:] {
			require.False(t, after[i+1].Time.Before(after[i].Time), "reading %d of %s", i, to)
		}
		assert.ElementsMatch(t, before, after, to)
	}
}
