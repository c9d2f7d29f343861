package storage

import (
	"fmt"

	"github.com/brim-telemetry/brim/internal/bench"
)

// costs are those of all forms and loads.
type costs []*statusCost

func (cs costs) of(form, load string) *statusCost {
	for _, c := range cs {
		if c.Form == form && c.Load == load {
			return c
		}
	}
	return &statusCost{}
}

// row holds the whole of serverStatus, idle, against what was published.
func (cs costs) row() bench.Row {
	return bench.Claim{
		Says: "serverStatus takes less than 1 ms (p50, idle)", Published: 1e-3, PublishedAs: "< 1 ms", Unit: bench.Seconds,
		Because: "the answer is put together and sent anew each time, and how long that takes hangs on the processor",
	}.AtMost(cs.of(fullForm, idleLoad).P50)
}

func (cs costs) table(calls int) bench.Table {
	t := bench.Table{
		Title: "What serverStatus costs",
		Head:  []string{"form", "load", "p50", "p99"},
		Notes: []string{fmt.Sprintf("%d calls in each repeat, seen from the client. The load is %d writes/s of %d readings. The whole answer has %s.",
			calls, moderate, readingsPerWrite, bench.Bytes.Format(float64(cs.of(fullForm, idleLoad).Bytes)))},
	}
	for _, c := range cs {
		t.Rows = append(t.Rows, []string{c.Form, c.Load, bench.Seconds.Spread(c.P50), bench.Seconds.Spread(c.P99)})
	}
	return t
}

func (cs costs) notes(r *bench.Result) {
	idle, loaded := cs.of(fullForm, idleLoad).P50.Median(), cs.of(fullForm, someLoad).P50.Median()
	r.Note("serverStatus as a whole took %s idle and %s under load (p50): asked once in 10 s it costs %s of a processor at most.",
		bench.Seconds.Format(idle), bench.Seconds.Format(loaded), bench.Share.Format(max(idle, loaded)/10))
	whole, reduced := cs.of(fullForm, idleLoad).P50, cs.of(doctorForm, idleLoad).P50
	if saved := 1 - reduced.Median()/whole.Median(); saved > 0.1 && !reduced.Overlaps(whole) {
		r.Note("Leaving out the sections that nobody looks at saves %s of it.", bench.Share.Format(saved))
	} else {
		r.Note("Leaving out the sections that nobody looks at saves next to nothing of the time.")
	}
}
