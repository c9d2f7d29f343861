package bench

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestFactorClaims(t *testing.T) {
	t.Parallel()
	const because = "Disks are slow."
	for _, c := range []struct {
		what      string
		rule      Rule
		published float64
		from, of  Samples
		verdict   Verdict
		why       string
	}{
		{"as published", Factor, 7.6, Samples{1, 1.1, 1.2}, Samples{8, 8.5, 9}, Confirmed, whyAgrees},
		{"less, in its direction", Factor, 7.6, Samples{1, 1.1, 1.2}, Samples{2, 2.2, 2.4}, SizeDiffers, because},
		{"more, in its direction", Factor, 2, Samples{1, 1, 1}, Samples{4, 4, 4}, SizeDiffers, because},
		{"ranges overlap", Factor, 2, Samples{1, 1, 3}, Samples{2, 2.5, 4}, NotSeen, whyBlurred},
		{"apart, but by next to nothing", Factor, 2, Samples{1, 1, 1}, Samples{1.05, 1.05, 1.05}, NotSeen, because},
		{"the other way", Factor, 2, Samples{2, 2.1, 2.2}, Samples{1, 1.1, 1.2}, Opposite, because},
		{"a fall, as published", Factor, 0.7, Samples{10, 11, 12}, Samples{6, 7, 8}, Confirmed, whyAgrees},
		{"a fall that is a rise", Factor, 0.7, Samples{6, 7, 8}, Samples{10, 11, 12}, Opposite, because},

		{"a slow minute hit both", PairedFactor, 2, Samples{1, 3, 1}, Samples{1.4, 4.2, 1.4}, Confirmed, whyAgrees},
		{"both ways", PairedFactor, 2, Samples{1, 1, 1}, Samples{1.5, 1.4, 0.9}, NotSeen, whyMixed},
		{"next to nothing", PairedFactor, 2, Samples{1, 3, 1}, Samples{1.05, 3.2, 1.06}, NotSeen, because},
		{"more, as said without a figure", PairedFactor, 0, Samples{1, 2, 1}, Samples{1.4, 2.8, 1.4}, Confirmed, whyAgrees},
		{"less, where more was said", PairedFactor, 0, Samples{1.4, 2.8, 1.4}, Samples{1, 2, 1}, Opposite, because},

		{"the same: they overlap", Same, 0, Samples{1, 2}, Samples{1.5, 3}, Confirmed, whyBlurred},
		{"the same: next to nothing", Same, 0, Samples{100}, Samples{104}, Confirmed, whyTiny},
		{"not the same", Same, 0, Samples{100, 110}, Samples{200, 210}, NotSeen, because},
		{"the same, repeat by repeat: a slow minute hit both", PairedSame, 0, Samples{1, 3, 1}, Samples{1.4, 4.2, 1.4}, NotSeen, because},
		{"the same, repeat by repeat", PairedSame, 0, Samples{1, 1, 1}, Samples{1.5, 1.4, 0.9}, Confirmed, whyMixed},
		{"the same, repeat by repeat: next to nothing", PairedSame, 0, Samples{1, 3}, Samples{1.05, 3.1}, Confirmed, whyTiny},

		{"at least", FactorAtLeast, 0.9, Samples{1, 2, 1}, Samples{1, 1.8, 0.5}, Confirmed, whyAgrees},
		{"not at least", FactorAtLeast, 0.9, Samples{1, 2, 1}, Samples{0.8, 1.6, 1}, NotSeen, because},
		{"at most", FactorAtMost, 1.25, Samples{1}, Samples{1.25}, Confirmed, whyAgrees},
		{"not at most", FactorAtMost, 1.25, Samples{1}, Samples{1.3}, NotSeen, because},
	} {
		r, ok := Claim{Rule: c.rule, Published: c.published, Unit: Seconds, Because: because}.check(c.from, c.of)
		require.True(t, ok, c.what)
		assert.Equal(t, c.verdict, r.Verdict, c.what)
		assert.Equal(t, c.why, r.Why, c.what)
		assert.Equal(t, c.of.Over(c.from).Median(), r.Measured, c.what)
		assert.Equal(t, Times, r.Unit)
	}
	r, _ := Claim{Rule: Same, Unit: Bytes, Alike: 1.25}.check(Samples{100}, Samples{120})
	assert.Equal(t, Confirmed, r.Verdict, "as far as the claim allows")
	assert.Equal(t, 1.0, r.Published)
	r, _ = Claim{Rule: Factor, Published: 2, Unit: Bytes}.check(Samples{100, 110}, Samples{200, 210})
	assert.Equal(t, "105 B (100 B to 110 B) → 205 B (200 B to 210 B), 1.95x", r.MeasuredAs)
}

