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
// In the response time, failed or dropped requests are slower than any bound. A quantile among
// them, as p99 is when they are 1 % or more of the requests due, is infinite. So are max and
// mean if there is even one.
type Condition struct {
	name     string // of the figure
	time     bool   // a time, not readings or a rate
	operator string
	bound    float64 // in seconds, readings or as a ratio
	percent  bool
	text     string
}

// A figure is a number in a result that a condition can test.
type figure struct {
	value  float64
	whole  float64 // 100 %, in readings
	time   bool
	unseen string // why it was not observed; empty if it was
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

// figureOf returns the named figure of a result, and whether it exists.
func figureOf(r *load.Result, name string) (figure, bool) {
	of, quantile, found := strings.Cut(name, ".")
	switch name {
	case "achieved":
		return figure{value: r.AchievedRate, whole: r.OfferedRate}, true
	case "dropped":
		return figure{value: float64(r.Dropped), whole: float64(r.Sent + r.Dropped)}, true
	case "failed":
		return figure{value: float64(r.Failed), whole: float64(r.Sent)}, true
	case "rejected":
		return figure{value: float64(r.Rejected), whole: float64(r.Sent)}, true
	case "drain":
		return figure{value: r.DrainSeconds, time: true}, true
	case "store.p50", "store.p99": // in the slowest tenth
		f := figure{time: true, unseen: "the daemon was not asked (--admin), or wrote nothing"}
		for _, row := range r.StoreByFill {
			if row.Count > 0 {
				f.unseen = ""
			}
			f.value = max(f.value, map[string]float64{"p50": row.P50, "p99": row.P99}[quantile])
		}
		return f, true
	}
	if !found {
		of, quantile = "response", name
	}
	for _, q := range quantileFigures {
		switch {
		case q.name != quantile:
		case of == "service":
			return timeFigure(q.of(r.Service), observed(r.Service), "no request was answered"), true
		case of != "response":
		case r.Strict == nil:
			return timeFigure(q.of(r.Response), observed(r.Response), "no request was due"), true
		case q.of(*r.Strict) > 0:
			return figure{value: q.of(*r.Strict), time: true}, true
		default:
			return figure{value: math.Inf(1), time: true}, true
		}
	}
	return figure{}, false
}

func timeFigure(seconds float64, seen bool, unseen string) figure {
	f := figure{value: seconds, time: true}
	if !seen {
		f.unseen = unseen
	}
	return f
}

// ParseCondition parses a condition.
func ParseCondition(s string) (Condition, error) {
	const operators = "allowed: > >= < <=, as in p99>50ms"
	at := strings.IndexAny(s, "<>=")
	if at < 0 || s[at] == '=' {
		return Condition{}, fmt.Errorf("condition %q has no operator; %s", s, operators)
	}
	name, rest := strings.TrimSpace(s[:at]), s[at:]
	f, found := figureOf(&load.Result{}, name)
	if !found {
		return Condition{}, fmt.Errorf("condition %q is about %q, which is unknown; allowed: %s", s, name, figuresAllowed)
	}
	c := Condition{name: name, time: f.time, operator: rest[:1]}
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
	if c.time {
		factor, known := map[string]float64{"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1}[unit]
		if !known {
			return fmt.Errorf("%s is a time and needs a unit; allowed: us, ms and s", c.name)
		}
		c.bound *= factor
		return nil
	}
	switch {
	case unit == "%":
		c.percent, c.bound = true, v/100
	case unit == "/s" && c.name == "achieved", unit == "":
	default:
		return fmt.Errorf("unit %q is unknown for %s; allowed: %% and none", unit, c.name)
	}
	return nil
}

// String returns the condition without spaces.
func (c Condition) String() string { return c.text }

// Check returns an error if the result meets the condition, or if the figure was not observed.
func (c Condition) Check(r *load.Result) error {
	f, _ := figureOf(r, c.name)
	if f.unseen != "" {
		return fmt.Errorf("%s: %s is unknown, because %s", c, c.name, f.unseen)
	}
	value, scale, unit := f.value, 1.0, ""
	switch {
	case c.time:
		scale, unit = 1e3, " ms"
	case c.percent && f.whole > 0:
		value, scale, unit = value/f.whole, 100, " %"
	case c.percent:
		value, unit = 0, " %"
	}
	if !c.met(value) {
		return nil
	}
	if math.IsInf(value, 1) {
		return fmt.Errorf("%s: %s is unknown, because it is among the readings that failed (%s) or were dropped (%s)", c, c.name, count(r.Failed), count(r.Dropped))
	}
	return fmt.Errorf("%s: %s is %s%s", c, c.name, humanize.FtoaWithDigits(value*scale, 3), unit)
}

func (c Condition) met(v float64) bool {
	return map[string]bool{">": v > c.bound, ">=": v >= c.bound, "<": v < c.bound, "<=": v <= c.bound}[c.operator]
}
