package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
)

// text is written by the daemon's log and by the measurement at once.
type text struct {
	mu      sync.Mutex
	content strings.Builder
	onWrite func(content string)
}

func (x *text) Write(p []byte) (int, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	n, err := x.content.Write(p)
	if x.onWrite != nil {
		x.onWrite(x.content.String())
	}
	return n, err
}

func (x *text) String() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.content.String()
}

// TestCheapRowsAreMeasured runs what can be measured in a moment, against real
// daemons and their mongods.
func TestCheapRowsAreMeasured(t *testing.T) {
	mongodtest.URI(t) // skips where there is none
	brim := program.Path(t)
	t.Setenv("TMPDIR", t.TempDir())
	profiles := t.TempDir()
	var stdout strings.Builder
	var stderr text
	err := run(t.Context(), []string{
		"--brim", brim, "--pairs", "1", "--time", "200ms", "--output", "json", "--profile", profiles,
		"--rows", "lines,grpc,ndjson,timeseries,journal",
	}, &stdout, &stderr)
	require.NoError(t, err, stderr.String())
	var r report
	require.NoError(t, json.Unmarshal([]byte(stdout.String()), &r))
	require.Len(t, r.Rows, 8)
	for _, row := range r.Rows {
		assert.Positive(t, row.Measured, row.What)
		assert.Equal(t, []float64{row.Measured}, row.Runs, row.What)
		assert.NotContains(t, strings.Join(row.Remarks, " "), "NaN", row.What)
	}
	assert.Contains(t, r.Rows[0].Remarks[1], "merge factor")
	assert.NotEmpty(t, r.Setting.Mongod)
	assert.NotEmpty(t, r.Setting.Brim)
	for _, name := range []string{"cpu-1.pprof", "allocs-1.pprof"} {
		info, err := os.Stat(filepath.Join(profiles, name))
		require.NoError(t, err)
		assert.Positive(t, info.Size())
	}
	nothingIsLeft(t)
}

// TestInterruptedMeasurementLeavesNothing ends it while the daemon is at work.
func TestInterruptedMeasurementLeavesNothing(t *testing.T) {
	mongodtest.URI(t) // skips where there is none
	brim := program.Path(t)
	t.Setenv("TMPDIR", t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stderr := text{onWrite: func(content string) {
		if strings.Contains(content, "documents/s") {
			cancel()
		}
	}}
	var stdout strings.Builder
	err := run(ctx, []string{"--brim", brim, "--pairs", "100", "--time", "200ms", "--rows", "timeseries"}, &stdout, &stderr)
	require.ErrorIs(t, err, context.Canceled, stderr.String())
	assert.Empty(t, stdout.String())
	nothingIsLeft(t)
}

func nothingIsLeft(t *testing.T) {
	t.Helper()
	left, err := os.ReadDir(os.TempDir())
	require.NoError(t, err)
	assert.Empty(t, left)
}