func TestValueClaims(t *testing.T) {
	t.Parallel()
	check := func(c Claim, of ...float64) Row {
		r, ok := c.check(nil, of)
		require.True(t, ok)
		return r
	}
	size := Claim{Says: "a document has 28 KB", Published: 28e3, Unit: Bytes, Because: "BSON."}
	assert.Equal(t, Confirmed, check(size, 30e3).Verdict)
	r := check(size, 60e3)
	assert.Equal(t, []any{SizeDiffers, "BSON.", "60.0 KB"}, []any{r.Verdict, r.Why, r.MeasuredAs})
	assert.Equal(t, Opposite, check(size, -60e3).Verdict, "less, where more was said")
	assert.Equal(t, NotSeen, check(size, 0).Verdict, "nothing of it")
	size.Alike = 3
	assert.Equal(t, Confirmed, check(size, 60e3).Verdict)

	most := Claim{Published: 60, Unit: Seconds, Rule: AtMost, Because: "It is slow."}
	assert.Equal(t, Confirmed, check(most, 1, 2, 60).Verdict)
	assert.Equal(t, NotSeen, check(most, 1, 2, 61).Verdict, "a bound holds for all repeats")
	assert.Equal(t, whySomeAbove, check(most, 1, 2, 61).Why)
	r = check(most, 62, 61, 65)
	assert.Equal(t, []any{Opposite, "It is slow."}, []any{r.Verdict, r.Why})
	least := Claim{Published: 10, Rule: AtLeast}
	assert.Equal(t, []Verdict{Confirmed, NotSeen, Opposite}, []Verdict{check(least, 10, 11).Verdict, check(least, 9, 11).Verdict, check(least, 8, 9).Verdict})
	assert.Equal(t, whyDiffers, check(least, 8).Why, "without a reason of its own")
}

func TestClaimsWithoutFigures(t *testing.T) {
	t.Parallel()
	figure := func(variant string) Figure { return Figure{"t", variant, "cost"} }
	claims := []Claim{
		{Says: "no table", Published: 2, Of: Figure{"absent", "a", "cost"}},
		{Says: "no variant", Published: 2, Of: figure("absent")},
		{Says: "nothing to compare with", Rule: Factor, From: figure("absent"), Of: figure("a")},
		{Says: "no samples", Published: 2, Of: figure("empty")},
		{Says: "from nothing", Rule: PairedFactor, From: figure("zero"), Of: figure("a")},
		{Says: "measured", Published: 2, Of: figure("a")},
	}
	r := &Result{Tables: []*Table{{Name: "t"}, {Name: "unused"}}}
	r.Table("t").Add("a", "cost", 2)
	r.Table("t").Add("zero", "cost", 0)
	r.Table("t").Add("empty", "cost", math.NaN(), math.Inf(1))
	r.conclude(claims)
	require.Len(t, r.Rows, 1)
	assert.Equal(t, "measured", r.Rows[0].Claim)
	assert.Equal(t, []LeftOut{{"no samples", "nothing could be measured"}, {"from nothing", "nothing could be measured"}}, r.LeftOut)
	assert.Len(t, r.Tables, 1, "a table without rows is not shown")
}

func TestTableAdd(t *testing.T) {
	t.Parallel()
	table := Table{Measures: []Measure{{"time", Seconds}}, Unit: Bytes}
	table.Add("a", "size", 1, 2)
	table.Add("b", "time", 3)
	table.Add("a", "time", 4)
	assert.Equal(t, []Measure{{"time", Seconds}, {"size", Bytes}}, table.Measures)
	assert.Equal(t, []Samples{{4}, {1, 2}}, table.Rows[0].Samples)
	assert.Equal(t, Samples{1, 2}, table.Samples("a", "size"))
	assert.Nil(t, table.Samples("b", "size"))
	assert.Nil(t, (*Table)(nil).Samples("a", "size"))
	assert.Equal(t, 1.5, table.Median("a", "size"))
}

