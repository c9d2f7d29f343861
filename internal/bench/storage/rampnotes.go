package storage

import (
	"fmt"
	"runtime"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/doctor"
)

// notes say what the ramps with one cache showed.
func (rs ramps) notes(r *bench.Result, own bool) {
	all := rs.crossings()
	var firsts []string
	shown := 0
	for _, one := range all {
		firsts = append(firsts, first(one))
		for _, c := range one {
			if c.Place == 1 {
				shown++
				break
			}
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
	if shown == 0 {
		r.Note("With %s no signal of the doctor's began to degrade before p99 was ten times idle: watch the latency of writes itself, and the processor.", rs.cache())
	} else {
		r.Note("With %s the first signal to degrade under rising load was: %s.", rs.cache(), counted(firsts))
	}
	rs.noteLimit(r, own)
	dirty := bySignal(all, cacheDirty)
	if _, mostly := most(dirty, func(c crossing) bool { return c.crossed() && c.Signal.Class != doctor.Bottleneck }); mostly {
		r.Note("With %s the dirty share of the cache passed %s and writes went on: it is where the engine's own threads begin to evict, and a value about there is how it works under load. What clients feel begins at 20 %% dirty, where their threads must evict.",
			rs.cache(), bench.Share.Format(dirty[0].Signal.Threshold.Degrading/100))
	}
}

// atBound are the looks from the moment on when p99 reached its bound.
func (r *ramp) atBound() []look { return r.Looks[r.boundLook():] }

// disk is how it was at the bound.
func (r *ramp) disk() diskState {
	looks := r.atBound()
	d := diskState{
		busy: looks[0].signal(diskBusy), await: looks[0].signal(diskAwait),
		operations: mean(looks, func(l look) number { return l.DiskOperations }), bytes: mean(looks, func(l look) number { return l.DiskBytes }),
	}
	d.busy.Value, d.await.Value = float64(mean(looks, busy)), float64(mean(looks, await))
	return d
}

// usedUp is from which share of the machine's processors on they hold back who
// needs them.
const usedUp = 0.85

// noteLimit says what the limit was when p99 reached its bound, as far as it
// shows.
func (rs ramps) noteLimit(r *bench.Result, own bool) {
	disk := rs[0].disk()
	if disk.limit() == unseenLimit {
		r.Note("With %s, whether the disk was the limit is not to be seen: %s.", rs.cache(), disk.busy.Why)
	} else {
		r.Note("At the end of the ramp with %s the disk was %s: busy %s, %.0f operations/s, %s/s, %s for each.", rs.cache(), disk.limit(),
			bench.Share.Format(disk.busy.Value/100), float64(disk.operations), bench.Bytes.Format(float64(disk.bytes)), bench.Seconds.Format(disk.await.Value/1000))
	}
	if own {
		rs[0].noteProcessors(r)
	}
}

// noteProcessors says who used the processors when p99 reached its bound.
func (r *ramp) noteProcessors(to *bench.Result) {
	looks := r.atBound()
	server, writers := mean(looks, processors), mean(looks, func(l look) number { return l.Writers })
	all, cores := mean(looks, func(l look) number { return l.Machine }), runtime.NumCPU()
	if !server.known() || !writers.known() || !all.known() {
		return
	}
	others := max(all-server-writers, 0)
	used := fmt.Sprintf("Of the machine's %d processors mongod used %s then, who writes to it %s, and others %s",
		cores, bench.Count.Format(float64(server)), bench.Count.Format(float64(writers)), bench.Count.Format(float64(others)))
	switch {
	case float64(all) < usedUp*float64(cores):
		to.Note("%s.", used)
	case others > server+writers:
		to.Note("%s: they were used up by something else, so that the ramp says little about the storage; try again when the machine is quiet.", used)
	default:
		to.Note("%s: the processor is the limit here, and none of the published signals looks at it.", used)
	}
}
