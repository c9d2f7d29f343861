package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"

	"golang.org/x/term"

	"github.com/brim-telemetry/brim/internal/config"
	"github.com/brim-telemetry/brim/internal/doctor"
	"github.com/brim-telemetry/brim/internal/machine"
)

// watchOn looks again and again until it has looked as often as was asked for,
// or is told to stop. The verdict is that of the last look.
func (x *examination) watchOn(ctx context.Context, p *process) error {
	if err := x.look(ctx); err != nil {
		return err
	}
	advice, err := x.monitor.CheckSettings(ctx)
	if err != nil {
		return err
	}
	x.advice = advice
	view := newDoctorWatch(p, *x.output == "json")
	last := x.report()
	if err := view.show(last, nil); err != nil {
		return err
	}
	for n := 1; (x.looks == 0 || n < x.looks) && machine.Pause(ctx, x.interval) == nil; n++ {
		x.lookAll(ctx) // one that is not answered is shown, and the next may be
		if ctx.Err() != nil {
			break
		}
		now := x.report()
		if err := view.show(now, last); err != nil {
			return err
		}
		last = now
	}
	if !last.Server.Answered {
		return fmt.Errorf("look at %s: %w", config.MaskURI(x.site.uri), errAway)
	}
	return foundExit(last.Class)
}

// A doctorWatch shows looks: on a terminal in place, elsewhere one below the
// other, as JSON one object a line.
type doctorWatch struct {
	w     io.Writer
	env   []string
	json  bool
	place bool       // redraw in place
	rows  func() int // of the terminal; 0: not known
}

func newDoctorWatch(p *process, asJSON bool) *doctorWatch {
	return &doctorWatch{w: p.stdout, env: p.env, json: asJSON, place: config.IsTerminal(p.stdout) && !asJSON, rows: func() int { return rowsOf(p.stdout) }}
}

// show tells of a look, and of what changed since the one before; nil: this is
// the first.
func (v *doctorWatch) show(now, before *doctorReport) error {
	if v.json {
		line, err := json.Marshal(now)
		if err != nil {
			return fmt.Errorf("print the result: %w", err)
		}
		_, err = v.w.Write(append(line, '\n'))
		return err
	}
	t := newDoctorText(v.w, v.env)
	if !v.place && before != nil {
		t.line("")
	}
	t.head(now)
	if v.place {
		t.causes(now) // what they come to may not fit below
	}
	t.line("")
	t.signals(now.Signals, changes(now, before))
	t.line("")
	t.rates(now)
	switch {
	case before == nil:
		now = now.without("unseen_rate") // the next look has them
	case !v.place:
		now = now.without("setting_") // they were said
	}
	t.findings(now)
	if v.place {
		screen := clip(t.b.String(), v.rows())
		t.b.Reset()
		t.b.WriteString("\x1b[H\x1b[2J" + screen)
	}
	return t.flush()
}

// causes names in a line each what holds writes up.
func (t *doctorText) causes(r *doctorReport) {
	last := ""
	for i := range r.Diagnosis {
		if f := &r.Diagnosis[i]; f.Kind == doctor.Slow && f.Cause != last {
			t.wrapped("Found    ", f.Cause)
			last = f.Cause
		}
	}
}

// clip keeps the lines that a screen has room for, and says that there is more.
func clip(text string, rows int) string {
	lines := strings.SplitAfter(text, "\n")
	if rows < 2 || len(lines) <= rows { // the last is what stands behind the last line's end
		return text
	}
	return strings.Join(lines[:rows-2], "") + "… the rest needs a higher terminal, or brim doctor --over 10s\n"
}

// rowsOf is how high a terminal is; 0: not known.
func rowsOf(w io.Writer) int {
	file, ok := w.(*os.File)
	if !ok {
		return 0
	}
	_, rows, err := term.GetSize(int(file.Fd()))
	if err != nil {
		return 0
	}
	return rows
}

// goings are the rates that a watch shows, in lines. What stands in a format
// for the rate has its unit already.
var goings = []struct {
	label string
	parts [][2]string // format, rate
}{
	{"operations", [][2]string{{"writes %s", "writes"}, {"%s each", "write_time"}, {"reads %s", "reads"}}},
	{"journal", [][2]string{{"%s", "journal_syncs"}, {"%s each", "journal_sync_time"}, {"%s", "journal_written_bytes"}}},
	{"files", [][2]string{{"written %s", "block_written_bytes"}, {"by checkpoints %s", "checkpoint_bytes"}}},
	{"checkpoints", [][2]string{{"%s taken", "checkpoints"}, {"%s of the time", "checkpoint_share"}}},
	{"cache", [][2]string{{"read into it %s", "cache_read_bytes"}, {"evicted %s", "evictions"}, {"by clients' threads %s of a thread's time", "application_eviction_share"}}},
	{"history", [][2]string{{"%s", "history_inserts"}}},
	{"disk", [][2]string{{"reads %s", "disk_reads"}, {"%s", "disk_read_bytes"}, {"writes %s", "disk_writes"}, {"%s", "disk_written_bytes"}}},
	{"CPU", [][2]string{{"mongod uses %s of them", "mongod_processors"}, {"all processes of this host %s", "machine_busy"}}},
}

// rates writes what goes on, a line a subject; what is not known is left out.
func (t *doctorText) rates(r *doctorReport) {
	if r.OverSeconds == 0 {
		return
	}
	t.line("%s", t.strong("IN BETWEEN"))
	for _, g := range goings {
		var known []string
		for _, part := range g.parts {
			for _, rate := range r.Rates {
				if rate.Name == part[1] && !math.IsNaN(rate.Value) {
					known = append(known, fmt.Sprintf(part[0], rate.Text()))
				}
			}
		}
		if len(known) > 0 {
			t.wrapped(fmt.Sprintf("  %-13s", g.label), strings.Join(known, ", "))
		}
	}
	t.line("")
}

// changes are by how much signals have changed since the look before.
func changes(now, before *doctorReport) map[string]string {
	out := make(map[string]string)
	if before == nil {
		return out
	}
	for i, s := range now.Signals {
		was := before.Signals[i]
		switch change := s.Value - was.Value; {
		case math.IsNaN(change):
		case s.Text() == was.Text():
			out[s.Name] = "="
		default:
			out[s.Name] = doctor.Signed(change)
		}
	}
	return out
}

// without is the report without findings whose names begin so.
func (r *doctorReport) without(prefix string) *doctorReport {
	out := *r
	out.Diagnosis = slices.DeleteFunc(slices.Clone(r.Diagnosis), func(f doctor.Finding) bool { return strings.HasPrefix(f.Name, prefix) })
	return &out
}
