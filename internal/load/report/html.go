package report

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"io"

	"github.com/brim-telemetry/brim/internal/chart"
	"github.com/brim-telemetry/brim/internal/load"
)

//go:embed page.html
var pageSource string

// A page is what the template shows.
type page struct {
	CSS      template.CSS
	Target   string
	Verdict  verdict
	Figures  []fact
	Times    []timeRow
	Bound    string
	Floor    []string
	Plots    []plot
	Fills    []fillTable
	Notes    []string // on the fills
	Steps    *stepTable
	Facts    []fact
	Failures []failure
	Errors   []string
}

type fillTable struct {
	Title, Counted string
	Rows           []load.FillRow
}

// A stepTable is that of a ramp.
type stepTable struct {
	Title string
	Heads []string
	Rows  [][]string
}

func newStepTable(r *load.Result) *stepTable {
	all := steps(r, mostPageSteps)
	if len(all) == 0 {
		return nil
	}
	t := &stepTable{Title: stepsTitle(r, all), Heads: stepHeads[:]}
	for _, each := range all {
		t.Rows = append(t.Rows, stepCells(each))
	}
	return t
}

type failure struct {
	Reason   string
	Requests int64
}

// atLeast tells a quantile of the response time, and where it is a lower bound.
func atLeast(r *load.Result, seconds float64) string {
	told := latency(seconds, observed(r.Response))
	if observed(r.Response) && lowerBound(r) {
		told = "≥ " + told
	}
	return told
}

// HTML writes the report as one page that needs nothing from elsewhere.
func HTML(w io.Writer, r *load.Result, x Extras) error {
	drawn, err := plots(r, x)
	if err != nil {
		return err
	}
	mean := ""
	if ramp(r) {
		mean = ", mean"
	}
	p := page{
		CSS: chart.PageCSS(), Target: r.Setup.Target, Verdict: judge(r), Times: timeRows(r, x), Bound: boundNote(r), Floor: floorNotes(r, x), Plots: drawn,
		Fills: []fillTable{{"response time", "readings", r.ByFill}}, Notes: fillNotes(r), Steps: newStepTable(r), Facts: facts(r), Errors: r.FirstErrors,
		Figures: []fact{
			{"asked" + mean, asked(r.OfferedRate)}, {"achieved" + mean, perSecond(r.AchievedRate)}, {"of asked", share(r.AchievedRate, r.OfferedRate)},
			{"response p50", atLeast(r, r.Response.P50)}, {"response p99", atLeast(r, r.Response.P99)},
			{"readings sent", count(r.Sent)}, {"taken", count(r.Acked)},
			{"refused", count(r.Rejected)}, {"failed", count(r.Failed)}, {"dropped", count(r.Dropped)},
		},
	}
	if len(r.StoreByFill) > 0 {
		p.Fills = append(p.Fills, fillTable{"the daemon's store time", "updates", r.StoreByFill})
	}
	for _, name := range byCount(r.Failures) {
		p.Failures = append(p.Failures, failure{name, r.Failures[name]})
	}
	t, err := template.New("page").Funcs(template.FuncMap{
		"count": count, "tenth": tenth,
		"latency": func(row load.FillRow, seconds float64) string { return latency(seconds, row.Count > 0) },
	}).Parse(pageSource)
	if err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	var b bytes.Buffer
	if err := t.Execute(&b, p); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	if _, err := w.Write(b.Bytes()); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}
