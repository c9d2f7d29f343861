package checkpoint

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/bench"
)

// measured is what a whole run could have measured.
func measured() *Measured {
	m := &Measured{
		Settings: []Obeyed{
			{Way: wayPeriod, Asked: 1, Told: 1, Counted: 4, Observed: 4.1},
			{Way: wayEngine, Asked: 1, Told: 2, Counted: 6, Observed: 4.1},
			{Way: wayStart, Asked: 1, Told: 60, Counted: 0, Observed: 4.1},
			{Way: wayRuntime, Asked: 1, Told: 1, Counted: 2, Observed: 4.1},
		},
		Appends: []*Cost{costWith("appends", 1, 4e6, 4.1e6, 4.2e6), costWith("appends", 4, 5e6, 5.1e6, 5.2e6)},
		Inserts: []*Cost{costWith("inserts", 1, 4e6, 4.1e6, 4.2e6), costWith("inserts", 4, 16e6, 16.1e6, 16.2e6)},
		Recovery: &Recovery{
			Bare: bench.Samples{1}, Late: bench.Samples{1.3, 1.4, 1.3}, Written: bench.Samples{3, 3, 3}, Journal: bench.Samples{3e6, 3e6, 3e6},
		},
		Journal: []*Journal{
			{Topology: "replica_set", Commit: 0.01, FileBytes: 104857600, Latencies: map[string]bench.Samples{relaxed: {4e-4}, waiting: {1e-3}, majority: {1e-3}}},
			{Topology: "replica_set", Commit: 0.1, Default: true, FileBytes: 104857600, Latencies: map[string]bench.Samples{relaxed: {4e-4}, waiting: {1.05e-3}, majority: {1e-3}}},
			{Topology: "standalone", Commit: 0.01, Latencies: map[string]bench.Samples{relaxed: {4e-4}, waiting: {1e-3}}},
			{Topology: "standalone", Commit: 0.3, Latencies: map[string]bench.Samples{relaxed: {4e-4}, waiting: {9e-2}}},
		},
	}
	m.AppendsLaw, m.InsertsLaw = LawOf(m.Appends), LawOf(m.Inserts)
	return m
}

func reported(m *Measured) *bench.Result {
	r := &bench.Result{}
	rows(m, r)
	tables(m, r)
	plots(m, r)
	notes(m, r)
	return r
}

func TestClaimsAreHeldAgainstWhatWasMeasured(t *testing.T) {
	t.Parallel()
	r := reported(measured())
	verdicts := make(map[string]bench.Verdict)
	for _, row := range r.Rows {
		verdicts[row.Claim] = row.Verdict
	}
	assert.Equal(t, map[string]bench.Verdict{
		"every interval took: checkpoints counted of each that was due":                                                    bench.Confirmed,
		"storage.syncPeriodSecs: 1 makes a checkpoint a second: counted of each that was due":                              bench.Confirmed,
		`configString: "checkpoint=(wait=1)", syncPeriodSecs: 2 makes a checkpoint a second: counted of each that was due`: bench.SizeDiffers,
		"inserts: dirty data gathers with the interval, 1 → 4 s":                                                           bench.Confirmed,
		"inserts: a checkpoint takes longer with the interval, 1 → 4 s":                                                    bench.Confirmed,
		"the p99 of writes during a checkpoint grows with the interval, 1 → 4 s":                                           bench.NotSeen,
		"inserts: bytes written to the files an hour are the same, 1 → 4 s":                                                bench.Confirmed,
		"appends: bytes written to the files an hour are the same, 1 → 4 s":                                                bench.NotSeen,
		"recovery takes at most the interval: seconds to replay a second of writes":                                        bench.Confirmed,
		"the commit interval that the server has by itself":                                                                bench.Confirmed,
		"a write with j:true waits at most the commit interval":                                                            bench.Confirmed,
		"size of a journal file": bench.Confirmed,
	}, verdicts)
	assert.Empty(t, r.LeftOut)
	for _, row := range r.Rows {
		if row.Claim == "appends: bytes written to the files an hour are the same, 1 → 4 s" {
			assert.Contains(t, row.Why, "from 30 to 300 s it would be 0.75x", "the short intervals that are measured exaggerate it")
		}
	}
}

// TestOneIntervalThatDidNotTakeIsEnough for the row that says that every one did.
func TestOneIntervalThatDidNotTakeIsEnough(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		counted int
		because string
	}{{2, "delays the next"}, {9, "asks for checkpoints, too"}} {
		m := measured()
		m.Appends[0].Counted, m.Appends[0].Over, m.Appends[0].Seconds = c.counted, 4, 1
		row := reported(m).Rows[0]
		assert.Equal(t, bench.SizeDiffers, row.Verdict)
		assert.Contains(t, row.Why, c.because)
		assert.InDelta(t, float64(c.counted)/4, row.Measured, 1e-9)
	}
}

func TestNotesFollowFromTheFigures(t *testing.T) {
	t.Parallel()
	notes := strings.Join(reported(measured()).Notes, "\n")
	for _, want := range []string{
		"1.46x checkpoints came of each that was due, since two clocks run",
		"--setParameter syncdelay=1 is not obeyed: 0.00x checkpoints came of each that was due, and the server tells 60 s",
		"setParameter syncdelay: 1 at run time is not obeyed: the server tells the new interval",
		"appends: with a checkpoint every 1 s the files get 3.22x as many bytes",
		"inserts: the interval makes no difference to the bytes written",
		"appends: with an interval 4.00x as long a checkpoint writes only 1.24x as much",
		"mongod takes 1 s to start with nothing to replay; what was written in a second of this load is replayed in 100 ms",
		"replica_set: commit intervals from 10 ms to 100 ms make no difference",
		"standalone: a write with j:true takes 1 ms with a commit interval of 10 ms and 90 ms with one of 300 ms",
	} {
		assert.Contains(t, notes, want)
	}
	assert.NotContains(t, notes, "NaN")
	assert.NotContains(t, notes, wayPeriod+" is not")
}

func TestALongerIntervalIsWorthWhatItSaves(t *testing.T) {
	t.Parallel()
	assert.Contains(t, worth(100, 60), "saves 40 %")
	assert.Contains(t, worth(100, 95), "next to nothing")
}

func TestWhatIsReportedCanBeEncodedAndDrawn(t *testing.T) {
	t.Parallel()
	for name, m := range map[string]*Measured{
		"all":            measured(),
		"nothing":        {},
		"one interval":   {Appends: measured().Appends[:1], Inserts: measured().Inserts[:1]},
		"no checkpoint":  {Appends: []*Cost{costWith("appends", 1), costWith("appends", 4)}},
		"half a run":     {Settings: measured().Settings[:1], Recovery: &Recovery{Bare: bench.Samples{1}}},
		"half a journal": {Journal: []*Journal{{Topology: "replica_set", Commit: 0.1, Default: true}}},
	} {
		r := reported(m)
		r.Data = m
		_, err := json.Marshal(r)
		require.NoError(t, err, name)
		for _, p := range r.Plots {
			drawn, err := p.Drawing.SVG()
			require.NoError(t, err, name)
			assert.NotEmpty(t, drawn, name)
		}
		for _, table := range r.Tables {
			for _, row := range table.Rows {
				assert.Len(t, row, len(table.Head), name)
			}
		}
		if name == "all" {
			assert.Len(t, r.Tables, 6)
			assert.Len(t, r.Plots, 4)
		}
	}
}
