package load

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestArrivalsOfAConstantRate(t *testing.T) {
	t.Parallel()
	s := newSchedule(Rate{2004, 2004}, time.Minute, 0)
	assert.EqualValues(t, 120_240, s.total)
	for n, want := range map[int64]time.Duration{0: 0, 1: time.Second / 2004, 2004: time.Second, 120_240 - 2004: 59 * time.Second} {
		assert.InDelta(t, want, toDuration(s.due(n)), 1, n)
	}
	assert.EqualValues(t, 2004, s.rateAt(30))
}

func TestArrivalsOfARamp(t *testing.T) {
	t.Parallel()
	up := newSchedule(Rate{0, 100}, 10*time.Second, 0)
	assert.EqualValues(t, 500, up.total)
	assert.Zero(t, up.due(0))
	assert.InDelta(t, 5, up.due(125), 1e-9) // 10 t² / 2
	assert.InDelta(t, 50, up.rateAt(5), 1e-9)
	down := newSchedule(Rate{100, 0}, 10*time.Second, 0)
	assert.EqualValues(t, 500, down.total)
	assert.InDelta(t, 5, down.due(375), 1e-9)
}

func TestArrivalsInSteps(t *testing.T) {
	t.Parallel()
	s := newSchedule(Rate{0, 200}, 30*time.Second, 3) // steps of 10 s each at 0, 100 and 200
	assert.EqualValues(t, 3000, s.total)
	assert.InDelta(t, 10, s.due(0), 1e-9)
	assert.InDelta(t, 10.01, s.due(1), 1e-9)
	assert.InDelta(t, 20, s.due(1000), 1e-9)
	assert.InDelta(t, 25, s.due(2000), 1e-9)
	assert.Zero(t, s.rateAt(9.9))
	assert.EqualValues(t, 100, s.rateAt(10))
	assert.EqualValues(t, 200, s.rateAt(30))
}

// TestAScheduleIsTheInverseOfItsRate draws rates and steps: arrivals are in order and before
// the end, and their number at any time is the integral of the rate.
func TestAScheduleIsTheInverseOfItsRate(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		rate := rapid.OneOf(rapid.Just(0.0), rapid.Float64Range(0.01, 1e5))
		r := Rate{rate.Draw(t, "from"), rate.Draw(t, "to")}
		if r.Max() == 0 {
			r.To = 1
		}
		seconds := rapid.Float64Range(0.5, 1e4).Draw(t, "seconds")
		steps := rapid.SampledFrom([]int{0, 2, 3, 10}).Draw(t, "steps")
		s := newSchedule(r, toDuration(seconds), steps)
		length := toDuration(seconds).Seconds()
		mean := (r.From + r.To) / 2 * length
		if math.Abs(float64(s.total)-mean) > 1+1e-6*mean {
			t.Fatalf("%d arrivals, and not %f", s.total, mean)
		}
		if s.total == 0 {
			return
		}
		n := rapid.Int64Range(0, s.total-1).Draw(t, "n")
		due := s.due(n)
		if !(due >= 0 && due < length) {
			t.Fatalf("arrival %d of %d is due at %g of %g", n, s.total, due, length)
		}
		if next := s.due(n + 1); n+1 < s.total && !(next > due) {
			t.Fatalf("arrival %d is due at %g, the next at %g", n, due, next)
		}
		if got := integral(s, due); math.Abs(got-float64(n)) > 1e-6*max(1, float64(n)) {
			t.Fatalf("arrival %d is due when %f are", n, got)
		}
	})
}

// integral returns the integral of the rate up to a time.
func integral(s *schedule, until float64) float64 {
	sum := 0.0
	for i, p := range s.pieces {
		end := until
		if i+1 < len(s.pieces) {
			end = min(end, s.pieces[i+1].start)
		}
		if d := end - p.start; d > 0 {
			sum += p.rate*d + p.slope*d*d/2
		}
	}
	return sum
}

func TestRatesAreRead(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Rate{"2000": {2000, 2000}, "500..5000": {500, 5000}, "5e3..0": {5000, 0}, "0.5": {0.5, 0.5}} {
		got, err := ParseRate(text)
		require.NoError(t, err)
		assert.Equal(t, want, got)
		again, err := ParseRate(got.String())
		require.NoError(t, err)
		assert.Equal(t, want, again)
	}
	for _, text := range []string{"", "0", "-1", "x", "1..", "..2", "NaN", "Inf", "1e9", "0..0", "1..2..3"} {
		_, err := ParseRate(text)
		assert.ErrorContains(t, err, "500..5000", text)
	}
}

func FuzzParseRate(f *testing.F) {
	for _, seed := range []string{"2000", "500..5000", "1e3..0", "..", "NaN..1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := ParseRate(text)
		if err != nil {
			return
		}
		again, err := ParseRate(r.String())
		if err != nil || again != r {
			t.Fatalf("%q is %v, which is read as %v (%v)", text, r, again, err)
		}
	})
}
