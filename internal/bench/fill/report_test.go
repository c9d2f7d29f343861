package fill

import (
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/bench"
)

// risen are figures of a window in which writes took 2 ms at first and so many
// times as long in the end.
func risen(times float64) *Figures {
	f := &Figures{
		OfferedRate: 2000, AchievedRate: 2000, FirstRate: 2000, LastRate: 2000, ReadingsPerUpdate: 1, JournalBytes: 600,
		MongodCPU: 2e-4 * (1 + times) / 2, MongodCPUFirst: 2e-4, MongodCPULast: 2e-4 * times,
		Write: Latency{P50: 0.002, P99: 0.008}, Loaded: Latency{P50: 0.002, P99: 0.008},
		First: Latency{P50: 0.002}, Last: Latency{P50: 0.002},
	}
	for i := range f.Tenths {
		l := Latency{P50: 0.002 * (1 + (times-1)*float64(i)/9), P99: 0.01}
		f.Tenths[i] = Tenth{Updates: 100, Write: l, Clock: l, MongodCPU: 1e-4}
	}
	f.Start, f.After40, f.After55 = f.Tenths[0].Clock, f.Tenths[6].Clock, f.Tenths[9].Clock
	return f
}

func two(f func(float64) *Figures, times float64) []*Figures {
	return []*Figures{f(times), f(times * 1.02)}
}

func verdicts(rows []bench.Row) (all []bench.Verdict) {
	for _, r := range rows {
		all = append(all, r.Verdict)
	}
	return all
}

func TestRowsOfAServerThatQueues(t *testing.T) {
	t.Parallel()
	f := &found{windows: map[string][]*Figures{hourSingle: two(risen, 40), fiveSingle: two(risen, 1)}}
	assert.Equal(t, []bench.Verdict{bench.Confirmed, bench.Confirmed, bench.Confirmed, bench.Confirmed}, verdicts(f.rows()))
}

func TestRowsOfAServerThatKeepsUp(t *testing.T) {
	t.Parallel()
	f := &found{
		windows: map[string][]*Figures{hourSingle: two(risen, 2)},
		prefilled: &prefilled{
			passages: map[int][]*Figures{5: two(risen, 1), 95: two(risen, 1)},
			most:     map[int][]capacity{5: {{Rate: 9000, PerProcessor: 5000}, {PerProcessor: 5100}}, 95: {{PerProcessor: 2000}, {PerProcessor: 2100}}},
		},
	}
	for _, high := range f.prefilled.passages[95] {
		high.Loaded.P50 = 0.006
	}
	rows := f.rows()
	assert.Equal(t, []bench.Verdict{bench.SizeDiffers, bench.SizeDiffers, bench.Confirmed, bench.Confirmed}, verdicts(rows))
	assert.InDelta(t, 3, rows[2].Measured, 1e-9)
	assert.Zero(t, rows[2].Published, "how long it queued decides how much longer a write takes")
	assert.Contains(t, rows[0].Why, "a factor of 1.6")
	assert.Contains(t, rows[0].Why, "nothing queues")
}

func TestOneRepeatOfPrefilledBucketsHasNoVerdict(t *testing.T) {
	t.Parallel()
	f := &found{prefilled: &prefilled{passages: map[int][]*Figures{5: {risen(1)}, 95: {risen(2)}}, most: map[int][]capacity{5: {{5000, 4000}}, 95: {{2000, 1500}}}}}
	assert.Empty(t, f.rows())
}

func reported(f *found) *bench.Result {
	r := &bench.Result{}
	f.report(r)
	return r
}

