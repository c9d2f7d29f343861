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

func TestMain(m *testing.M) { mongodtest.Main(m, mongodtest.NoLeaks()) }

// tiny is the experiment so small that its figures mean nothing.
func tiny(patterns ...string) *bench.Experiment {
	e := Experiment()
	e.Run = size{
		ramp:    rampConfig{idle: time.Second, step: 500 * time.Millisecond, steps: 3, sensors: 64, readings: 20},
		ramps:   1,
		compact: compactConfig{documents: 120, readings: 30, window: 200 * time.Millisecond, patterns: patterns},
		calls:   5,
	}.run
	return e
}

func TestAllCellsAreMeasured(t *testing.T) {
	t.Parallel()
	mongodtest.URI(t) // skips where there is none
	dir := t.TempDir()
	steps := 0
	r, err := bench.Run(t.Context(), tiny(scattered, contiguous), bench.Config{Dir: dir, Repeats: 1, MongodBin: os.Getenv("BRIM_MONGOD_BIN"), Progress: func(p bench.Progress) {
		assert.LessOrEqual(t, p.Step, p.Of)
		steps = p.Step
	}})
	require.NoError(t, err)
	assert.Equal(t, 6, steps)
	raw, err := json.Marshal(r)
	require.NoError(t, err)
	assert.Contains(t, string(raw), `"cache_mib":256`)
	d := r.Data.(*data)
	require.Len(t, d.Ramps, 2)
	for _, one := range d.Ramps {
		assert.Positive(t, one.IdleP99)
		assert.Greater(t, len(one.Looks), 3)
		assert.Positive(t, one.Steps[0].Stored)
		assert.NotEmpty(t, one.Checkpoint.Title)
	}
	require.Len(t, d.Compactions, 2)
	for _, c := range d.Compactions {
		assert.EqualValues(t, 120+writerSensors, c.Documents)
		assert.Less(t, c.Deleted.Data, c.Full.Data)
		assert.Positive(t, c.Before.Writes)
		assert.Positive(t, c.Peak)
		assert.Greater(t, c.timeline.end, c.timeline.begin)
	}
	require.Len(t, d.Status, 4)
	var said []string
	for _, row := range r.Rows {
		said = append(said, row.Claim)
		assert.NotEmpty(t, row.Why, row.Claim)
		assert.NotContains(t, row.MeasuredAs+row.Why, "–", row.Claim)
	}
	all := strings.Join(said, "\n")
	for _, want := range []string{"cache dirty", "checkpoints take long", "write p99 falls", "every fourth", "one piece", "serverStatus"} {
		assert.Contains(t, all, want)
	}
	for _, p := range r.Plots {
		svg, err := p.Drawing.SVG()
		require.NoError(t, err)
		assert.NotEmpty(t, svg)
	}
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Empty(t, left)
}

// TestAUsersMongoDBIsSpared: it is not taken to its limit unless that is asked
// for, and its files are not looked at.
func TestAUsersMongoDBIsSpared(t *testing.T) {
	t.Parallel()
	at := func(cells ...string) (*bench.Result, *data) {
		r, err := bench.Run(t.Context(), tiny(scattered), bench.Config{Dir: t.TempDir(), Repeats: 1, URI: mongodtest.URI(t), Cells: cells})
		require.NoError(t, err)
		return r, r.Data.(*data)
	}
	r, d := at()
	assert.Empty(t, d.Ramps)
	require.Len(t, d.Compactions, 1)
	assert.False(t, d.Compactions[0].Peak.known())
	assert.Positive(t, d.Compactions[0].After.File)
	require.Len(t, r.LeftOut, 2)
	assert.Contains(t, r.LeftOut[0].Why, "--cells ramp")
	assert.Contains(t, r.LeftOut[1].What, "more disk")

	r, d = at(cellRamp)
	require.Len(t, d.Ramps, 1)
	assert.Equal(t, bench.OwnOnly, d.Ramps[0].Checkpoint.Why, "nobody makes a user's MongoDB write checkpoints")
	var left []string
	for _, l := range r.LeftOut {
		left = append(left, l.What)
	}
	assert.Contains(t, strings.Join(left, "; "), "small cache")
	assert.Contains(t, strings.Join(left, "; "), "checkpoints take long")
}

// TestAnInterruptionEndsTheWriters: mongodtest looks for goroutines that are left.
func TestAnInterruptionEndsTheWriters(t *testing.T) {
	t.Parallel()
	mongodtest.URI(t) // skips where there is none
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	e := tiny(scattered)
	measure := e.Run
	e.Run = func(ctx context.Context, lab *bench.Lab, r *bench.Result) error {
		stop := time.AfterFunc(1500*time.Millisecond, cancel) // in the ramp, or before it on a slow machine
		defer stop.Stop()
		return measure(ctx, lab, r)
	}
	dir := t.TempDir()
	r, err := bench.Run(ctx, e, bench.Config{Dir: dir, Repeats: 1, MongodBin: os.Getenv("BRIM_MONGOD_BIN")})
	require.ErrorIs(t, err, bench.ErrInterrupted)
	assert.True(t, r.Interrupted)
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Empty(t, left)
}
