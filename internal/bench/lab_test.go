package bench

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/brim-telemetry/brim/internal/doctor"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
)

func TestMain(m *testing.M) { mongodtest.Main(m) }

// trial returns an experiment that runs the given script.
func trial(run func(ctx context.Context, lab *Lab) error) *Experiment {
	return &Experiment{
		Name: "trial", Question: "Does it run?", Full: time.Minute, Quick: time.Second,
		Cells:  []Cell{{Name: "a", What: "what is quick"}, {Name: "b", What: "what is slow", Slow: "it takes an hour"}},
		Tables: []Table{{Name: "found", Variant: "what"}},
		Run:    func(ctx context.Context, lab *Lab) { Check(run(ctx, lab)) },
	}
}

func nothing(context.Context, *Lab) error { return nil }

func TestOwnMongodIsRemoved(t *testing.T) {
	t.Parallel()
	mongodtest.URI(t) // skips where there is none
	dir := t.TempDir()
	var steps []Progress
	r, err := Run(t.Context(), trial(func(ctx context.Context, lab *Lab) error {
		lab.Step("start")
		m := lab.Start(ctx, Setting{Parameters: map[string]string{"ttlMonitorEnabled": "false"}})
		lab.Step("write")
		if _, err := m.Database().Collection("c").InsertOne(ctx, bson.D{{Key: "a", Value: 1}}); err != nil {
			return err
		}
		before := m.Counters(ctx)
		m.Settle(ctx)
		assert.Positive(t, m.Counters(ctx).Since(before, "checkpoints_total"))
		m.Restart(ctx, Setting{Standalone: true, CacheGB: 0.25})
		n, err := m.Database().Collection("c").CountDocuments(ctx, bson.D{})
		require.NoError(t, err)
		assert.EqualValues(t, 1, n)
		assert.Positive(t, m.Kill(ctx))
		return nil // leaves it running
	}), Config{
		Dir: dir, MongodBin: os.Getenv("BRIM_MONGOD_BIN"), Progress: func(p Progress) { steps = append(steps, p) },
	})
	require.NoError(t, err)
	assert.Equal(t, []string{"replica_set", "standalone"}, r.Environment.Topologies)
	assert.Equal(t, []int64{1024, 256}, r.Environment.CacheMiB)
	assert.Equal(t, []string{"snappy"}, r.Environment.Compressor)
	assert.NotEmpty(t, r.Environment.Mongod)
	assert.Equal(t, 3, r.Repeats)
	assert.Positive(t, r.TookSeconds)
	require.Len(t, steps, 2)
	assert.Equal(t, []any{2, "write", time.Minute}, []any{steps[1].Step, steps[1].What, steps[1].Expected})
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Empty(t, left)
}

func TestUsersMongoDBIsLeftAsItWas(t *testing.T) {
	t.Parallel()
	client := mongodtest.Database(t).Client()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	name := ""
	r, err := Run(ctx, trial(func(ctx context.Context, lab *Lab) error {
		assert.False(t, lab.Own())
		require.ErrorIs(t, Try(func() { lab.Start(ctx, Setting{Standalone: true}) }), errOwnOnly)
		m := lab.Start(ctx, Setting{})
		name = m.Name
		_, err := m.Database().Collection("c").InsertOne(ctx, bson.D{})
		require.NoError(t, err)
		require.ErrorIs(t, Try(func() { m.Restart(ctx, Setting{}) }), errOwnOnly)
		require.ErrorIs(t, Try(func() { m.Set(ctx, nil) }), errOwnOnly)
		require.ErrorIs(t, Try(func() { m.Kill(ctx) }), errOwnOnly)
		require.NoError(t, Try(func() { CPU(m.Counters(ctx)) }))
		cancel() // as Ctrl-C does
		return context.Cause(ctx)
	}), Config{Dir: t.TempDir(), URI: mongodtest.URI(t)})
	require.ErrorIs(t, err, ErrInterrupted)
	assert.True(t, r.Interrupted)
	assert.Equal(t, name, r.Environment.Database)
	assert.True(t, strings.HasPrefix(name, "brim_bench_"))
	names, err := client.ListDatabaseNames(t.Context(), bson.D{{Key: "name", Value: name}})
	require.NoError(t, err)
	assert.Empty(t, names)
}

func TestUnknownCPU(t *testing.T) {
	t.Parallel()
	assert.True(t, math.IsNaN(CPU(doctor.Counters{})), "and tables leave it out")
}

func TestAbortKillsAndCleansUp(t *testing.T) {
	t.Parallel()
	mongodtest.URI(t) // skips where there is none
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	abort, kill := context.WithCancel(context.Background())
	defer kill()
	_, err := Run(ctx, trial(func(ctx context.Context, lab *Lab) error {
		lab.Start(ctx, Setting{})
		cancel()
		kill()
		return ctx.Err()
	}), Config{Dir: dir, MongodBin: os.Getenv("BRIM_MONGOD_BIN"), Abort: abort})
	require.EqualError(t, err, "trial: interrupted", "killing mongod is not an error")
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Empty(t, left)
}