func TestNotesFollowTheFigures(t *testing.T) {
	t.Parallel()
	behind := func(times float64) *Figures {
		f := risen(times)
		f.LastRate, f.BehindSeconds, f.Left = 800, 12, 9000
		f.MongodCPULast *= float64(runtime.NumCPU())
		return f
	}
	untold := func(times float64) *Figures { // by a server that does not tell its processor time
		f := risen(times)
		f.MongodCPU, f.MongodCPUFirst, f.MongodCPULast = 0, 0, 0
		return f
	}
	merged := func(times float64) *Figures {
		f := risen(times)
		f.ReadingsPerUpdate, f.MongodCPU, f.JournalBytes = 12, 3e-5, 60
		return f
	}
	for _, c := range []struct {
		name     string
		found    found
		has, not string
	}{
		{"it rises and keeps up", found{windows: map[string][]*Figures{hourSingle: two(risen, 2)}}, "So it kept up", "are past what this machine"},
		{"it rises", found{windows: map[string][]*Figures{hourSingle: two(risen, 2)}}, "So the fill is seen", "most of what a write costs"},
		{"it rises by far", found{windows: map[string][]*Figures{hourSingle: two(risen, 30)}}, "most of what a write costs", "So the fill is seen"},
		{"it does not rise", found{windows: map[string][]*Figures{hourSingle: two(risen, 1)}}, "is not what its writes cost", "So the fill"},
		{"it falls behind", found{windows: map[string][]*Figures{hourSingle: two(behind, 4)}}, "are past what this machine stores", "kept up"},
		{"it falls behind others", found{windows: map[string][]*Figures{hourSingle: two(behind, 1)}}, "others had them", "are past what"},
		{"a user's falls behind", found{remote: true, windows: map[string][]*Figures{hourSingle: two(behind, 1)}}, "were too much for it", "processors"},
		{"what it costs is not told", found{windows: map[string][]*Figures{hourSingle: two(untold, 2)}}, "nothing is said about", "So the fill"},
		{"nor of merging", found{windows: map[string][]*Figures{hourSingle: two(untold, 2), hourMerged: {untold(1)}}}, "readings into an update", "is shared"},
		{"nor of time series", found{windows: map[string][]*Figures{hourTimeseries: {untold(1)}, hourMerged: {untold(1)}}}, "A time-series collection", "does not rise"},
		{"merging saves", found{windows: map[string][]*Figures{hourSingle: two(risen, 2), hourMerged: {merged(1)}}}, "12.0 readings into an update", "saves nothing"},
		{"merging saves nothing", found{windows: map[string][]*Figures{hourSingle: two(risen, 2), hourMerged: {risen(2)}}}, "saves nothing", "is shared"},
		{"time series is flat", found{windows: map[string][]*Figures{hourTimeseries: {merged(1)}, hourMerged: {merged(1)}}}, "does not rise through the hour", "there too"},
		{"time series rises", found{windows: map[string][]*Figures{hourTimeseries: {merged(2)}, hourMerged: {merged(1)}}}, "in the first there too", "does not rise"},
		{"history", found{windows: map[string][]*Figures{hourSingle: two(risen, 2), historyCell: {risen(2)}}}, "MongoDB's default of 300 s", ""},
		{"a checkpoint is seen", found{prefilled: &prefilled{percent: 95, checkpoint: &Figures{During: Latency{P99: 0.2}, Outside: Latency{P99: 0.01}}}}, "So it is seen in p99", "is not what makes p99"},
		{"a checkpoint is not seen", found{prefilled: &prefilled{percent: 95, checkpoint: &Figures{During: Latency{P99: 0.01}, Outside: Latency{P99: 0.01}}}}, "is not what makes p99", "So it is seen"},
	} {
		text := strings.Join(reported(&c.found).Notes, "\n")
		assert.Contains(t, text, c.has, c.name)
		if c.not != "" {
			assert.NotContains(t, text, c.not, c.name)
		}
		for _, bad := range []string{"NaN", "Inf", "–/s", "%!"} {
			assert.NotContains(t, text, bad, c.name)
		}
	}
}

func TestNothingMeasuredIsNoReport(t *testing.T) {
	t.Parallel()
	r := reported(&found{})
	assert.Empty(t, r.Rows)
	assert.Empty(t, r.Tables)
	assert.Empty(t, r.Notes)
	assert.Empty(t, r.Plots)
}

func TestTablesHaveAColumnForEachHead(t *testing.T) {
	t.Parallel()
	f := &found{
		plan: plan{hour: time.Minute, prefilledSensors: 10},
		windows: map[string][]*Figures{
			hourSingle: two(risen, 2), hourMerged: {risen(1)}, fiveSingle: two(risen, 1), historyCell: {risen(2)},
		},
		prefilled: &prefilled{passages: map[int][]*Figures{5: {risen(1)}, 95: {risen(2)}}, most: map[int][]capacity{5: {{5000, 4000}}, 95: {{2000, 1500}}}, checkpoint: risen(3), percent: 95},
	}
	r := reported(f)
	require.Len(t, r.Tables, 5)
	for _, table := range r.Tables {
		assert.NotEmpty(t, table.Rows, table.Title)
		for _, row := range table.Rows {
			assert.Len(t, row, len(table.Head), table.Title)
		}
	}
	assert.Equal(t, "2 ms / 10 ms", r.Tables[0].Rows[0][1])
	assert.Equal(t, "  by the clock", r.Tables[0].Rows[1][0])
	assert.Len(t, r.Plots, 4)
	for _, p := range r.Plots {
		_, err := p.Drawing.SVG()
		require.NoError(t, err)
	}
}
