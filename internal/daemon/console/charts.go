package console

import (
	"html/template"
	"math"

	"github.com/brim-telemetry/brim/internal/chart"
	"github.com/brim-telemetry/brim/internal/scrape"
	"github.com/brim-telemetry/brim/internal/store"
)

// Sizes of charts in CSS pixels; their text is legible at about this width.
const (
	wide, narrow      = 560, 350
	tall, low, height = 330, 270, 240
	gapSeconds        = 2.5 // without a sample are a gap in the lines
	mostBridged       = 10  // samples without a value are not a gap
	leastSpan         = 60  // of the X axis, in seconds: a daemon that was just started shows a short line
)

// charts are those of a page.
type charts struct {
	Latency, Tenths, Rate, Age, Journal, Queue template.HTML
}

// A timeline is the seconds as the charts need them.
type timeline struct {
	x       []float64 // seconds before now
	marks   []float64 // restarts of the daemon's mongod
	seconds []*second // nil where there is a gap
	width   float64
}

// newTimeline puts the seconds on an axis that ends now. Between samples that are
// about step seconds apart there is no gap.
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
			// As many points as there would be, so that a gap is as wide as what it is a gap in.
			for x := at(&seconds[i-1]) + step; x < at(s); x += step {
				add(x, nil)
			}
		}
		if s.Restarted {
			t.marks = append(t.marks, at(s))
		}
		add(at(s), s)
	}
	if n := len(t.x); n > 0 && t.x[n-1] < 0 {
		add(0, nil)
	}
	return t
}

// line returns a value of each second. A few seconds without a value are bridged, so
// that a stream that is written every five seconds has a line.
func (t *timeline) line(value func(*second) float32) []float64 {
	out := make([]float64, len(t.seconds))
	known := -1 // the last second with a value, after the last gap
	for i, s := range t.seconds {
		out[i] = math.NaN()
		if s == nil {
			known = -1
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

// charts draws all charts.
func (t *timeline) charts(stream string, tenths [len(store.Fills)]scrape.Histogram) (c charts, err error) {
	of := func(value func(writes) float32) []float64 {
		return t.line(func(s *second) float32 { return value(s.of(stream)) })
	}
	latency := t.chart("Write latency", chart.Seconds,
		chart.Series{Name: "p99", Tone: chart.B, Y: of(func(w writes) float32 { return w.P99 })},
		chart.Series{Name: "p50", Tone: chart.A, Y: of(func(w writes) float32 { return w.P50 })})
	latency.Height = tall
	latency.Beneath = &chart.Panel{
		Y:      chart.Axis{Label: "Fill of the buckets being written", Unit: chart.Ratio, Max: 1},
		Series: []chart.Series{{Tone: chart.C, Filled: true, Y: of(func(w writes) float32 { return w.Fill })}},
	}
	rate := t.chart("Readings per second", chart.PerSecond,
		chart.Series{Name: "ingested", Tone: chart.A, Y: t.line(func(s *second) float32 { return s.In })},
		chart.Series{Name: "stored", Tone: chart.C, Dashed: true, Y: t.line(func(s *second) float32 { return s.Stored })})
	age := t.chart("How far MongoDB is behind", chart.Seconds,
		chart.Series{Name: "oldest not stored", Tone: chart.B, Y: t.line(func(s *second) float32 { return s.Oldest })},
		chart.Series{Name: "p50 when stored", Tone: chart.A, Y: t.line(func(s *second) float32 { return s.Lag })})
	journal := t.chart("Journal", chart.Bytes, chart.Series{Tone: chart.D, Filled: true, Y: t.line(func(s *second) float32 { return s.Journal })})
	journal.Height = low
	journal.Beneath = &chart.Panel{
		Y:      chart.Axis{Label: "Past due: how late updates are", Unit: chart.Seconds},
		Series: []chart.Series{{Tone: chart.B, Y: t.line(func(s *second) float32 { return s.PastDue })}},
	}
	queue := t.chart("Pending readings", chart.Count, chart.Series{Tone: chart.D, Filled: true, Y: t.line(func(s *second) float32 { return s.Queue })})
	queue.Height = low
	queue.Beneath = &chart.Panel{
		Y:      chart.Axis{Label: "Merging: readings per update", Unit: chart.Count},
		Series: []chart.Series{{Tone: chart.C, Y: t.line((*second).merging)}},
	}
	for _, one := range []struct {
		to *template.HTML
		of interface{ SVG() (template.HTML, error) }
	}{
		{&c.Latency, latency}, {&c.Tenths, byFill(tenths, t.width)}, {&c.Rate, rate}, {&c.Age, age}, {&c.Journal, journal}, {&c.Queue, queue},
	} {
		if *one.to, err = one.of.SVG(); err != nil {
			return c, err
		}
	}
	return c, nil
}

func (t *timeline) chart(title string, unit chart.Unit, series ...chart.Series) chart.Time {
	return chart.Time{Title: title, X: t.x, Marks: t.marks, Y: chart.Axis{Unit: unit}, Series: series, Width: t.width, Height: height}
}

// byFill charts latency by how full the buckets were.
func byFill(tenths [len(store.Fills)]scrape.Histogram, width float64) chart.Bars {
	p50, p99 := make([]float64, len(tenths)), make([]float64, len(tenths))
	for i, h := range tenths {
		p50[i], p99[i] = h.Quantile(0.5), h.Quantile(0.99)
	}
	return chart.Bars{
		Title: "Write latency by bucket fill", XLabel: "fill of the window or the bucket, %", Labels: store.Fills[:],
		Y: chart.Axis{Unit: chart.Seconds}, Width: width, Height: tall,
		Series: []chart.Series{{Name: "p50", Tone: chart.A, Y: p50}, {Name: "p99", Tone: chart.B, Y: p99}},
	}
}
