package main

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"runtime"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/daemon"
	"github.com/brim-telemetry/brim/internal/load"
)

// BenchmarkLoad finds the highest rate that `brim load` sustains against a daemon that stores
// nothing, both on this machine: its own cost is the floor of every figure it reports. A rate
// is sustained if 99 % of it is achieved, nothing is dropped or failed, and no request waits
// for a quarter of a second. Rates rise by a quarter until two in a row are not sustained.
//
//	go test -run '^$' -bench Load -benchtime 1x ./cmd/brim
func BenchmarkLoad(b *testing.B) {
	if raceEnabled {
		b.Skip("the race detector is what would be measured")
	}
	for _, way := range []struct {
		name   string
		batch  int
		lowest float64
		args   func(s daemon.Status) []string
	}{
		{"http/single", 1, 4_000, func(s daemon.Status) []string { return []string{"--target", "http://" + s.Addresses.HTTP} }},
		{"http/batch=100", 100, 40_000, func(s daemon.Status) []string { return []string{"--target", "http://" + s.Addresses.HTTP} }},
		{"grpc/single", 1, 4_000, func(s daemon.Status) []string {
			return []string{"--target", "grpc://" + s.Addresses.GRPC, "--admin", s.Addresses.Admin}
		}},
		{"grpc/batch=100", 100, 20_000, func(s daemon.Status) []string {
			return []string{"--target", "grpc://" + s.Addresses.GRPC, "--admin", s.Addresses.Admin}
		}},
	} {
		b.Run(way.name, func(b *testing.B) {
			b.Logf("%d cores, %s; %s", runtime.NumCPU(), processorModel(), runtime.Version())
			daemon := startBrim(b, "--storage", "memory", "--data-dir", b.TempDir(), "--granularity", "1h").awaitReady()
			args := append(way.args(daemon.status()), "--batch", strconv.Itoa(way.batch))
			best, misses := &load.Result{}, 0
			for rate := way.lowest; misses < 2; rate *= 1.25 {
				r := sustained(b, rate, args)
				if r == nil {
					misses++
					continue
				}
				best, misses = r, 0
			}
			require.NotZero(b, best.Acked, "not even the lowest rate was sustained")
			b.ReportMetric(0, "ns/op") // meaningless here
			b.ReportMetric(best.AchievedRate, "readings/s")
			b.ReportMetric(best.Response.P50*1e3, "p50-ms")
			b.ReportMetric(best.Response.P99*1e3, "p99-ms")
		})
	}
}

// sustained applies a load for five seconds, and returns the result if the rate was sustained.
func sustained(b *testing.B, rate float64, args []string) *load.Result {
	b.Helper()
	out, err := exec.CommandContext(b.Context(), brimBinary(b), append([]string{
		"load", "--rate", fmt.Sprintf("%.0f", rate), "--duration", "5s", "--speedup", "60", "--output", "json",
		"--fail-if", "achieved<99%", "--fail-if", "dropped>0", "--fail-if", "failed>0", "--fail-if", "max>250ms",
	}, args...)...).Output()
	var r load.Result
	require.NoError(b, json.Unmarshal(out, &r), "%s", out)
	if err != nil {
		return nil
	}
	return &r
}
