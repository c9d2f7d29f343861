package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"

	"github.com/brim-telemetry/brim/internal/load"
)

// A Condition fails a run that meets it, such as p99>50ms. Its figures:
//
//	p50 p90 p99 p999 max mean   of the response time; response.p99 is the same
//	service.p99 …               of the service time, of requests that were answered
//	store.p50 store.p99         of the daemon's writes, in the slowest tenth
//	drain                       time from the end of the schedule to the last answer
//	achieved                    readings a second, or % of those requested
//	dropped                     readings, or % of those due
//	failed rejected             readings, or % of those sent
//
// Operators are > >= < <=. Times need a unit: us, ms or s.
//
// In the response time, requests that failed or were dropped are slower than any
// bound. A quantile among them, as p99 is when they are 1 % or more of the requests
// due, is infinite. So are max and mean when there is one of them.
type Condition struct {
	figure   figure
	operator string
	bound    float64 // in seconds, in readings, or a ratio
	percent  bool
	text     string
}

// A figure is a number of a result that a condition can be about.
type figure struct {
	name string
	time bool // or it is readings, or readings a second
	// of returns the value, and the whole that is 100 % of it; not ok if it was not
	// observed.
	of     func(r *load.Result) (value, whole float64, ok bool)
	unseen string // why it may not have been observed
}

var quantileFigures = [...]struct {
	name string
	of   func(load.Quantiles) float64
}{
	{"mean", func(q load.Quantiles) float64 { return q.Mean }},
	{"p50", func(q load.Quantiles) float64 { return q.P50 }},
	{"p90", func(q load.Quantiles) float64 { return q.P90 }},
	{"p99", func(q load.Quantiles) float64 { return q.P99 }},
	{"p999", func(q load.Quantiles) float64 { return q.P999 }},
	{"max", func(q load.Quantiles) float64 { return q.Max }},
}

const figuresAllowed = "p50, p90, p99, p999, max and mean, alone or after response. or service., store.p50, store.p99, drain, achieved, dropped, failed and rejected"

func findFigure(name string) (figure, bool) {
	slowest := func(of func(load.FillRow) float64) figure {
		return figure{name, true, func(r *load.Result) (float64, float64, bool) {
			highest, seen := 0.0, false
			for _, row := range r.StoreByFill {
				highest, seen = max(highest, of(row)), seen || row.Count > 0 // a time is 0 if the count is
			}
			return highest, 0, seen
		}, "the daemon was not asked (--admin), or wrote nothing"}
	}
	readings := func(of func(r *load.Result) (value, whole int64)) figure {
		return figure{name, false, func(r *load.Result) (float64, float64, bool) {
			value, whole := of(r)
			return float64(value), float64(whole), true
		}, ""}
	}
	switch name {
	case "achieved":
		return figure{name, false, func(r *load.Result) (float64, float64, bool) { return r.AchievedRate, r.OfferedRate, true }, "the load was due all at once"}, true
	case "dropped":
		return readings(func(r *load.Result) (int64, int64) { return r.Dropped, r.Sent + r.Dropped }), true
	case "failed":
		return readings(func(r *load.Result) (int64, int64) { return r.Failed, r.Sent }), true
	case "rejected":
		return readings(func(r *load.Result) (int64, int64) { return r.Rejected, r.Sent }), true
	case "drain":
		return figure{name, true, func(r *load.Result) (float64, float64, bool) { return r.DrainSeconds, 0, true }, ""}, true
	case "store.p50":
		return slowest(func(row load.FillRow) float64 { return row.P50 }), true
	case "store.p99":
		return slowest(func(row load.FillRow) float64 { return row.P99 }), true
	}
	of, quantile, found := strings.Cut(name, ".")
	if !found {
		of, quantile = "response", name
	}
	for _, q := range quantileFigures {
		switch {
		case q.name != quantile:
		case of == "service":
			return figure{name, true, func(r *load.Result) (float64, float64, bool) { return q.of(r.Service), 0, observed(r.Service) }, "no request was answered"}, true
		case of == "response":
			return figure{name, true, func(r *load.Result) (float64, float64, bool) {
				if r.Strict == nil {
					return q.of(r.Response), 0, observed(r.Response)
				}
				if v := q.of(*r.Strict); v > 0 {
					return v, 0, true
				}
				return math.Inf(1), 0, true
			}, "no request was due"}, true
		}
	}
	return figure{}, false
}

