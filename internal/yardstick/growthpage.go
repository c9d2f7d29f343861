package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/brim-telemetry/brim/internal/chart"
)

//go:embed growth.html
var growthSource string

// A growthPage is what the template shows.
type growthPage struct {
	CSS      template.CSS
	How      string
	Sections []section
	Setting  []string
}

// A growthPlot is a drawing with what one sees in it.
type growthPlot struct {
	lines   chart.Lines
	Caption string
}

// SVG is called by the template.
func (p growthPlot) SVG() (template.HTML, error) { return p.lines.SVG() }

// Size of a plot in CSS pixels: two stand beside each other on a screen.
const (
	growthWidth  = 460
	growthHeight = 280
)

// plots draws the rate and the processor time of a reading over what varies, which
// grows by factors.
func plots(across string, rate, cpu growthPlot) []growthPlot {
	rate.lines.Title, rate.lines.Y.Unit = "Readings a second", chart.PerSecond
	cpu.lines.Title, cpu.lines.Y.Unit = "CPU a reading", chart.Seconds
	both := []growthPlot{rate, cpu}
	for i := range both {
		l := &both[i].lines
		l.X = chart.Axis{Label: across, Unit: chart.Count, Log: true}
		l.Width, l.Height = growthWidth, growthHeight
	}
	return both
}

const microsecond = 1e-6

func mongodSeconds(p *growthPoint) float64 { return p.MongodReading * microsecond }
func clientSeconds(p *growthPoint) float64 { return p.ClientReading * microsecond }
func ratePoint(p *growthPoint) float64     { return p.Rate }

func sweepPlots(sw sweep, points []growthPoint) []growthPlot {
	x := apply(points, func(p *growthPoint) float64 { return float64(sw.of(p.shape)) })
	line := func(name string, tone chart.Tone, value func(p *growthPoint) float64) chart.LineSeries {
		return chart.LineSeries{Name: name, X: x, Y: apply(points, value), Tone: tone}
	}
	return plots(sw.name,
		growthPlot{chart.Lines{Series: []chart.LineSeries{line("", chart.A, ratePoint)}}, "Higher is better."},
		growthPlot{chart.Lines{Series: []chart.LineSeries{
			line("mongod", chart.B, mongodSeconds), line("this process", chart.C, clientSeconds),
		}}, "Of mongod, and of the process that makes and writes the updates. Lower is better."})
}

// mergePlots have a series for each number of sensors, and with mongod's time the
// lines that were fitted.
func (g *growth) mergePlots() []growthPlot {
	series := func(value func(p *growthPoint) float64) (all []chart.LineSeries) {
		for i, sensors := range g.grid.sensors {
			points := g.pointsOf(g.grid.merges(sensors))
			all = append(all, chart.LineSeries{
				Name: chart.Format(chart.Count, float64(sensors)) + " sensors", Tone: chart.A + chart.Tone(i),
				X: apply(points, func(p *growthPoint) float64 { return float64(p.PerUpdate) }), Y: apply(points, value),
			})
		}
		return all
	}
	return plots("readings an update",
		growthPlot{chart.Lines{Series: series(ratePoint)}, "Where the steps become small, merging more gains little."},
		growthPlot{chart.Lines{Series: append(series(mongodSeconds), g.fittedSeries()...)}, "Of mongod; dashed what was fitted. What is left at the right is the price of a reading; what is gone is that of an update."})
}

// fittedSeries are the fitted lines, by the reading and not by the update.
func (g *growth) fittedSeries() (all []chart.LineSeries) {
	const between = 8 // two numbers of readings an update: over a logarithmic axis it is a curve
	for _, f := range g.Fits {
		s := chart.LineSeries{Tone: chart.A + chart.Tone(slices.Index(g.grid.sensors, f.Sensors)), Dashed: true, Bare: true}
		for i, to := range g.grid.perUpdate {
			from := float64(g.grid.perUpdate[max(i-1, 0)])
			for j := 1; j <= between; j++ {
				k := from * math.Pow(float64(to)/from, float64(j)/between)
				s.X, s.Y = append(s.X, k), append(s.Y, f.Mongod.At(k)/k*microsecond)
			}
		}
		all = append(all, s)
	}
	return all
}

// html is the page, which needs nothing from elsewhere.
func (r *report) html() ([]byte, error) {
	t, err := template.New("growth").Parse(growthSource)
	if err != nil {
		return nil, fmt.Errorf("make the page: %w", err)
	}
	var b bytes.Buffer
	p := growthPage{CSS: chart.PageCSS(), How: r.Growth.how(), Sections: r.Growth.sections(), Setting: r.settingLines()}
	if err := t.Execute(&b, p); err != nil {
		return nil, fmt.Errorf("make the page: %w", err)
	}
	return b.Bytes(), nil
}

// checkPage says beforehand, and not after all the measurements, that there is
// no place for the page.
func checkPage(path string) error {
	if path == "" {
		return nil
	}
	if _, err := os.Stat(filepath.Dir(path)); err != nil {
		return fmt.Errorf("look for the directory of --report: %w", err)
	}
	return nil
}

// writePage writes the page about the growth to a file, if there is to be one.
func (r *report) writePage(path string) error {
	if path == "" || r.Growth == nil {
		return nil
	}
	content, err := r.html()
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		return fmt.Errorf("write the page: %w", err)
	}
	return nil
}
