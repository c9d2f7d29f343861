package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"os"
	"path/filepath"
	"strconv"

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

// A growthPlot is a drawing, or why there is none.
type growthPlot struct {
	bars    chart.Bars
	Caption string
}

// SVG is called by the template.
func (p growthPlot) SVG() (template.HTML, error) { return p.bars.SVG() }

// Size of a plot in CSS pixels: two stand beside each other on a screen.
const (
	growthWidth  = 460
	growthHeight = 280
)

// plots draws the rate and the processor time of a reading, with a group of bars
// for each label, at equal distances whatever the numbers.
func plots(across string, labels []string, rate, cpu growthPlot) []growthPlot {
	rate.bars.Title, rate.bars.Y.Unit = "Readings a second", chart.PerSecond
	cpu.bars.Title, cpu.bars.Y.Unit = "CPU a reading", chart.Seconds
	both := []growthPlot{rate, cpu}
	for i := range both {
		b := &both[i].bars
		b.Labels, b.XLabel, b.Width, b.Height = labels, across, growthWidth, growthHeight
	}
	return both
}

const microsecond = 1e-6

func mongodSeconds(p *growthPoint) float64 { return p.MongodReading * microsecond }
func clientSeconds(p *growthPoint) float64 { return p.ClientReading * microsecond }
func ratePoint(p *growthPoint) float64     { return p.Rate }

func sweepPlots(sw sweep, points []growthPoint) []growthPlot {
	labels := make([]string, len(points))
	for i := range points {
		labels[i] = chart.Format(chart.Count, float64(sw.of(points[i].shape)))
	}
	return plots(sw.name, labels,
		growthPlot{chart.Bars{Series: []chart.Series{{Y: apply(points, ratePoint), Tone: chart.A}}}, "Higher is better."},
		growthPlot{chart.Bars{Series: []chart.Series{
			{Name: "mongod", Y: apply(points, mongodSeconds), Tone: chart.B},
			{Name: "this process", Y: apply(points, clientSeconds), Tone: chart.C},
		}}, "Of mongod, and of the process that makes and writes the updates. Lower is better."})
}

// mergePlots have a series for each number of sensors.
func (g *growth) mergePlots() []growthPlot {
	var labels []string
	for _, k := range g.grid.perUpdate {
		labels = append(labels, strconv.Itoa(k))
	}
	series := func(value func(p *growthPoint) float64) (all []chart.Series) {
		for i, sensors := range g.grid.sensors {
			points := g.pointsOf(g.grid.merges(sensors))
			all = append(all, chart.Series{Name: chart.Format(chart.Count, float64(sensors)) + " sensors", Y: apply(points, value), Tone: chart.A + chart.Tone(i)})
		}
		return all
	}
	return plots("readings an update", labels,
		growthPlot{chart.Bars{Series: series(ratePoint)}, "Where the steps become small, merging more gains little."},
		growthPlot{chart.Bars{Series: series(mongodSeconds)}, "Of mongod. What is left at the right is the price of a reading; what is gone is that of an update."})
}

// html is the page, which needs nothing from elsewhere.
func (r *report) html() ([]byte, error) {
	t, err := template.New("growth").Parse(growthSource)
	if err != nil {
		return nil, fmt.Errorf("make the page: %w", err)
	}
	var b bytes.Buffer
	p := growthPage{CSS: template.CSS(chart.CSS), How: r.Growth.how(), Sections: r.Growth.sections(), Setting: r.settingLines()}
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
