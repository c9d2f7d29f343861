//go:build linux

package main

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/brim-telemetry/brim/internal/chart"
	"github.com/brim-telemetry/brim/internal/report"
)

// Verdicts on a line.
const (
	steady, climbs, tooShort, mayGrow = "steady", "climbs", "unknown", "not judged"
)

// verdict summarizes the run in one sentence.
func (s *soak) verdict() string {
	climbing := s.climbing()
	switch {
	case s.wrong != "":
		return "Failed: " + s.wrong
	case len(climbing) > 0:
		return "Nothing was lost or stored twice, but these lines climb: " + strings.Join(climbing, ", ") + "."
	}
	unknown := 0
	for i := range lines() {
		if s.trendOf(i).unknown {
			unknown++
		}
	}
	if unknown > 0 {
		return fmt.Sprintf("Nothing was lost, nothing was stored twice, and no line climbs; %d cannot be judged in such a short run.", unknown)
	}
	return "Nothing was lost, nothing was stored twice, and no line climbs."
}

// writePage writes the page, even for an interrupted run.
func (s *soak) writePage(path string) error {
	length := time.Duration(s.samples[len(s.samples)-1].at) * time.Second
	trends := &report.Table{Head: []string{"line", "mean", "rise", "standard error", "threshold", "verdict"}, Tone: func(cell string) string {
		return map[string]string{steady: "good", climbs: "bad", tooShort: "none", mayGrow: "none"}[cell]
	}}
	var plots []report.Plot
	x := chart.X{Kind: chart.Elapsed, Label: "time of the run"}
	for _, one := range s.samples {
		x.At = append(x.At, one.at)
	}
	all := lines()
	for i := 0; i < len(all); {
		panel := chart.Panel{Unit: all[i].unit}
		title := all[i].plot
		for first := i; i < len(all) && all[i].plot == all[first].plot; i++ {
			series := chart.Series{Name: all[i].name, Tone: i - first}
			for _, one := range s.samples {
				series.Y = append(series.Y, one.values[i])
			}
			panel.Series = append(panel.Series, series)
			trends.Add(s.row(i)...)
		}
		plots = append(plots, report.Plot{Chart: chart.Chart{Title: title, X: x, Panels: []chart.Panel{panel}, Marks: s.outages}})
	}
	box := "good"
	if s.wrong != "" || len(s.climbing()) > 0 {
		box = "bad"
	}
	checked := &report.Table{Head: []string{"stream", "sent", "acknowledged", "stored now", "lost", "stored twice"}}
	for _, stream := range slices.Sorted(maps.Keys(s.readings)) {
		r := s.readings[stream]
		checked.Add(stream, strconv.Itoa(r.Attempted), strconv.Itoa(r.Acked), strconv.Itoa(r.Stored), strconv.Itoa(len(r.Lost)), strconv.Itoa(len(r.Twice)))
	}
	var facts []report.Fact
	for _, what := range slices.Sorted(maps.Keys(s.faults)) {
		facts = append(facts, report.Fact{Name: what, Value: strconv.Itoa(s.faults[what])})
	}
	var sent []string
	for _, w := range s.workloads {
		sent = append(sent, w.name)
	}
	d := report.Document{
		Title: "Soak", Heading: "Soak of " + chart.Format(chart.Seconds, length.Seconds()),
		Intro: fmt.Sprintf("%s. %.0f readings a second, over %s; event time runs %d times as fast. MongoDB or the daemon is unavailable for a tenth of the time.",
			s.began.UTC().Format("2006-01-02 15:04 UTC"), s.rate, strings.Join(sent, "; "), speedup),
		Overview: report.Block{Box: box, Text: []string{s.verdict()}},
		Sections: []report.Section{
			{ID: "lines", Title: "Lines", Blocks: []report.Block{{Table: trends, Plots: plots, Notes: []string{rule, "Vertical lines: the daemon was killed. The data directory includes the oplog, up to 1 GiB."}}}},
			{ID: "readings", Title: "Readings", Blocks: []report.Block{
				{Table: checked, Notes: []string{fmt.Sprintf(
					"%d rounds of %v, each followed by a flush and a check. Retention has removed the oldest readings; earlier checks saw each of them. "+
						"A time series may hold a reading twice if the outcome of its write was unknown.", s.rounds, s.round)}},
				{Title: "Faults", Facts: facts},
			}},
		},
	}
	var b bytes.Buffer
	if err := report.HTML(&b, &d); err != nil {
		return err
	}
	if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil { //nolint:gosec // it has no secrets
		return fmt.Errorf("write the page: %w", err)
	}
	return nil
}

func (s *soak) row(i int) []string {
	l, t := lines()[i], s.trendOf(i)
	verdict := steady
	switch {
	case math.IsInf(l.least, 1):
		verdict = mayGrow
	case t.unknown:
		verdict = tooShort
	case t.climbs:
		verdict = climbs
	}
	format := func(v float64) string { return chart.Format(l.unit, v) }
	name := l.plot + ": " + l.name
	if t.unknown || verdict == mayGrow {
		return []string{name, format(t.mean), "", "", "", verdict}
	}
	return []string{name, format(t.mean), format(t.rise), format(t.noise), format(l.least), verdict}
}
