package checkpoint

import (
	"math"

	"github.com/brim-telemetry/brim/internal/bench"
)

// notes say in words what the figures of this run mean for one who must choose.
func notes(m *Measured, r *bench.Result) {
	settingNotes(m.Settings, r)
	for _, costs := range [][]*Cost{m.Appends, m.Inserts} {
		costNote(costs, LawOf(costs), r)
	}
	dirtyNote(m, r)
	stallNotes(m, r)
	recoveryNote(m, r)
	journalNotes(m.Journal, r)
}

// A setting that gets at least so much of the checkpoints that are due is obeyed,
// and one that gets at least so many more has a second source.
const (
	obeyed = 1 / obeyedWithin
	twice  = obeyedWithin
)

func settingNotes(all []Obeyed, r *bench.Result) {
	for _, o := range all {
		share := o.Share()
		switch {
		case share > twice:
			r.Note("%s: %s checkpoints came of each that was due, since two clocks run. Set the interval by syncPeriodSecs alone.", o.Way, bench.Times.Format(share))
		case share < obeyed && o.Told == o.Asked:
			r.Note("%s is not obeyed: the server tells the new interval, yet %s checkpoints came of each that was due. Count checkpoints, do not ask for the setting.", o.Way, bench.Times.Format(share))
		case share < obeyed:
			r.Note("%s is not obeyed: %s checkpoints came of each that was due, and the server tells %s.", o.Way, bench.Times.Format(share), bench.Seconds.Format(o.Told))
		}
	}
}

// costNote says what a shorter interval costs.
func costNote(costs []*Cost, law Law, r *bench.Result) {
	short, long, ok := shortAndLong(costs)
	if !ok {
		return
	}
	a, b := short.BytesPerHour(), long.BytesPerHour()
	more := times(b, a)
	if a.Overlaps(b) || math.Abs(math.Log(more)) < math.Log(1.1) {
		r.Note("%s: the interval makes no difference to the bytes written that could be seen (%s and %s an hour).",
			short.Load, bench.Bytes.Format(a.Median()), bench.Bytes.Format(b.Median()))
		return
	}
	r.Note("%s: with a checkpoint every %g s the files get %s as many bytes an hour as with one every %g s (%s against %s): each checkpoint writes about %s however short the time since the last, and each second adds %s.",
		short.Load, short.Seconds, bench.Times.Format(more), long.Seconds, bench.Bytes.Format(a.Median()), bench.Bytes.Format(b.Median()),
		bench.Bytes.Format(law.Once), bench.Bytes.Format(law.PerSecond))
	if !short.inserts() {
		r.Note("%s: the first part grows with the number and the size of the buckets that get appends, the second with their rate.", short.Load)
	}
	at30, at60, at300 := law.BytesPerHour(published30), law.BytesPerHour(published60), law.BytesPerHour(published300)
	r.Note("%s at the published intervals, by the same line: %s an hour at 30 s, %s at 60 s, %s at 300 s. %s",
		short.Load, bench.Bytes.Format(at30), bench.Bytes.Format(at60), bench.Bytes.Format(at300), worth(at60, at300))
}

// worth says whether an interval longer than mongod's own is worth it.
func worth(own, longest float64) string {
	if saved := 1 - longest/own; saved >= 0.1 {
		return "A longer interval than mongod's own saves " + bench.Share.Format(saved) + " of it: worth it where the disk's writes are what is scarce."
	}
	return "mongod's own interval of 60 s is long enough here: a longer one saves next to nothing."
}

// dirtyNote says what data gathers in the cache.
func dirtyNote(m *Measured, r *bench.Result) {
	short, long, ok := shortAndLong(m.Appends)
	if !ok {
		return
	}
	longer, factor := long.Seconds/short.Seconds, times(short.WrittenEach(), long.WrittenEach())
	if factor < 0.8*longer {
		r.Note("appends: with an interval %s as long a checkpoint writes only %s as much, and finds %s dirty in place of %s: what is dirty is bounded by the buckets that get appends. Inserts have no such bound.",
			bench.Times.Format(longer), bench.Times.Format(factor), bench.Bytes.Format(long.Dirty().Median()), bench.Bytes.Format(short.Dirty().Median()))
	}
}

