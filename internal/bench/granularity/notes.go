package granularity

import (
	"fmt"
	"math"
	"time"

	"github.com/brim-telemetry/brim/internal/bench"
)

// notes say what was found, each from the figures of this run.
func (t *trial) notes(r *bench.Result) {
	for _, topology := range t.topologies() {
		t.lineNote(r, topology)
	}
	t.mergeNote(r)
	t.topologyNote(r)
	t.workloadNote(r)
	t.indexNote(r)
	t.historyNote(r)
	t.sizeNote(r)
	t.rewriteNote(r)
}

// lineNote says what the two numbers of the line mean.
func (t *trial) lineNote(r *bench.Result, topology string) {
	c := t.ones(topology)
	if c == nil || c.Time == nil {
		return
	}
	us := c.Time.Over(1e-6)
	if us.Base <= 0 || us.Each <= 0 {
		r.Note("On the %s the line through the times is %.0f + %.2f µs a reading held, which is not both above 0: nothing follows from it.", topology, us.Base, us.Each)
		return
	}
	if us.Each < 2*us.EachError {
		r.Note("On the %s an append of one reading takes one writer %.0f ± %.0f µs; that it takes more the more its bucket holds (%.2f ± %.2f µs for each reading) is not told from the noise.",
			topology, us.Base, us.BaseError, us.Each, us.EachError)
		return
	}
	r.Note("On the %s an append of one reading takes one writer %.0f ± %.0f µs whatever the bucket holds, and %.2f ± %.2f µs more for each reading in it (R² %.2f; the medians are off the line by at most %.0f %%). "+
		"The fixed part is as much as %.0f readings held: while buckets hold far fewer than that, a shorter granularity spares little.",
		topology, us.Base, us.BaseError, us.Each, us.EachError, us.R2, 100*c.off(c.Time, heldOf, timeOf), us.Base/us.Each)
}

// mergeNote says what merging spares at the published hour's average fill.
func (t *trial) mergeNote(r *bench.Result) {
	one, many := t.ones(t.Topology), t.most(t.Topology)
	if one == nil || many == nil || one == many || one.CPU == nil || many.CPU == nil {
		return
	}
	half := float64(inWindow(time.Hour)) / 2
	a, b := one.CPU.At(half), many.CPU.At(half)/float64(many.PerUpdate)
	if a <= 0 || b <= 0 {
		return
	}
	r.Note("In hourly buckets that are half full, mongod spends %s of CPU on a reading that is appended alone and %s on one of %d that are appended together: %s. %s",
		bench.Seconds.Format(a), bench.Seconds.Format(b), many.PerUpdate, spared(a/b), t.knob(one, a/b))
}

// spared tells what is left of a cost by how many times it was as high.
func spared(times float64) string {
	if times < 1.1 {
		return "nothing to speak of is spared"
	}
	return bench.Times.Format(times) + " less"
}

// knob compares what merging spares with what a short granularity does.
func (t *trial) knob(one *curve, merging float64) string {
	shorter := one.CPU.At(float64(inWindow(time.Hour))/2) / one.CPU.At(float64(inWindow(time.Minute))/2)
	text := "With buckets of a minute rather than an hour: " + spared(shorter)
	if merging <= 1.1*shorter {
		return text + "."
	}
	return text + ". So how many readings an append brings counts for more than the minutes of its bucket."
}

// topologyNote sets the two beside each other.
func (t *trial) topologyNote(r *bench.Result) {
	a, b := t.ones(t.Topology), t.ones(standalone)
	if a == nil || b == nil || a == b || a.Time == nil || b.Time == nil || len(a.Points) != len(b.Points) {
		return
	}
	last := len(a.Points) - 1
	journal := func(c *curve, i int) string { return bench.Bytes.Format(c.Points[i].Journal.Median()) }
	r.Note("Against a standalone, the %s adds %+.0f µs to the fixed part of an append and %+.2f µs to each reading held. In the journal an append takes %s at %s held and %s at %d on the %s, and %s and %s on the standalone.",
		t.Topology, (a.Time.Base-b.Time.Base)*1e6, (a.Time.Each-b.Time.Each)*1e6,
		journal(a, 0), several(a.Points[0].Residents, "reading"), journal(a, last), a.Points[last].Residents, t.Topology, journal(b, 0), journal(b, last))
}

