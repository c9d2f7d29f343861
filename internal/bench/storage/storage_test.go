package storage

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
)

func TestMain(m *testing.M) { mongodtest.Main(m) }

// tiny is the experiment at a scale where its figures mean nothing.
func tiny(patterns ...string) *bench.Experiment {
	e := Experiment()
	e.Run = size{
		ramp:    rampConfig{idle: 500 * time.Millisecond, step: 300 * time.Millisecond, steps: 3, sensors: 64, readings: 20},
		ramps:   1,
		compact: compactConfig{documents: 120, readings: 30, window: 600 * time.Millisecond, patterns: patterns}, // a busy machine may stall for a while
		calls:   5,
	}.run
	return e
}

// TestRamps uses its own mongods, one with each cache.
func TestRamps(t *testing.T) {
	t.Parallel()
	mongodtest.URI(t) // skips where there is none
	dir := t.TempDir()
	r, err := bench.Run(t.Context(), tiny(), bench.Config{Hasty: true, Dir: dir, Repeats: 1, MongodBin: os.Getenv("BRIM_MONGOD_BIN"), Cells: []string{"ramp"}})
	require.NoError(t, err)
	assert.Equal(t, []int64{1024, 256}, r.Environment.CacheMiB)
	for _, cache := range []string{ordinary, small} {
		assert.Positive(t, r.Table("ramp, "+cache).Median("5000", "stored"))
		assert.NotEmpty(t, r.Table("p99, "+cache).Rows)
		assert.NotNil(t, r.Table("signals, "+cache).Samples(checkpointDuration, overOf))
	}
	assertClaims(t, r, "cache dirty", "checkpoints take long")
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Empty(t, left)
}

func assertClaims(t *testing.T, r *bench.Result, want ...string) {
	t.Helper()
	var all strings.Builder
	for _, row := range r.Rows {
		all.WriteString(row.Claim + "\n")
		assert.NotEmpty(t, row.Why, row.Claim)
	}
	for _, w := range want {
		assert.Contains(t, all.String(), w)
	}
}

// TestUsersMongoDB is not taken to its limit unless asked for, and its files are not read.
func TestUsersMongoDB(t *testing.T) {
	t.Parallel()
	at := func(cells ...string) *bench.Result {
		r, err := bench.Run(t.Context(), tiny(scattered, contiguous), bench.Config{Hasty: true, Dir: t.TempDir(), Repeats: 1, URI: mongodtest.URI(t), Cells: cells})
		require.NoError(t, err)
		_, err = json.Marshal(r)
		require.NoError(t, err)
		return r
	}
	r := at()
	assert.Nil(t, r.Table("signals, "+ordinary))
	for _, pattern := range []string{scattered, contiguous} {
		for _, measure := range []string{"file when full", leftOf, "took", p99Before, p99Later} {
			assert.Positive(t, r.Table("compact").Median(pattern, measure), measure)
		}
		assert.Nil(t, r.Table("compact").Samples(pattern, "file larger by"))
	}
	assert.Len(t, r.Table("status").Rows, 4)
	assertClaims(t, r, "write p99 falls", "every fourth", "one piece", "serverStatus")
	require.GreaterOrEqual(t, len(r.LeftOut), 2)
	assert.Contains(t, r.LeftOut[0].Why, "--cells ramp")
	assert.Contains(t, r.LeftOut[1].What, "more disk")

	r = at("ramp")
	assert.NotEmpty(t, r.Table("ramp, "+ordinary).Rows)
	assert.Nil(t, r.Table("signals, "+ordinary).Samples(checkpointDuration, overOf), "a user's MongoDB is not made to write checkpoints")
	assert.Contains(t, r.LeftOut, bench.LeftOut{What: "the ramp with a small cache", Why: bench.OwnOnly})
}

// TestFilesOfAnOwnMongodAreWatched checks that growth of files is seen.
func TestFilesOfAnOwnMongodAreWatched(t *testing.T) {
	t.Parallel()
	mongodtest.URI(t) // skips where there is none
	e := tiny()
	e.Run = func(ctx context.Context, lab *bench.Lab) {
		c := compactConfig{documents: 60, readings: 30, window: 100 * time.Millisecond, patterns: []string{scattered}}
		lab.On(ctx, bench.Setting{CacheGB: smallCacheGB}, func(m *bench.MongoDB) { c.run(ctx, lab, m) })
	}
	r, err := bench.Run(t.Context(), e, bench.Config{Hasty: true, Dir: t.TempDir(), Repeats: 1, MongodBin: os.Getenv("BRIM_MONGOD_BIN")})
	require.NoError(t, err)
	for _, measure := range []string{"file larger by", "all files larger by"} {
		samples := r.Table("compact").Samples(scattered, measure)
		require.Len(t, samples, 1, measure)
		assert.GreaterOrEqual(t, samples[0], 0., measure)
	}
}

// TestInterruptionEndsTheWriters: mongodtest looks for leaked goroutines.
func TestInterruptionEndsTheWriters(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	e := tiny()
	measure := e.Run
	e.Run = func(ctx context.Context, lab *bench.Lab) {
		stop := time.AfterFunc(time.Second, cancel) // in the ramp, or before it on a slow machine
		defer stop.Stop()
		measure(ctx, lab)
	}
	r, err := bench.Run(ctx, e, bench.Config{Hasty: true, Dir: t.TempDir(), Repeats: 1, URI: mongodtest.URI(t), Cells: []string{"ramp"}})
	require.ErrorIs(t, err, bench.ErrInterrupted)
	assert.True(t, r.Interrupted)
}
