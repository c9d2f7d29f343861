package granularity

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/config"
)

// line is what appends cost that follow one: base and each in µs.
func line(topology string, perUpdate int, base, each float64) *curve {
	c := &curve{Topology: topology, PerUpdate: perUpdate}
	for _, n := range []int{1, 12, 60, 180, 720} {
		p := &point{Residents: n, DocumentBytes: 500 + 66*n}
		for _, slow := range []float64{1, 1.3, 0.99} { // a slow repeat is slow for all
			p.Held, p.HeldBulk = append(p.Held, float64(n)), append(p.HeldBulk, float64(n))
			p.Time = append(p.Time, slow*(base+each*float64(n))*1e-6)
			p.CPU = append(p.CPU, slow*(base/2+each*float64(n))*1e-6)
			p.Journal = append(p.Journal, 700)
		}
		c.Points = append(c.Points, p)
	}
	c.draw()
	return c
}

// pretended is a trial whose figures are known.
func pretended(each float64) *trial {
	t := &trial{lab: &bench.Lab{Repeats: 3}, numbers: quick()}
	t.Topology = "replica set"
	t.Curves = []*curve{line("replica set", 1, 600, each), line("replica set", 12, 640, each), line(standalone, 1, 500, 1.1*each)}
	for i, s := range []float64{1000, 4200, 12000, 47000} {
		g := granularities[i]
		documents := table[i].documents
		t.Sizes = append(t.Sizes, &size{
			Granularity: config.FormatDuration(g), Readings: inWindow(g), window: g, DocumentBytes: s, DocumentsADay: documents, BytesADay: s * documents,
		})
	}
	t.Indexes = []*variant{
		{Name: "none", CPU: bench.Samples{1e-4, 1.2e-4, 1e-4}, Time: bench.Samples{1, 1, 1}},
		{Name: "three", CPU: bench.Samples{1.02e-4, 1.22e-4, 1.01e-4}, Time: bench.Samples{1, 1, 1}, indexes: unchanging()},
		{Name: "changing", CPU: bench.Samples{1.3e-4, 1.5e-4, 1.3e-4}, Time: bench.Samples{1, 1, 1}, indexes: []bson.D{{{Key: changedKey, Value: 1}}}},
	}
	t.History = []*variant{
		{Name: "300 s", CPU: bench.Samples{2e-4}, Versions: bench.Samples{2}, Written: bench.Samples{2000}, Time: bench.Samples{1}},
		{Name: "0 s", CPU: bench.Samples{1e-4}, Versions: bench.Samples{0}, Written: bench.Samples{1000}, Time: bench.Samples{1}},
	}
	t.conclude()
	return t
}

func report(t *trial) *bench.Result {
	var r bench.Result
	t.report(&r)
	return &r
}

func verdicts(r *bench.Result) (all []bench.Verdict) {
	for _, row := range r.Rows {
		all = append(all, row.Verdict)
	}
	return all
}

func TestRowsHoldThePublishedFigures(t *testing.T) {
	t.Parallel()
	r := report(pretended(1))
	require.Len(t, r.Rows, 5+4+4+3)
	assert.Equal(t, []bench.Verdict{
		bench.NotSeen, bench.SizeDiffers, bench.SizeDiffers, bench.SizeDiffers, // appends: a slow repeat does not hide them
		bench.NotSeen, // indexes
		bench.SizeDiffers, bench.SizeDiffers, bench.SizeDiffers, bench.SizeDiffers,
		bench.Confirmed, bench.Confirmed, bench.Confirmed, bench.Confirmed,
		bench.Confirmed, bench.SizeDiffers, bench.SizeDiffers,
	}, verdicts(r))
	assert.InDelta(t, 7.647, r.Rows[2].Published, 1e-3)
	assert.InDelta(t, (600.0+360)/(600+12), r.Rows[2].Measured, 1e-6)
	assert.InDelta(t, (300.0+360)/(300+12), r.Rows[3].Measured, 1e-6)
	for _, row := range r.Rows {
		assert.NotEmpty(t, row.PublishedAs)
		assert.NotEmpty(t, row.Why)
	}
	steep := report(pretended(20))
	assert.Equal(t, []bench.Verdict{bench.Confirmed, bench.Confirmed, bench.Confirmed, bench.SizeDiffers}, verdicts(steep)[:4],
		"appends that grow as published are confirmed")
	assert.Contains(t, r.Rows[3].Why, becauseFixed)
	assert.Contains(t, steep.Rows[3].Why, becauseSteep, "they grow by more")
}

