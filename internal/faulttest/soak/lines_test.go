//go:build linux

package main

import (
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/faulttest"
)

// soakOf returns a run of 1,000 minutes with a daemon restart every 250. The memory line
// follows a function, in MiB, with noise; all others are constant.
func soakOf(memory func(at float64, life int) float64) *soak {
	s := &soak{workloads: workloads()}
	noise := rand.New(rand.NewPCG(1, 2))
	for at := 2.0; at <= 1000; at += 2 {
		one := sample{at: 60 * at, life: [2]int{int(at / 250), 0}, values: make([]float64, len(lines()))}
		for i := range one.values {
			one.values[i] = 100
		}
		one.values[0] = (memory(at, one.life[daemons]) + 5*noise.NormFloat64()) * (1 << 20)
		s.samples = append(s.samples, one)
	}
	return s
}

func TestOnlyALineThatGrowsClimbs(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		memory func(at float64, life int) float64
		climbs bool
	}{
		"constant":                           {func(float64, int) float64 { return 100 }, false},
		"growing":                            {func(at float64, _ int) float64 { return 100 + at/5 }, true},
		"growing in each life":               {func(at float64, life int) float64 { return 100 + (at-250*float64(life))/5 }, true},
		"growing by a twentieth":             {func(at float64, _ int) float64 { return 1000 + at/5 }, false},
		"growing by less than the threshold": {func(at float64, _ int) float64 { return 50 + at/20 }, false},
		"growing in the first quarter":       {func(at float64, _ int) float64 { return min(at, 240) }, false},
		"growing when a process begins":      {func(at float64, life int) float64 { return 5 * min(at-250*float64(life), 15) }, false},
		"on another level in each life":      {func(_ float64, life int) float64 { return 100 * float64(1+life) }, false},
		"constant, with gaps":                {func(at float64, _ int) float64 { return 100 + 0*math.Sqrt(math.Sin(at/9)) }, false},
		"falling":                            {func(at float64, _ int) float64 { return 200 - at/10 }, false},
	} {
		s := soakOf(tt.memory)
		assert.Equal(t, tt.climbs, s.trendOf(0).climbs, "%s: %+v", name, s.trendOf(0))
	}
}

func TestPageSaysWhatClimbs(t *testing.T) {
	t.Parallel()
	s := soakOf(func(at float64, _ int) float64 { return 100 + at })
	s.readings = map[string]*faulttest.Result{readings: {Attempted: 12, Acked: 11, Stored: 10}}
	path := filepath.Join(t.TempDir(), "page.html")
	require.NoError(t, s.writePage(path))
	page, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Contains(t, string(page), "these lines climb: Memory (daemon).")
	s.wrong = "2 lost"
	assert.Equal(t, "Failed: 2 lost", s.verdict())
}
