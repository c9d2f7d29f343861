package bench

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/stat"

	"github.com/brim-telemetry/brim/internal/chart"
)

// A Verdict is whether this machine shows what was published.
type Verdict string

// The verdicts.
const (
	Confirmed   Verdict = "confirmed"
	SizeDiffers Verdict = "direction holds, size differs"
	NotSeen     Verdict = "not seen here"
	Opposite    Verdict = "opposite"
)

// A Rule is how a claim is checked.
type Rule int

// The rules. Paired variants run in turn, so that a slow moment in a repeat affects both.
const (
	Value         Rule = iota // the value is the published one
	AtMost                    // every repeat is at most the published value
	AtLeast                   // every repeat is at least the published value
	Factor                    // one variant is the published factor times the other; 0: any factor above 1
	PairedFactor              // the same, repeat by repeat
	Same                      // the two variants do not differ
	PairedSame                // the same, repeat by repeat
	FactorAtLeast             // repeat by repeat, the median factor is at least the published one
	FactorAtMost              // the same with at most
)

func (r Rule) compares() bool { return r >= Factor }
func (r Rule) paired() bool   { return r == PairedFactor || r == PairedSame }
func (r Rule) same() bool     { return r == Same || r == PairedSame }

const (
	// alike is the factor up to which two sizes count as the same: machines differ that much
	// for reasons unrelated to MongoDB.
	alike = 1.5
	// noticeable is the factor below which there is no difference even if the repeats do not
	// overlap: three repeats are too few to show less.
	noticeable = 1.1
)

// A Claim is a published statement and how to check it.
type Claim struct {
	Says        string
	Published   float64 // a factor for rules that compare, otherwise a value in Unit
	PublishedAs string  // the published wording, as in "85 → 650 µs"
	Unit        Unit    // of the figures
	Rule        Rule
	From        Figure // for rules that compare
	Of          Figure
	Alike       float64 // the factor up to which sizes count as the same; 0: 1.5, and 1.1 for Same
	Because     string  // why this machine may differ; one sentence
}

// An Answer is a sentence chosen by a claim's figure.
type Answer struct {
	Claim  string  // Claim.Says
	AtMost float64 // the answer holds if the measured figure is at most this; 0: always
	Says   string  // %s becomes the figure
}

// answer returns the first one that holds; empty if none does or its claim was not checked.
func answer(all []Answer, rows []Row) string {
	for _, a := range all {
		for i := range rows {
			if r := &rows[i]; r.Claim == a.Claim && (a.AtMost == 0 || r.Measured <= a.AtMost) {
				return fmt.Sprintf(a.Says, r.Unit.Format(r.Measured))
			}
		}
	}
	return ""
}

// Explanations of a verdict, unless the claim has its own.
const (
	whyAgrees    = "The measured figure agrees with the published one."
	whyBlurred   = "The repeats of the two overlap: no difference was seen."
	whyMixed     = "Some repeats show more and some less: no difference was seen."
	whyTiny      = "They differ by less than a tenth."
	whyDiffers   = "The measured figure differs from the published one."
	whySomeAbove = "Some repeats keep the bound, and others do not."
)

// check returns the row of a claim; false if there are no figures.
func (c Claim) check(from, of Samples) (Row, bool) {
	if c.Rule.same() {
		c.Published = 1
	}
	measured, as, unit := of, c.Unit.Spread(of), c.Unit
	if c.Rule.compares() {
		measured, unit = of.Over(from), Times
		as = fmt.Sprintf("%s → %s, %s", c.Unit.Spread(from), c.Unit.Spread(of), Times.Format(measured.Median()))
	}
	r := Row{
		Claim: c.Says, Unit: unit, Published: c.Published, PublishedAs: c.PublishedAs,
		Measured: measured.Median(), Min: measured.Min(), Max: measured.Max(), MeasuredAs: as,
	}
	if math.IsNaN(r.Measured) || math.IsInf(r.Measured, 0) {
		return r, false
	}
	switch {
	case c.Rule.compares():
		r.Verdict, r.Why = c.compare(from, of, measured)
	case c.Rule == AtMost:
		r.Verdict, r.Why = bound(measured.Max() <= c.Published, measured.Min() > c.Published)
	case c.Rule == AtLeast:
		r.Verdict, r.Why = bound(measured.Min() >= c.Published, measured.Max() < c.Published)
	case r.Measured == 0 && c.Published != 0:
		r.Verdict, r.Why = NotSeen, whyDiffers
	case r.Measured*c.Published < 0:
		r.Verdict, r.Why = Opposite, whyDiffers
	case apart(r.Measured, c.Published) > cmp.Or(c.Alike, alike):
		r.Verdict, r.Why = SizeDiffers, whyDiffers
	default:
		r.Verdict, r.Why = Confirmed, whyAgrees
	}
	if c.Because != "" && r.Verdict != Confirmed && (r.Why == whyDiffers || r.Why == whyTiny) {
		r.Why = c.Because
	}
	return r, true
}

// compare checks the ratios of two variants.
func (c Claim) compare(from, of, ratios Samples) (Verdict, string) {
	factor, none := ratios.Median(), ""
	const slack = 0.005 // a miss by this much does not break a promise
	switch {
	case c.Rule == FactorAtLeast && factor >= c.Published*(1-slack), c.Rule == FactorAtMost && factor <= c.Published*(1+slack):
		return Confirmed, whyAgrees
	case c.Rule == FactorAtLeast, c.Rule == FactorAtMost:
		return NotSeen, whyDiffers
	}
	switch {
	case c.Rule.paired() && ratios.Min() <= 1 && ratios.Max() >= 1:
		none = whyMixed
	case !c.Rule.paired() && from.Overlaps(of):
		none = whyBlurred
	case apart(factor, 1) < noticeable:
		none = whyTiny
	}
	switch {
	case c.Rule.same() && (none != "" || apart(factor, 1) < cmp.Or(c.Alike, noticeable)):
		return Confirmed, cmp.Or(none, whyAgrees)
	case c.Rule.same():
		return NotSeen, whyDiffers
	case none != "":
		return NotSeen, none
	case (factor > 1) != (c.Published > 1 || c.Published == 0):
		return Opposite, whyDiffers
	case c.Published > 0 && apart(factor, c.Published) > cmp.Or(c.Alike, alike):
		return SizeDiffers, whyDiffers
	}
	return Confirmed, whyAgrees
}

