package bench

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestAFactorIsHeldAgainstThePublishedOne(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what      string
		published float64
		from, to  Samples
		verdict   Verdict
		why       string
	}{
		{"as published", 7.6, Samples{1, 1.1, 1.2}, Samples{8, 8.5, 9}, Confirmed, "a factor of 7.73x"},
		{"less, in its direction", 7.6, Samples{1, 1.1, 1.2}, Samples{2, 2.2, 2.4}, SizeDiffers, "a factor of 2.00x, not of 7.60x"},
		{"more, in its direction", 2, Samples{1, 1, 1}, Samples{4, 4, 4}, SizeDiffers, "4.00x"},
		{"ranges overlap", 2, Samples{1, 1, 3}, Samples{2, 2.5, 4}, NotSeen, "overlap"},
		{"apart, but by next to nothing", 2, Samples{1, 1, 1}, Samples{1.05, 1.05, 1.05}, NotSeen, "less than 10 %"},
		{"the other way", 2, Samples{2, 2.1, 2.2}, Samples{1, 1.1, 1.2}, Opposite, "not of 2.00x"},
		{"a fall, as published", 0.7, Samples{10, 11, 12}, Samples{6, 7, 8}, Confirmed, "0.64x"},
		{"a fall that is a rise", 0.7, Samples{6, 7, 8}, Samples{10, 11, 12}, Opposite, "1.57x"},
	} {
		r := Claim{Says: c.what, Published: c.published}.Compare(c.from, c.to, Seconds)
		assert.Equal(t, c.verdict, r.Verdict, c.what)
		assert.Contains(t, r.Why, c.why, c.what)
		assert.Equal(t, c.to.Over(c.from).Median(), r.Measured, c.what)
	}
}

func TestPairsAreHeldRepeatByRepeat(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what      string
		published float64
		from, to  Samples
		verdict   Verdict
		why       string
	}{
		{"a slow minute hit both", 2, Samples{1, 3, 1}, Samples{1.4, 4.2, 1.4}, Confirmed, "a factor of 1.40x"},
		{"both ways", 2, Samples{1, 1, 1}, Samples{1.5, 1.4, 0.9}, NotSeen, "some repeats have more, some less"},
		{"next to nothing", 2, Samples{1, 3, 1}, Samples{1.05, 3.2, 1.06}, NotSeen, "less than 10 %"},
		{"more, as said without a figure", 0, Samples{1, 2, 1}, Samples{1.4, 2.8, 1.4}, Confirmed, "a factor of 1.40x"},
		{"less, where more was said", 0, Samples{1.4, 2.8, 1.4}, Samples{1, 2, 1}, Opposite, "a factor of 0.71x"},
		{"nothing", 0, nil, nil, NotSeen, "nothing could be measured"},
	} {
		r := Claim{Says: c.what, Published: c.published}.Paired(c.from, c.to, Seconds)
		assert.Equal(t, c.verdict, r.Verdict, c.what)
		assert.Contains(t, r.Why, c.why, c.what)
		assert.NotContains(t, r.Why, "not of 0", c.what)
	}
}

func TestThatNothingDiffersIsHeldAgainstTheRepeats(t *testing.T) {
	t.Parallel()
	same := Claim{Says: "the same", Because: "pages are written again"}
	assert.Equal(t, Confirmed, same.Same(Samples{1, 2}, Samples{1.5, 3}, Bytes).Verdict, "they overlap")
	assert.Equal(t, Confirmed, same.Same(Samples{100}, Samples{104}, Bytes).Verdict, "next to nothing")
	assert.Equal(t, NotSeen, same.Same(Samples{100}, Samples{120}, Bytes).Verdict)
	same.Alike = 1.25
	assert.Equal(t, Confirmed, same.Same(Samples{100}, Samples{120}, Bytes).Verdict, "as far as the claim allows")
	r := same.Same(Samples{100, 110}, Samples{200, 210}, Bytes)
	assert.Equal(t, NotSeen, r.Verdict)
	assert.Equal(t, "they differ by a factor of 1.95x: pages are written again", r.Why)
	assert.Equal(t, 1.0, r.Published)
	assert.Equal(t, "105 B (100 B to 110 B) → 205 B (200 B to 210 B)", r.MeasuredAs)
}

func TestThatNothingDiffersIsHeldRepeatByRepeat(t *testing.T) {
	t.Parallel()
	same := Claim{Says: "the same"}
	r := same.SamePaired(Samples{1, 3, 1}, Samples{1.4, 4.2, 1.4}, Seconds)
	assert.Equal(t, NotSeen, r.Verdict, "a slow minute hit both")
	assert.Equal(t, "they differ by a factor of 1.40x", r.Why)
	r = same.SamePaired(Samples{1, 1, 1}, Samples{1.5, 1.4, 0.9}, Seconds)
	assert.Equal(t, Confirmed, r.Verdict)
	assert.Equal(t, "some repeats have more, some less: no difference seen", r.Why)
	assert.Equal(t, Confirmed, same.SamePaired(Samples{1, 3}, Samples{1.05, 3.1}, Seconds).Verdict, "next to nothing")
	assert.True(t, math.IsNaN(same.SamePaired(nil, nil, Seconds).Measured))
}

