package advise

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/config"
	"github.com/brim-telemetry/brim/internal/report"
)

// width is where sentences wrap.
const width = 100

// Text writes the advice for people; yaml is the advised configuration.
func Text(w io.Writer, a *Advice, yaml string) error {
	return report.Text(w, width, &report.Document{Sections: []report.Section{{Title: "Advice", Blocks: []report.Block{
		a.head(),
		a.take(),
		{Title: "A day of it", Facts: a.day()},
		a.cpu(),
		a.fresh(),
		{Title: "Warnings", List: a.Warnings},
		{Title: "The configuration (brim config check FILE, brim serve --config FILE)", Code: yaml},
		a.rejected(),
		a.followed(),
	}}}})
}

// head describes the request and the machine.
func (a *Advice) head() report.Block {
	n, e := a.Needs, a.Environment
	kept, form := "forever (priced as one year)", ""
	if n.Retention > 0 {
		kept = "for " + config.FormatDuration(n.Retention)
	}
	if a.Quick {
		form = ", the quick form"
	}
	return report.Block{Text: []string{
		fmt.Sprintf("For %s sensors that report %d fields every %s (%s readings a day), kept %s, and %s queries a day of %s of a sensor.",
			number(float64(n.Sensors)), n.Fields, config.FormatDuration(n.Interval), number(n.perDay()), kept, number(n.Queries), config.FormatDuration(n.QuerySpan)),
		fmt.Sprintf("Measured here in %.0f s%s: MongoDB %s, %s, %d cores, %s.", a.TookSeconds, form, e.Mongod, strings.Join(e.Topologies, ", "), e.Cores, e.Processor),
	}}
}

// take is the table of advised settings.
func (a *Advice) take() report.Block {
	t := &report.Table{Head: []string{"setting", "value", "next best", "why"}}
	for _, c := range a.Choices {
		next := "–"
		if c.Next != "" {
			next = c.Next + ", at " + bench.Times.Format(c.NextPrice) + " the price"
		}
		t.Add(c.Setting, c.Value, next, c.Why)
	}
	return report.Block{Title: "Take", Table: t}
}

// day describes what a day adds.
func (a *Advice) day() []report.Fact {
	c, size := a.Chosen, bench.Bytes.Format
	return []report.Fact{
		{Name: "documents", Value: number(c.Documents)},
		{Name: "bytes on disk", Value: size(c.Bytes())},
		{Name: "of them indexes", Value: size(c.Index)},
		{Name: "bytes on disk when " + config.FormatDuration(a.Needs.kept()) + " are kept", Value: size(c.Disk)},
		{Name: "bytes that checkpoints write, not counting journals", Value: size(c.Written)},
		{Name: "readings of an update", Value: number(c.PerUpdate)},
		{Name: "readings of a document", Value: number(c.PerDocument)},
		{Name: "time of a query", Value: bench.Seconds.Format(c.QuerySeconds)},
		{Name: "documents of a query", Value: number(c.QueryDocuments)},
		{Name: "CPUs on average", Value: fmt.Sprintf("%.2g", a.processors())},
	}
}

// cpu is the table of a day's CPU time.
func (a *Advice) cpu() report.Block {
	c := a.Chosen
	t := &report.Table{Head: []string{"CPU-s a day", "mongod", "brim"}}
	for _, part := range []struct {
		name string
		CPU
	}{
		{"ingest", CPU{Brim: a.ingest()}}, {"writing", c.Write}, {"checkpoints", CPU{Mongod: c.Rewrite}}, {"sealing", c.Seal}, {"queries", c.Query}, {"all", c.CPU().plus(CPU{Brim: a.ingest()})},
	} {
		t.Add(part.name, number(part.Mongod), number(part.Brim))
	}
	return report.Block{Table: t}
}

// fresh is the table of costs by --flush-max.
func (a *Advice) fresh() report.Block {
	t := &report.Table{Head: []string{"--flush-max", "gather", "readings/update", "mongod/reading", "mongod, CPUs", "CPU price"}}
	for _, c := range a.Fresh {
		t.Add(config.FormatDuration(c.Flush), config.FormatDuration(c.Gather.Round(100*time.Millisecond)), number(c.PerUpdate), bench.Seconds.Format(c.Write.Mongod/a.Needs.perDay()), fmt.Sprintf("%.2g", c.Write.Mongod/day.Seconds()), fmt.Sprintf("%.2f", c.CPUPrice))
	}
	return report.Block{Title: "What freshness costs", Table: t, Notes: []string{
		"Programs that read MongoDB directly are behind by up to --flush-max, and if Brim's disk is lost, up to that much of the newest readings is lost. Gather: shorter where --flush-budget allows it, longer where updates keep the lanes busy. mongod: its CPU time for writing; CPU price: per month, of mongod and brim. --max-wait limits the choice.",
	}}
}

// rejected is the table of all candidates, including the chosen one, and the rule.
func (a *Advice) rejected() report.Block {
	t := &report.Table{Head: []string{"candidate", "docs/day", "B/reading", "kept", "writing", "checkpoints", "sealing", "queries", "a query", "price", "why"}, Wide: true}
	for _, r := range append([]Rejected{{Cost: a.Chosen, Why: "chosen"}}, a.Rejected...) {
		t.Add(r.String(), number(r.Documents), number(a.perReading(r.Cost)), bench.Bytes.Format(r.Disk), number(r.Write.Total()), number(r.Rewrite), number(r.Seal.Total()),
			number(r.Query.Total()), bench.Seconds.Format(r.QuerySeconds), fmt.Sprintf("%.2f", r.Price()), r.Why)
	}
	return report.Block{Title: "Candidates", Table: t, Notes: []string{fmt.Sprintf("The rule: price = CPU-hours of a month x %g + GB kept x %g (--core-hour, --gb-month), of mongod and brim; "+
		"writing, checkpoints, sealing and queries are CPU-s a day. The cheapest that --duplicates allows is taken; of prices within %.0f %% the simplest: bucket documents before a time series, sub-documents before columns, "+
		"then smaller documents, then snappy, then the shorter --flush-max. "+
		"The cost of ingest is the same for all and not in the price. Bytes are those of the collection's file and indexes after a checkpoint, without what is free in them; the readings are those of `brim load`, and yours may compress better or worse.",
		a.Needs.CoreHour, a.Needs.GBMonth, 100*alikePart)}}
}

// followed compares the prediction with what was stored.
func (a *Advice) followed() report.Block {
	f := a.Followed
	if f == nil {
		return report.Block{}
	}
	t := &report.Table{Head: []string{"a day", "predicted", "seen", "difference"}}
	off := func(a Against) string { return fmt.Sprintf("%+.1f %%", 100*a.Off()) }
	t.Add("documents", number(f.Documents.Predicted), number(f.Documents.Seen), off(f.Documents))
	t.Add("bytes", bench.Bytes.Format(f.Bytes.Predicted), bench.Bytes.Format(f.Bytes.Seen), off(f.Bytes))
	return report.Block{
		Title: fmt.Sprintf("Followed: %s of event time in %s", config.FormatDuration(f.Event), config.FormatDuration(f.Time)),
		Text:  []string{"brim serve " + strings.Join(f.Serve, " "), "brim load " + strings.Join(f.Load, " ")}, Table: t,
	}
}

func (a *Advice) perReading(c Cost) float64 { return c.Bytes() / a.Needs.perDay() }

// number formats v for people, with about three digits.
func number(v float64) string { return bench.Count.Format(v) }
