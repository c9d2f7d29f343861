package granularity

import (
	"context"
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
)

func TestMain(m *testing.M) { mongodtest.Main(m, mongodtest.NoLeaks()) }

// tiny is enough to see that all is measured.
func tiny() numbers {
	few := []int{1, 20, 100}
	return numbers{
		appends: grid{few, []int{1, 5}}, alone: grid{few, []int{1}}, slices: 1, single: 10, bulk: 40,
		indexed: []int{0, 3}, turns: 1, varied: 40, sensors: 2, hours: 1, stockBytes: 1 << 20,
	}
}

// experiment runs a trial of so much.
func experiment(n numbers) *bench.Experiment {
	e := Experiment()
	e.Run = func(ctx context.Context, lab *bench.Lab, r *bench.Result) error {
		t := &trial{lab: lab, numbers: n}
		return t.run(ctx, r)
	}
	return e
}

func TestItIsMeasured(t *testing.T) {
	t.Parallel()
	mongodtest.URI(t) // skips where there is none
	steps := 0
	dir := t.TempDir()
	r, err := bench.Run(t.Context(), experiment(tiny()), bench.Config{
		Dir: dir, MongodBin: os.Getenv("BRIM_MONGOD_BIN"), Repeats: 2, Seed: 1, Progress: func(p bench.Progress) {
			steps++
			assert.Equal(t, 12, p.Of)
			assert.Equal(t, steps, p.Step)
		},
	})
	require.NoError(t, err)
	assert.Equal(t, 12, steps)
	data, ok := r.Data.(*found)
	require.True(t, ok)
	require.Len(t, data.Curves, 3)
	assert.Equal(t, []string{"replica set", "standalone"}, data.topologies())
	for _, c := range data.Curves {
		require.NotNil(t, c.Time)
		assert.Equal(t, 6, c.Time.Points)
		for _, p := range c.Points {
			assert.Positive(t, p.Time.Min())
			assert.Positive(t, p.CPU.Min())
			assert.Positive(t, p.Journal.Min())
			assert.Len(t, p.Time, 2)
			assert.InDelta(t, p.Residents, p.Held.Median(), max(grown*float64(p.Residents), 1))
		}
	}
	rs, alone := data.ones("replica set"), data.ones(standalone)
	assert.Less(t, rs.Points[2].Journal.Median(), 2*rs.Points[0].Journal.Median(), "a replica set journals what changed")
	assert.Greater(t, alone.Points[2].Journal.Median(), 2*alone.Points[0].Journal.Median(), "a standalone journals the document")
	require.Len(t, data.Sizes, 4)
	for i, s := range data.Sizes {
		assert.EqualValues(t, 2*720/s.Readings, s.Documents)
		assert.InDelta(t, table[i].documents, s.DocumentsADay, 1e-6)
		assert.Positive(t, s.DiskBytesADay)
	}
	assert.InDelta(t, 0, data.History[1].Versions.Median(), 0.2, "no history is kept where the window is 0")
	assert.Positive(t, data.History[0].Versions.Median())
	assert.Len(t, r.Rows, 16)
	assert.Empty(t, r.LeftOut)
	_, err = json.Marshal(r)
	require.NoError(t, err)
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Empty(t, left)
}

func TestAUsersMongoDBIsLeftAsItWas(t *testing.T) {
	t.Parallel()
	server := mongodtest.Shared(t)
	db := mongodtest.Database(t)
	n := tiny()
	n.appends.perUpdate = []int{1}
	r, err := bench.Run(t.Context(), experiment(n), bench.Config{Dir: t.TempDir(), URI: server.URI(), Repeats: 1, Seed: 1})
	require.NoError(t, err)
	var left []string
	for _, l := range r.LeftOut {
		left = append(left, l.What)
	}
	assert.Equal(t, []string{
		"an append with a history window of 300 s and of 0 s", "an append by the readings that its bucket holds, on a standalone",
	}, left)
	assert.Len(t, r.Rows, 16)
	names, err := db.Client().ListDatabaseNames(t.Context(), bson.D{})
	require.NoError(t, err)
	assert.NotContains(t, names, r.Environment.Database)
}

func TestAnInterruptedTrialEnds(t *testing.T) {
	t.Parallel()
	mongodtest.URI(t) // skips where there is none
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, err := bench.Run(ctx, experiment(tiny()), bench.Config{
		Dir: dir, MongodBin: os.Getenv("BRIM_MONGOD_BIN"), Repeats: 2, Progress: func(p bench.Progress) {
			if p.Step == 3 {
				cancel()
			}
		},
	})
	require.ErrorIs(t, err, bench.ErrInterrupted)
	assert.True(t, r.Interrupted)
	assert.NotEmpty(t, r.Tables)
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Empty(t, left)
}
