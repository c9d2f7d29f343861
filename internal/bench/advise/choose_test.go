package advise

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/store"
)

func advised(t *testing.T, n Needs) *Advice {
	t.Helper()
	a, err := choose(n, made(n, false))
	require.NoError(t, err)
	return a
}

func TestChosenSettingsDependOnTheNeeds(t *testing.T) {
	t.Parallel()
	a, b, c := advised(t, dashboards(t)).Chosen, advised(t, meters(t)).Chosen, advised(t, signal(t)).Chosen
	assert.Less(t, a.Granularity, b.Granularity, "long queries of few readings want long windows")
	assert.Equal(t, time.Hour, b.Granularity)
	assert.Equal(t, time.Minute, c.Granularity, "a minute of a fast sensor is many readings")
	assert.Greater(t, c.PerUpdate, 300.0)
	for _, each := range []Cost{a, b, c} {
		assert.Equal(t, store.Bucket, each.Storage)
	}
}

func TestTimeSeriesNeedsDuplicatesRare(t *testing.T) {
	t.Parallel()
	never := advised(t, meters(t))
	assert.Contains(t, never.Choices[0].Why, "--duplicates rare")
	assert.Equal(t, store.TimeSeries, never.Rejected[0].Storage, "it is cheaper, and shown")
	rare := advised(t, meters(t, func(n *Needs) { n.Duplicates = Rare }))
	assert.Equal(t, store.TimeSeries, rare.Chosen.Storage)
	assert.Contains(t, rare.Choices[0].Why, "--duplicates never")
	assert.Contains(t, rare.Choices[0].Next, "bucket")
	assert.Greater(t, rare.Choices[0].NextPrice, 1.)
}

// TestColumnsWinWhereTheyAreCheaper by more than the measurement error.
func TestColumnsWinWhereTheyAreCheaper(t *testing.T) {
	t.Parallel()
	n := dashboards(t)
	f := made(n, false)
	for i := range f.Candidates {
		if f.Candidates[i].Columns {
			f.Candidates[i].Data /= 20
			for k := range f.Candidates[i].Updates {
				f.Candidates[i].Updates[k].CPU = f.Candidates[i].Updates[k].CPU.times(0.5)
			}
		}
	}
	a, err := choose(n, f)
	require.NoError(t, err)
	assert.True(t, a.Chosen.Columns)
	assert.Contains(t, a.Flags(), "columns")
	assert.Equal(t, "columns", a.Choices[1].Value)
	assert.Contains(t, a.Choices[1].Next, "bucket ")
}

func TestReasonsNameTheNextBest(t *testing.T) {
	t.Parallel()
	n := meters(t, func(n *Needs) { n.Duplicates = Rare })
	f := made(n, false)
	for i := range f.Candidates {
		if f.Candidates[i].Storage == store.TimeSeries {
			f.Candidates[i].Data *= 10
		}
	}
	allowed, err := choose(n, f)
	require.NoError(t, err)
	assert.Equal(t, store.Bucket, allowed.Chosen.Storage)
	assert.Contains(t, allowed.Choices[0].Next, "time series, ")
	for i, setting := range []string{"storage", "bucket-format", "granularity", "bucket-max-readings", "bucket-max-bytes", "compressor"} {
		c := allowed.Choices[i]
		assert.Equal(t, setting, c.Setting)
		assert.NotEmpty(t, c.Why, setting)
		assert.Equal(t, c.Next != "", c.NextPrice > 0, setting)
	}
}