// ParseCondition reads a condition.
func ParseCondition(s string) (Condition, error) {
	const operators = "allowed are > >= < <=, as in p99>50ms"
	at := strings.IndexAny(s, "<>=")
	if at < 0 || s[at] == '=' {
		return Condition{}, fmt.Errorf("condition %q has no operator; %s", s, operators)
	}
	name, rest := strings.TrimSpace(s[:at]), s[at:]
	f, found := findFigure(name)
	if !found {
		return Condition{}, fmt.Errorf("condition %q is about %q, which is unknown; allowed are %s", s, name, figuresAllowed)
	}
	c := Condition{figure: f, operator: rest[:1]}
	if strings.HasPrefix(rest[1:], "=") {
		c.operator = rest[:2]
	}
	bound := strings.TrimSpace(rest[len(c.operator):])
	digits := strings.TrimRight(bound, "abcdefghijklmnopqrstuvwxyzµ%/ ")
	unit := strings.TrimSpace(bound[len(digits):])
	if err := c.setBound(digits, unit); err != nil {
		return Condition{}, fmt.Errorf("condition %q: %w", s, err)
	}
	c.text = name + c.operator + digits + unit
	return c, nil
}

func (c *Condition) setBound(digits, unit string) error {
	v, err := strconv.ParseFloat(digits, 64)
	if err != nil || math.IsInf(v, 0) || math.IsNaN(v) || v < 0 {
		return fmt.Errorf("the bound %q is not a number of 0 or more", digits)
	}
	c.bound = v
	if c.figure.time {
		factor, known := map[string]float64{"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1}[unit]
		if !known {
			return fmt.Errorf("%s is a time and needs a unit; allowed are us, ms and s", c.figure.name)
		}
		c.bound *= factor
		return nil
	}
	switch {
	case unit == "%":
		c.percent, c.bound = true, v/100
	case unit == "/s" && c.figure.name == "achieved", unit == "":
	default:
		return fmt.Errorf("unit %q is unknown for %s; allowed are %% and none", unit, c.figure.name)
	}
	return nil
}

// String is the condition, without spaces.
func (c Condition) String() string { return c.text }

// Check returns an error if the result meets the condition, or if the figure was not
// observed.
func (c Condition) Check(r *load.Result) error {
	value, whole, ok := c.figure.of(r)
	if !ok || c.percent && whole <= 0 && c.figure.unseen != "" {
		return fmt.Errorf("%s: %s is unknown, because %s", c, c.figure.name, c.figure.unseen)
	}
	scale, unit := 1.0, ""
	switch {
	case c.figure.time:
		scale, unit = 1e3, " ms"
	case c.percent:
		scale, unit = 100, " %"
		if value /= whole; whole <= 0 {
			value = 0
		}
	}
	if !c.met(value) {
		return nil
	}
	if math.IsInf(value, 1) {
		return fmt.Errorf("%s: %s is unknown, because it is among the readings that failed (%s) or were dropped (%s)", c, c.figure.name, count(r.Failed), count(r.Dropped))
	}
	return fmt.Errorf("%s: %s is %s%s", c, c.figure.name, humanize.FtoaWithDigits(value*scale, 3), unit)
}

func (c Condition) met(v float64) bool {
	switch c.operator {
	case ">":
		return v > c.bound
	case ">=":
		return v >= c.bound
	case "<":
		return v < c.bound
	}
	return v <= c.bound
}
