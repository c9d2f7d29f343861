package advise

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/report"
	"github.com/brim-telemetry/brim/internal/store"
)

// width is what sentences are wrapped at.
const width = 100

// Text writes the advice for people; yaml is the configuration that it comes to.
func Text(w io.Writer, a *Advice, yaml string) error {
	var take []report.Fact
	for _, c := range a.Choices {
		take = append(take, report.Fact{Name: c.Setting, Value: c.Value + ". " + c.Why})
	}
	return report.Text(w, width, &report.Document{Sections: []report.Section{{Title: "Advice", Blocks: []report.Block{
		a.head(),
		{Title: "Take", Facts: take},
		{Title: "A day of it", Facts: a.costs()},
		a.fresh(),
		{Title: "Warnings", List: a.Warnings},
		{Title: "The configuration (brim config check FILE, brim serve --config FILE)", Code: yaml},
		a.rejected(),
		a.followed(),
	}}}})
}

// head says what was asked, and where it was measured.
func (a *Advice) head() report.Block {
	n, e := a.Needs, a.Environment
	kept, form := "forever (priced as one year)", ""
	if n.Retention > 0 {
		kept = "for " + Span(n.Retention)
	}
	if a.Quick {
		form = ", the quick form"
	}
	return report.Block{Text: []string{
		fmt.Sprintf("For %s sensors that report %d fields every %s (%s readings a day), kept %s, and %s queries a day of %s of a sensor.",
			number(float64(n.Sensors)), n.Fields, Span(n.Interval), number(n.perDay()), kept, number(n.Queries), Span(n.QuerySpan)),
		fmt.Sprintf("Measured here in %.0f s%s: MongoDB %s, %s, %d cores, %s.", a.TookSeconds, form, e.Mongod, strings.Join(e.Topologies, ", "), e.Cores, e.Processor),
	}}
}

// costs says what a day of it costs.
func (a *Advice) costs() []report.Fact {
	c, n, size := a.Chosen, a.Needs, bench.Bytes.Format
	ingest := a.Figures.Ingest * n.perDay()
	return []report.Fact{
		{Name: "documents", Value: number(c.Documents)},
		{Name: "bytes on disk", Value: fmt.Sprintf("%s: data %s, index %s; %s when %s are kept", size(c.Bytes()), size(c.Data), size(c.Index), size(c.Disk), Span(n.kept()))},
		{Name: "mongod", Value: fmt.Sprintf("%s CPU-s: writing %s, checkpoints %s, sealing %s, queries %s", number(c.CPU().Mongod), number(c.Write.Mongod), number(c.Rewrite), number(c.Seal.Mongod), number(c.Query.Mongod))},
		{Name: "brim", Value: fmt.Sprintf("%s CPU-s: ingest %s (%d in a request), writing %s, sealing %s, queries %s", number(ingest+c.CPU().Brim), number(ingest), n.Batch, number(c.Write.Brim), number(c.Seal.Brim), number(c.Query.Brim))},
		{Name: "CPUs", Value: fmt.Sprintf("%.2g of them on average", (c.CPU().Total()+ingest)/day.Seconds())},
		{Name: "written to disk", Value: size(c.Written) + " by checkpoints, beside the journals"},
		{Name: "a query", Value: fmt.Sprintf("%s, %s documents", bench.Seconds.Format(c.QuerySeconds), number(c.QueryDocuments))},
	}
}

// fresh is the table of what each --flush-max costs.
func (a *Advice) fresh() report.Block {
	t := &report.Table{Head: []string{"--flush-max", "gather", "readings/update", "mongod/reading", "mongod, CPUs", "CPU price"}}
	for _, f := range a.Fresh {
		t.Add(Span(f.Flush), Span(f.Gather.Round(100*time.Millisecond)), number(f.PerUpdate), bench.Seconds.Format(f.Mongod), fmt.Sprintf("%.2g", f.Cores), fmt.Sprintf("%.2f", f.CPUPrice))
	}
	return report.Block{Title: "What freshness costs", Table: t, Notes: []string{
		"Programs that read MongoDB directly are behind by up to --flush-max, and if Brim's disk is lost, up to that much of the newest readings is lost. mongod: its CPU time for writing; CPU price: per month, of mongod and brim. --max-wait limits the choice.",
	}}
}

