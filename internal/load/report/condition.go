package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/brim-telemetry/brim/internal/chart"
	"github.com/brim-telemetry/brim/internal/load"
)

// A Condition is what a run must not meet, like p99>50ms. These figures can
// stand in it:
//
//	p50 p90 p99 p999 max mean   of the response time; response.p99 is the same
//	service.p99 …               of the service time, of requests that were taken
//	store.p50 store.p99         of the daemon's writes, the tenth with the highest
//	drain                       time from the end of the schedule to the last answer
//	achieved                    readings a second, or % of those asked for
//	dropped                     readings, or % of those due
//	failed rejected             readings, or % of those sent
//
// Operators are > >= < <=. Times need a unit: us, ms or s.
//
// Of the response time, requests that failed or were dropped are slower than any
// bound, for nobody waited for their answers to the end. A quantile that lies
// among them, as p99 does where they are 1 % or more of the requests due, is not
// known: > and >= are met, < and <= are not. Max and mean are not known where
// there is one of them.
type Condition struct {
	figure   figure
	operator string
	bound    float64 // in seconds for times, in readings, or a part of 1
	percent  bool
	text     string
}

// A figure is a number of a result that conditions can be about.
type figure struct {
	name string
	time bool // or it is readings, or readings a second
	// of returns the value, and for what is not a time what 100 % are; not ok
	// where it was not observed.
	of func(r *load.Result) (value, whole float64, ok bool) // +Inf: slower than any bound
	// unseen is why a time may not have been observed.
	unseen string
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

const figuresAllowed = "p50, p90, p99, p999, max and mean, alone or behind response. or service., store.p50, store.p99, drain, achieved, dropped, failed and rejected"

// findFigure returns the figure of that name.
func findFigure(name string) (figure, bool) {
	switch name {
	case "achieved":
		f := countFigure(name, func(r *load.Result) (float64, float64) { return r.AchievedRate, r.OfferedRate })
		f.unseen = "the load was due at once"
		return f, true
	case "dropped":
		return countFigure(name, func(r *load.Result) (float64, float64) { return float64(r.Dropped), float64(r.Sent + r.Dropped) }), true
	case "failed":
		return countFigure(name, func(r *load.Result) (float64, float64) { return float64(r.Failed), float64(r.Sent) }), true
	case "rejected":
		return countFigure(name, func(r *load.Result) (float64, float64) { return float64(r.Rejected), float64(r.Sent) }), true
	case "drain":
		return figure{name: name, time: true, of: func(r *load.Result) (float64, float64, bool) { return r.DrainSeconds, 0, true }}, true
	case "store.p50":
		return storeFigure(name, func(row load.FillRow) float64 { return row.P50 }), true
	case "store.p99":
		return storeFigure(name, func(row load.FillRow) float64 { return row.P99 }), true
	}
	of, quantile, found := strings.Cut(name, ".")
	if !found {
		of, quantile = "response", name
	}
	for _, q := range quantileFigures {
		if q.name == quantile && (of == "response" || of == "service") {
			f := figure{name: name, time: true, unseen: "no request was due", of: func(r *load.Result) (float64, float64, bool) {
				return strictly(r, q.of), 0, observed(r.Response) || r.Strict != nil
			}}
			if of == "service" {
				f.unseen = "no request was taken"
				f.of = func(r *load.Result) (float64, float64, bool) { return q.of(r.Service), 0, observed(r.Service) }
			}
			return f, true
		}
	}
	return figure{}, false
}

// strictly returns a quantile of the response time where requests that failed or
// were dropped are slower than any.
func strictly(r *load.Result, of func(load.Quantiles) float64) float64 {
	if r.Strict == nil {
		return of(r.Response)
	}
	if v := of(*r.Strict); v > 0 {
		return v
	}
	return math.Inf(1)
}

func countFigure(name string, of func(*load.Result) (value, whole float64)) figure {
	return figure{name: name, of: func(r *load.Result) (float64, float64, bool) {
		value, whole := of(r)
		return value, whole, true
	}}
}

func storeFigure(name string, of func(load.FillRow) float64) figure {
	return figure{name: name, time: true, unseen: "the daemon was not asked (--admin), or wrote nothing", of: func(r *load.Result) (float64, float64, bool) {
		highest, seen := 0.0, false
		for _, row := range r.StoreByFill {
			if row.Count > 0 {
				highest, seen = max(highest, of(row)), true
			}
		}
		return highest, 0, seen
	}}
}

// ParseCondition reads a condition.
func ParseCondition(s string) (Condition, error) {
	at := strings.IndexAny(s, "<>=")
	if at < 0 {
		return Condition{}, fmt.Errorf("condition %q has no operator; allowed are > >= < <=, as in p99>50ms", s)
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
	if c.operator[0] == '=' {
		return Condition{}, fmt.Errorf("condition %q has no operator that is known; allowed are > >= < <=", s)
	}
	bound := strings.TrimSpace(rest[len(c.operator):])
	digits := strings.TrimRight(bound, "abcdefghijklmnopqrstuvwxyzµ%/ ")
	if err := c.setBound(digits, strings.TrimSpace(bound[len(digits):])); err != nil {
		return Condition{}, fmt.Errorf("condition %q: %w", s, err)
	}
	c.text = name + c.operator + digits + strings.TrimSpace(bound[len(digits):])
	return c, nil
}

// setBound reads the number and the unit behind the operator.
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
	switch unit {
	case "%":
		c.percent, c.bound = true, v/100
	case "":
	case "/s":
		if c.figure.name != "achieved" {
			return fmt.Errorf("%s is a number of readings; its unit may be %% or none", c.figure.name)
		}
	default:
		return fmt.Errorf("unit %q is unknown; allowed are %% and none", unit)
	}
	return nil
}

// String is the condition, without blanks.
func (c Condition) String() string { return c.text }

// Check returns an error that says so if the result meets the condition. So it
// does if nothing of what the condition is about was observed, for then nobody
// knows.
func (c Condition) Check(r *load.Result) error {
	value, whole, ok := c.figure.of(r)
	if !ok || c.percent && whole <= 0 && c.figure.unseen != "" {
		return fmt.Errorf("%s: %s is not known, since %s", c, c.figure.name, c.figure.unseen)
	}
	if c.percent {
		value = ratio(value, whole)
	}
	if !c.met(value) {
		return nil
	}
	if math.IsInf(value, 1) {
		return fmt.Errorf("%s: %s is not known, since it lies among the readings that failed (%s) or were dropped (%s)", c, c.figure.name, count(r.Failed), count(r.Dropped))
	}
	return fmt.Errorf("%s: %s is %s", c, c.figure.name, c.tell(value))
}

// tell tells a value that meets the condition, with as many digits as it takes
// to be seen that it does.
func (c Condition) tell(v float64) string {
	tell := humanCount
	scale, unit := 1.0, ""
	switch {
	case c.figure.time:
		tell, scale, unit = span, 1e3, " ms"
	case c.percent:
		tell = func(v float64) string { return share(v, 1) }
		scale, unit = 100, " %"
	}
	told := tell(v)
	if v == c.bound || told != tell(c.bound) {
		return told
	}
	const most = 9
	for digits := 1; digits <= most; digits++ {
		text := strconv.FormatFloat(v*scale, 'f', digits, 64)
		if shown, err := strconv.ParseFloat(text, 64); err == nil && c.met(shown/scale) {
			return text + unit
		}
	}
	return told
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

func ratio(part, whole float64) float64 {
	if whole <= 0 {
		return 0
	}
	return part / whole
}

func humanCount(v float64) string {
	if v == math.Trunc(v) && v < math.MaxInt32 {
		return count(int64(v))
	}
	return chart.Format(chart.Count, v)
}
