package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/load"
)

func TestTableHasARowForEachTenthAndAColumnForEachVariant(t *testing.T) {
	t.Parallel()
	results := make([]outcome, len(variants()))
	for i := range results {
		results[i] = outcome{Result: &load.Result{Sent: 120_240, Acked: 120_240}, behind: time.Duration(i) * 1500 * time.Millisecond}
		for tenth := range 10 {
			row := load.FillRow{From: float64(tenth) / 10, To: float64(tenth+1) / 10, Count: 1002, P50: float64(tenth+1) * 1e-3, P99: float64(i+1) * 1e-2}
			if i == 2 && tenth == 9 {
				row = load.FillRow{From: 0.9, To: 1}
			}
			results[i].StoreByFill = append(results[i].StoreByFill, row)
		}
	}
	results[1].Saturated = "1 of 2 readings (50.0 %) was dropped."
	var out strings.Builder
	require.NoError(t, printTable(&out, &options{sensors: 167, interval: 5 * time.Second, duration: time.Minute}, results))
	cells := func(line string) []string { return strings.Fields(strings.ReplaceAll(line, "|", " ")) }
	lines := strings.Split(out.String(), "\n")
	assert.Contains(t, lines[1], "167 sensors")
	assert.Equal(t, []string{"0-10", "%", "1.00", "/", "10.00", "1.00", "/", "20.00", "1.00", "/", "30.00"}, cells(lines[4]))
	assert.Equal(t, []string{"90-100", "%", "10.00", "/", "10.00", "10.00", "/", "20.00", "none"}, cells(lines[13]))
	assert.Equal(t, []string{"readings", "per", "write", "12.0", "12.0", "13.3"}, cells(lines[14]))
	assert.Equal(t, "SATURATED: merged updates: 1 of 2 readings (50.0 %) was dropped.", lines[18])
	assert.Contains(t, out.String(), "SATURATED: time series: all was stored only 3.0 s after the last reading was due.")
	assert.NotContains(t, out.String(), "SATURATED: one")
	assert.Equal(t, []string{"all", "stored", "after", "0.0", "s", "1.5", "s", "3.0", "s"}, cells(lines[16]))
}

func TestHelpIsPrintedAndIsNoFailure(t *testing.T) {
	t.Parallel()
	for _, ask := range []string{"--help", "-h"} {
		var stdout, stderr strings.Builder
		require.NoError(t, run(t.Context(), []string{ask}, &stdout, &stderr))
		assert.Contains(t, stdout.String(), "-duration")
		assert.Contains(t, stdout.String(), "default 1m")
		assert.Empty(t, stderr.String())
	}
}

func TestOptionsThatMakeNoSenseAreRefused(t *testing.T) {
	t.Parallel()
	var stderr strings.Builder
	err := run(t.Context(), []string{"--duration", "1s"}, &stderr, &stderr)
	require.ErrorContains(t, err, "allowed are 10s to 1h")
	require.ErrorContains(t, run(t.Context(), []string{"--duration", "1min"}, &stderr, &stderr), `"1min" is not a duration; write a number with a unit`)
	require.ErrorContains(t, run(t.Context(), []string{"--speed", "2"}, &stderr, &stderr), "-speed")
	assert.Empty(t, stderr.String(), "the error says it, once")
	require.ErrorContains(t, run(t.Context(), []string{"--brim", "./no-such-program"}, &stderr, &stderr), "make build")
}
