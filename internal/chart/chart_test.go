package chart

import (
	"encoding/xml"
	"html/template"
	"io"
	"math"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// svg is what all charts can do.
type svg interface{ SVG() (template.HTML, error) }

// drawn returns a chart's SVG, after what holds for every one of them.
func drawn(t *testing.T, c svg) string {
	t.Helper()
	html, err := c.SVG()
	require.NoError(t, err)
	decoder := xml.NewDecoder(strings.NewReader(string(html)))
	for {
		_, err := decoder.Token()
		if err == io.EOF { //nolint:errorlint // Token returns it as it is
			break
		}
		require.NoError(t, err, "it is no XML: %s", html)
	}
	out := string(html)
	assert.True(t, strings.HasPrefix(out, `<svg class="chart"`))
	assert.Contains(t, out, `role="img"`)
	assert.NotContains(t, out, "NaN")
	assert.NotContains(t, out, "Inf")
	assert.NotContains(t, out, "style=", "a strict policy forbids style attributes")
	assert.NotRegexp(t, `d="[^"]*\.\d{2}`, out, "numbers are short")
	return out
}

// latency is a chart of n seconds with a panel beneath.
func latency(n int) Time {
	t := Time{Title: "Write latency", Y: Axis{Unit: Seconds, Label: "round trip"}, Width: 640, Height: 300}
	p50, p99, fill := make([]float64, n), make([]float64, n), make([]float64, n)
	for i := range n {
		t.X = append(t.X, float64(i+1-n))
		fill[i] = math.Mod(float64(i)/60, 1)
		p50[i] = 0.0005 + 0.0005*fill[i]
		p99[i] = 0.002 + 0.003*math.Abs(math.Sin(float64(i)))
	}
	t.Series = []Series{{Name: "p50", Y: p50, Tone: A}, {Name: "p99", Y: p99, Tone: B, Dashed: true}}
	t.Beneath = &Panel{
		Y:      Axis{Unit: Ratio, Label: "fill", Max: 1},
		Series: []Series{{Name: "fill", Y: fill, Tone: C, Filled: true}},
	}
	return t
}

func TestTimeShowsSeriesTicksAndTheLegend(t *testing.T) {
	t.Parallel()
	out := drawn(t, latency(300))
	for _, text := range []string{
		"<title>Write latency</title>", ">p50<", ">p99<", ">fill<", ">round trip<",
		">2 ms<", ">4 ms<", ">100 %<", ">now<", ">−2 min<",
		"var(--chart-a,", "var(--chart-b,", "var(--chart-c,", "stroke-dasharray", "fill-opacity",
	} {
		assert.Contains(t, out, text)
	}
	assert.NotRegexp(t, "(?i)#fe[0-9a-f]{4}|#000000", out, "all colours are the page's")
}

func TestLowerPanelOfSmallHeightHasLineAndTicks(t *testing.T) {
	t.Parallel()
	c := latency(300)
	c.Height, c.Beneath.Y.Label = 270, "a label that is longer than the panel is high"
	out := drawn(t, c)
	assert.Contains(t, out, ">"+c.Beneath.Y.Label+"<")
	assert.Contains(t, out, ">100 %<")
	assert.Contains(t, out, "var(--chart-c,")
}

func TestAxesOfBothPanelsStandAboveEachOther(t *testing.T) {
	t.Parallel()
	out := drawn(t, latency(300))
	starts := make(map[string]bool)
	for _, m := range regexp.MustCompile(`<path d="M([\d.]+),[^"]*"[^/]* stroke="var\(--chart-[abc]`).FindAllStringSubmatch(out, -1) {
		if x, err := strconv.ParseFloat(m[1], 64); assert.NoError(t, err) && x < 60 {
			starts[m[1]] = true
		}
	}
	assert.Len(t, starts, 1, "all lines begin at the same place: %v", starts)
}

func TestGapBreaksALine(t *testing.T) {
	t.Parallel()
	lines := func(y ...float64) int {
		x := make([]float64, len(y))
		for i := range x {
			x[i] = float64(i)
		}
		out := drawn(t, Time{X: x, Series: []Series{{Y: y, Tone: D}}, Width: 300, Height: 200})
		return strings.Count(out, `stroke="var(--chart-d`)
	}
	gap := math.NaN()
	assert.Equal(t, 1, lines(1, 2, 3))
	assert.Equal(t, 2, lines(1, gap, 3, 4))
	assert.Equal(t, 2, lines(gap, 1, 2, gap, gap, 3, gap), "a point between gaps is a dot")
	assert.Equal(t, 1, lines(1, 2, math.Inf(1)))
}

func TestMarksAreDrawnInEachPanel(t *testing.T) {
	t.Parallel()
	chart := latency(300)
	chart.Marks = []float64{-100, -1e6} // one is out of sight
	assert.Equal(t, 2, strings.Count(drawn(t, chart), `stroke-dasharray="2,3"`))
}

func TestNoData(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]svg{
		"no points":      Time{Title: "Empty & <sound>", Width: 300, Height: 150},
		"only gaps":      Time{X: []float64{1, 2}, Series: []Series{{Y: []float64{math.NaN(), math.NaN()}}}, Width: 300, Height: 150},
		"no bars":        Bars{Labels: []string{"a"}, Series: []Series{{Name: "x"}}, Width: 300, Height: 150},
		"no percentiles": Curve{Series: []Series{{Name: "x"}}, Width: 300, Height: 150},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Contains(t, drawn(t, c), "no data yet")
		})
	}
}

