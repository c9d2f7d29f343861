package chart

import (
	"math"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// cost is a chart of what an update costs by readings that are there, with a
// line that was fitted.
func cost() Lines {
	x := []float64{1, 12, 60, 360, 720, 3600}
	measured, fitted := make([]float64, len(x)), make([]float64, len(x))
	low, high := make([]float64, len(x)), make([]float64, len(x))
	for i, n := range x {
		fitted[i] = 80e-6 + 0.8e-6*n
		measured[i] = fitted[i] * (1 + 0.1*math.Sin(float64(i)))
		low[i], high[i] = measured[i]*0.9, measured[i]*1.2
	}
	return Lines{
		Title: "Cost of an update", XLabel: "readings in the document", Y: Axis{Label: "round trip", Unit: Seconds},
		Series: []Series{
			{Name: "measured", X: x, Y: measured, Low: low, High: high, Tone: A},
			{Name: "a + b x readings", X: x, Y: fitted, Tone: B, Dashed: true, Bare: true},
		},
		Width: 640, Height: 300,
	}
}

// points are where the points of a tone are.
func points(out, tone string) []string {
	var at []string
	for _, m := range regexp.MustCompile(`<path d="([^"A]+A[^"]+)" fill="var\(--chart-`+tone+`,#.{6}\)"`).FindAllStringSubmatch(out, -1) {
		at = append(at, m[1])
	}
	return at
}

func TestLinesHavePointsRangesTicksAndTheLegend(t *testing.T) {
	t.Parallel()
	chart := cost()
	ranges := regexp.MustCompile(`stroke="var\(--chart-a,#.{6}\)" />`)
	out := drawn(t, chart)
	for _, text := range []string{
		"<title>Cost of an update</title>", ">measured<", ">a + b x readings<", ">readings in the document<", ">round trip<",
		">1,000<", ">4,000<", ">2 ms<", "stroke-dasharray",
	} {
		assert.Contains(t, out, text)
	}
	assert.Len(t, points(out, "a"), 6)
	assert.Empty(t, points(out, "b"), "what was fitted was not measured")
	assert.Len(t, ranges.FindAllString(out, -1), 3*6, "a range is a line with two ends")
	chart.Series[0].Low = nil
	assert.NotRegexp(t, ranges, drawn(t, chart))
}

func TestLinesOverLabels(t *testing.T) {
	t.Parallel()
	out := drawn(t, Lines{
		XLabel: "compressor", Labels: []string{"none", "snappy", "zstd"}, Y: Axis{Unit: Bytes}, Width: 400, Height: 200,
		Series: []Series{{Name: "5 min", Y: []float64{3e6, math.NaN(), 1e6}, Tone: E}, {Name: "1 h", Y: []float64{2e6, 1.5e6, 1e6, 9e9}, Tone: F}},
	})
	for _, text := range []string{">none<", ">snappy<", ">zstd<", ">compressor<", ">2 MiB<", "var(--chart-e,", "var(--chart-f,"} {
		assert.Contains(t, out, text)
	}
	assert.Len(t, points(out, "e"), 2)
}

func TestLinesThatLeaveTheirAxesAreCut(t *testing.T) {
	t.Parallel()
	chart := cost()
	chart.Y.Max = 0.0003
	chart.Series[0].High[3] = 1
	out := drawn(t, chart)
	assert.Len(t, points(out, "a"), 3, "those up to 60 readings")
}

func TestLinesWithoutData(t *testing.T) {
	t.Parallel()
	for _, series := range [][]Series{
		nil,
		{{Name: "x"}},
		{{Name: "x", X: []float64{}, Y: []float64{1}}},
		{{Name: "x", X: []float64{0, 1}, Y: []float64{math.NaN(), math.NaN()}}},
	} {
		out := drawn(t, Lines{Series: series, Width: 300, Height: 150})
		assert.Contains(t, out, "no data yet")
	}
}

func TestLinesOfAnySizeCanBeDrawn(t *testing.T) {
	t.Parallel()
	for _, v := range []float64{0, 1e-9, 0.02, 59, 4000, 1e12, 1e300, -5, math.Inf(1)} {
		for _, log := range []bool{false, true} {
			drawn(t, Lines{
				Y: Axis{Log: log}, Width: 360, Height: 160,
				Series: []Series{{X: []float64{1, 2}, Y: []float64{v, 1}, Low: []float64{0, v}, High: []float64{v, 2}}},
			})
		}
	}
	_, err := Lines{}.SVG()
	require.ErrorIs(t, err, errSize)
	for _, tone := range []Tone{-1, A, B, C, D, E, F, F + 1} {
		name := "--chart-" + variables[tone.index()].name + ":"
		assert.Contains(t, CSS, name)
	}
}