func TestSimplerWinsAtEqualPrice(t *testing.T) {
	t.Parallel()
	n := dashboards(t, func(n *Needs) { n.Duplicates = Rare })
	bucket := Cost{Candidate: Candidate{Storage: store.Bucket, Granularity: 5 * time.Minute, Compressor: store.Snappy}, DiskPrice: 1.09}
	longer, packed, series, dear := bucket, bucket, bucket, bucket
	columns := bucket
	columns.Columns, columns.Granularity, columns.DiskPrice = true, time.Hour, 1.05
	longer.Granularity, longer.DiskPrice = time.Hour, 1
	packed.Compressor = store.Zstd
	series.Storage = store.TimeSeries
	dear.Granularity, dear.DiskPrice = time.Minute, 1.2
	best, limit := pick(n, []Cost{series, longer, packed, dear, bucket, columns})
	assert.Equal(t, 4, best)
	assert.InEpsilon(t, 1.1, limit, 1e-9)
	bucket.DiskPrice = 1.11
	best, _ = pick(n, []Cost{series, longer, packed, dear, bucket})
	assert.Equal(t, 2, best)
}

// TestRejectedCandidatesSayWhy even if one costs little more than the simpler, chosen one.
func TestRejectedCandidatesSayWhy(t *testing.T) {
	t.Parallel()
	n := dashboards(t)
	f := made(n, false)
	for i := range f.Candidates { // the disk alone decides: 1, 1.08 and 1.15
		s := &f.Candidates[i]
		s.Readings, s.Index, s.Data = 1000, 0, 1_000_000_000
		switch {
		case s.Compressor == store.Zstd || s.Storage == store.TimeSeries:
			s.Data *= 10
		case s.Granularity == time.Minute:
			s.Data = s.Data * 115 / 100
		case s.Granularity == 5*time.Minute:
			s.Data = s.Data * 108 / 100
		case s.Granularity != time.Hour:
			s.Data *= 10
		}
	}
	a, err := choose(n, f)
	require.NoError(t, err)
	assert.Equal(t, 5*time.Minute, a.Chosen.Granularity)
	why := make(map[time.Duration]string)
	for _, r := range a.Rejected {
		if r.Storage == store.Bucket && r.Compressor == store.Snappy && !r.Columns {
			why[r.Granularity] = r.Why
		}
	}
	assert.Equal(t, "costs the same within the measurement error, and is less simple", why[time.Hour])
	assert.Contains(t, why[time.Minute], "more expensive: disk")
}

func TestFlushMaxIsTheShortestThatGainsAsMuch(t *testing.T) {
	t.Parallel()
	assert.Equal(t, time.Second, advised(t, dashboards(t, func(n *Needs) { n.MaxWait = 5 * time.Second })).Chosen.Flush, "with up to 5 s nothing is merged")
	waits := advised(t, dashboards(t, func(n *Needs) { n.MaxWait = 30 * time.Second }))
	assert.Equal(t, 30*time.Second, waits.Chosen.Flush)
	assert.Equal(t, 300*time.Millisecond, advised(t, dashboards(t, func(n *Needs) { n.MaxWait = 300 * time.Millisecond })).Chosen.Flush)
	many := dashboards(t, func(n *Needs) { n.Sensors, n.MaxWait = 300_000, time.Hour })
	assert.LessOrEqual(t, held(many, advised(t, many).Chosen.Gather), float64(laneBytes), "no more gathers than lanes can hold")
}

// With few sensors, readings gather until the budget allows writing them all; with many, as
// long as they may.
func TestBudgetWritesFewSensorsSooner(t *testing.T) {
	t.Parallel()
	few := dashboards(t, func(n *Needs) { n.Sensors = 50 })
	assert.Equal(t, time.Second, gather(few, 5*time.Minute))
	assert.Equal(t, 300*time.Millisecond, gather(few, 300*time.Millisecond))
	some := dashboards(t, func(n *Needs) { n.Sensors = 1000 })
	assert.InDelta(t, 1000*300e-6/(0.02-200*5e-6), gather(some, 5*time.Minute).Seconds(), 0.01)
	many := dashboards(t, func(n *Needs) { n.Sensors = 100_000 })
	assert.Equal(t, 5*time.Minute, gather(many, 5*time.Minute))
	assert.Equal(t, time.Second, advised(t, few).Chosen.Flush, "waiting longer gains nothing")
}

