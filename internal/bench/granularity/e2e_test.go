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
	"github.com/brim-telemetry/brim/internal/config"
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
	e.Run = func(ctx context.Context, lab *bench.Lab) error { return (&trial{lab: lab, numbers: n}).run(ctx) }
	return e
}

func TestItIsMeasured(t *testing.T) {
	t.Parallel()
	mongodtest.URI(t) // skips where there is none
	dir := t.TempDir()
	r, err := bench.Run(t.Context(), experiment(tiny()), bench.Config{Hasty: true, Dir: dir, MongodBin: os.Getenv("BRIM_MONGOD_BIN"), Repeats: 2, Seed: 1})
	require.NoError(t, err)
	for _, on := range []string{"", standalone} {
		for _, residents := range []string{"1", "20", "100"} {
			for _, table := range []string{timeOf, cpuOf, "journal"} {
				samples := r.Table(table+on).Samples(residents, "1 reading an append")
				assert.Len(t, samples, 2, table+on)
				assert.Positive(t, samples.Min(), table+on)
			}
		}
		assert.Len(t, r.Table("line"+on).Samples("1", "time: a"), 2)
	}
	journal := func(on, residents string) float64 {
		return r.Table("journal"+on).Median(residents, "1 reading an append")
	}
	assert.Less(t, journal("", "100"), 2*journal("", "1"), "a replica set journals what changed")
	assert.Greater(t, journal(standalone, "100"), 2*journal(standalone, "1"), "a standalone journals the document")
	for _, p := range published {
		g := config.FormatDuration(p.granularity)
		assert.InDelta(t, p.documents, r.Table("sizes").Median(g, documentsOf), 1e-6)
		assert.Positive(t, r.Table("sizes").Median(g, "on disk, snappy"))
	}
	assert.InDelta(t, 0, r.Table("history").Median("0 s", "old versions kept"), 0.2, "no history is kept if the window is 0")
	assert.Positive(t, r.Table("history").Median("300 s", "old versions kept"))
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
	r, err := bench.Run(t.Context(), experiment(n), bench.Config{Hasty: true, Dir: t.TempDir(), URI: server.URI(), Repeats: 1, Seed: 1})
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
		Hasty: true, Dir: dir, MongodBin: os.Getenv("BRIM_MONGOD_BIN"), Repeats: 2, Progress: func(p bench.Progress) {
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
