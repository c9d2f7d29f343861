package bench

import (
	"cmp"
	"fmt"
	"math"
)

// A Verdict says how what was published stands on this machine.
type Verdict string

// The verdicts.
const (
	Confirmed   Verdict = "confirmed"
	SizeDiffers Verdict = "direction holds, size differs"
	NotSeen     Verdict = "not seen here"
	Opposite    Verdict = "opposite"
)

const (
	// alike is the factor up to which two sizes count as the same: machines differ
	// by that much in what is no effect of MongoDB's.
	alike = 1.5
	// noticeable is the factor under which a difference counts as none, also where
	// the repeats do not overlap: three repeats are too few to show less.
	noticeable = 1.1
)

// A Claim is what was published about one thing.
type Claim struct {
	Says string // what is claimed, in words
	// Published is the figure: a factor for Compare and Paired, a value in Unit for
	// Check. 0, for a factor: only that there is more of it.
	Published   float64
	PublishedAs string // as it was published, as in "85 → 650 µs"
	Unit        Unit   // of Check
	// Alike is the factor up to which sizes count as the same; 0: 1.5, and of Same
	// 1.1.
	Alike float64
	// Because is why this machine shows what it shows, if it does not agree; a
	// sentence. Empty: only the figures are told.
	Because string
}

func (c Claim) alike() float64 {
	if c.Alike == 0 {
		return alike
	}
	return c.Alike
}

// row begins the row of a claim.
func (c Claim) row(unit Unit, measured Samples, as string) Row {
	return Row{
		Claim: c.Says, Unit: unit, Published: c.Published, PublishedAs: c.PublishedAs,
		Measured: measured.Median(), Min: measured.Min(), Max: measured.Max(), MeasuredAs: as,
	}
}

// Compare holds the factor from one variant to another against the published
// one, which is not 1. Where the repeats of the two overlap, no difference was
// seen, and no factor is told as one.
func (c Claim) Compare(from, to Samples, unit Unit) Row {
	blurred := ""
	if from.Overlaps(to) {
		blurred = "the repeats of both overlap: no difference seen"
	}
	return c.compare(from, to, unit, blurred)
}

// Paired is Compare for two that were measured in turn, so that what slowed one
// of them in a repeat slowed the other: a difference was seen if the factor is
// on the same side of 1 in all repeats.
func (c Claim) Paired(from, to Samples, unit Unit) Row {
	blurred := ""
	if factors := to.Over(from); factors.Min() <= 1 && factors.Max() >= 1 {
		blurred = "some repeats have more, some less: no difference seen"
	}
	return c.compare(from, to, unit, blurred)
}

// compare holds the median factor against the published one, unless the repeats
// are blurred.
func (c Claim) compare(from, to Samples, unit Unit, blurred string) Row {
	ratios := to.Over(from)
	r := c.row(Times, ratios, fmt.Sprintf("%s → %s", unit.Spread(from), unit.Spread(to)))
	measured := ratios.Median()
	size := math.Abs(math.Log(measured) - math.Log(c.Published))
	not := ""
	if c.Published > 0 {
		not = ", not of " + Times.Format(c.Published)
	}
	switch {
	case math.IsNaN(measured) || math.IsInf(measured, 0): // of what was 0
		return r.missing()
	case blurred != "":
		r.Verdict, r.Why = NotSeen, blurred
	case math.Abs(math.Log(measured)) < math.Log(noticeable):
		r.Verdict, r.Why = NotSeen, fmt.Sprintf("they differ by less than %.0f %%", 100*(noticeable-1))
	case (measured > 1) != (c.Published > 1 || c.Published == 0):
		r.Verdict, r.Why = Opposite, fmt.Sprintf("a factor of %s%s", Times.Format(measured), not)
	case c.Published > 0 && size > math.Log(c.alike()):
		r.Verdict, r.Why = SizeDiffers, fmt.Sprintf("a factor of %s%s", Times.Format(measured), not)
	default:
		r.Verdict, r.Why = Confirmed, "a factor of "+Times.Format(measured)
		if c.Published > 0 {
			r.Why += ", published " + Times.Format(c.Published)
		}
	}
	return r.because(c)
}

