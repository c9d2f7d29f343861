package storage

import (
	"fmt"
	"runtime"
	"strings"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/doctor"
)

// notes say what the ramps with one cache showed.
func (rs ramps) notes(r *bench.Result, own bool) {
	all := rs.crossings()
	var firsts []string
	for _, one := range all {
		if names := first(one); len(names) > 0 {
			firsts = append(firsts, strings.Join(names, " and "))
		}
	}
	reached := 0
	for _, one := range rs {
		if one.Reached.known() {
			reached++
		}
	}
	if reached < len(rs) {
		r.Note("With %s, p99 reached ten times idle in %d of %d ramps: the load did not rise far enough for this machine in the others.", rs.cache(), reached, len(rs))
	}
	switch {
	case len(firsts) == 0:
		r.Note("With %s no signal of the doctor's began to degrade before p99 was ten times idle: watch the latency of writes itself, and the processor.", rs.cache())
	default:
		r.Note("With %s the first signal to degrade under rising load was: %s.", rs.cache(), counted(firsts))
	}
	rs.noteLimit(r, own)
	dirty := bySignal(all, cacheDirty)
	if _, mostly := most(dirty, func(c crossing) bool { return c.crossed() && c.Signal.Class != doctor.Bottleneck }); mostly {
		r.Note("With %s the dirty share of the cache passed %s and writes went on: it is where the engine's own threads begin to evict, and a value about there is how it works under load. What clients feel begins at 20 %% dirty, where their threads must evict.",
			rs.cache(), bench.Share.Format(dirty[0].Signal.Threshold.Degrading/100))
	}
}

// last is how the disk was in the last step of a ramp.
func (r *ramp) last() (diskState, stage) {
	s := r.Steps[len(r.Steps)-1]
	at := r.Looks[r.boundLook()]
	d := diskState{busy: at.signal(diskBusy), await: at.signal(diskAwait), operations: s.Operations, bytes: s.Bytes}
	d.busy.Value, d.await.Value = float64(s.Busy), float64(s.Await)
	return d, s
}

// busyProcessors is from which share of the machine's processors on mongod alone
// leaves no room for who writes to it.
const busyProcessors = 0.6

// noteLimit says what the limit was at the end of the ramp, as far as it shows.
func (rs ramps) noteLimit(r *bench.Result, own bool) {
	disk, s := rs[0].last()
	if disk.limit() == unseenLimit {
		r.Note("With %s, whether the disk was the limit is not to be seen: %s.", rs.cache(), disk.busy.Why)
	} else {
		r.Note("At the end of the ramp with %s the disk was %s: busy %s, %s, %s/s, %s for each.", rs.cache(), disk.limit(),
			bench.Share.Format(disk.busy.Value/100), operations(disk.operations), bench.Bytes.Format(float64(disk.bytes)), bench.Seconds.Format(disk.await.Value/1000))
	}
	switch cores := runtime.NumCPU(); {
	case !own || !s.Processors.known():
	case float64(s.Processors) >= busyProcessors*float64(cores):
		r.Note("mongod used %s of the machine's %d processors then, and who writes to it the rest: the processor is the limit here. None of the published signals looks at it.",
			bench.Count.Format(float64(s.Processors)), cores)
	default:
		r.Note("mongod used %s of the machine's %d processors then.", bench.Count.Format(float64(s.Processors)), cores)
	}
}

func operations(n number) string { return fmt.Sprintf("%.0f operations/s", float64(n)) }
