package checkpoint

import (
	"slices"
	"strings"
	"time"

	"github.com/brim-telemetry/brim/internal/bench"
)

// A plan says what is measured, and how large.
type plan struct {
	intervals        []time.Duration // rising
	appends, inserts Load
	settingsFor      time.Duration // checkpoints are counted
	writing          time.Duration // before mongod is killed
	bare             int           // kills right after a checkpoint
	batch            time.Duration // of writes whose latency makes one sample
}

// The published intervals.
const (
	published30  = 30 * time.Second
	published60  = 60 * time.Second
	published120 = 120 * time.Second
	published300 = 300 * time.Second
)

// pinnedCacheGB is large enough that nothing is evicted for being dirty: that
// begins at a twentieth of the cache.
const pinnedCacheGB = 4

func planOf(lab *bench.Lab) *plan {
	p := &plan{
		appends: Load{
			Sensors: 500, Granularity: time.Hour, Interval: 5 * time.Second, ReadingsPerUpdate: 4, ReadingsPerSecond: 2000,
		},
		settingsFor: 6 * time.Second, writing: 8 * time.Second, bare: lab.Repeats, batch: 400 * time.Millisecond,
	}
	p.inserts = p.appends
	p.inserts.Inserts, p.inserts.ReadingsPerSecond = true, 4000
	intervals := []time.Duration{6 * time.Second, 12 * time.Second, 24 * time.Second}
	if lab.Quick {
		// With an interval of a sixth, the rates are higher and the sensors fewer, so
		// that as much comes together from one checkpoint to the next.
		p.appends.Sensors, p.inserts.ReadingsPerSecond = 250, 16_000
		intervals = []time.Duration{time.Second, 4 * time.Second}
		p.settingsFor, p.writing, p.bare, p.batch = 4*time.Second, 3*time.Second, 1, 100*time.Millisecond
	}
	if lab.Has(cellInterval) {
		p.intervals = intervals
	}
	for cell, interval := range map[string]time.Duration{cell60: published60, cell300: published300} {
		if lab.Asked(cell) {
			p.intervals = append(p.intervals, interval)
		}
	}
	slices.Sort(p.intervals)
	return p
}

// ends are the shortest and the longest interval.
func (p *plan) ends() []time.Duration {
	if len(p.intervals) < 2 {
		return p.intervals
	}
	return []time.Duration{p.intervals[0], p.intervals[len(p.intervals)-1]}
}

// steps is how many steps of progress there will be.
func (p *plan) steps(lab *bench.Lab) int {
	n := 0
	if lab.Own() {
		if lab.Has(cellSettings) {
			n += 2
		}
		if len(p.intervals) > 0 {
			n++ // the appends are stored beforehand, and mongod starts again
		}
		for _, some := range [][]time.Duration{p.intervals, p.ends()} {
			for _, interval := range some { // before it begins, its beginning, and its checkpoints
				n += 2 + periods(lab.Repeats, interval, some[0])
			}
		}
		if lab.Has(cellRecovery) {
			n += 1 + p.bare + lab.Repeats
		}
	}
	if lab.Has(cellJournal) {
		n += lab.Repeats * len(topologies(lab))
	}
	return n
}

// tell says what is held fast, what is smaller, and what is left out.
func (p *plan) tell(lab *bench.Lab, r *bench.Result) {
	r.Pin("readings of %d fields by seed, written by %d lanes, %d writes a second, each with what is due; latency counts from when a write was due", 4, lanes, commandsPerSecond)
	r.Pin("write concern majority and journaled, as in production, where the write concern is not what varies")
	if !lab.Own() {
		for _, what := range []string{"which settings the checkpoint interval obeys", "checkpoint intervals", "recovery", "commit intervals"} {
			r.LeaveOut(what, bench.OwnOnly)
		}
		return
	}
	if len(p.intervals) > 0 {
		r.Pin("appends: hourly buckets of %d sensors, %.0f readings/s, %d to an update, through the store of production: each bucket gets one every %v",
			p.appends.Sensors, p.appends.ReadingsPerSecond, p.appends.ReadingsPerUpdate, p.appends.Revisit())
		r.Pin("inserts: a document per reading, %.0f readings/s, no index but that of _id", p.inserts.ReadingsPerSecond)
		r.Pin("cache of %d GB, of which nothing is evicted for being dirty; compressor snappy; repeats of an interval are its successive checkpoints", pinnedCacheGB)
	}
	if lab.Quick {
		r.Reduce("intervals of %s stand for the published ones; rates are higher, so that as much comes together from one checkpoint to the next", list(p.intervals))
		r.Reduce("%s of writes before mongod is killed, in place of 8 s", bench.Seconds.Format(p.writing.Seconds()))
	} else if lab.Has(cellInterval) {
		r.Reduce("intervals of %s stand for the published ones, of which the cells %s and %s have two", list(p.intervals), cell60, cell300)
	}
	for _, c := range Experiment().Cells {
		if c.Slow != "" && lab.Has(c.Name) && !lab.Asked(c.Name) {
			r.LeaveOut(c.What, c.Slow+"; --cells "+c.Name+" asks for it")
		}
	}
	if lab.Has(cellInterval) {
		for _, interval := range []time.Duration{published30, published120} { // the others are cells
			r.LeaveOut("an interval of "+bench.Seconds.Format(interval.Seconds()), "its law is that of the others, and it takes several times as long to see")
		}
	}
	if len(p.intervals) > 2 {
		r.LeaveOut("inserts at the intervals in between", "the shortest and the longest show what they do")
	}
}

// periods is how many periods of an interval are watched: of the shortest a few
// more, which take no long time.
func periods(repeats int, interval, shortest time.Duration) int {
	if interval == shortest && interval < published60 {
		return repeats + 1
	}
	return repeats
}

func list(intervals []time.Duration) string {
	names := make([]string, len(intervals))
	for i, interval := range intervals {
		names[i] = bench.Seconds.Format(interval.Seconds())
	}
	return strings.Join(names, ", ")
}