func TestNotesFollowTheFigures(t *testing.T) {
	t.Parallel()
	notes := strings.Join(report(pretended(1)).Notes, "\n")
	for _, want := range []string{
		"On the replica set an append of one reading takes one writer 6", "as much as 60",
		"12 that are appended together: 11.6x less. With buckets of a minute rather than an hour: 2.16x less. So how many readings",
		"Against a standalone, the replica set adds +1", "dearest that was measured is 1h with 1 reading an append", "gather in 55s",
		"With 3 further indexes on keys that appends leave alone, mongod's CPU an append changes by +2 %",
		`One index on "last", which every append changes, changes it by +30 %: a key that changes costs`,
		"With a history window of 300 s rather than 0 s an append leaves 2.00 old versions rather than 0.00",
		"changes by +100 %", "60.0x fewer documents", "without making 12 times the documents",
	} {
		assert.Contains(t, notes, want)
	}
	assert.NotContains(t, notes, "nothing to speak of")
	flat := pretended(1)
	flat.Curves[0] = line("replica set", 1, 600, -0.1)
	flat.Indexes[2].CPU = flat.Indexes[1].CPU
	notes = strings.Join(report(flat).Notes, "\n")
	assert.Contains(t, notes, "not both above 0: nothing follows from it")
	assert.Contains(t, notes, "hardly told from the noise")
	dear := pretended(0.001)
	dear.Curves[1] = line("replica set", 12, 12*600, 0.001)
	notes = strings.Join(report(dear).Notes, "\n")
	assert.Contains(t, notes, "12 that are appended together: nothing to speak of is spared. With buckets of a minute rather than an hour: nothing to speak of is spared.")
	assert.NotContains(t, notes, "counts for more")
	assert.Contains(t, notes, "is not told from the noise")
	assert.NotContains(t, notes, "a shorter granularity spares little")
}

func TestWhatLargerBucketsSpareIsNoFactor(t *testing.T) {
	t.Parallel()
	for share, want := range map[float64]bench.Verdict{0.18: bench.Confirmed, 0.08: bench.SizeDiffers, -0.05: bench.Opposite} {
		x := pretended(1)
		x.sizeAt(5*time.Minute).BytesADay, x.sizeAt(time.Hour).BytesADay = 100, 100*(1-share)
		rows := report(x).Rows
		last := rows[len(rows)-1]
		assert.Equal(t, want, last.Verdict, share)
		assert.Equal(t, "8.20 GB → 6.72 GB (18 % less)", last.PublishedAs)
	}
}

func TestAllIsToldInTablesAndPlots(t *testing.T) {
	t.Parallel()
	r := report(pretended(1))
	assert.Len(t, r.Tables, 3+3+1+1+1+2+1)
	for _, tab := range r.Tables {
		assert.NotEmpty(t, tab.Title)
		require.NotEmpty(t, tab.Rows, tab.Title)
		for _, row := range tab.Rows {
			assert.Len(t, row, len(tab.Head), tab.Title)
			for _, word := range row {
				assert.NotContains(t, word, "NaN", tab.Title)
				assert.NotContains(t, word, "%!", tab.Title)
			}
		}
	}
	assert.Len(t, r.Plots, 2+2+1+1)
	for _, p := range r.Plots {
		svg, err := p.Drawing.SVG()
		require.NoError(t, err)
		assert.Contains(t, string(svg), "<svg")
	}
	_, err := json.Marshal(r)
	require.NoError(t, err)
}

func TestAnInterruptedRunTellsWhatThereIs(t *testing.T) {
	t.Parallel()
	x := pretended(1)
	half := line("replica set", 12, 640, 1)
	half.Points, half.Time, half.CPU = half.Points[:2], nil, nil
	half.Points[1] = &point{Residents: 12}
	x.Curves = []*curve{x.Curves[0], half}
	x.Indexes, x.History, x.Sizes = x.Indexes[:1], []*variant{{Name: "300 s"}, {Name: "0 s"}}, nil
	x.Indexes[0].CPU = nil
	x.Rewritten, x.Workload = nil, nil
	x.conclude()
	r := report(x)
	assert.Len(t, r.Rows, 4)
	for _, tab := range r.Tables {
		for _, row := range tab.Rows {
			assert.NotContains(t, strings.Join(row, " "), "NaN")
		}
	}
	_, err := json.Marshal(r)
	require.NoError(t, err)
	for _, p := range r.Plots {
		_, err := p.Drawing.SVG()
		require.NoError(t, err)
	}
	nothing := report(&trial{lab: &bench.Lab{}, numbers: quick()})
	assert.Empty(t, nothing.Rows)
	assert.Empty(t, nothing.Notes)
}

func TestArithmetic(t *testing.T) {
	t.Parallel()
	s := &size{Granularity: "5m", Readings: 60, DocumentBytes: 4000, DocumentsADay: 100}
	assert.Equal(t, rewrite{Granularity: "5m", PerUpdate: 1, Appends: 60, Bucket: 122_000, Reading: 122_000.0 / 60, Day: 12_200_000}, rewriteOf(s, 1))
	assert.Equal(t, rewrite{Granularity: "5m", PerUpdate: 12, Appends: 5, Bucket: 12_000, Reading: 200, Day: 1_200_000}, rewriteOf(s, 12))
	assert.Equal(t, 1, rewriteOf(s, 720).Appends, "all of a bucket at once")
	c := line("replica set", 12, 600, 1)
	b, ok := burdenOf(granularities[1], c)
	require.True(t, ok)
	assert.InDelta(t, 2000.0/12, b.Updates, 1e-9)
	assert.InDelta(t, 24, b.Held, 1e-9)
	assert.InDelta(t, b.Updates*c.CPU.At(24), b.Cores, 1e-12)
	_, ok = burdenOf(granularities[0], line("replica set", 60, 600, 1))
	assert.False(t, ok, "a minute has no 60 readings")
}
