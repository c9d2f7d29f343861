package checkpoint

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/brim-telemetry/brim/internal/bench"
)

// rows hold what was measured against what was published.
func rows(m *Measured, r *bench.Result) {
	settingRows(m, r)
	intervalRows(m, r)
	costRows(m, r)
	recoveryRows(m, r)
	journalRows(m, r)
}

// obeyedWithin tells one and a half checkpoints of each that is due from one.
const obeyedWithin = 1.2

func settingRows(m *Measured, r *bench.Result) {
	tookRow(append(append([]*Cost(nil), m.Appends...), m.Inserts...), r)
	for _, o := range m.Settings {
		claim := bench.Claim{
			Says: o.Way + " makes a checkpoint a second: counted of each that was due", Published: 1,
			PublishedAs: "one every interval", Unit: bench.Times, Alike: obeyedWithin,
		}
		switch o.Way {
		case wayPeriod:
		case wayEngine:
			claim.PublishedAs = `configString "checkpoint=(wait=30)": one every 30 s`
			claim.Because = "it starts a checkpointer in the engine beside mongod's own, which goes on at its interval"
		default:
			continue // nobody published it; the table has it
		}
		r.Add(claim.Check(bench.Samples{o.Share()}))
	}
}

// tookRow holds the intervals against what was counted: the one that is farthest
// off decides, for every one is to have taken.
func tookRow(costs []*Cost, r *bench.Result) {
	var took bench.Samples
	for _, c := range costs {
		if c.Over > 0 {
			took = append(took, c.Obeyed())
		}
	}
	if len(took) == 0 {
		return
	}
	off := func(share float64) float64 { return math.Abs(math.Log(share)) }
	farthest := slices.MaxFunc(took, func(a, b float64) int { return cmp.Compare(off(a), off(b)) })
	because := "a checkpoint that takes longer than its interval delays the next"
	if farthest > 1 {
		because = "something else asks for checkpoints, too"
	}
	row := bench.Claim{
		Says: "every interval took: checkpoints counted of each that was due", Published: 1, PublishedAs: "one every interval",
		Unit: bench.Times, Alike: obeyedWithin, Because: because,
	}.Check(bench.Samples{farthest})
	row.Min, row.Max, row.MeasuredAs = took.Min(), took.Max(), bench.Times.Spread(took)
	r.Add(row)
}

// shortAndLong returns the ends of what was measured; false if there are not two.
func shortAndLong(costs []*Cost) (short, long *Cost, ok bool) {
	if len(costs) < 2 {
		return nil, nil, false
	}
	short, long = costs[0], costs[len(costs)-1]
	return short, long, len(short.Periods) > 0 && len(long.Periods) > 0
}

func intervalRows(m *Measured, r *bench.Result) {
	if short, long, ok := shortAndLong(m.Inserts); ok {
		ratio := long.Seconds / short.Seconds
		factor, as := publishedDirty().factor(ratio)
		r.Add(bench.Claim{
			Says: between("inserts: dirty data gathers with the interval", short, long), Published: factor, PublishedAs: as,
			Because: "pages that are written before the checkpoint count no more",
		}.Compare(short.Gathered(), long.Gathered(), bench.Bytes))
		factor, as = publishedDuration().factor(ratio)
		r.Add(bench.Claim{
			Says: between("inserts: a checkpoint takes longer with the interval", short, long), Published: factor, PublishedAs: as,
			Because: "a checkpoint takes some time however little there is to write",
		}.Compare(short.Durations(), long.Durations(), bench.Seconds))
	}
	stallRow(m, r)
}

// stallRow takes both loads together: of each the slowest hundredth is the work
// of a few writes.
func stallRow(m *Measured, r *bench.Result) {
	shortA, longA, appends := shortAndLong(m.Appends)
	shortI, longI, inserts := shortAndLong(m.Inserts)
	if !appends || !inserts {
		return
	}
	factor, as := publishedP99().factor(longA.Seconds / shortA.Seconds)
	r.Add(bench.Claim{
		Says:      between("the p99 of writes during a checkpoint grows with the interval", shortA, longA),
		Published: factor, PublishedAs: as, Because: "a checkpoint of this size leaves enough of the disk and the processors to the writes",
	}.Compare(append(shortA.Inside(), shortI.Inside()...), append(longA.Inside(), longI.Inside()...), bench.Seconds))
}

func between(says string, short, long *Cost) string {
	return fmt.Sprintf("%s, %g → %g s", says, short.Seconds, long.Seconds)
}

func costRows(m *Measured, r *bench.Result) {
	for _, load := range []struct {
		costs   []*Cost
		because string
	}{
		{m.Inserts, "each checkpoint writes the last pages again, which are not full yet, of the oplog and of the collection"},
		{m.Appends, "each checkpoint writes every bucket again, whole, that got an append since the one before"},
	} {
		if short, long, ok := shortAndLong(load.costs); ok {
			r.Add(bench.Claim{
				Says: between(short.Load+": bytes written to the files an hour are the same", short, long), PublishedAs: "the same for 30 to 300 s",
				Because: load.because + atPublished(LawOf(load.costs)),
			}.Same(short.BytesPerHour(), long.BytesPerHour(), bench.Bytes))
		}
	}
}

// atPublished says what the same load makes of the published intervals, which are
// longer than those that were measured.
func atPublished(law Law) string {
	if !law.known() {
		return ""
	}
	return fmt.Sprintf("; from 30 to 300 s it would be %s, by the line through what was seen", bench.Times.Format(law.BytesPerHour(published300)/law.BytesPerHour(published30)))
}

func recoveryRows(m *Measured, r *bench.Result) {
	if m.Recovery == nil || len(m.Recovery.Bare) == 0 {
		return
	}
	r.Add(bench.Claim{
		Says: "recovery takes at most the interval: seconds to replay a second of writes", Published: 1, PublishedAs: "at most the interval",
		Unit: bench.Times, Because: "replaying is slower than writing was",
	}.AtMost(m.Recovery.Replay()))
}

func journalRows(m *Measured, r *bench.Result) {
	for _, j := range m.Journal {
		if !j.Default || j.Topology != "replica_set" {
			continue
		}
		r.Add(bench.Claim{
			Says: "the commit interval that the server has by itself", Published: publishedCommit, PublishedAs: "100 ms", Unit: bench.Seconds, Alike: 1.01,
		}.Check(bench.Samples{j.Commit}))
		r.Add(bench.Claim{
			Says: "a write with j:true waits at most the commit interval", Published: publishedCommit, PublishedAs: "100 ms", Unit: bench.Seconds,
			Because: "a sync of the disk takes longer",
		}.AtMost(j.Latencies[waiting]))
		if j.FileBytes > 0 {
			r.Add(bench.Claim{
				Says: "size of a journal file", Published: publishedJournalFile, PublishedAs: "100 MB", Unit: bench.Bytes, Alike: 1.1,
			}.Check(bench.Samples{j.FileBytes}))
		}
	}
}

// times is how many times as much b is as a; NaN if it is not known.
func times(a, b bench.Samples) float64 {
	if a.Median() == 0 {
		return math.NaN()
	}
	return b.Median() / a.Median()
}
