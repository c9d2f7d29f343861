package main

import (
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/brim-telemetry/brim/internal/config"
)

// A drawing is a line for each numeric field: how its values went over time, in
// one row of characters, and the bounds of the readings.
//
// However many values come, it keeps a fixed number of cells of equal time, each
// with the mean of its values. When time runs past the last cell, two become one.
type drawing struct {
	kind    kind
	columns int // of the terminal
	levels  []rune
	begin   time.Time
	width   time.Duration // of a cell; 0 before the first value
	cells   int           // of them that are in use
	items   int
	fields  map[string]*curve
}

// A curve is what is kept of one field.
type curve struct {
	sum       [drawingCells]float64
	n         [drawingCells]float64
	low, high float64 // of what is drawn
	min, max  float64 // of the readings
	last      float64
}

const (
	// drawingCells is at least twice what is drawn at most, so that no column is
	// much wider than its neighbour.
	drawingCells = 512
	// maxCurves bounds what is kept, 8 KiB each: more lines say nothing to anybody.
	maxCurves = 64
	maxDrawn  = 120
)

func newDrawing(k kind, columns int, unicode bool) *drawing {
	levels := []rune("▁▂▃▄▅▆▇█")
	if !unicode {
		levels = []rune("_.-=+*#@")
	}
	return &drawing{kind: k, columns: columns, levels: levels, fields: make(map[string]*curve)}
}

// speaksUnicode reports whether the terminal's locale is one of UTF-8.
func speaksUnicode(env []string) bool {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if v := strings.ToUpper(config.LookupEnv(env, name)); v != "" {
			return strings.Contains(v, "UTF-8") || strings.Contains(v, "UTF8")
		}
	}
	return false
}

// add takes an item; items come in the order of time.
func (d *drawing) add(at time.Time, points map[string]point) {
	if d.width == 0 {
		d.begin, d.width = at, time.Millisecond
	}
	d.items++
	for at.Sub(d.begin) >= drawingCells*d.width {
		d.halve()
	}
	cell := max(0, int(at.Sub(d.begin)/d.width))
	d.cells = max(d.cells, cell+1)
	for name, p := range points {
		c := d.fields[name]
		if c == nil {
			if len(d.fields) == maxCurves {
				continue
			}
			c = &curve{low: p.drawn, high: p.drawn, min: p.min, max: p.max}
			d.fields[name] = c
		}
		c.sum[cell] += p.drawn
		c.n[cell]++
		c.low, c.high, c.last = min(c.low, p.drawn), max(c.high, p.drawn), p.drawn
		c.min, c.max = min(c.min, p.min), max(c.max, p.max)
	}
}

// halve makes one cell of two.
func (d *drawing) halve() {
	d.width *= 2
	d.cells = (d.cells + 1) / 2
	for _, c := range d.fields {
		for i := range drawingCells {
			var sum, n float64
			if 2*i < drawingCells {
				sum, n = c.sum[2*i]+c.sum[2*i+1], c.n[2*i]+c.n[2*i+1]
			}
			c.sum[i], c.n[i] = sum, n
		}
	}
}

// write draws the fields that are named, or all.
func (d *drawing) write(w io.Writer, named []string) error {
	names := slices.Sorted(maps.Keys(d.fields))
	if len(named) > 0 {
		names = slices.DeleteFunc(slices.Clone(named), func(s string) bool { return d.fields[s] == nil })
	}
	if d.items < 2 || len(names) == 0 { // one value is no course
		return nil
	}
	longest, room, bounds := 0, 0, make([]string, len(names))
	for i, name := range names {
		c := d.fields[name]
		bounds[i] = fmt.Sprintf("min %s  max %s  %s %s", short(c.min), short(c.max), d.kind.last, short(c.last))
		longest, room = max(longest, len([]rune(printable(name)))), max(room, len(bounds[i]))
	}
	width := min(d.columns-longest-room-4, maxDrawn, d.cells, d.items)
	legend := "\n"
	if d.kind.legend != "" {
		legend += d.kind.legend + "\n"
	}
	if _, err := io.WriteString(w, legend); err != nil {
		return err
	}
	for i, name := range names {
		line := fmt.Sprintf("%-*s  ", longest, printable(name))
		if width >= 8 || width == min(d.cells, d.items) { // narrower it would say nothing
			line += d.course(d.fields[name], width) + "  "
		}
		if _, err := fmt.Fprintln(w, line+bounds[i]); err != nil {
			return err
		}
	}
	return nil
}

// course is the row of characters; a space where nothing came.
func (d *drawing) course(c *curve, width int) string {
	sums, ns := make([]float64, width), make([]float64, width)
	for i := range d.cells {
		at := i * width / d.cells
		sums[at] += c.sum[i]
		ns[at] += c.n[i]
	}
	row := make([]rune, width)
	for i := range row {
		if row[i] = ' '; ns[i] > 0 {
			row[i] = d.level((sums[i]/ns[i] - c.low) / (c.high - c.low))
		}
	}
	return string(row)
}

// level is the character for a share of the way from the lowest to the highest
// value; where all are alike it is none, and they are drawn in the middle.
func (d *drawing) level(share float64) rune {
	if math.IsNaN(share) || math.IsInf(share, 0) {
		share = 0.5
	}
	return d.levels[min(int(share*float64(len(d.levels))), len(d.levels)-1)]
}

// short formats a number so that it fits beside others.
func short(v float64) string {
	rounded := strconv.FormatFloat(v, 'g', 6, 64)
	if exact := strconv.FormatFloat(v, 'f', -1, 64); len(exact) <= 12 {
		return exact
	}
	return rounded
}
