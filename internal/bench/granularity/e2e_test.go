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

func TestMain(m *testing.M) { mongodtest.Main(m) }

// tiny is just enough to measure everything.
func tiny() numbers {
	few := []int{1, 20, 100}
	return numbers{
		appends: grid{few, []int{1, 5}}, alone: grid{few, []int{1}}, columns: grid{few, []int{1}}, slices: 1, single: 10, bulk: 40,
		indexed: []int{0, 3}, turns: 1, varied: 40, sensors: 2, hours: 1, stockBytes: 1 << 20,
	}
}

// experiment runs a trial at this scale.
func experiment(n numbers) *bench.Experiment {
	e := Experiment()
	e.Run = func(ctx context.Context, lab *bench.Lab) { (&trial{lab: lab, numbers: n}).run(ctx) }
	return e
}

// TestUsersMongoDB runs what works in a scratch database, and reports what is left out.
func TestUsersMongoDB(t *testing.T) {
	t.Parallel()
	db := mongodtest.Database(t) // skips where there is none
	r, err := bench.Run(t.Context(), experiment(tiny()), bench.Config{Hasty: true, Dir: t.TempDir(), URI: mongodtest.URI(t), Repeats: 2, Seed: 1})
	require.NoError(t, err)
	assertCurves(t, r, "")
	assertCurves(t, r, inColumns)
	assert.Less(t, r.Table("sizes").Median("1h, sealed", documentOf), r.Table("sizes").Median("1h", documentOf)/5)
	journal := r.Table("journal")
	assert.Less(t, journal.Median("100", oneReading), 2*journal.Median("1", oneReading), "a replica set journals what changed")
	for _, p := range published {
		assert.InDelta(t, p.documents, r.Table("sizes").Median(config.FormatDuration(p.granularity), documentsOf), 1e-6)
	}
	assert.Len(t, r.Rows, 16)
	_, err = json.Marshal(r)
	require.NoError(t, err)
	var left []string
	for _, l := range r.LeftOut {
		left = append(left, l.What)
	}
	assert.Equal(t, []string{
		"an append with a history window of 300 s and of 0 s", "an append by the readings that its bucket holds, on a standalone",
	}, left)
	names, err := db.Client().ListDatabaseNames(t.Context(), bson.D{})
	require.NoError(t, err)
	assert.NotContains(t, names, r.Environment.Database)
}

func TestInterruptionEndsTheExperiment(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, err := bench.Run(ctx, experiment(tiny()), bench.Config{
		Hasty: true, Dir: t.TempDir(), URI: mongodtest.URI(t), Repeats: 2, Cells: []string{"append"}, Progress: func(p bench.Progress) {
			if p.Step == 3 { // the second repeat
				cancel()
			}
		},
	})
	require.ErrorIs(t, err, bench.ErrInterrupted)
	assert.True(t, r.Interrupted)
	assert.NotEmpty(t, r.Tables)
}

const oneReading = "1 reading an append"

func assertCurves(t *testing.T, r *bench.Result, on string) {
	t.Helper()
	for _, residents := range []string{"1", "20", "100"} {
		for _, table := range []string{timeOf, cpuOf, "journal"} {
			samples := r.Table(table+on).Samples(residents, oneReading)
			assert.Len(t, samples, 2, table+on)
			assert.Positive(t, samples.Min(), table+on)
		}
	}
	assert.Len(t, r.Table("line"+on).Samples("1", "time: a"), 2)
}

// TestOwnMongods runs what needs mongods with special settings.
func TestOwnMongods(t *testing.T) {
	t.Parallel()
	mongodtest.URI(t) // skips where there is none
	r, err := bench.Run(t.Context(), experiment(tiny()), bench.Config{
		Hasty: true, Dir: t.TempDir(), MongodBin: os.Getenv("BRIM_MONGOD_BIN"), Repeats: 2, Seed: 1, Cells: []string{"history", "sizes", "standalone"},
	})
	require.NoError(t, err)
	assertCurves(t, r, standalone)
	journal := r.Table("journal" + standalone)
	assert.Greater(t, journal.Median("100", oneReading), 2*journal.Median("1", oneReading), "a standalone journals the document")
	assert.Positive(t, r.Table("sizes").Median("1h", "on disk, snappy"))
	assert.InDelta(t, 0, r.Table("history").Median("0 s", "old versions kept"), 0.2, "no history is kept if the window is 0")
	assert.Positive(t, r.Table("history").Median("300 s", "old versions kept"))
}
