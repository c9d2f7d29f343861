package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/dustin/go-humanize"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/chart"
)

// A fact is a line about where and how something was measured.
type fact struct{ Name, Value string }

// facts tells them all.
func facts(r *bench.Result) []fact {
	e := &r.Environment
	machine := []string{cmp.Or(e.Processor, "unknown processor"), plural(int64(e.Cores), "core")}
	if e.MemoryMiB > 0 {
		machine = append(machine, chart.Format(chart.Bytes, float64(e.MemoryMiB)*(1<<20))+" of memory")
	}
	out := []fact{
		{"machine", strings.Join(append(machine, e.System), ", ")},
		{"mongod", mongod(e)},
	}
	if e.Database == "" {
		out = append(out, fact{"disk", cmp.Or(e.FileSystem, "unknown file system") + " on " + disk(e.Disk)})
	} else {
		out = append(out, fact{"database", e.Database + ", which is dropped in the end"})
	}
	return append(out,
		fact{"brim", fmt.Sprintf("%s, MongoDB driver %s", cmp.Or(e.Brim, "unknown version"), cmp.Or(e.Driver, "unknown"))},
		fact{"run", run(r)})
}

func mongod(e *bench.Environment) string {
	switch {
	case e.Mongod == "" && e.Database != "":
		return "nothing was learned of it"
	case e.Mongod == "":
		return "none was started"
	}
	parts := []string{e.Mongod}
	if len(e.Topologies) > 0 {
		parts = append(parts, strings.ReplaceAll(strings.Join(e.Topologies, " and "), "_", " "))
	}
	if len(e.Compressor) > 0 {
		parts = append(parts, "compressor "+strings.Join(e.Compressor, " and "))
	} else {
		parts = append(parts, "compressors as pinned below, or its own")
	}
	if len(e.CacheMiB) > 0 {
		var sizes []string
		for _, each := range e.CacheMiB {
			sizes = append(sizes, chart.Format(chart.Bytes, float64(each)*(1<<20)))
		}
		parts = append(parts, "cache "+strings.Join(sizes, " and "))
	}
	return strings.Join(parts, ", ")
}

func disk(kind string) string {
	switch kind {
	case "nvme":
		return "NVMe"
	case "ssd", "hdd":
		return strings.ToUpper(kind)
	}
	return "a disk of unknown kind"
}

// run tells what kind of run it was.
func run(r *bench.Result) string {
	kind := "full"
	if r.Quick {
		kind = "quick"
	}
	return fmt.Sprintf("%s, %s, seed %d, %s UTC, took %s", kind, plural(int64(r.Repeats), "repeat"), r.Seed,
		r.Environment.Time.UTC().Format("2006-01-02 15:04"), chart.Format(chart.Seconds, r.TookSeconds))
}

// trouble says why a result is not whole; empty if it is.
func trouble(r *bench.Result) string {
	switch {
	case r.Interrupted:
		return "It was interrupted: what follows is what was measured until then."
	case r.Error != "":
		return "It failed: " + oneLine(r.Error) + ". What follows is what was measured until then."
	}
	return ""
}

// verdicts lists them in the order in which they are told.
func verdicts() []bench.Verdict {
	return []bench.Verdict{bench.Confirmed, bench.SizeDiffers, bench.NotSeen, bench.Opposite}
}

// score counts the verdicts: "5 confirmed; 1 opposite".
func score(rows []bench.Row) string {
	var parts []string
	for _, v := range verdicts() {
		n := 0
		for i := range rows {
			if rows[i].Verdict == v {
				n++
			}
		}
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, v))
		}
	}
	if len(parts) == 0 {
		return "no claim was checked"
	}
	return plural(int64(len(rows)), "claim") + ": " + strings.Join(parts, "; ")
}

// claimHead is the head of the table of claims.
func claimHead() []string { return []string{"claim", "published", "measured", "verdict", "why"} }

func claimCells(r *bench.Row) []string {
	return []string{r.Claim, r.PublishedAs, r.MeasuredAs, string(r.Verdict), r.Why}
}

// leftOut tells what was not measured, and why.
func leftOut(r *bench.Result) []string {
	var out []string
	for _, l := range r.LeftOut {
		out = append(out, l.What+": "+l.Why)
	}
	return out
}

// plural tells a number of things.
func plural(n int64, what string) string {
	if n != 1 {
		what += "s"
	}
	return humanize.Comma(n) + " " + what
}

// oneLine makes one line of s, of which nothing moves the cursor: a part of it may
// be what some server answered.
func oneLine(s string) string {
	return strings.Map(func(c rune) rune {
		if unicode.IsPrint(c) {
			return c
		}
		return '?'
	}, strings.Join(strings.Fields(s), " "))
}

// figures reports whether a column has nothing but figures, which stand best with
// their ends one under the other.
func figures(rows [][]string, column int) bool {
	seen := false
	return !slices.ContainsFunc(rows, func(row []string) bool {
		if column >= len(row) || row[column] == "" {
			return false
		}
		const mostDigits = 24 // a sentence may begin with a digit
		cell := []rune(row[column])
		first := cell[0]
		digit := first >= '0' && first <= '9'
		seen = seen || digit
		return len(cell) > mostDigits || slices.Contains(cell, '→') || !digit && !strings.ContainsRune("-−–+<>≥≤±", first)
	}) && seen
}