// Same holds two variants against the claim that they do not differ.
func (c Claim) Same(a, b Samples, unit Unit) Row {
	blurred := ""
	if a.Overlaps(b) {
		blurred = "the repeats of both overlap: no difference seen"
	}
	return c.same(a, b, unit, blurred)
}

// same holds the median factor against 1, unless the repeats are blurred.
func (c Claim) same(a, b Samples, unit Unit, blurred string) Row {
	c.Published = 1
	limit := cmp.Or(c.Alike, noticeable)
	ratios := b.Over(a)
	r := c.row(Times, ratios, fmt.Sprintf("%s → %s", unit.Spread(a), unit.Spread(b)))
	measured := ratios.Median()
	switch {
	case math.IsNaN(measured) || math.IsInf(measured, 0):
		return r.missing()
	case blurred != "":
		r.Verdict, r.Why = Confirmed, blurred
	case math.Abs(math.Log(measured)) < math.Log(limit):
		r.Verdict, r.Why = Confirmed, fmt.Sprintf("they differ by less than %.0f %%", 100*(limit-1))
	default:
		r.Verdict, r.Why = NotSeen, "they differ by a factor of "+Times.Format(measured)
	}
	return r.because(c)
}

// SamePaired is Same for two that were measured in turn, as with Paired: they do
// not differ where some repeats have more and some less.
func (c Claim) SamePaired(a, b Samples, unit Unit) Row {
	blurred := ""
	if factors := b.Over(a); factors.Min() <= 1 && factors.Max() >= 1 {
		blurred = "some repeats have more, some less: no difference seen"
	}
	return c.same(a, b, unit, blurred)
}

// Check holds a value against the published one. It is for what does not hang
// on the speed of a machine: sizes and counts.
func (c Claim) Check(measured Samples) Row {
	r := c.row(c.Unit, measured, c.Unit.Spread(measured))
	m := measured.Median()
	switch {
	case math.IsNaN(m):
		return r.missing()
	case m*c.Published < 0:
		r.Verdict, r.Why = Opposite, c.Unit.Format(m)+", not "+c.Unit.Format(c.Published)
	case math.Abs(math.Log(m)-math.Log(c.Published)) <= math.Log(c.alike()):
		r.Verdict, r.Why = Confirmed, Times.Format(m/c.Published)+" of the published"
	default:
		r.Verdict, r.Why = SizeDiffers, Times.Format(m/c.Published)+" of the published"
	}
	return r.because(c)
}

// AtMost holds a value against the published bound, in Unit. A bound that some
// repeats keep and others do not is not seen.
func (c Claim) AtMost(measured Samples) Row {
	r := c.row(c.Unit, measured, c.Unit.Spread(measured))
	switch {
	case math.IsNaN(measured.Median()):
		return r.missing()
	case measured.Max() <= c.Published:
		r.Verdict, r.Why = Confirmed, c.Unit.Format(measured.Max())+" at most"
	case measured.Min() > c.Published:
		r.Verdict, r.Why = Opposite, c.Unit.Format(measured.Min())+" at least"
	default:
		r.Verdict, r.Why = NotSeen, c.Unit.Format(measured.Max())+" at most"
	}
	return r.because(c)
}

// missing is a row of what there are no figures of; Result.Add leaves it out. No
// reason explains figures that there are not.
func (r Row) missing() Row {
	r.Measured, r.Verdict, r.Why = math.NaN(), NotSeen, "nothing could be measured"
	return r
}

// because adds the reason of one who does not agree.
func (r Row) because(c Claim) Row {
	if r.Verdict != Confirmed && c.Because != "" {
		r.Why += ": " + c.Because
	}
	return r
}
