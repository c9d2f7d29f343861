package storage

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/doctor"
)

// ramps are the repeats of one with the same cache.
type ramps []*ramp

func (rs ramps) cache() string {
	return fmt.Sprintf("a cache of %s GB", strconv.FormatFloat(float64(rs[0].CacheMiB)/1024, 'g', 3, 64))
}

// crossings are those of each ramp, and of each signal of it.
func (rs ramps) crossings() [][]crossing {
	all := make([][]crossing, len(rs))
	for i, r := range rs {
		all[i] = r.crossings()
	}
	return all
}

// bySignal turns them round: those of one signal of all ramps.
func bySignal(all [][]crossing, name string) []crossing {
	var out []crossing
	for _, one := range all {
		for _, c := range one {
			if c.Signal.Name == name {
				out = append(out, c)
			}
		}
	}
	return out
}

// most is of how many crossings something is so, and whether of more than half.
func most(all []crossing, is func(crossing) bool) (count int, mostly bool) {
	for _, c := range all {
		if is(c) {
			count++
		}
	}
	return count, 2*count > len(all)
}

// samples are values of crossings, without those that are not known.
func samples(all []crossing, of func(crossing) number) bench.Samples {
	var out bench.Samples
	for _, c := range all {
		if v := of(c); v.known() {
			out = append(out, float64(v))
		}
	}
	return out
}

const publishedAlerts = "alert at disk busy > 60 %, await > 1 ms (NVMe) or 5 ms (SSD)"

// firstRow holds the order in which signals began to degrade against the
// published view that the disk shows it.
func (rs ramps) firstRow(all [][]crossing) bench.Row {
	row := bench.Row{
		Claim: "the disk is the first to show that writes become slow, with " + rs.cache(), Unit: bench.Count,
		Published: 1, PublishedAs: "place 1: " + publishedAlerts,
	}
	var places bench.Samples
	var firsts []string
	disks := 0
	for _, one := range all {
		place, shown := diskPlace(one)
		places = append(places, float64(place))
		if shown && place == 1 {
			disks++
		}
		firsts = append(firsts, first(one))
	}
	row.Measured, row.Min, row.Max = places.Median(), places.Min(), places.Max()
	row.MeasuredAs = "first: " + counted(firsts)
	if row.Verdict = bench.NotSeen; 2*disks > len(all) {
		row.Verdict = bench.Confirmed
	}
	busy, await := bySignal(all, diskBusy), bySignal(all, diskAwait)
	worst := func(c crossing) number { return c.Worst }
	row.Why = fmt.Sprintf("until %s the disk was busy %s at most, and took %s for an operation", rs.end(),
		bench.Share.Format(samples(busy, worst).Max()/100), bench.Seconds.Format(samples(await, worst).Max()/1000))
	return row
}

// end says what ended the ramps.
func (rs ramps) end() string {
	if rs.unreached() != "" {
		return "the end of a ramp that did not take p99 so far"
	}
	return fmt.Sprintf("p99 was %d times idle", boundFactor)
}

// diskPlace is the place of the disk's signals in the order, and behind all
// others if they did not degrade.
func diskPlace(all []crossing) (place int, shown bool) {
	place = 1
	for _, c := range all {
		if c.Place > 0 && c.Signal.Name != diskBusy && c.Signal.Name != diskAwait {
			place++
		}
	}
	for _, c := range all {
		if c.Place > 0 && (c.Signal.Name == diskBusy || c.Signal.Name == diskAwait) {
			place, shown = min(place, c.Place), true
		}
	}
	return place, shown
}

// counted lists things with how often they are there: "a (2 of 3), b (1 of 3)".
func counted(things []string) string {
	var order []string
	count := make(map[string]int)
	for _, one := range things {
		if count[one]++; count[one] == 1 {
			order = append(order, one)
		}
	}
	if len(order) == 1 {
		return order[0]
	}
	slices.SortStableFunc(order, func(a, b string) int { return count[b] - count[a] })
	for i, one := range order {
		order[i] = fmt.Sprintf("%s (%d of %d)", one, count[one], len(things))
	}
	return strings.Join(order, ", ")
}

// inUnit returns a signal's value in a unit of the results.
func inUnit(s doctor.Signal, v float64) (bench.Unit, float64) {
	switch s.Unit {
	case "%":
		return bench.Share, v / 100
	case "ms":
		return bench.Seconds, v / 1000
	case "s":
		return bench.Seconds, v
	}
	return bench.Count, v
}

