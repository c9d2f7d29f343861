package main

import (
	"fmt"
	"strings"

	"github.com/brim-telemetry/brim/internal/bench/fit"
)

// A section is a piece of what is told of the growth, as text and as a page.
type section struct {
	Title  string
	Tables []wordTable
	Plots  []growthPlot // on the page alone
	Notes  []string
}

// A wordTable is a table of words and numbers.
type wordTable struct {
	Heads []string
	Rows  [][]string
}

// writeText writes all sections in Markdown.
func (g *growth) writeText(out *strings.Builder) {
	out.WriteString("\n## How the cost grows\n\n" + g.how() + "\n")
	for _, s := range g.sections() {
		fmt.Fprintf(out, "\n### %s\n", s.Title)
		for _, t := range s.Tables {
			t.writeText(out)
		}
		for _, note := range s.Notes {
			out.WriteString("\n" + note + "\n")
		}
	}
}

func (t *wordTable) writeText(out *strings.Builder) {
	fmt.Fprintf(out, "\n| %s |\n|%s\n", strings.Join(t.Heads, " | "), strings.Repeat("---|", len(t.Heads)))
	for _, row := range t.Rows {
		fmt.Fprintf(out, "| %s |\n", strings.Join(row, " | "))
	}
}

// settingLines leave out what is said of rows where there are none: the growth
// says by itself how long its points took.
func (r *report) settingLines() []string {
	lines := r.Setting.lines()
	if len(r.Rows) == 0 && r.Growth != nil {
		return lines[:len(lines)-1]
	}
	return lines
}

// how says what was done.
func (g *growth) how() string {
	return fmt.Sprintf("Writers in one process hand shares to the bucket store, as the daemon's lanes do, so that the readings of an update are set exactly and neither door nor journal is in the way. "+
		"Buckets are hourly, a reading comes every 10 s of event time, each sensor has a bucket with one reading before the clock starts (copies of one that the store wrote), sensors are written in turn. "+
		"Each point is measured once, for at least %s; what is not varied is at %s.", g.Time, g.grid.centre.words())
}

func (s shape) words() string {
	return fmt.Sprintf("%s, %s an update, %s, %s",
		several(s.Sensors, "sensor"), several(s.PerUpdate, "reading"), several(s.Fields, "integer field"), several(s.Writers, "writer"))
}

func count(n int) string { return thousands(float64(n), 0) }

// sections are all that is told.
func (g *growth) sections() []section {
	var all []section
	for _, sw := range g.grid.sweeps() {
		points := g.pointsOf(sw.shapes)
		all = append(all, section{
			Title:  "By " + sw.name,
			Tables: []wordTable{sweepTable(sw, points)}, Plots: sweepPlots(sw, points), Notes: sweepNotes(sw, points),
		})
	}
	return append(all,
		section{Title: "By readings an update and sensors", Tables: g.mergeTables(), Plots: g.mergePlots(), Notes: g.kneeNotes()},
		section{Title: "Past one machine", Tables: []wordTable{g.planTable()}, Notes: g.planNotes()},
	)
}

func sweepTable(sw sweep, points []growthPoint) wordTable {
	t := wordTable{Heads: []string{
		sw.name, "readings/s", "updates/s", "mongod, us CPU a reading", "an update", "this process, us CPU a reading",
		"round trip p50, ms", "p99, ms", "bytes a document", "readings a document", "remarks",
	}}
	for i := range points {
		p := &points[i]
		t.Rows = append(t.Rows, []string{
			count(sw.of(p.shape)), thousands(p.Rate, 0), thousands(p.Updated, 0),
			thousands(p.MongodReading, 2), thousands(p.MongodUpdate, 1), thousands(p.ClientReading, 2),
			thousands(p.TripP50/1e3, 2), thousands(p.TripP99/1e3, 2), thousands(p.Bytes, 0), thousands(p.Held, 0), p.remarks(),
		})
	}
	return t
}