func TestTextsAreEscaped(t *testing.T) {
	t.Parallel()
	chart := latency(10)
	chart.Title, chart.Series[0].Name, chart.Beneath.Y.Label = "<script>a", `"><script>b`, "<script>c"
	assert.NotContains(t, drawn(t, chart), "<script>")
}

func TestBarsHaveAGroupForEachLabel(t *testing.T) {
	t.Parallel()
	bars := Bars{
		Title: "By tenth", XLabel: "tenth", Y: Axis{Unit: Seconds}, Width: 640, Height: 220,
		Labels: []string{"0-10", "10-20", "20-30"},
		Series: []Series{{Name: "p50", Tone: A, Y: []float64{1, 2, math.NaN()}}, {Name: "p99", Tone: B, Y: []float64{2, 4, 6}}},
	}
	out := drawn(t, bars)
	for _, text := range []string{">0-10<", ">20-30<", ">p50<", ">p99<", ">tenth<", ">6 s<"} {
		assert.Contains(t, out, text)
	}
	bars.Y.Log = true
	drawn(t, bars)
	bars.Width, bars.Labels = 110, []string{"a long label", "and one more", "the last one"}
	assert.NotContains(t, drawn(t, bars), "and one more", "there is no room for it")
}

func TestCurveHasTicksAtTheNines(t *testing.T) {
	t.Parallel()
	curve := Curve{Title: "By percentile", Y: Axis{Unit: Seconds}, Width: 640, Height: 240}
	curve.Series = []Series{{
		Name: "response", X: []float64{0, 50, 90, 99, 99.9, 100}, Y: []float64{1, 2, 3, 4, 5, 90},
	}}
	out := drawn(t, curve)
	for _, text := range []string{">50 %<", ">90 %<", ">99 %<", ">99.9 %<", ">response<"} {
		assert.Contains(t, out, text)
	}
	assert.NotContains(t, out, ">99.99 %<", "nothing was measured there")
}

func TestLogAxisLeavesOutWhatHasNoPlaceOnIt(t *testing.T) {
	t.Parallel()
	out := drawn(t, Time{
		X: []float64{0, 1, 2, 3}, Y: Axis{Unit: Seconds, Log: true}, Width: 300, Height: 200,
		Series: []Series{{Y: []float64{0, 0.001, 0.1, -1}}},
	})
	assert.Contains(t, out, ">1 ms<")
	assert.Contains(t, out, ">100 ms<")
}

func TestAnySensibleSizeAndDataCanBeDrawn(t *testing.T) {
	t.Parallel()
	for _, v := range []float64{0, 1e-9, 1e-4, 0.02, 1, 59, 61, 4000, 1e6, 1e12, 1e300, -5} {
		for _, unit := range []Unit{Seconds, PerSecond, Ratio, Bytes, Count, DecimalBytes} {
			for _, log := range []bool{false, true} {
				drawn(t, Time{
					X: []float64{-1, 0}, Y: Axis{Unit: unit, Log: log},
					Series: []Series{{Name: "v", Y: []float64{v, v}}}, Width: 360, Height: 160,
				})
			}
		}
	}
	for _, size := range []float64{0, -1, 1e6, math.NaN()} {
		_, err := Time{Width: size, Height: 200}.SVG()
		assert.ErrorIs(t, err, errSize)
	}
}

func TestThinningKeepsPeaks(t *testing.T) {
	t.Parallel()
	x, y := make([]float64, 5000), make([]float64, 5000)
	for i := range x {
		x[i], y[i] = float64(i), 1
	}
	y[1234], y[4321] = 99, -99
	points := thin(x, y, 600)
	assert.LessOrEqual(t, len(points), 600)
	lo, hi := 0.0, 0.0
	for i, p := range points {
		lo, hi = min(lo, p.Y), max(hi, p.Y)
		assert.True(t, i == 0 || p.X > points[i-1].X, "in order")
	}
	assert.Equal(t, 99.0, hi)
	assert.Equal(t, -99.0, lo)
	for i := 2000; i < 3000; i++ {
		y[i] = math.NaN()
	}
	gaps := 0
	for _, p := range thin(x, y, 600) {
		if math.IsNaN(p.Y) {
			gaps++
		}
	}
	assert.Positive(t, gaps, "a gap stays one")
}

func TestChartsAreDrawnAtTheSameTime(t *testing.T) {
	t.Parallel()
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			_, err := latency(120).SVG()
			assert.NoError(t, err)
		})
	}
	group.Wait()
}

func BenchmarkTime(b *testing.B) {
	chart, size := latency(900), 0
	for b.Loop() {
		html, err := chart.SVG()
		if err != nil {
			b.Fatal(err)
		}
		size = len(html)
	}
	b.ReportMetric(float64(size), "bytes")
}