// A longer --flush-max is cheaper; a window limits which values are tried.
func TestFreshnessHasItsPrice(t *testing.T) {
	t.Parallel()
	a := advised(t, dashboards(t))
	require.NotEmpty(t, a.Fresh)
	for i, f := range a.Fresh {
		assert.LessOrEqual(t, f.Flush, a.Chosen.Granularity)
		assert.Positive(t, f.Write.Mongod)
		if i > 0 {
			assert.LessOrEqual(t, f.CPUPrice, a.Fresh[i-1].CPUPrice)
			assert.GreaterOrEqual(t, f.PerUpdate, a.Fresh[i-1].PerUpdate)
		}
		if f.Flush == a.Chosen.Flush {
			assert.InEpsilon(t, a.Chosen.CPUPrice, f.CPUPrice, 1e-9)
		}
	}
	assert.Less(t, a.Fresh[len(a.Fresh)-1].Write.Mongod, a.Fresh[0].Write.Mongod/5)
}

// More readings than the default are merged if that is cheaper.
func TestMergeReadingsLetFlushMaxDecide(t *testing.T) {
	t.Parallel()
	n := dashboards(t)
	f := made(n, false)
	s := f.sized(store.Bucket, time.Hour, store.Snappy)
	assert.Equal(t, 60, f.cost(n, s, time.Minute, time.Minute).MergeReadings)
	assert.Equal(t, 180, f.cost(n, s, 15*time.Minute, time.Minute).MergeReadings)
}

func TestCheckpointIntervalFollowsDiskWrites(t *testing.T) {
	t.Parallel()
	n := dashboards(t, func(n *Needs) { n.MaxWait = 5 * time.Second })
	assert.Equal(t, time.Minute, advised(t, n).Chosen.Checkpoint)
	n.DiskWrites = int64(advised(t, n).Chosen.Written * 0.6)
	assert.Equal(t, 2*time.Minute, advised(t, n).Chosen.Checkpoint)
	n.DiskWrites = 1
	little := advised(t, n)
	assert.Equal(t, 5*time.Minute, little.Chosen.Checkpoint)
	assert.Contains(t, little.warnings()[0], "--disk-writes")
}

func TestWarnsOfTooFewProcessors(t *testing.T) {
	t.Parallel()
	a := advised(t, dashboards(t, func(n *Needs) { n.Sensors = 1_000_000 }))
	a.Environment.Cores = 1000
	before := len(a.warnings())
	a.Environment.Cores = 2
	require.Len(t, a.warnings(), before+1)
	assert.Contains(t, a.warnings()[before], "more than the 2 of this machine")
}

func TestWarnsWithoutProcessorTimeOfMongoDB(t *testing.T) {
	t.Parallel()
	n := dashboards(t)
	f := made(n, false)
	a, err := choose(n, f)
	require.NoError(t, err)
	a.Environment.Cores = 1000
	assert.Empty(t, a.warnings())
	f.Command.Mongod = 0
	for i := range f.Candidates {
		for k := range f.Candidates[i].Updates {
			f.Candidates[i].Updates[k].CPU.Mongod = 0
		}
	}
	a, err = choose(n, f)
	require.NoError(t, err)
	a.Environment.Cores = 1000
	require.Len(t, a.warnings(), 1)
	assert.Contains(t, a.warnings()[0], "does not report its CPU time")
}

// TestBusyLanesGatherLonger: longer than --flush-max.
func TestBusyLanesGatherLonger(t *testing.T) {
	t.Parallel()
	busy := advised(t, dashboards(t, func(n *Needs) { n.MaxWait, n.Sensors = time.Second, 80_000 }))
	require.Equal(t, time.Second, busy.Chosen.Flush)
	assert.Equal(t, 4*time.Second, busy.Chosen.Gather)
	idle := advised(t, dashboards(t, func(n *Needs) { n.MaxWait, n.Sensors = time.Second, 100 }))
	assert.Equal(t, time.Second, idle.Chosen.Gather)
}

func TestChooseWithoutFigures(t *testing.T) {
	t.Parallel()
	_, err := choose(dashboards(t), &Figures{})
	assert.ErrorIs(t, err, errNothing)
}