func TestAValueIsHeldAgainstThePublishedOne(t *testing.T) {
	t.Parallel()
	size := Claim{Says: "a document has 28 KB", Published: 28e3, Unit: Bytes, Because: "BSON"}
	assert.Equal(t, Confirmed, size.Check(Samples{30e3}).Verdict)
	assert.Equal(t, "1.07x of the published", size.Check(Samples{30e3}).Why)
	r := size.Check(Samples{60e3})
	assert.Equal(t, SizeDiffers, r.Verdict)
	assert.Equal(t, "2.14x of the published: BSON", r.Why)
	assert.Equal(t, Opposite, size.Check(Samples{-60e3}).Verdict, "less, where more was said")
	size.Alike = 3
	assert.Equal(t, Confirmed, size.Check(Samples{60e3}).Verdict)
}

func TestWhatWasNotMeasuredIsLeftOut(t *testing.T) {
	t.Parallel()
	var r Result
	c := Claim{Says: "a claim", Published: 2, Unit: Bytes}
	r.Add(c.Compare(nil, nil, Seconds), c.Same(nil, Samples{1}, Seconds), c.Check(nil))
	assert.Empty(t, r.Rows)
	assert.Equal(t, []LeftOut{{"a claim", "nothing could be measured"}, {"a claim", "nothing could be measured"}, {"a claim", "nothing could be measured"}}, r.LeftOut)
	r.Add(c.Check(Samples{2}))
	assert.Len(t, r.Rows, 1)

	explained := Claim{Says: "a claim", Published: 2, Because: "disks are slow"}
	for what, row := range map[string]Row{
		"none": explained.Compare(nil, nil, Seconds), "from nothing": explained.Paired(Samples{0, 0}, Samples{1, 2}, Bytes),
		"as nothing": explained.Same(Samples{0}, Samples{1}, Bytes), "no value": explained.Check(nil), "no bound": explained.AtMost(nil),
	} {
		var r Result
		r.Add(row)
		assert.Empty(t, r.Rows, what)
		assert.Equal(t, []LeftOut{{"a claim", "nothing could be measured"}}, r.LeftOut, what)
	}
}

func TestABoundIsHeldByAllRepeats(t *testing.T) {
	t.Parallel()
	bound := Claim{Says: "at most a minute", Published: 60, Unit: Seconds, Because: "it is slow"}
	r := bound.AtMost(Samples{1, 2, 60})
	assert.Equal(t, Confirmed, r.Verdict)
	assert.Equal(t, "60 s at most", r.Why)
	assert.Equal(t, NotSeen, bound.AtMost(Samples{1, 2, 61}).Verdict)
	r = bound.AtMost(Samples{62, 61, 65})
	assert.Equal(t, Opposite, r.Verdict)
	assert.Equal(t, "61 s at least: it is slow", r.Why)
	assert.Equal(t, NotSeen, bound.AtMost(nil).Verdict)
}

func TestSamples(t *testing.T) {
	t.Parallel()
	s := Samples{3, 1, 2}
	assert.Equal(t, []float64{1, 2, 3}, []float64{s.Min(), s.Median(), s.Max()})
	assert.Equal(t, 2.5, Samples{1, 2, 3, 4}.Median())
	assert.Equal(t, Samples{3, 1, 2}, s, "the order stays")
	assert.Equal(t, Samples{2, 4}, Samples{2, 8, 9}.Over(Samples{1, 2}))
	assert.Equal(t, Samples{9, 1, 4}, s.Each(func(v float64) float64 { return v * v }))
	assert.True(t, Samples{1, 2}.Overlaps(Samples{2, 3}))
	assert.False(t, Samples{1, 2}.Overlaps(Samples{2.1, 3}))
	for share, want := range map[float64]float64{0: 1, 0.2: 1, 0.5: 3, 0.99: 5, 1: 5} {
		assert.Equal(t, want, Samples{5, 1, 4, 2, 3}.Quantile(share), share)
	}
	for _, v := range []float64{Samples{}.Min(), Samples{}.Max(), Samples{}.Median(), Samples{}.Quantile(0.5)} {
		assert.True(t, math.IsNaN(v))
	}
}

func TestUnitsAreReadByPeople(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		u    Unit
		v    float64
		want string
	}{
		{Seconds, 650e-6, "650 µs"}, {Bytes, 512, "512 B"}, {Bytes, 28e3, "28.0 KB"}, {Bytes, 6.72e9, "6.72 GB"}, {Bytes, 0, "0 B"},
		{Times, 7.6, "7.60x"}, {Times, 76, "76.0x"}, {Share, 0.45, "45 %"}, {Count, 240e3, "240k"}, {Seconds, math.NaN(), "–"},
	} {
		assert.Equal(t, c.want, c.u.Format(c.v))
	}
	assert.Equal(t, "2 s", Seconds.Spread(Samples{2}))
	assert.Equal(t, "2 s (1 s to 3 s)", Seconds.Spread(Samples{3, 1, 2}))
}
