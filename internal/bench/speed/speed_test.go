package speed

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
	"github.com/brim-telemetry/brim/internal/store"
)

// inLab runs parts of the experiment with short sides, in the mongod shared by all tests.
func inLab(t *testing.T, run func(ctx context.Context, x *trial), cells ...string) *bench.Result {
	t.Helper()
	e := Experiment()
	for i := range e.Cells {
		e.Cells[i].Own = false
	}
	e.Run = func(ctx context.Context, lab *bench.Lab) {
		run(ctx, &trial{lab: lab, length: 100 * time.Millisecond, m: lab.Start(ctx, bench.Setting{})})
	}
	dir := t.TempDir()
	r, err := bench.Run(t.Context(), e, bench.Config{Hasty: true, Brim: program.Path(t), URI: mongodtest.URI(t), Dir: dir, Repeats: 1, Cells: cells})
	require.NoError(t, err)
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Empty(t, left)
	return r
}

func TestCheapCells(t *testing.T) {
	t.Parallel()
	r := inLab(t, func(ctx context.Context, x *trial) { x.run(ctx) }, "lines", "grpc", "ndjson", "timeseries", "columns", "journal")
	require.Len(t, r.Rows, 12)
	for _, row := range r.Rows {
		assert.Positive(t, row.Measured, row.Claim)
	}
	for _, way := range []string{lineProtocol, rawDocuments} {
		assert.Positive(t, r.Table("lines").Median(way, rateOf), way)
	}
	assert.Greater(t, r.Table("lines").Median(lineProtocol, perUpdateOf), 1.)
	assert.Contains(t, r.Answer, "the rate of raw insertMany")
	assert.Positive(t, r.Table("timeseries").Median(rawSeries, mongodOf))
}

// TestRequests sends single readings each way.
func TestRequests(t *testing.T) {
	t.Parallel()
	r := inLab(t, func(ctx context.Context, x *trial) { x.requests(ctx, 200*time.Millisecond, []int{500}, []int{500}) })
	for _, way := range []string{overHTTP, overGRPC, overTLS} {
		for _, measure := range []string{rateOf, brimOf, responseOf, fsyncOf} {
			assert.Positive(t, r.Table("requests").Median(requestsRow(way, 500), measure), "%s: %s", way, measure)
		}
	}
}

// TestTails runs a load with and without other work.
func TestTails(t *testing.T) {
	t.Parallel()
	r := inLab(t, func(ctx context.Context, x *trial) {
		x.tails(ctx, tail{sensors: 20, windows: 2, length: time.Second, checkpoints: 200 * time.Millisecond})
	})
	tails := r.Table("tails")
	assert.Positive(t, tails.Median(withWork, p999Of))
	assert.Positive(t, tails.Median(withWork, "parts sealed"))
	assert.Greater(t, tails.Median(withWork, "checkpoints"), 1.)
	assert.Positive(t, tails.Median(withoutWork, p999Of))
	assert.Zero(t, tails.Median(withoutWork, "parts sealed"))
	assert.Zero(t, tails.Median(withoutWork, "checkpoints"))
}

// TestQueries checks that answers are complete in each format.
func TestQueries(t *testing.T) {
	t.Parallel()
	r := inLab(t, func(ctx context.Context, x *trial) {
		x.queries(ctx, archive{often: 2, each: 1000, others: 30, queries: 2})
	})
	for _, query := range []string{dayQuery, daySummary, newestQuery} {
		for _, format := range []store.Format{store.Documents, store.Columns} {
			assert.Positive(t, r.Table("queries").Median(queriesRow(query, format), p50Of), "%s from %s", query, format)
		}
	}
}

func TestUsersMongoDBIsNotMeasured(t *testing.T) {
	t.Parallel()
	r, err := bench.Run(t.Context(), Experiment(), bench.Config{Dir: t.TempDir(), URI: "mongodb://nowhere"})
	require.NoError(t, err)
	assert.Empty(t, r.Tables)
	assert.Len(t, r.LeftOut, len(Experiment().Cells))
}

// TestGrowth writes a few points with few sensors into a real mongod.
func TestGrowth(t *testing.T) {
	t.Parallel()
	r := inLab(t, func(ctx context.Context, x *trial) {
		x.grow(ctx, grid{
			sensors: []int{20, 50}, perUpdate: []int{1, 60}, fields: []int{2}, writers: []int{1, 2},
			centre: point{20, 60, 2, 2}, length: 100 * time.Millisecond,
		})
	})
	growth := r.Table("growth")
	require.Len(t, growth.Rows, 5)
	for _, row := range growth.Rows {
		for _, measure := range []string{rateOf, "mongod CPU an update", "write p50", "sensors written"} {
			assert.Positive(t, growth.Median(row.Name, measure), row.Name)
		}
	}
	assert.Len(t, r.Table("hosts").Rows, 4)
}

func TestGridHasEachPointOnce(t *testing.T) {
	t.Parallel()
	g := fullGrid()
	shapes := g.points()
	assert.Len(t, shapes, 20)
	assert.Contains(t, shapes, g.centre)
	for i, s := range shapes[1:] {
		assert.LessOrEqual(t, shapes[i].sensors, s.sensors)
		assert.NotContains(t, shapes[:i+1], s)
	}
	for _, k := range g.perUpdate {
		assert.Zero(t, 360%k, "an hour with %d readings per update ends with one", k)
	}
}

func TestKnee(t *testing.T) {
	t.Parallel()
	l := bench.Line{Base: 40, Each: 2}
	k := knee(l)
	assert.InDelta(t, 90, k, 1e-9)
	reading := func(k float64) float64 { return l.At(k) / k }
	assert.InDelta(t, 0.1, reading(k)/reading(2*k)-1, 1e-9)
}

func TestHosts(t *testing.T) {
	t.Parallel()
	for cores, want := range map[float64]float64{0: 0, 2: 1, 9.6: 1, 9.7: 2, 96: 10} {
		assert.InDelta(t, want, hostsFor(cores), 0, cores)
	}
}

func TestLagGrows(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		first, last float64
		want        bool
	}{{2, 2.51, true}, {2, 2.5, false}, {0.1, 0.6, false}, {0.1, 0.61, true}} {
		first, last, got := grows(bench.Samples{c.first, c.first, c.first, 1, 1, 1, c.last, c.last, c.last})
		assert.Equal(t, []any{c.first, c.last, c.want}, []any{first, last, got})
	}
	_, _, got := grows(nil)
	assert.False(t, got)
}