func bound(all, none bool) (Verdict, string) {
	switch {
	case all:
		return Confirmed, whyAgrees
	case none:
		return Opposite, whyDiffers
	}
	return NotSeen, whySomeAbove
}

// apart returns the factor between two values, 1 or more.
func apart(a, b float64) float64 { return math.Exp(math.Abs(math.Log(a / b))) }

// Samples are the results of a measurement's repeats, in order.
type Samples []float64

// Min returns the smallest sample; NaN if there are none.
func (s Samples) Min() float64 { return s.Quantile(0) }

// Max returns the largest sample; NaN if there are none.
func (s Samples) Max() float64 { return s.Quantile(1) }

// Median returns the middle sample, or the mean of the middle two; NaN if there are none.
func (s Samples) Median() float64 {
	if len(s) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(s))
	return (sorted[(len(s)-1)/2] + sorted[len(s)/2]) / 2
}

// Mean returns the mean; NaN if there are no samples.
func (s Samples) Mean() float64 { return stat.Mean(s, nil) }

// Quantile returns the smallest sample with at least a fraction q at or below it: below 100
// samples, p99 is the largest. NaN if there are none.
func (s Samples) Quantile(q float64) float64 {
	if len(s) == 0 {
		return math.NaN()
	}
	return stat.Quantile(q, stat.Empirical, slices.Sorted(slices.Values(s)), nil)
}

// Overlaps reports whether the two ranges overlap.
func (s Samples) Overlaps(other Samples) bool {
	return s.Min() <= other.Max() && other.Min() <= s.Max()
}

// Over divides each sample by other's sample of the same repeat.
func (s Samples) Over(other Samples) Samples {
	ratios := make(Samples, min(len(s), len(other)))
	for i := range ratios {
		ratios[i] = s[i] / other[i]
	}
	return ratios
}

// A Unit is what a figure is measured in.
type Unit string

// The units. Times is for factors.
const (
	Seconds   Unit = "s"
	PerSecond Unit = "/s"
	Bytes     Unit = "bytes"
	Ratio     Unit = "ratio" // 1 is 100 %
	Count     Unit = ""
	Times     Unit = "x"
)

// Chart returns the matching chart unit.
func (u Unit) Chart() chart.Unit {
	switch u {
	case Seconds:
		return chart.Seconds
	case PerSecond:
		return chart.PerSecond
	case Bytes: // powers of ten, as published
		return chart.DecimalBytes
	case Ratio:
		return chart.Ratio
	}
	return chart.Count
}

// Format formats a figure with three digits: 1.25 ms, 4.20x.
func (u Unit) Format(v float64) string {
	digits := func(v float64) string {
		return strconv.FormatFloat(v, 'f', 2-min(int(math.Log10(max(math.Abs(v), 1))), 2), 64)
	}
	switch {
	case math.IsNaN(v) || math.IsInf(v, 0) || u == Bytes && v == 0:
	case u == Times:
		return digits(v) + "x"
	case u == Bytes && math.Abs(v) >= 1000:
		value, prefix := humanize.ComputeSI(v)
		return digits(value) + " " + strings.ToUpper(prefix) + "B"
	case u == Bytes:
		return digits(v) + " B"
	}
	return chart.Format(u.Chart(), v)
}

// Spread formats samples: the median, and the range if they differ.
func (u Unit) Spread(s Samples) string {
	if len(s) < 2 || s.Min() == s.Max() {
		return u.Format(s.Median())
	}
	return fmt.Sprintf("%s (%s to %s)", u.Format(s.Median()), u.Format(s.Min()), u.Format(s.Max()))
}

// A Line is base + each·x.
type Line struct {
	Base, Each           float64
	BaseError, EachError float64 // standard errors; NaN for a line through two points
}

// At returns the line's value at x.
func (l Line) At(x float64) float64 { return l.Base + l.Each*x }

// FitLine fits a line by least squares of relative deviations: the smallest cost counts as much
// as one a hundred times as large. It needs positive values at two or more distinct x;
// otherwise it returns false.
func FitLine(x, y []float64) (l Line, ok bool) {
	weights := make([]float64, len(y))
	for i, v := range y {
		if !(v > 0) || math.IsInf(v, 0) {
			return l, false
		}
		weights[i] = 1 / (v * v)
	}
	if len(x) < 2 || len(x) != len(y) || slices.Min(x) == slices.Max(x) {
		return l, false
	}
	l.Base, l.Each = stat.LinearRegression(x, y, weights, false)
	mean, left := stat.Mean(x, weights), 0.
	for i := range x {
		left += weights[i] * math.Pow(y[i]-l.At(x[i]), 2)
	}
	all := floats.Sum(weights)
	spread := stat.MomentAbout(2, x, mean, weights) * all
	variance := math.NaN()
	if len(x) > 2 {
		variance = left / float64(len(x)-2)
	}
	l.EachError = math.Sqrt(variance / spread)
	l.BaseError = math.Sqrt(variance * (1/all + mean*mean/spread))
	return l, true
}
