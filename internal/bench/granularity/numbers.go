package granularity

import (
	"strconv"
	"strings"
	"time"

	"github.com/brim-telemetry/brim/internal/bench"
)

// The workload of the published tables: sensors that report {ts, t, h, p, v}.
const (
	publishedSensors  = 10_000
	publishedFields   = 4
	publishedInterval = 5 * time.Second
)

// granularities are those of the published tables.
var granularities = [...]time.Duration{time.Minute, 5 * time.Minute, 15 * time.Minute, time.Hour}

// inWindow is how many readings a window of the workload has.
func inWindow(g time.Duration) int { return int(g / publishedInterval) }

// A grid is the sizes of buckets and of appends that are measured with each
// other.
type grid struct {
	residents []int // readings that a bucket holds before an append
	perUpdate []int // readings that an append brings
}

// numbers are how much is measured.
type numbers struct {
	appends, alone grid
	slices         int   // that a repeat of a curve is cut into; the points take turns
	single, bulk   int   // appends of a slice: one a command, and many
	indexed        []int // further indexes
	turns, varied  int   // the slices of a repeat of a variant, and the appends of one
	sensors        int   // of the run that documents are counted in
	hours          int
	stockBytes     int // that a stock may have, at most
}

func full() numbers {
	all := grid{[]int{1, 12, 30, 60, 120, 180, 360, 720, 1500, 3600}, []int{1, 5, 12, 60}}
	return numbers{
		appends: all, alone: all, slices: 3, single: 70, bulk: 180, indexed: []int{0, 1, 3}, turns: 8, varied: 250,
		sensors: 50, hours: 4, stockBytes: 64 << 20,
	}
}

func quick() numbers {
	few := []int{1, 12, 60, 180, 720}
	return numbers{
		appends: grid{few, []int{1, 12}}, alone: grid{few, []int{1}}, slices: 3, single: 50, bulk: 100,
		indexed: []int{0, 3}, turns: 8, varied: 120, sensors: 20, hours: 2, stockBytes: 16 << 20,
	}
}

// fewestAppends of a slice are worth its measurement.
const fewestAppends = 10

// fit says how many appends the slices make together: fewer than wanted where
// the buckets that they need would be more than a stock may have.
func (n *numbers) fit(c stockConfig, slices, appends int) stockConfig {
	const beside, reading = 500, 70 // bytes of a document, about
	most := n.stockBytes / (beside + reading*(c.residents+c.perUpdate)) * c.each() / slices
	c.appends = slices * min(appends, max(most, fewestAppends))
	return c
}

// steps is how many steps the chosen cells take.
func (t *trial) steps() int {
	steps := 0
	for _, c := range []struct {
		name  string
		steps int
	}{
		{appendCell, t.appends.steps(t.lab.Repeats)}, {indexesCell, 1}, {historyCell, 1}, {sizesCell, 1},
		{standaloneCell, t.alone.steps(t.lab.Repeats)},
	} {
		if t.lab.Has(c.name) && t.possible(c.name) {
			steps += c.steps
		}
	}
	return steps
}

func (g *grid) steps(repeats int) int { return len(g.perUpdate) * (1 + repeats) }

// pin says what does not vary, and what is less than in full.
func (t *trial) pin(r *bench.Result) {
	r.Pin("A reading is {ts, t, h, p, v}: four doubles, as `brim load` makes them from the seed; buckets of a stock are copies of one that the store wrote, and snappy compresses them.")
	r.Pin("An append is Brim's own: guarded by its session and the part's caps, with statistics; the caps are out of reach.")
	r.Pin("Appends take turns over equal buckets, so that each gets at most %.0f %% fuller; where one append alone is more than that, each bucket gets one. Times are those from before it.", 100*grown)
	r.Pin("Time: one writer, one append a command, write concern w:1 without a wait for the disk, as the published latencies must be; the median of the appends of a repeat. What the writer needs to encode the append is in it.")
	r.Pin("CPU: mongod's, for appends as the daemon's lanes write them, %d buckets a call, majority and journaled.", together)
	r.Pin("The sizes of buckets are measured in turn in each repeat.")
	if t.lab.Own() {
		r.Pin("The history window is 0 s, as in the daemon's own mongod, unless it is what varies.")
	}
	if !t.lab.Quick {
		return
	}
	all := full()
	r.Reduce("buckets that hold %s readings rather than %s", list(t.appends.residents), list(all.appends.residents))
	r.Reduce("%s readings an append rather than %s; %s on the standalone", list(t.appends.perUpdate), list(all.appends.perUpdate), list(t.alone.perUpdate))
	r.Reduce("%d timed appends and %d in bulk for each point and repeat rather than %d and %d, and %d rather than %d of a variant",
		t.slices*t.single, t.slices*t.bulk, all.slices*all.single, all.slices*all.bulk, t.turns*t.varied, all.turns*all.varied)
	r.Reduce("%s further indexes rather than %s", list(t.indexed), list(all.indexed))
	r.Reduce("documents counted of %d sensors in %d hours rather than of %d in %d", t.sensors, t.hours, all.sensors, all.hours)
}

func list(numbers []int) string {
	words := make([]string, len(numbers))
	for i, n := range numbers {
		words[i] = strconv.Itoa(n)
	}
	return strings.Join(words, ", ")
}