// tell is a signal's value, or those of several ramps, as people read them.
func tell(s doctor.Signal, values bench.Samples) string {
	unit, _ := inUnit(s, 0)
	scaled := values.Each(func(v float64) float64 { _, in := inUnit(s, v); return in })
	if unit == bench.Count && len(values) > 0 {
		return unit.Spread(scaled) + " " + s.Unit
	}
	return unit.Spread(scaled)
}

// isPublished reports whether a signal's thresholds are from what was published.
func isPublished(s doctor.Signal) bool { return strings.HasPrefix(s.Source, "published") }

// thresholdRow holds a published threshold against the ramps: does the signal
// cross it before p99 is ten times idle?
func (rs ramps) thresholdRow(all []crossing) bench.Row {
	s := all[0].Signal
	worst := samples(all, func(c crossing) number {
		if c.Worst.known() {
			return c.Worst
		}
		return c.Before
	})
	unit, published := inUnit(s, s.Threshold.Degrading)
	scaled := worst.Each(func(v float64) float64 { _, in := inUnit(s, v); return in })
	count, mostly := most(all, crossing.crossed)
	row := bench.Row{
		Claim: strings.ToLower(s.Title[:1]) + s.Title[1:] + " warns before p99 is ten times idle, with " + rs.cache(), Unit: unit,
		Published: published, PublishedAs: s.Describe(), Measured: scaled.Median(), Min: scaled.Min(), Max: scaled.Max(),
		MeasuredAs: "worst until then " + unit.Spread(scaled), Verdict: bench.NotSeen,
		Why: overIn(count, len(all)),
	}
	if mostly {
		row.Verdict = bench.Confirmed
		if already, mostly := most(all, func(c crossing) bool { return c.Already }); mostly {
			row.Why = overIn(already, len(all)) + " already before the load rose"
		}
	}
	row.Why += rs.unreached()
	return row
}

// overIn says in how many of the ramps a signal was over its threshold.
func overIn(count, of int) string {
	switch {
	case count == 0:
		return "it stayed within the threshold"
	case of == 1:
		return "it was over the threshold"
	}
	return fmt.Sprintf("it was over the threshold in %d of %d ramps", count, of)
}

// checkpointRow holds the published threshold of checkpoints against the one
// that was taken at the bound.
func (rs ramps) checkpointRow() bench.Row {
	var took bench.Samples
	bad := 0
	for _, r := range rs {
		if v := number(r.Checkpoint.Value); v.known() {
			took = append(took, float64(v))
		}
		if r.Checkpoint.Class >= doctor.Degrading {
			bad++
		}
	}
	s := rs[0].Checkpoint
	row := bench.Row{
		Claim: "checkpoints take long when p99 is ten times idle, with " + rs.cache(), Unit: bench.Seconds,
		Published: s.Threshold.Degrading, PublishedAs: s.Describe(), Measured: took.Median(), Min: took.Min(), Max: took.Max(),
		MeasuredAs: "one asked for then " + bench.Seconds.Spread(took), Verdict: bench.NotSeen,
		Why: overIn(bad, len(rs)),
	}
	if len(took) == 0 {
		row.Why = s.Why
	}
	if 2*bad > len(rs) {
		row.Verdict = bench.Confirmed
	}
	row.Why += rs.unreached()
	return row
}

// unreached says that a ramp ended before p99 was where the claims are about.
func (rs ramps) unreached() string {
	if slices.ContainsFunc(rs, func(r *ramp) bool { return !r.Reached.known() }) {
		return ", but the load did not rise far enough to take p99 so far"
	}
	return ""
}

// rows are all of the ramps with one cache. With another cache than the ordinary
// one only what has to do with it is told again.
func (rs ramps) rows(r *bench.Result, ordinary bool) {
	all := rs.crossings()
	unseen := bySignal(all, diskBusy)[0].Signal
	seen := unseen.Class != doctor.Unknown
	if seen {
		r.Add(rs.firstRow(all))
	} else {
		r.LeaveOut("whether the disk is the first to show that writes become slow, with "+rs.cache(), "the disk cannot be seen: "+unseen.Why)
	}
	for _, c := range all[0] {
		disk := c.Signal.Name == diskBusy || c.Signal.Name == diskAwait
		switch {
		case !isPublished(c.Signal), disk && (!seen || !ordinary):
		case c.Signal.Name == checkpoint:
			r.Add(rs.checkpointRow())
		default:
			r.Add(rs.thresholdRow(bySignal(all, c.Signal.Name)))
		}
	}
}
