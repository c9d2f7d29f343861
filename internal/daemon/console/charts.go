package console

import (
	"html/template"
	"math"

	"github.com/brim-telemetry/brim/internal/chart"
	"github.com/brim-telemetry/brim/internal/scrape"
	"github.com/brim-telemetry/brim/internal/store"
)

// Sizes of drawings in CSS pixels: what is written in them is legible where
// they are shown about this wide.
const (
	wide, narrow      = 560, 350
	tall, low, height = 330, 270, 240
	// gapSeconds without a look is a gap in the lines.
	gapSeconds = 2.5
	// mostBridged looks without a value are not a gap.
	mostBridged = 10
	// leastSpan of the X axis: a daemon that was just started shows a short line.
	leastSpan = 60
)

// drawings are those of a page, in their order.
type drawings struct {
	Latency, Tenths, Rate, Lag, Journal, Queue template.HTML
}

// a timeline is the seconds as the drawings take them.
type timeline struct {
	x       []float64 // seconds before now
	marks   []float64 // starts of the daemon, but not the first thing that is seen, and of its mongod anew
	seconds []*second // nil where there is a gap
	width   float64
}

// newTimeline puts the seconds on an axis that ends now. Looks that are step
// seconds apart, or a little more, have no gap between them.
func newTimeline(seconds []second, now int64, step, width float64) timeline {
	t := timeline{width: width}
	at := func(s *second) float64 { return float64(s.At-now) / 1000 }
	add := func(x float64, s *second) { t.x, t.seconds = append(t.x, x), append(t.seconds, s) }
	for i := range seconds {
		s := &seconds[i]
		switch {
		case i == 0 && at(s) > -leastSpan:
			add(-leastSpan, nil)
		case i > 0 && at(s)-at(&seconds[i-1]) > gapSeconds*step:
			// As many points as there would be: a gap is as hard to overlook as
			// what it is a gap in.
			for x := at(&seconds[i-1]) + step; x < at(s); x += step {
				add(x, nil)
			}
		}
		if s.First && i > 0 || s.Restarted {
			t.marks = append(t.marks, at(s))
		}
		add(at(s), s)
	}
	if n := len(t.x); n > 0 && t.x[n-1] < 0 {
		add(0, nil)
	}
	return t
}

// line returns a value of each second. Few seconds in which nothing happened
// that could be measured are bridged: a stream that is written every five
// seconds has a line all the same.
func (t *timeline) line(value func(*second) float32) []float64 {
	out := make([]float64, len(t.seconds))
	known := -1 // the last second with a value, of this process
	for i, s := range t.seconds {
		out[i] = math.NaN()
		if s == nil || s.First {
			known = -1
		}
		if s == nil {
			continue
		}
		out[i] = float64(value(s))
		if math.IsNaN(out[i]) {
			continue
		}
		if known >= 0 && i-known <= mostBridged {
			for j := known + 1; j < i; j++ {
				out[j] = out[known] + (out[i]-out[known])*float64(j-known)/float64(i-known)
			}
		}
		known = i
	}
	return out
}

func (t *timeline) chart(title string, unit chart.Unit, series ...chart.Series) chart.Time {
	return chart.Time{
		Title: title, X: t.x, Marks: t.marks, Y: chart.Axis{Unit: unit}, Series: series, Width: t.width, Height: height,
	}
}

func (t *timeline) latency(stream int) chart.Time {
	of := func(value func(writes) float32) []float64 {
		return t.line(func(s *second) float32 { return value(s.of(stream)) })
	}
	c := t.chart("Write latency", chart.Seconds,
		chart.Series{Name: "p99", Tone: chart.B, Y: of(func(w writes) float32 { return w.P99 })},
		chart.Series{Name: "p50", Tone: chart.A, Y: of(func(w writes) float32 { return w.P50 })})
	c.Height = tall
	c.Beneath = &chart.Panel{
		Y: chart.Axis{Label: "Fill of the buckets being written", Unit: chart.Ratio, Max: 1},
		Series: []chart.Series{{
			Tone: chart.C, Filled: true, Y: of(func(w writes) float32 { return w.Fill }),
		}},
	}
	return c
}

func (t *timeline) rate() chart.Time {
	return t.chart("Readings per second", chart.PerSecond,
		chart.Series{Name: "taken in", Tone: chart.A, Y: t.line(func(s *second) float32 { return s.In })},
		chart.Series{Name: "stored", Tone: chart.C, Dashed: true, Y: t.line(func(s *second) float32 { return s.Stored })})
}

func (t *timeline) lag() chart.Time {
	return t.chart("Lag from receipt to stored", chart.Seconds,
		chart.Series{Name: "p99", Tone: chart.B, Y: t.line(func(s *second) float32 { return s.LagP99 })},
		chart.Series{Name: "p50", Tone: chart.A, Y: t.line(func(s *second) float32 { return s.LagP50 })})
}

func (t *timeline) journal() chart.Time {
	c := t.chart("Journal", chart.Bytes, chart.Series{Tone: chart.D, Filled: true, Y: t.line(func(s *second) float32 { return s.Journal })})
	c.Height = low
	c.Beneath = &chart.Panel{
		Y:      chart.Axis{Label: "Age of the oldest reading not stored", Unit: chart.Seconds},
		Series: []chart.Series{{Tone: chart.B, Y: t.line(func(s *second) float32 { return s.Oldest })}},
	}
	return c
}

func (t *timeline) queue() chart.Time {
	c := t.chart("Readings waiting to be stored", chart.Count,
		chart.Series{Tone: chart.D, Filled: true, Y: t.line(func(s *second) float32 { return s.Queue })})
	c.Height = low
	c.Beneath = &chart.Panel{
		Y:      chart.Axis{Label: "Merging: readings per update", Unit: chart.Count},
		Series: []chart.Series{{Tone: chart.C, Y: t.line((*second).merging)}},
	}
	return c
}

// merging is how many readings an update carried.
func (s *second) merging() float32 {
	if !(s.Updates > 0) {
		return float32(math.NaN())
	}
	return s.Stored / s.Updates
}

// tenths draws latency by how full buckets were.
func tenths(by [len(store.Fills)]scrape.Histogram, width float64) chart.Bars {
	bars := chart.Bars{
		Title: "Write latency by tenth", XLabel: "how full the window or the bucket was, %",
		Y: chart.Axis{Unit: chart.Seconds}, Width: width, Height: tall,
	}
	p50, p99 := make([]float64, len(store.Fills)), make([]float64, len(store.Fills))
	for i, h := range by {
		p50[i], p99[i] = h.Quantile(0.5), h.Quantile(0.99)
		bars.Labels = append(bars.Labels, store.Fills[i])
	}
	bars.Series = []chart.Series{{Name: "p50", Tone: chart.A, Y: p50}, {Name: "p99", Tone: chart.B, Y: p99}}
	return bars
}

// draw draws all.
func draw(t *timeline, stream int, by [len(store.Fills)]scrape.Histogram) (d drawings, err error) {
	for _, one := range []struct {
		to *template.HTML
		of interface{ SVG() (template.HTML, error) }
	}{
		{&d.Latency, t.latency(stream)}, {&d.Tenths, tenths(by, t.width)}, {&d.Rate, t.rate()},
		{&d.Lag, t.lag()}, {&d.Journal, t.journal()}, {&d.Queue, t.queue()},
	} {
		if *one.to, err = one.of.SVG(); err != nil {
			return d, err
		}
	}
	return d, nil
}