// rejected is the table of all candidates, the chosen one among them, and the rule.
func (a *Advice) rejected() report.Block {
	t := &report.Table{Head: []string{"candidate", "docs/day", "B/reading", "kept", "writing", "checkpoints", "sealing", "queries", "a query", "price", "why"}, Wide: true}
	for _, r := range append([]Rejected{{Cost: a.Chosen, Why: "chosen"}}, a.Rejected...) {
		t.Add(r.String(), number(r.Documents), number(a.perReading(r.Cost)), bench.Bytes.Format(r.Disk), number(r.Write.Total()), number(r.Rewrite), number(r.Seal.Total()),
			number(r.Query.Total()), bench.Seconds.Format(r.QuerySeconds), fmt.Sprintf("%.2f", r.Price()), r.Why)
	}
	return report.Block{Title: "Candidates", Table: t, Notes: []string{fmt.Sprintf("The rule: price = CPU-hours of a month x %g + GB kept x %g (--core-hour, --gb-month), of mongod and brim; "+
		"writing, checkpoints, sealing and queries are CPU-s a day. The cheapest that --duplicates allows is taken; of prices within %.0f %% the simpler: bucket documents before a time series, sub-documents before columns, "+
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
		Title: fmt.Sprintf("Followed: %s of event time in %s", Span(f.Event), Span(f.Time)),
		Text:  []string{"brim serve " + strings.Join(f.Serve, " "), "brim load " + strings.Join(f.Load, " ")}, Table: t,
	}
}

// explain fills in the choices, each with the figures that decided.
func (a *Advice) explain() {
	c := a.Chosen
	choose := func(setting, value, why string, args ...any) {
		a.Choices = append(a.Choices, Choice{setting, value, fmt.Sprintf(why, args...)})
	}
	next := a.next(func(o Candidate) bool { return o.Storage != c.Storage })
	if c.Storage == store.TimeSeries {
		choose("storage", string(c.Storage), "%s The database does not prevent duplicates: when MongoDB's answer is lost, Brim looks for the readings before it sends them again. If that is not acceptable: --duplicates never.", next)
	} else {
		window := perWindow(c.Granularity, a.Needs.Interval)
		choose("storage", string(c.Storage), "%s The database prevents duplicates of bucket documents, and none of a time series.", next)
		a.explainFormat()
		choose("granularity", Span(c.Granularity), "A document has %s readings; at the mean fill an update of %s costs %s of CPU time, and a query reads %s documents in %s. %s",
			number(c.PerDocument), readings(c.PerUpdate), bench.Seconds.Format(c.UpdateTime), number(c.QueryDocuments), bench.Seconds.Format(c.QuerySeconds),
			a.next(func(o Candidate) bool {
				return o.Storage == c.Storage && o.Granularity != c.Granularity && o.Compressor == c.Compressor
			}))
		choose("bucket-max-readings", strconv.Itoa(c.MaxReadings), "A window of %s contains %s of a sensor, in %s. %s",
			Span(c.Granularity), readings(float64(window)), parts(math.Ceil(float64(window)/float64(c.MaxReadings))),
			a.next(func(o Candidate) bool {
				return o.Storage == c.Storage && o.MaxReadings != c.MaxReadings && o.Compressor == c.Compressor
			}))
	}
	choose("compressor", string(c.Compressor), "%s bytes a reading on disk. %s", number(a.perReading(c)), a.next(func(o Candidate) bool { return o.shape() == c.shape() }))
	choose("flush-max", Span(c.Flush), "An update carries %s; a reading is only in Brim's journal for up to %s, unless its sender asked for ack=stored. Queries through Brim return it meanwhile; programs that read MongoDB directly do not see it.%s",
		readings(c.PerUpdate), Span(max(c.Flush, c.Gather)), c.gathers())
	if c.MergeReadings > mergeReadings {
		choose("merge-readings", strconv.Itoa(c.MergeReadings), "As many as a sensor sends within flush-max, so that updates are not sent earlier.")
	}
	choose("checkpoint interval", Span(c.Checkpoint), "A day's checkpoints write %s; the limit is %s (--disk-writes). Set it with storage.syncPeriodSecs on your own mongod; after a crash MongoDB replays up to that much of its journal.",
		bench.Bytes.Format(c.Written), bench.Bytes.Format(float64(a.Needs.DiskWrites)))
}

// explainFormat fills in the choice of what buckets hold.
func (a *Advice) explainFormat() {
	c := a.Chosen
	value, why := store.Documents, "Any program can read sub-documents."
	if c.Columns {
		value, why = store.Columns, "Updates carry packed blocks, and windows are sealed when they have ended; programs other than Brim need a decoder or the stream's view."
	}
	a.Choices = append(a.Choices, Choice{"bucket-format", string(value), why + " " + a.next(func(o Candidate) bool {
		return o.Storage == c.Storage && o.Columns != c.Columns
	})})
}

// gathers says why readings gather for a shorter or longer time than --flush-max.
func (c Cost) gathers() string {
	switch {
	case c.Gather > c.Flush:
		return " That is longer than flush-max, because updates keep the lanes busy and readings that arrive meanwhile wait."
	case c.Gather < c.Flush:
		return fmt.Sprintf(" Most gather for only %s, because --flush-budget allows that.", Span(c.Gather.Round(100*time.Millisecond)))
	}
	return ""
}

// next compares the choice with the cheapest rejected candidate of some.
func (a *Advice) next(of func(Candidate) bool) string {
	for _, r := range a.Rejected { // the cheapest first
		if of(r.Candidate) {
			return fmt.Sprintf("Next best: %s, at %s the price (%s).", r.Candidate, bench.Times.Format(r.Price()/a.Chosen.Price()), r.Why)
		}
	}
	return "No other was measured."
}

// warn says what the advice does not make good.
func (a *Advice) warn(within bool) {
	c := a.Chosen
	if !within {
		a.Warnings = append(a.Warnings, fmt.Sprintf("Checkpoints write %s a day, above --disk-writes: use a disk that is rated for it.", bench.Bytes.Format(c.Written)))
	}
	if !a.Figures.reportsMongod() {
		a.Warnings = append(a.Warnings, "This MongoDB does not report its CPU time, so the prices include only Brim's: measure without --mongo-uri, in a mongod that advise starts.")
	}
}

// warnProcessors says that the machine at hand does not do for it.
func (a *Advice) warnProcessors() {
	used := (a.Chosen.CPU().Total() + a.Figures.Ingest*a.Needs.perDay()) / day.Seconds()
	if used > float64(a.Environment.Cores) {
		a.Warnings = append(a.Warnings, fmt.Sprintf("This takes %s CPUs, more than the %d of this machine.", number(used), a.Environment.Cores))
	}
}

// whyNot says in a few words why a candidate was not chosen; alike: its price was
// about the least, so that something else decided.
func (a *Advice) whyNot(c Cost, alike bool) string {
	switch {
	case !c.may(a.Needs):
		return "does not prevent duplicates (--duplicates rare)"
	case !alike:
		return "more expensive: " + a.deciding(c)
	case c.Storage != a.Chosen.Storage:
		return "costs the same within the measurement error; a time series"
	case c.Columns && !a.Chosen.Columns:
		return "costs the same within the measurement error; other programs cannot read columns"
	case c.Granularity != a.Chosen.Granularity || c.MaxReadings != a.Chosen.MaxReadings:
		return "costs the same within the measurement error; larger documents"
	}
	return "costs the same within the measurement error; snappy is the default"
}

// deciding names what the candidate costs more for, most of all.
func (a *Advice) deciding(c Cost) (name string) {
	b, most := a.Chosen, math.Inf(-1)
	core := a.Needs.CoreHour / 3600 * float64(month/day)
	for _, part := range []struct {
		name string
		more float64
	}{
		{"disk", c.DiskPrice - b.DiskPrice}, {"writing", (c.Write.Total() - b.Write.Total()) * core}, {"sealing", (c.Seal.Total() - b.Seal.Total()) * core},
		{"checkpoints", (c.Rewrite - b.Rewrite) * core}, {"queries", (c.Query.Total() - b.Query.Total()) * core},
	} {
		if part.more > most {
			name, most = part.name, part.more
		}
	}
	return name
}

func (a *Advice) perReading(c Cost) float64 { return c.Bytes() / a.Needs.perDay() }

func readings(n float64) string {
	if n == 1 {
		return "1 reading"
	}
	return number(n) + " readings"
}

func parts(n float64) string {
	if n == 1 {
		return "1 part"
	}
	return number(n) + " parts"
}

// number writes one as people read it, with three digits or so.
func number(v float64) string { return bench.Count.Format(v) }
