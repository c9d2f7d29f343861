package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/brim-telemetry/brim/internal/config"
	"github.com/brim-telemetry/brim/internal/doctor"
)

// A doctorText writes what the doctor found for people.
type doctorText struct {
	w       io.Writer
	colour  bool
	width   int // of lines of words; 0: without end
	columns int // of a terminal; of anything else without end
	b       strings.Builder
}

// newDoctorText uses colour on a terminal alone, and not where NO_COLOR is set.
func newDoctorText(w io.Writer, env []string) *doctorText {
	return &doctorText{w: w, colour: config.IsTerminal(w) && config.LookupEnv(env, "NO_COLOR") == "", width: textWidth(w), columns: columnsOf(w)}
}

func (t *doctorText) line(format string, args ...any) { _, _ = fmt.Fprintf(&t.b, format+"\n", args...) }

// flush writes what was put together.
func (t *doctorText) flush() error {
	_, err := io.WriteString(t.w, t.b.String())
	t.b.Reset()
	return err
}

// report writes one look, or two.
func (t *doctorText) report(r *doctorReport) error {
	t.head(r)
	t.line("")
	t.signals(r.Signals, nil)
	t.line("")
	t.findings(r)
	return t.flush()
}

// paint colours text by a class.
func (t *doctorText) paint(c doctor.Class, text string) string {
	if !t.colour {
		return text
	}
	code := map[doctor.Class]string{doctor.Healthy: "32", doctor.Degrading: "33", doctor.Bottleneck: "1;31", doctor.Unknown: "2"}[c]
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// strong makes a heading stand out.
func (t *doctorText) strong(text string) string {
	if !t.colour {
		return text
	}
	return "\x1b[1m" + text + "\x1b[0m"
}

// head says what was looked at, and how it stands.
func (t *doctorText) head(r *doctorReport) {
	looked := "one sample; rates are unknown"
	if r.OverSeconds > 0 {
		looked = "two samples, " + config.FormatDuration(time.Duration(r.OverSeconds*float64(time.Second)).Round(100*time.Millisecond)) + " apart"
	}
	t.line("%s  %s, %s", t.paint(r.Class, strings.ToUpper(r.Class.String())), looked, r.At.Format(time.DateTime))
	t.wrapped("MongoDB  ", serverInWords(r))
	t.wrapped("Disk     ", diskInWords(&r.Disk))
}

func serverInWords(r *doctorReport) string {
	parts := []string{r.URI}
	s := &r.Server
	if !s.Answered {
		return "does not answer, " + r.URI // what it said before may not hold any more
	}
	if s.Version != "" {
		parts = append([]string{s.Version + " " + strings.ReplaceAll(s.Topology, "_", " ")}, parts...)
	}
	if s.Secondary {
		parts = append(parts, "a member that takes no writes: run brim doctor against the primary")
	}
	if s.Processors > 0 {
		parts = append(parts, fmt.Sprintf("%.0f CPUs", s.Processors))
	}
	if s.CacheBytes > 0 {
		parts = append(parts, "cache "+humanize.IBytes(uint64(s.CacheBytes)))
	}
	if s.Here {
		parts = append(parts, "on this machine")
	}
	return strings.Join(parts, ", ")
}

// diskInWords says also why the thresholds of its latency are those.
func diskInWords(d *doctor.Disk) string {
	if d.Device == "" {
		return "unknown: " + d.Why
	}
	kind := map[string]string{
		"nvme": "NVMe", "ssd": "SSD", "hdd": "a hard disk",
		"unknown": "of unknown kind (virtual disks do not report theirs), compared with an SSD's thresholds",
	}[d.Kind]
	out := d.Device + ", " + kind
	if d.Size > 0 {
		out += fmt.Sprintf(", %s of %s free", humanize.IBytes(uint64(d.Free)), humanize.IBytes(uint64(d.Size)))
	}
	if d.Path != "" {
		out += ", " + d.Path
	}
	return out
}

// signals writes the table; changes, if there are any, are by signal's name.
func (t *doctorText) signals(all []doctor.Signal, changes map[string]string) {
	lines := signalLines(all, changes, false)
	tooWide := func(line string) bool { return len([]rune(line)) >= t.columns }
	if slices.ContainsFunc(lines, tooWide) {
		lines = signalLines(all, changes, true)
	}
	for i, line := range lines {
		if tooWide(line) {
			line = string([]rune(line)[:t.columns-2]) + "…"
		}
		switch {
		case i == 0:
			line = t.strong(line)
		case all[i-1].Class != doctor.Healthy:
			line = t.paint(all[i-1].Class, line)
		}
		t.line("%s", line)
	}
}

// signalLines makes a table with thresholds in words, or in short.
func signalLines(all []doctor.Signal, changes map[string]string, short bool) []string {
	var out strings.Builder
	table := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	row := func(name, value, change string, rest ...string) {
		cells := []string{name, value}
		if changes != nil {
			cells = append(cells, change)
		}
		_, _ = fmt.Fprintln(table, strings.Join(append(cells, rest...), "\t"))
	}
	if short {
		row("SIGNAL", "VALUE", "CHANGE", "CLASS", "FROM/OVER", "BY")
	} else {
		row("SIGNAL", "VALUE", "CHANGE", "CLASS", "DEGRADING", "BOTTLENECK", "THRESHOLD FROM")
	}
	for _, s := range all {
		from, over := s.Bounds()
		bounds := []string{from, over}
		if short {
			bounds = []string{fmt.Sprintf("%g/%g", s.Threshold.Degrading, s.Threshold.Bottleneck)}
		}
		row(s.Title, s.Text(), changes[s.Name], append(append([]string{s.Class.String()}, bounds...), s.Source)...)
	}
	_ = table.Flush() // into memory
	lines := strings.Split(strings.TrimRight(out.String(), "\n"), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return lines
}

// findings writes the diagnosis, then the settings, then what was not seen.
func (t *doctorText) findings(r *doctorReport) {
	t.line("%s", t.strong("DIAGNOSIS"))
	if !t.group(r, doctor.Slow) {
		t.wrapped("", nothingWrong(r)+".")
	}
	if r.Note != "" {
		t.wrapped("", r.Note+".")
	}
	t.part(r, doctor.Setting, "SETTINGS")
	t.part(r, doctor.Unseen, "NOT MEASURED")
}

// nothingWrong says what it means that no cause was found. Members that lag hold
// writes up as well, and stand with the settings.
func nothingWrong(r *doctorReport) string {
	if r.Class == doctor.Unknown {
		return "unknown"
	}
	words := "nothing wrong"
	if hasKind(r, doctor.Setting) {
		words += " in the storage engine and its disk; the settings below may still cost"
	}
	if r.OverSeconds == 0 {
		words += ", as far as one sample can tell: rates are known from the second sample on"
	}
	return words
}

func hasKind(r *doctorReport, kind doctor.Kind) bool {
	return slices.ContainsFunc(r.Diagnosis, func(f doctor.Finding) bool { return f.Kind == kind })
}

// part writes the findings of a kind below a head, if there are any.
func (t *doctorText) part(r *doctorReport, kind doctor.Kind, head string) {
	if hasKind(r, kind) {
		t.line("")
		t.line("%s", t.strong(head))
		t.group(r, kind)
	}
}

// group writes the findings of a kind; those of one cause share its evidence.
func (t *doctorText) group(r *doctorReport, kind doctor.Kind) bool {
	last, number := "", 0
	for i := range r.Diagnosis {
		f := &r.Diagnosis[i]
		if f.Kind != kind {
			continue
		}
		if about := f.Name + f.Cause; about != last {
			if last != "" && kind == doctor.Slow {
				t.line("")
			}
			last, number = about, 0
			class := ""
			if kind == doctor.Slow {
				class = t.paint(f.Class, f.Class.String()) + "  "
			}
			t.line("%s%s", class, t.strong(f.Cause))
			t.wrapped("  seen  ", f.Evidence)
		}
		number++
		t.wrapped(fmt.Sprintf("  do %d  ", number), f.Action)
		t.wrapped("  cost  ", f.Cost)
	}
	return last != ""
}

// wrapped writes words behind a label, in as many lines as they need.
func (t *doctorText) wrapped(label, words string) {
	indent := strings.Repeat(" ", len(label))
	line := label
	for i, word := range strings.Fields(words) {
		if i > 0 && t.width > 0 && len([]rune(line))+1+len([]rune(word)) > t.width {
			t.line("%s", line)
			line = indent + word
			continue
		}
		if i > 0 {
			line += " "
		}
		line += word
	}
	t.line("%s", line)
}
