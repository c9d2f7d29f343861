package report

import (
	"bytes"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"github.com/brim-telemetry/brim/internal/load"
)

// A difference is a setting in which two setups differ. Those of place say where
// the load went, which is mostly what is compared.
type difference struct {
	key, a, b string
	place     bool
}

// differences compares setups, but for the span of event time, which is another
// in every run.
func differences(a, b *load.Setup) []difference {
	var all []difference
	va, vb := reflect.ValueOf(*a), reflect.ValueOf(*b)
	for i := range va.NumField() {
		key, _, _ := strings.Cut(va.Type().Field(i).Tag.Get("json"), ",")
		if key == "event_start" || key == "event_end" || va.Field(i).Equal(vb.Field(i)) {
			continue
		}
		place := slices.Contains([]string{"target", "stream", "storage"}, key)
		all = append(all, difference{key, fmt.Sprint(va.Field(i)), fmt.Sprint(vb.Field(i)), place})
	}
	return all
}

// Compare writes each figure of a beside that of b.
func Compare(w io.Writer, a, b *load.Result) error {
	var out bytes.Buffer
	fmt.Fprintf(&out, "A  %s: %s, stream %s (%s), brim %s\n", ago(a), a.Setup.Target, a.Setup.Stream, a.Setup.Storage, a.Version)
	fmt.Fprintf(&out, "B  %s: %s, stream %s (%s), brim %s\n\n", ago(b), b.Setup.Target, b.Setup.Stream, b.Setup.Storage, b.Version)
	writeDifferences(&out, a, b)
	g := newGrid(comparedWidth)
	g.row("", "A", "B", "B/A")
	for _, f := range compared(a, b) {
		g.row(f.cells()...)
	}
	g.writeTo(&out)
	out.WriteByte('\n')
	compareFill(&out, "p99 of response time by elapsed part of the window", a.ByFill, b.ByFill)
	if len(a.StoreByFill) > 0 && len(b.StoreByFill) > 0 {
		out.WriteByte('\n')
		compareFill(&out, "p99 of the daemon's own time to write an update", a.StoreByFill, b.StoreByFill)
	}
	if _, err := w.Write(out.Bytes()); err != nil {
		return fmt.Errorf("write the comparison: %w", err)
	}
	return nil
}

func writeDifferences(out *bytes.Buffer, a, b *load.Result) {
	different := differences(&a.Setup, &b.Setup)
	if len(different) == 0 {
		return
	}
	if slices.ContainsFunc(different, func(d difference) bool { return !d.place }) {
		out.WriteString("Careful: A and B are not of the same load. They differ in:\n")
	} else {
		out.WriteString("A and B are of the same load. They differ in:\n")
	}
	g := newGrid(comparedWidth)
	for _, d := range different {
		g.row("  "+d.key, orNone(d.a), orNone(d.b))
	}
	g.writeTo(out)
	out.WriteByte('\n')
}

func orNone(s string) string {
	if s == "" {
		return "–"
	}
	return s
}

const comparedWidth = 22

// A pair is one figure of two results.
type pair struct {
	name string
	a, b float64
	told func(float64) string
	none bool // of a time: nothing was observed in one of them
}

func (p pair) cells() []string {
	ratio := "–"
	if p.a > 0 && !p.none {
		ratio = fmt.Sprintf("%.2f", p.b/p.a)
	}
	return []string{p.name, p.told(p.a), p.told(p.b), ratio}
}

// compared lists the figures of two results.
func compared(a, b *load.Result) []pair {
	whole := func(v float64) string { return count(int64(v)) }
	pairs := []pair{
		{"asked for", a.OfferedRate, b.OfferedRate, asked, false},
		{"achieved", a.AchievedRate, b.AchievedRate, perSecond, false},
		{"readings sent", float64(a.Sent), float64(b.Sent), whole, false},
		{"readings taken", float64(a.Acked), float64(b.Acked), whole, false},
		{"readings refused", float64(a.Rejected), float64(b.Rejected), whole, false},
		{"readings failed", float64(a.Failed), float64(b.Failed), whole, false},
		{"readings dropped", float64(a.Dropped), float64(b.Dropped), whole, false},
		{"time to last answer", a.DrainSeconds, b.DrainSeconds, span, false},
	}
	for _, of := range []struct {
		name string
		a, b load.Quantiles
	}{{"response", a.Response, b.Response}, {"service", a.Service, b.Service}} {
		none := !observed(of.a) || !observed(of.b)
		for _, q := range quantileFigures {
			pairs = append(pairs, pair{of.name + " " + q.name, q.of(of.a), q.of(of.b), orDash, none})
		}
	}
	return pairs
}

// orDash tells a time that is 0 where nothing was observed.
func orDash(seconds float64) string { return latency(seconds, seconds > 0) }

func compareFill(out *bytes.Buffer, title string, a, b []load.FillRow) {
	fmt.Fprintf(out, "%s\n", title)
	g := newGrid(comparedWidth)
	g.row("", "A", "B", "B/A")
	for i := range min(len(a), len(b)) {
		p := pair{tenth(a[i]), a[i].P99, b[i].P99, orDash, a[i].Count == 0 || b[i].Count == 0}
		g.row(p.cells()...)
	}
	g.writeTo(out)
}
