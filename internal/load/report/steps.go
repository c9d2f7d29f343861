package report

import (
	"bytes"
	"fmt"
	"math"
	"strings"

	"github.com/brim-telemetry/brim/internal/load"
)

// Steps that a table has at most; of a ramp with more it has shownSteps equal
// parts, as of one without steps.
const (
	mostTextSteps = 20
	mostPageSteps = 100
	shownSteps    = 10
)

// ramp reports whether the rate changed in the course of the run.
func ramp(r *load.Result) bool { return strings.Contains(r.Setup.Rate, "..") }

// A step is a part of a ramp.
type step struct {
	From, To        float64 // seconds of the run
	Asked, Achieved float64 // readings a second
	P50, P99        float64 // response time of its slowest second; 0: nothing was answered
	Dropped         int64   // readings
	whole           bool    // told by seconds that lie in it as a whole
}

// steps tells how each step of a ramp went, or each tenth of one that has none;
// none where the rate was one.
func steps(r *load.Result, most int) []step {
	if !ramp(r) || r.Setup.DurationSeconds <= 0 {
		return nil
	}
	n := r.Setup.Steps
	if n < 2 || n > most || r.Interrupted { // which ended before the last step
		n = shownSteps
	}
	length := r.Setup.DurationSeconds / float64(n)
	all := make([]step, n)
	for i := range all {
		all[i].From, all[i].To = length*float64(i), length*float64(i+1)
	}
	for k := range all {
		all[k].tell(r.Intervals)
	}
	began := 0.0
	for i := range r.Intervals {
		if began >= r.Setup.DurationSeconds { // while the last answers came
			all[n-1].Dropped += r.Intervals[i].Dropped
		}
		began = r.Intervals[i].Second
	}
	return all
}

// tell tells of the seconds in the step. Those that lie on its borders count only
// where there are no others.
func (s *step) tell(intervals []load.Interval) {
	const late = 0.05 // seconds that a tick may be
	var inside, dropped, began float64
	for i := range intervals {
		each := &intervals[i]
		length := each.Second - began
		common := min(s.To, each.Second) - max(s.From, began)
		began = each.Second
		if common <= 0 {
			continue
		}
		dropped += float64(each.Dropped) * common / length
		whole := common >= length-late
		switch {
		case whole && !s.whole: // forget the border
			*s = step{From: s.From, To: s.To, whole: true}
			inside = 0
		case s.whole && !whole:
			continue
		}
		inside += common
		s.Asked += each.Offered * common
		s.Achieved += each.Achieved * common
		s.P50, s.P99 = max(s.P50, each.P50), max(s.P99, each.P99)
	}
	if inside > 0 {
		s.Asked, s.Achieved = s.Asked/inside, s.Achieved/inside
	}
	s.Dropped = int64(math.Round(dropped))
}

// stepsTitle is what stands above the table.
func stepsTitle(r *load.Result, all []step) string {
	title := "by step of the ramp"
	if len(all) != r.Setup.Steps {
		title = "by tenth of the ramp"
	}
	return title + "; p50 and p99 are those of its slowest second"
}

// stepCells are the cells of one row.
func stepCells(s step) []string {
	return []string{
		fmt.Sprintf("%.4g–%.4g s", s.From, s.To), perSecond(s.Asked), perSecond(s.Achieved), orDash(s.P50), orDash(s.P99), count(s.Dropped),
	}
}

var stepHeads = [...]string{"", "asked", "achieved", "p50", "p99", "dropped"}

// writeSteps writes the table of a ramp, if it was one.
func writeSteps(b *bytes.Buffer, r *load.Result) {
	all := steps(r, mostTextSteps)
	if len(all) == 0 {
		return
	}
	fmt.Fprintf(b, "\n%s\n", stepsTitle(r, all))
	g := newGrid(nameWidth)
	g.row(stepHeads[:]...)
	for _, each := range all {
		g.row(stepCells(each)...)
	}
	g.writeTo(b)
}