func TestSamples(t *testing.T) {
	t.Parallel()
	s := Samples{3, 1, 2}
	assert.Equal(t, []float64{1, 2, 3, 2}, []float64{s.Min(), s.Median(), s.Max(), s.Mean()})
	assert.Equal(t, 2.5, Samples{1, 2, 3, 4}.Median())
	assert.Equal(t, Samples{3, 1, 2}, s, "the order stays")
	assert.Equal(t, Samples{2, 4}, Samples{2, 8, 9}.Over(Samples{1, 2}))
	assert.True(t, Samples{1, 2}.Overlaps(Samples{2, 3}))
	assert.False(t, Samples{1, 2}.Overlaps(Samples{2.1, 3}))
	for q, want := range map[float64]float64{0: 1, 0.2: 1, 0.5: 3, 0.99: 5, 1: 5} {
		assert.Equal(t, want, Samples{5, 1, 4, 2, 3}.Quantile(q), q)
	}
	for _, v := range []float64{Samples{}.Min(), Samples{}.Max(), Samples{}.Median(), Samples{}.Quantile(0.5)} {
		assert.True(t, math.IsNaN(v))
	}
}

func TestFitLine(t *testing.T) {
	t.Parallel()
	l, ok := FitLine([]float64{1, 10, 100}, []float64{12, 30, 210})
	require.True(t, ok)
	assert.InDelta(t, 10, l.Base, 1e-9)
	assert.InDelta(t, 2, l.Each, 1e-9)
	assert.InDelta(t, 14, l.At(2), 1e-9)
	assert.InDelta(t, 0, l.BaseError, 1e-6)
	assert.InDelta(t, 0, l.EachError, 1e-6)
	// An error of a tenth in the largest value moves the line at the smallest by less than a
	// tenth.
	l, _ = FitLine([]float64{1, 10, 100}, []float64{12, 30, 231})
	assert.InEpsilon(t, 12, l.At(1), 0.1)
	assert.InEpsilon(t, 0.6070529520472359, l.BaseError, 1e-6) // by the textbook's sums
	assert.InEpsilon(t, 0.09869676324403677, l.EachError, 1e-6)
	l, _ = FitLine([]float64{1, 10}, []float64{12, 30})
	assert.True(t, math.IsNaN(l.BaseError) && math.IsNaN(l.EachError), "two points say nothing about the error")
	for _, c := range [][2][]float64{{{1}, {1}}, {{1, 1}, {1, 2}}, {{1, 2}, {1, 0}}, {{1, 2}, {1, math.NaN()}}, {{1, 2, 3}, {1, 2}}, {nil, nil}} {
		_, ok := FitLine(c[0], c[1])
		assert.False(t, ok, "%v", c)
	}
}

func TestUnitFormat(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		u    Unit
		v    float64
		want string
	}{
		{Seconds, 650e-6, "650 µs"}, {Bytes, 512, "512 B"}, {Bytes, 28e3, "28.0 KB"}, {Bytes, 6.72e9, "6.72 GB"}, {Bytes, 0, "0 B"},
		{Times, 7.6, "7.60x"}, {Times, 76, "76.0x"}, {Ratio, 0.45, "45 %"}, {Count, 240e3, "240k"}, {Seconds, math.NaN(), "–"},
	} {
		assert.Equal(t, c.want, c.u.Format(c.v))
	}
	assert.Equal(t, "2 s", Seconds.Spread(Samples{2}))
	assert.Equal(t, "2 s (1 s to 3 s)", Seconds.Spread(Samples{3, 1, 2}))
}

func TestFirstAnswerThatHolds(t *testing.T) {
	t.Parallel()
	answers := []Answer{
		{Claim: "hour", AtMost: 1.25, Says: "Use 1h (%s)."}, {Claim: "five", AtMost: 1.25, Says: "Use 5m (%s)."}, {Claim: "five", Says: "Use 1m (%s)."},
	}
	for want, measured := range map[string][2]float64{"Use 1h (1.10x).": {1.1, 9}, "Use 5m (1.20x).": {3, 1.2}, "Use 1m (2.00x).": {3, 2}} {
		rows := []Row{{Claim: "hour", Unit: Times, Measured: measured[0]}, {Claim: "five", Unit: Times, Measured: measured[1]}}
		assert.Equal(t, want, answer(answers, rows))
	}
	assert.Empty(t, answer(answers, nil), "no claim was checked")
}