// stallNotes say what writers feel of a checkpoint.
func stallNotes(m *Measured, r *bench.Result) {
	for _, costs := range [][]*Cost{m.Appends, m.Inserts} {
		if len(costs) == 0 {
			continue
		}
		c := costs[len(costs)-1]
		in, out := c.Inside(), c.Outside()
		switch {
		case len(in) == 0 || len(out) == 0:
		case in.Overlaps(out):
			r.Note("%s: with a checkpoint every %g s writes during a checkpoint are not slower than others that could be told (p99 %s during, %s between).",
				c.Load, c.Seconds, bench.Seconds.Spread(in), bench.Seconds.Spread(out))
		default:
			r.Note("%s: with a checkpoint every %g s the p99 of writes is %s during a checkpoint and %s between; %s of the time is a checkpoint's.",
				c.Load, c.Seconds, bench.Seconds.Spread(in), bench.Seconds.Spread(out), bench.Share.Format(c.Durations().Median()/c.Seconds))
		}
	}
}

// recoveryNote says what a shorter interval buys.
func recoveryNote(m *Measured, r *bench.Result) {
	rec := m.Recovery
	if rec == nil || len(rec.Bare) == 0 || len(rec.Late) == 0 {
		return
	}
	replay := rec.Replay().Median()
	r.Note("What a shorter interval buys is a shorter recovery. mongod takes %s to start with nothing to replay; what was written in a second of this load is replayed in %s, so that a crash 60 s after a checkpoint costs no more than about %s, and 300 s after one %s. Until then the journal keeps %s and %s.",
		bench.Seconds.Format(rec.Bare.Median()), bench.Seconds.Format(replay),
		bench.Seconds.Format(rec.Bare.Median()+60*replay), bench.Seconds.Format(rec.Bare.Median()+300*replay),
		bench.Bytes.Format(60*rec.Journal.Over(rec.Written).Median()), bench.Bytes.Format(300*rec.Journal.Over(rec.Written).Median()))
	if len(m.Appends)+len(m.Inserts) > 0 {
		r.Note("No acknowledged write hangs on the interval: the journal has it. Choose the interval by bytes written and by the time of recovery.")
	}
}

func journalNotes(all []*Journal, r *bench.Result) {
	byTopology := make(map[string][]*Journal)
	for _, j := range all {
		byTopology[j.Topology] = append(byTopology[j.Topology], j)
	}
	for _, topology := range []string{"replica_set", "sharded", "standalone"} {
		some := byTopology[topology]
		if len(some) == 0 {
			continue
		}
		first, last := some[0], some[len(some)-1]
		one, other := first.Latencies[waiting], last.Latencies[waiting]
		if len(other) == 0 {
			continue
		}
		r.Note("%s, commit interval %s: a write that waits for the journal takes %s, one that does not %s.",
			topology, bench.Seconds.Format(last.Commit), bench.Seconds.Format(other.Median()), bench.Seconds.Format(last.Latencies[relaxed].Median()))
		switch {
		case len(some) < 2:
		case one.Overlaps(other) || math.Abs(math.Log(times(one, other))) < math.Log(1.1):
			r.Note("%s: commit intervals from %s to %s make no difference to a write with j:true: it has the journal synced at once. The interval bounds what a write without it can lose.",
				topology, bench.Seconds.Format(first.Commit), bench.Seconds.Format(last.Commit))
		default:
			r.Note("%s: a write with j:true takes %s with a commit interval of %s and %s with one of %s.",
				topology, bench.Seconds.Format(one.Median()), bench.Seconds.Format(first.Commit), bench.Seconds.Format(other.Median()), bench.Seconds.Format(last.Commit))
		}
	}
}