// remarks say where a point is not quite what its shape says, and which of its
// updates did more than append.
func (p *growthPoint) remarks() string {
	var all []string
	if p.Created < p.Sensors {
		all = append(all, fmt.Sprintf("the warm-up made buckets of %s sensors; the others were left out", count(p.Created)))
	}
	if p.Touched < p.Created {
		all = append(all, fmt.Sprintf("the time was enough for %s of %s buckets", count(p.Touched), count(p.Created)))
	}
	if made := p.Documents - int64(p.Created); made > 0 && p.Updates > 0 {
		all = append(all, fmt.Sprintf("%.1f %% of the updates began a document", 100*float64(made)/float64(p.Updates)))
	}
	return strings.Join(all, "; ")
}

// sweepNotes say how the ends of a sweep compare.
func sweepNotes(sw sweep, points []growthPoint) []string {
	if len(points) < 2 {
		return nil
	}
	a, b := &points[0], &points[len(points)-1]
	notes := []string{fmt.Sprintf("From %s to %s %s, readings/s change from %s to %s (%s), mongod's CPU a reading from %s to %s us (%s), and the p99 of a command's round trip from %s to %s ms (%s).",
		count(sw.of(a.shape)), count(sw.of(b.shape)), sw.name,
		thousands(a.Rate, 0), thousands(b.Rate, 0), times(b.Rate, a.Rate),
		thousands(a.MongodReading, 2), thousands(b.MongodReading, 2), times(b.MongodReading, a.MongodReading),
		thousands(a.TripP99/1e3, 2), thousands(b.TripP99/1e3, 2), times(b.TripP99, a.TripP99))}
	if sw.name != "fields" {
		return notes
	}
	fields := apply(points, func(p *growthPoint) float64 { return float64(p.Fields) })
	inMongod, ok := fit.Through(fields, apply(points, func(p *growthPoint) float64 { return p.MongodReading }))
	inClient, alsoOK := fit.Through(fields, apply(points, func(p *growthPoint) float64 { return p.ClientReading }))
	if ok && alsoOK {
		notes = append(notes, fmt.Sprintf("By a straight line through the points, a field more costs mongod %.2f us of CPU a reading, and this process %.2f us.", inMongod.Each, inClient.Each))
	}
	return notes
}

// times is a quotient in words.
func times(a, b float64) string {
	if b == 0 {
		return "–"
	}
	return fmt.Sprintf("%.2fx", a/b)
}

// mergeTables are the rates, mongod's CPU, and the lines through the latter.
func (g *growth) mergeTables() []wordTable {
	matrix := func(what string, cell func(p *growthPoint) string) wordTable {
		t := wordTable{Heads: []string{what}}
		for _, k := range g.grid.perUpdate {
			t.Heads = append(t.Heads, fmt.Sprintf("%d an update", k))
		}
		for _, sensors := range g.grid.sensors {
			row := []string{count(sensors) + " sensors"}
			for _, s := range g.grid.merges(sensors) {
				if p := g.point(s); p != nil {
					row = append(row, cell(p))
				} else {
					row = append(row, "–")
				}
			}
			t.Rows = append(t.Rows, row)
		}
		return t
	}
	fits := wordTable{Heads: []string{
		"an update of K readings costs a + b K us", "mongod's CPU: a", "b", "off by at most", "knee at K", "round trip: a", "b", "knee at K",
	}}
	for _, f := range g.Fits {
		fits.Rows = append(fits.Rows, []string{
			count(f.Sensors) + " sensors", thousands(f.Mongod.Base, 1), thousands(f.Mongod.Each, 2), fmt.Sprintf("%.0f %%", 100*f.Off), kneeWords(f.Mongod),
			thousands(f.Trip.Base, 1), thousands(f.Trip.Each, 2), kneeWords(f.Trip),
		})
	}
	return []wordTable{
		matrix("readings/s", func(p *growthPoint) string { return thousands(p.Rate, 0) }),
		matrix("mongod, us CPU a reading", func(p *growthPoint) string { return thousands(p.MongodReading, 2) }),
		fits,
	}
}

func kneeWords(l fit.Line) string {
	k, ok := knee(l)
	if !ok {
		return "none"
	}
	return thousands(k, 0)
}
