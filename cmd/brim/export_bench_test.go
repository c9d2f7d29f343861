package main

import (
	"net/http"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// BenchmarkExport exports a million readings, 100 of each of 10,000 sensors, as NDJSON.
//
//	go test -run '^$' -bench Export -benchtime 3x ./cmd/brim
func BenchmarkExport(b *testing.B) {
	const sensors, each = 10_000, 100
	p := newPanels(b, 3*time.Second, "documents", 0) // a bucket or two
	p.post(b, sensors, daySide(), each)
	code, answer := p.admin(http.MethodPost, "/flush?timeout=10m")
	require.Equal(b, http.StatusOK, code, answer)
	dir, n := b.TempDir(), 0
	for b.Loop() {
		n++
		got := runBrim(b, nil, "export", p.stream, "--url", "http://"+p.HTTP, "--format", "ndjson", "--out", filepath.Join(dir, strconv.Itoa(n)))
		require.NoError(b, got.err)
		require.Contains(b, got.stdout, "1,000,000 readings")
	}
	b.ReportMetric(float64(sensors*each*n)/b.Elapsed().Seconds(), "readings/s")
}
