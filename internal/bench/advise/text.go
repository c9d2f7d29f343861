package advise

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/brim-telemetry/brim/internal/bench"
)

// width is what sentences are wrapped at.
const width = 100

// Text writes the advice for people; yaml is the configuration that it comes to.
func Text(w io.Writer, a *Advice, yaml string) error {
	var b strings.Builder
	a.head(&b)
	b.WriteString("\nTake\n")
	for _, c := range a.Choices {
		_, _ = fmt.Fprintf(&b, "  %-20s %s\n", c.Setting, c.Value)
		wrap(&b, "      ", c.Why)
	}
	a.costs(&b)
	for _, warning := range a.Warnings {
		b.WriteString("\n")
		wrap(&b, "! ", warning)
	}
	b.WriteString("\nThe configuration (brim config check FILE, brim serve --config FILE)\n\n")
	b.WriteString(yaml)
	a.rejected(&b)
	a.rule(&b)
	a.followed(&b)
	_, err := io.WriteString(w, b.String())
	return err
}

// head says what was asked, and where it was measured.
func (a *Advice) head(b *strings.Builder) {
	n, e := a.Needs, a.Environment
	kept := "for ever, of which a year is counted"
	if n.Retention > 0 {
		kept = "for " + Span(n.Retention)
	}
	wrap(b, "", fmt.Sprintf("Advice for %s sensors that report %d fields every %s (%s readings a day), kept %s, and %s queries a day of %s of a sensor.",
		number(float64(n.Sensors)), n.Fields, Span(n.Interval), number(n.perDay()), kept, number(n.Queries), Span(n.QuerySpan)))
	size := ""
	if a.Quick {
		size = ", the quick form"
	}
	wrap(b, "", fmt.Sprintf("Measured here in %.0f s%s: MongoDB %s, %s, %d cores, %s.", a.TookSeconds, size, e.Mongod, strings.Join(e.Topologies, ", "), e.Cores, e.Processor))
}

// costs says what a day of it costs.
func (a *Advice) costs(b *strings.Builder) {
	c, n := a.Chosen, a.Needs
	door := a.Figures.Door * n.perDay()
	b.WriteString("\nA day of it\n")
	for _, l := range [][2]string{
		{"documents", number(c.Documents)},
		{"bytes on disk", fmt.Sprintf("%s: data %s, index %s; %s when %s are kept", bench.Bytes.Format(c.Bytes()), bench.Bytes.Format(c.Data), bench.Bytes.Format(c.Index), bench.Bytes.Format(c.Disk), Span(n.kept()))},
		{"mongod", fmt.Sprintf("%s CPU-s: writing %s, checkpoints %s, queries %s", number(c.CPU().Mongod), number(c.Write.Mongod), number(c.Rewrite), number(c.Query.Mongod))},
		{"brim", fmt.Sprintf("%s CPU-s: taking in %s (%d in a request), writing %s, queries %s", number(door+c.CPU().Brim), number(door), n.Batch, number(c.Write.Brim), number(c.Query.Brim))},
		{"processors", fmt.Sprintf("%.2g of them on average", (c.CPU().Total()+door)/day.Seconds())},
		{"written to disk", bench.Bytes.Format(c.Written) + " by checkpoints, beside the journals"},
		{"a query", fmt.Sprintf("%s, %s documents", bench.Seconds.Format(c.QuerySeconds), number(c.QueryDocuments))},
	} {
		_, _ = fmt.Fprintf(b, "  %-20s %s\n", l[0], l[1])
	}
}

// rejected is the table of all candidates, the chosen one among them.
func (a *Advice) rejected(b *strings.Builder) {
	b.WriteString("\nInstead of\n")
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	row := func(c Cost, why string) {
		_, _ = fmt.Fprintf(t, "  %s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%.2f\t%s\n", c.Candidate, number(c.Documents), number(a.perReading(c)),
			bench.Bytes.Format(c.Disk), number(c.Write.Total()), number(c.Rewrite), number(c.Query.Total()), bench.Seconds.Format(c.QuerySeconds), c.Price(), why)
	}
	_, _ = fmt.Fprintln(t, "  \tdocs/day\tB/reading\tkept\twriting\tcheckp.\tqueries\ta query\tprice\t")
	row(a.Chosen, "chosen")
	for _, r := range a.Rejected {
		row(r.Cost, r.Why)
	}
	_ = t.Flush() // into memory
}

// rule says how it was chosen, in full.
func (a *Advice) rule(b *strings.Builder) {
	b.WriteString("\n")
	wrap(b, "", fmt.Sprintf("The rule: price = CPU-hours of a month x %g + GB kept x %g (--core-hour, --gb-month), of mongod and brim; "+
		"writing, checkpoints and queries are CPU-s a day. The cheapest that --duplicates allows is taken; of prices within %.0f %% the simpler: bucket documents before a time series, "+
		"then smaller documents, then snappy, then the shorter flush interval. An update carries flush interval / --interval readings. "+
		"What it costs to take readings in is the same for all and not in the price. Bytes are those of the collection's file and indexes after a checkpoint, without what is free in them; the readings are those of `brim load`, and yours may compress better or worse.",
		a.Needs.CoreHour, a.Needs.GBMonth, 100*alikeShare))
}

// followed says what came when it was followed.
func (a *Advice) followed(b *strings.Builder) {
	f := a.Followed
	if f == nil {
		return
	}
	_, _ = fmt.Fprintf(b, "\nFollowed: %s of event time in %s\n  brim serve %s\n  brim load %s\n", Span(f.Event), Span(f.Time), strings.Join(f.Serve, " "), strings.Join(f.Load, " "))
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "  a day\tpredicted\tseen\tdifference")
	_, _ = fmt.Fprintf(t, "  documents\t%s\t%s\t%+.1f %%\n", number(f.Documents.Predicted), number(f.Documents.Seen), 100*f.Documents.Off())
	_, _ = fmt.Fprintf(t, "  bytes\t%s\t%s\t%+.1f %%\n", bench.Bytes.Format(f.Bytes.Predicted), bench.Bytes.Format(f.Bytes.Seen), 100*f.Bytes.Off())
	_ = t.Flush() // into memory
}

// wrap writes a sentence in lines that begin with an indent.
func wrap(b *strings.Builder, indent, text string) {
	at := 0
	for word := range strings.FieldsSeq(text) {
		switch n := len([]rune(word)); {
		case at == 0:
			b.WriteString(indent + word)
			at = len(indent) + n
		case at+1+n > width:
			b.WriteString("\n" + strings.Repeat(" ", len(indent)) + word)
			at = len(indent) + n
		default:
			b.WriteString(" " + word)
			at += 1 + n
		}
	}
	b.WriteString("\n")
}
