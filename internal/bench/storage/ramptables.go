package storage

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/chart"
)

// tables are the signals and the load of the ramps with one cache.
func (rs ramps) tables() []bench.Table {
	return []bench.Table{rs.signalTable(), rs.loadTable()}
}

// signalTable shows all signals at the moment when p99 reached its bound.
func (rs ramps) signalTable() bench.Table {
	all := rs.crossings()
	t := bench.Table{
		Title: "The doctor's signals when p99 was ten times idle, with " + rs.cache(),
		Head:  []string{"signal", "threshold", "source", "before the ramp", "worst until then", "then", "class then", "degrading since", "bottleneck since", "order"},
		Notes: []string{
			"Order is that in which signals began to degrade, in two looks at least, and of a rate in two on end; –: it did not; before: it was so before the ramp.",
			fmt.Sprintf("%d lanes write, so that at most so many of the engine's tickets are taken.", rampLanes),
			"The checkpoint is the last one that mongod took by itself; one that was asked for at the bound has a row of its own.",
		},
	}
	for _, c := range all[0] {
		of := bySignal(all, c.Signal.Name)
		then := samples(of, func(c crossing) number { return number(c.Signal.Value) })
		row := []string{
			c.Signal.Title, c.Signal.Describe(), origin(c.Signal.Source),
			tell(c.Signal, samples(of, func(c crossing) number { return c.Before })),
			tell(c.Signal, samples(of, func(c crossing) number { return c.Worst })), tell(c.Signal, then),
		}
		if len(then) == 0 {
			row[5] = "cannot be seen: " + c.Signal.Why
		}
		var classes, order []string
		for _, one := range of {
			classes, order = append(classes, one.Signal.Class.String()), append(order, one.order())
		}
		t.Rows = append(t.Rows, append(row, counted(classes),
			bench.Seconds.Spread(samples(of, func(c crossing) number { return c.Degrading })),
			bench.Seconds.Spread(samples(of, func(c crossing) number { return c.Bottleneck })), strings.Join(order, ", ")))
	}
	var before, then bench.Samples
	for _, r := range rs {
		if idle, bound := mean(r.Looks[:r.idleLooks()], processors), mean(r.atBound(), processors); idle.known() && bound.known() {
			before, then = append(before, float64(idle)), append(then, float64(bound))
		}
	}
	t.Rows = append(t.Rows, []string{"Processors that mongod used", "none", "–", bench.Count.Spread(before), "–", bench.Count.Spread(then), "–", "–", "–", "–"})
	return t
}

// origin is whose a threshold is, without the details.
func origin(source string) string {
	return source[:len(source)-len(strings.TrimLeftFunc(source, notDetail))]
}

func notDetail(r rune) bool { return r != ',' && r != ':' }

// idleLooks is the number of looks before the load began to rise.
func (r *ramp) idleLooks() int {
	n := 0
	for n < len(r.Looks) && r.Looks[n].At <= r.Idle {
		n++
	}
	return n
}

func (c crossing) order() string {
	switch {
	case c.Already:
		return "before"
	case c.Place == 0:
		return "–"
	}
	return strconv.Itoa(c.Place)
}

// loadTable shows the steps of the first ramp.
func (rs ramps) loadTable() bench.Table {
	r := rs[0]
	t := bench.Table{
		Title: "The ramp, with " + rs.cache(),
		Head:  []string{"offered", "stored", "p50", "p99", "processors of mongod", "disk busy", "await", "operations", "bytes"},
		Notes: []string{fmt.Sprintf("Readings a second, %d to a write. Times count from when a write was due. Idle p99 %s; the ramp ends when it is %s for %s on end.",
			readingsPerWrite, bench.Seconds.Format(float64(r.IdleP99)), bench.Seconds.Format(float64(r.Bound)), steady*lookEvery)},
	}
	if !r.Reached.known() {
		t.Notes = append(t.Notes, "It was not reached.")
	}
	for _, s := range r.Steps {
		t.Rows = append(t.Rows, []string{
			bench.PerSecond.Format(float64(s.Offered)), bench.PerSecond.Format(float64(s.Stored)), bench.Seconds.Format(float64(s.P50)), bench.Seconds.Format(float64(s.P99)),
			bench.Count.Format(float64(s.Processors)), bench.Share.Format(float64(s.Busy / 100)), bench.Seconds.Format(float64(s.Await / 1000)),
			bench.PerSecond.Format(float64(s.Operations)), bench.Bytes.Format(float64(s.Bytes)) + "/s",
		})
	}
	return t
}

// plots draw the first ramp.
func (rs ramps) plots(r *bench.Result) {
	one := rs[0]
	var at, p99, offered []float64
	for _, l := range one.Looks {
		at, p99, offered = append(at, float64(l.At)), append(p99, float64(l.P99)), append(offered, float64(l.Offered))
	}
	var marks []float64
	if one.Reached.known() {
		marks = []float64{float64(one.Reached)}
	}
	r.Plot(chart.Time{
		Title: "Write p99 while the load rises, with " + rs.cache(), X: at, XLabel: "since the beginning",
		Y:      chart.Axis{Label: "p99 of the last second", Unit: chart.Seconds, Log: true},
		Series: []chart.Series{{Name: "p99", Y: p99, Tone: chart.A}},
		Beneath: &chart.Panel{Y: chart.Axis{Label: "offered readings", Unit: chart.PerSecond}, Series: []chart.Series{
			{Name: "offered", Y: offered, Tone: chart.C, Filled: true},
		}},
		Marks: marks, Width: 760, Height: 380,
	}, "Write p99 while the load rises with "+rs.cache()+". The upright line is where p99 was ten times idle and stayed there.")
	if series := one.signalSeries(); len(series) > 0 {
		r.Plot(chart.Time{
			Title: "Signals while the load rises, with " + rs.cache(), X: at, XLabel: "since the beginning",
			Y:      chart.Axis{Label: "of its threshold of bottleneck", Unit: chart.Ratio},
			Series: series, Marks: marks, Width: 760, Height: 320,
		}, "Each signal against its own threshold of bottleneck, which is 100 %, with "+rs.cache()+"; those that stayed under a tenth of it are left out.")
	}
}

// signalSeries are the signals that came nearest to their thresholds.
func (r *ramp) signalSeries() []chart.Series {
	tones := []chart.Tone{chart.A, chart.B, chart.C, chart.D, chart.E, chart.F}
	type line struct {
		name string
		y    []float64
		peak float64
	}
	var lines []line
	for i, s := range r.Looks[0].Signals {
		l := line{name: s.Title}
		for _, look := range r.Looks {
			v := pressure(look.Signals[i])
			l.y = append(l.y, v)
			if !math.IsNaN(v) && !math.IsInf(v, 0) {
				l.peak = max(l.peak, v)
			}
		}
		if l.peak >= 0.1 {
			lines = append(lines, l)
		}
	}
	slices.SortStableFunc(lines, func(a, b line) int { return cmp.Compare(b.peak, a.peak) })
	var out []chart.Series
	for i, l := range lines[:min(len(lines), len(tones))] {
		out = append(out, chart.Series{Name: l.name, Y: l.y, Tone: tones[i]})
	}
	return out
}