// workloadNote names the cheapest and the dearest way to store the workload.
func (t *trial) workloadNote(r *bench.Result) {
	if len(t.Workload) < 2 {
		return
	}
	least, most := t.Workload[0], t.Workload[0]
	for _, b := range t.Workload {
		if b.Cores < least.Cores {
			least = b
		}
		if b.Cores > most.Cores {
			most = b
		}
	}
	words := func(b burden) string {
		return fmt.Sprintf("%s with %s an append (%s cores of mongod)", b.Granularity, several(b.PerUpdate, "reading"), fixed(b.Cores))
	}
	note := fmt.Sprintf("For the published workload the dearest that was measured is %s, the cheapest %s.", words(most), words(least))
	if wait := time.Duration(least.PerUpdate-1) * publishedInterval; wait > 0 {
		note += fmt.Sprintf(" That many readings of a sensor gather in %s, for which the first of them is in the journal alone.", wait)
	}
	r.Note("%s", note)
}

// indexNote says whether further indexes are felt, and which ones are.
func (t *trial) indexNote(r *bench.Result) {
	none, most := t.indexEnds()
	if none == nil {
		return
	}
	change := func(v *variant) string { return percent(v.CPU.Median() / none.CPU.Median()) }
	r.Note("With %s on keys that appends leave alone, mongod's CPU an append changes by %s.", several(len(most.indexes), "further index"), change(most))
	for _, v := range t.Indexes {
		if !v.changing() || len(v.CPU) == 0 {
			continue
		}
		what := "even that is hardly told from the noise of the repeats"
		if min(v.CPU.Over(none.CPU).Median(), v.CPU.Over(most.CPU).Median()) > 1.1 {
			what = "a key that changes costs more than those that stay"
		}
		r.Note("One index on %q, which every append changes, changes it by %s: %s.", changedKey, change(v), what)
	}
}

// percent tells a factor as a change.
func percent(factor float64) string { return fmt.Sprintf("%+.0f %%", 100*(factor-1)) }

func (t *trial) historyNote(r *bench.Result) {
	if len(t.History) != 2 || len(t.History[1].CPU) == 0 {
		return
	}
	kept, not := t.History[0], t.History[1]
	r.Note("With a history window of %s rather than %s an append leaves %s old versions rather than %s in the history store, the data files get %s rather than %s for it, and mongod's CPU with the checkpoint changes by %s. "+
		"Nothing of Brim reads the past, so its own mongod keeps none; nothing was published about it.",
		kept.Name, not.Name, fixed(kept.Versions.Median()), fixed(not.Versions.Median()),
		bench.Bytes.Format(kept.Written.Median()), bench.Bytes.Format(not.Written.Median()), percent(kept.CPU.Median()/not.CPU.Median()))
}

func (t *trial) sizeNote(r *bench.Result) {
	first, last := t.sizeAt(granularities[0]), t.sizeAt(granularities[len(granularities)-1])
	if first == nil || last == nil {
		return
	}
	reading := (last.DocumentBytes - first.DocumentBytes) / float64(last.Readings-first.Readings)
	beside := first.DocumentBytes - reading*float64(first.Readings)
	r.Note("A reading takes %.0f bytes of its document before compression and the document %.0f beside its readings, so going from %s to %s makes %s fewer documents and %s fewer bytes.",
		reading, beside, first.Granularity, last.Granularity, bench.Times.Format(first.DocumentsADay/last.DocumentsADay), percentLess(last.BytesADay/first.BytesADay))
}

func percentLess(factor float64) string { return fmt.Sprintf("%.0f %%", 100*(1-factor)) }

// rewriteNote sets the two knobs beside each other.
func (t *trial) rewriteNote(r *bench.Result) {
	five, hour := t.sizeAt(5*time.Minute), t.sizeAt(time.Hour)
	if five == nil || hour == nil {
		return
	}
	const together = 12
	alone, minutes, merged := rewriteOf(hour, 1), rewriteOf(five, 1), rewriteOf(hour, together)
	r.Note("By the arithmetic, hourly buckets with one reading an append make %s of document versions a day. Buckets of 5 minutes make that %s, and hourly ones with %d readings an append %s: "+
		"the appends a bucket gets are the knob, and merging them turns it without making %s times the documents.",
		bench.Bytes.Format(alone.Day), bench.Bytes.Format(minutes.Day), together, bench.Bytes.Format(merged.Day),
		fmt.Sprint(math.Round(five.DocumentsADay/hour.DocumentsADay)))
}
