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

// A File is a result and the file that it was read from.
type File struct {
	*load.Result

	Path string
}

// A difference is a setting in which two setups differ. It is of the load, or of
// what is compared under it.
type difference struct {
	key, a, b string
	load      bool
}

// placeKeys are settings that are no part of the load, but say where it went.
var placeKeys = [...]string{"target", "stream", "storage"}

// comparedKeys are no part of it either: with the same load one compares them.
var comparedKeys = [...]string{"granularity_seconds", "protocol", "ack"}

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
		ofLoad := !slices.Contains(placeKeys[:], key) && !slices.Contains(comparedKeys[:], key)
		all = append(all, difference{key, fmt.Sprint(va.Field(i)), fmt.Sprint(vb.Field(i)), ofLoad})
	}
	return all
}

// Compare writes each figure of a beside that of b.
func Compare(w io.Writer, a, b File) error {
	var out bytes.Buffer
	both := []struct {
		name string
		of   File
	}{{"A", a}, {"B", b}}
	for _, each := range both {
		if why := Saturation(each.of.Result); why != "" {
			fmt.Fprintf(&out, "%s%s, %s: %s\n", saturatedHead, each.name, each.of.Path, why)
		}
	}
	if out.Len() > 0 {
		out.WriteByte('\n')
	}
	for _, each := range both {
		s := &each.of.Setup
		fmt.Fprintf(&out, "%s  %s: of %s, %s, stream %s (%s), brim %s\n", each.name, each.of.Path, ago(each.of.Result), s.Target, s.Stream, s.Storage, each.of.Version)
	}
	out.WriteByte('\n')
	writeDifferences(&out, a.Result, b.Result)
	g := newGrid(comparedWidth)
	g.row("", "A", "B", "B/A")
	for _, f := range compared(a.Result, b.Result) {
		g.row(f.cells()...)
	}
	g.writeTo(&out)
	out.WriteByte('\n')
	if len(a.StoreByFill) > 0 && len(b.StoreByFill) > 0 {
		compareFill(&out, "the daemon's own time to write an update, by how full the window or the bucket's part was", a.StoreByFill, b.StoreByFill)
	} else {
		compareFill(&out, "response time by elapsed part of the window", a.ByFill, b.ByFill)
		if a.Setup.Ack != "stored" || b.Setup.Ack != "stored" {
			out.WriteString("Only with --ack stored does a response time contain the write to MongoDB; --admin tells of that with either.\n")
		}
	}
	if _, err := w.Write(out.Bytes()); err != nil {
		return fmt.Errorf("write the comparison: %w", err)
	}
	return nil
}

func writeDifferences(out *bytes.Buffer, a, b *load.Result) {
	different := differences(&a.Setup, &b.Setup)
	for _, part := range []struct {
		load  bool
		title string
	}{
		{false, "What is compared differs in:"},
		{true, "Careful: A and B are not of the same load. It differs in:"},
	} {
		g, rows := newGrid(comparedWidth), 0
		for _, d := range different {
			if d.load == part.load {
				g.row("  "+d.key, orNone(d.a), orNone(d.b))
				rows++
			}
		}
		switch {
		case rows > 0:
			out.WriteString(part.title + "\n")
			g.writeTo(out)
			out.WriteByte('\n')
		case part.load:
			out.WriteString("A and B are of the same load.\n\n")
		}
	}
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
	g.row("", "p50 A", "p50 B", "B/A", "p99 A", "p99 B", "B/A")
	for i := range min(len(a), len(b)) {
		none := a[i].Count == 0 || b[i].Count == 0
		p50 := pair{tenth(a[i]), a[i].P50, b[i].P50, orDash, none}
		p99 := pair{"", a[i].P99, b[i].P99, orDash, none}
		g.row(append(p50.cells(), p99.cells()[1:]...)...)
	}
	g.writeTo(out)
}