func TestCellsAreChosen(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		quick   bool
		cells   []string
		has     []bool // a, b
		leftOut []LeftOut
	}{
		{false, nil, []bool{true, true}, nil},
		{true, nil, []bool{true, false}, []LeftOut{{"what is slow", "not in a quick run: it takes an hour"}}},
		{true, []string{"b"}, []bool{false, true}, []LeftOut{{"what is quick", "not among the cells asked for"}}},
	} {
		r, err := Run(t.Context(), trial(func(_ context.Context, lab *Lab) error {
			has := []bool{lab.Has("a"), lab.Has("b")}
			assert.Equal(t, c.has, has)
			assert.False(t, lab.Has("c"))
			assert.Equal(t, len(c.cells) > 0, lab.Asked("b"), "being measured is not being asked for")
			return nil
		}), Config{Dir: t.TempDir(), Quick: c.quick, Cells: c.cells})
		require.NoError(t, err)
		assert.Equal(t, c.leftOut, r.LeftOut)
	}
	e := trial(nothing)
	e.Cells[0].Own, e.Cells[1].OnRequest = true, true
	r, err := Run(t.Context(), e, Config{Dir: t.TempDir(), URI: "mongodb://nowhere"})
	require.NoError(t, err)
	assert.Equal(t, []LeftOut{{"what is quick", OwnOnly}, {"what is slow", "it takes an hour; --cells b asks for it"}}, r.LeftOut)
}

func TestCellsRunInTheirOrder(t *testing.T) {
	t.Parallel()
	ran := ""
	e := trial(nothing)
	for i, name := range []string{"a", "b"} {
		e.Cells[i].Run = func(context.Context) { ran += name }
	}
	e.Run = func(ctx context.Context, lab *Lab) { lab.RunCells(ctx, e.Cells) }
	_, err := Run(t.Context(), e, Config{Dir: t.TempDir()})
	require.NoError(t, err)
	assert.Equal(t, "ab", ran)
	_, err = Run(t.Context(), e, Config{Dir: t.TempDir(), Quick: true})
	require.NoError(t, err)
	assert.Equal(t, "aba", ran, "one is not in a quick run")
}

func TestFailedExperimentReturnsItsResult(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	failed := errors.New("no more disk")
	r, err := Run(t.Context(), trial(func(_ context.Context, lab *Lab) error {
		require.NoError(t, os.WriteFile(filepath.Join(lab.Dir, "x"), nil, 0o600))
		lab.Add("found", "one", "figure", 1)
		return failed
	}), Config{Dir: dir})
	require.ErrorIs(t, err, failed)
	require.ErrorContains(t, err, "trial: ")
	assert.Equal(t, "trial: no more disk", r.Error)
	assert.Equal(t, Samples{1}, r.Table("found").Samples("one", "figure"))
	assert.False(t, r.Interrupted)
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Empty(t, left)
}

func TestAFailedStepEndsTheExperiment(t *testing.T) {
	t.Parallel()
	failed := errors.New("no answer")
	ended := make(chan struct{})
	e := trial(nothing)
	e.Run = func(ctx context.Context, lab *Lab) {
		context.AfterFunc(ctx, func() { close(ended) }) // like background work
		lab.Step("ask %d times", 2)
		assert.Equal(t, 3, Must(3, nil))
		Check(nil)
		Must(3, failed)
		t.Error("it went on")
	}
	r, err := Run(t.Context(), e, Config{Dir: t.TempDir()})
	require.ErrorIs(t, err, failed)
	require.EqualError(t, err, "trial: ask 2 times: no answer", "names the step")
	assert.Equal(t, err.Error(), r.Error)
	<-ended
	e.Run = func(context.Context, *Lab) { panic("a defect") }
	assert.PanicsWithValue(t, "a defect", func() { _, _ = Run(t.Context(), e, Config{Dir: t.TempDir()}) })
}

func TestEverySamplesUntilItIsStopped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		samples := 0
		stop := Every(t.Context(), time.Second, func(context.Context) { samples++ })
		<-time.After(3*time.Second + time.Millisecond)
		require.NoError(t, stop())
		assert.Equal(t, 4, samples)
	})
}

func TestEveryReturnsTheErrorOfASampleButNotItsCancellation(t *testing.T) {
	t.Parallel()
	broken := errors.New("gone")
	synctest.Test(t, func(t *testing.T) {
		samples := 0
		stop := Every(t.Context(), time.Second, func(context.Context) {
			if samples++; samples == 3 {
				Check(broken)
			}
		})
		<-time.After(time.Minute)
		require.ErrorIs(t, stop(), broken)
		assert.Equal(t, 3, samples)
	})
	stop := Every(t.Context(), time.Hour, func(ctx context.Context) {
		<-ctx.Done()
		Check(context.Cause(ctx))
	})
	assert.NoError(t, stop(), "a sample in flight when it was stopped")
}
