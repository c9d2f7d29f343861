package advise

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/brim-telemetry/brim/internal/store"
)

// shapes returns the candidates without compressors.
func shapes(n Needs, quick bool) (out []Candidate) {
	for _, c := range candidates(n, quick) {
		if c.Compressor == store.Zstd {
			out = append(out, c.shape())
		}
	}
	return out
}

func TestEachGranularityAndTheTimeSeriesAreTriedWithBothCompressors(t *testing.T) {
	t.Parallel()
	n := dashboards(t)
	assert.Len(t, candidates(n, false), 2*(len(granularities)+2))
	for _, c := range shapes(n, false) {
		if c.Storage == store.Bucket && !c.Columns {
			assert.Equal(t, 1000, c.MaxReadings)
			assert.Equal(t, 256<<10, c.MaxBytes)
		}
	}
	assert.Len(t, shapes(n, true), 6, "1m 5m 15m 1h, columns and the time series")
}

// TestFastSensorsAreOfferedLargerParts: 21,607 readings per minute fill 22 parts of 1,000 in
// any window.
func TestFastSensorsAreOfferedLargerParts(t *testing.T) {
	t.Parallel()
	assert.Equal(t, []Candidate{
		{Storage: store.Bucket, Granularity: time.Minute, MaxReadings: 1000, MaxBytes: 256 << 10},
		{Storage: store.Bucket, Granularity: time.Minute, MaxReadings: 4000, MaxBytes: 256 << 10},
		{Storage: store.Bucket, Granularity: time.Minute, MaxReadings: 21607, MaxBytes: 1 << 20},
		{Storage: store.Bucket, Granularity: time.Hour, MaxReadings: 20_000, MaxBytes: 1 << 20, Columns: true},
		{Storage: store.TimeSeries, Granularity: time.Hour},
	}, shapes(signal(t), false))
}

func TestCapsOfWideReadings(t *testing.T) {
	t.Parallel()
	for _, c := range shapes(dashboards(t, func(n *Needs) { n.Fields = 256 }), false) {
		if c.Storage == store.Bucket && !c.Columns {
			assert.LessOrEqual(t, c.MaxReadings, 1000)
			assert.LessOrEqual(t, c.MaxBytes, 2<<20)
			assert.GreaterOrEqual(t, c.MaxBytes, min(c.full(5*time.Second)*readingBytes(256), 2<<20))
		}
	}
}

func TestCandidatesAreNamedByWhatDiffers(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "bucket 5m, zstd", Candidate{store.Bucket, 5 * time.Minute, 1000, 1, store.Zstd, false}.String())
	assert.Equal(t, "bucket 1m, snappy, parts of 4000", Candidate{store.Bucket, time.Minute, 4000, 1, store.Snappy, false}.String())
	assert.Equal(t, "bucket 1h, zstd, columns", Candidate{store.Bucket, time.Hour, 20_000, 1, store.Zstd, true}.String())
	assert.Equal(t, "time series, zstd", Candidate{store.TimeSeries, time.Hour, 0, 0, store.Zstd, false}.String())
}
