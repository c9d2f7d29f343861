package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/brim-telemetry/brim/internal/config"
	"github.com/brim-telemetry/brim/internal/daemon"
	"github.com/brim-telemetry/brim/internal/doctor"
	"github.com/brim-telemetry/brim/internal/machine"
	"github.com/brim-telemetry/brim/internal/report"
	"github.com/brim-telemetry/brim/internal/store"
)

// newDoctor returns `brim doctor`, which explains why writes are slow:
//
//	                               Seen, CheckSettings
//	deployment ─▶ doctor.Monitor ──────────────────────▶ doctor.Report ─┬─▶ text or JSON ─▶ stdout
//	                                                                    └─▶ class ─▶ exit code
//
// The signals are those of /metrics and the live page.
func newDoctor(p *process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Diagnose slow writes: MongoDB's storage engine, its disk and CPU, and what to do",
		Long: "Diagnose slow writes: MongoDB's storage engine, its disk and CPU, and what to do.\n\n" +
			"It samples MongoDB's primary, and the disk if MongoDB runs on this machine, compares each signal with a threshold\n" +
			"and reports what is wrong: causes before what follows from them, and for each what to do, the cheapest first, with\n" +
			"its cost. Settings that cost without need are reported even when nothing is slow. It only reads; the user of\n" +
			"MongoDB needs the role clusterMonitor, and read on the database.\n\n" +
			"A bottleneck is reported if writes are slower than usual and a resource is at its limit. A running daemon\n" +
			"knows what is usual; without one MongoDB's own counters are used, from the second sample on.\n\n" +
			"By default it takes two samples, 2 s apart, from which rates are calculated (--over). Exit codes: 0 healthy, 10 degrading,\n" +
			"20 bottleneck (the worst cause of slow writes, with --watch in the last sample), 1 when MongoDB does not\n" +
			"answer or its storage engine cannot be seen, 2 for wrong usage.\n\n" +
			"The JSON has class, signals (name, title, value or null, unit, class, threshold, source, why), diagnosis (name,\n" +
			"kind slow, setting or unseen, class, cause, evidence, action, cost), rates, write_path, server, mongo_uri, disk, at,\n" +
			"over_seconds and, where something is over its threshold though nothing is wrong, note; with --watch it is one\n" +
			"object a line.",
		Example: "  brim doctor --over 10s\n" +
			"  brim doctor --watch --mongo-uri mongodb://db1.example/?replicaSet=rs0\n" +
			"  brim doctor --over 10s --output json --thresholds ours.yaml",
		Args: noArgs,
	}
	flags := cmd.Flags()
	o := &doctorOptions{given: flags.Changed}
	o.deployment = deploymentFlags(flags)
	o.output = outputFlag(cmd, "text", "json")
	add := flagAdder(flags)
	add("over", "2s", "DURATION", "time between two samples, from which rates are calculated; 0: take one sample", config.Duration(&o.over, time.Second, config.Day, true))
	flags.BoolVar(&o.watch, "watch", false, "sample again and again, and show what changed")
	add("interval", "5s", "DURATION", "of --watch: time between two samples", config.Duration(&o.interval, time.Second, time.Hour, false))
	add("looks", "0", "N", "of --watch: stop after N samples; 0: until Ctrl-C", config.Count(&o.looks, 0, 1_000_000))
	add("thresholds", "", "FILE", "YAML file with your own thresholds, like disk_busy: {degrading: 60, bottleneck: 90}", config.Text(&o.thresholds, daemon.CheckThresholds))
	add("disk", "", "DIR", "folder of MongoDB's files on this machine, if MongoDB does not report it", config.Text(&o.disk, checkFolder))
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := o.check(); err != nil {
			return config.Usage(err)
		}
		return o.run(cmd.Context(), p)
	}
	return cmd
}

// doctorOptions are the flags of `brim doctor`.
type doctorOptions struct {
	deployment func(context.Context, *process) (*deployment, error)
	output     *string
	thresholds string        // file; empty: from the configuration, or built in
	over       time.Duration // time to the second sample; 0: only one
	watch      bool
	interval   time.Duration // between samples of a watch
	looks      int           // samples of a watch; 0: until stopped
	disk       string        // folder of MongoDB's files; empty: as reported by MongoDB
	given      func(flag string) bool
}

// check rejects combinations of flags that make no sense.
func (o *doctorOptions) check() error {
	switch {
	case o.watch && o.given("over"):
		return errors.New("--over and --watch cannot be used together: a watch samples each --interval")
	case !o.watch && (o.given("interval") || o.given("looks")):
		return errors.New("--interval and --looks belong to --watch, which is missing")
	}
	return nil
}

// An examination is one run of `brim doctor`.
type examination struct {
	*doctorOptions
	deployment *deployment
	conn       *store.Connection
	monitor    *doctor.Monitor
}

var (
	// errAway means that MongoDB did not answer the last sample.
	errAway = errors.New("MongoDB does not answer")
	// errRefused means that MongoDB refused the user.
	errRefused = errors.New("MongoDB refuses the connection")
	// errBlind means that the engine's state is unknown, which must not pass as healthy.
	errBlind = errors.New("the storage engine is unknown; NOT MEASURED says why, and what would help")
)

// run samples, prints reports, and returns the class as a verdict.
func (o *doctorOptions) run(ctx context.Context, p *process) error {
	ctx, _, release := daemon.OnSignals(ctx, func(os.Signal) {}, func(os.Signal) {})
	defer release()
	x, disconnect, err := o.begin(ctx, p)
	if err != nil {
		return err
	}
	defer disconnect()
	if err := x.sample(ctx); err != nil {
		return err
	}
	if !o.watch && o.over > 0 {
		if machine.Pause(ctx, o.over) != nil {
			return errors.New("interrupted before the second sample")
		}
		if err := x.sample(ctx); err != nil {
			return err
		}
	}
	settings, err := x.monitor.CheckSettings(ctx)
	if err != nil {
		return err
	}
	var last *doctor.Report
	for n := 1; ; n++ {
		before := last
		seen := x.monitor.Seen()
		last = seen.Report(settings)
		last.URI = config.MaskURI(x.deployment.uri)
		if err := o.print(p, last, before); err != nil {
			return err
		}
		if !o.watch || n == o.looks || machine.Pause(ctx, o.interval) != nil {
			break
		}
		_ = x.sample(ctx) // an unanswered sample is shown; the next may succeed
		if ctx.Err() != nil {
			break
		}
	}
	switch {
	case !last.Server.Answered:
		return fmt.Errorf("sample %s: %w", config.MaskURI(x.deployment.uri), errAway)
	case last.Class == doctor.Degrading:
		return verdict(exitDegrading)
	case last.Class == doctor.Bottleneck:
		return verdict(exitBottleneck)
	case last.Class == doctor.Unknown:
		return errBlind
	}
	return nil
}

// begin finds the deployment and connects to it.
func (o *doctorOptions) begin(ctx context.Context, p *process) (x *examination, disconnect func(), err error) {
	s, err := o.deployment(ctx, p)
	if err != nil {
		return nil, nil, err
	}
	if o.given("stream") {
		if _, err := s.stream("--stream"); err != nil {
			return nil, nil, err
		}
	}
	thresholds, err := daemon.LoadThresholds(cmp.Or(o.thresholds, s.thresholds))
	if err != nil {
		return nil, nil, config.Usage(err)
	}
	x = &examination{doctorOptions: o, deployment: s}
	if x.conn, disconnect, err = s.connect("doctor"); err != nil {
		return nil, nil, err
	}
	config := doctor.Config{Database: x.conn.Database(), DBPath: o.disk, Thresholds: thresholds}
	if s.daemon != nil {
		config.WritePath = func(ctx context.Context) doctor.WritePath {
			seen, err := s.caller.metrics(ctx, s.admin)
			if err != nil {
				return doctor.WritePath{Why: "the daemon's metrics cannot be read: " + err.Error()}
			}
			return doctor.WritePathOf(seen)
		}
	}
	for _, one := range s.streams {
		config.Streams = append(config.Streams, doctor.Stream{Name: one.Name, Storage: one.Storage, Compressor: one.Compressor})
	}
	if x.monitor, err = doctor.New(config); err != nil {
		disconnect()
	}
	return x, disconnect, err
}

// sample samples the storage engine and the disk. It returns an error if MongoDB does not
// answer or refuses the user.
func (x *examination) sample(ctx context.Context) error {
	x.monitor.Sample(ctx)
	server := x.monitor.Seen().Server
	err := error(nil)
	switch {
	case ctx.Err() != nil:
		return errors.New("interrupted in the middle of a sample")
	case server.Why == "":
		return nil
	case server.Refused:
		err = fmt.Errorf("%w: it rejects the user, the password or the authSource of --mongo-uri: %s", errRefused, server.Away)
	case !server.Answered:
		switch err = x.conn.Available(); {
		case err == nil || errors.Is(err, store.ErrNoneFound):
			err = fmt.Errorf("%w: %s", errAway, server.Away)
		case errors.Is(err, store.ErrRefused): // by a server too slow to say so in time
			err = fmt.Errorf("%w: %w", errRefused, err)
		}
		if full := x.fullDisk(ctx); full != "" { // may have ended MongoDB
			err = fmt.Errorf("%w; disk full: %s", err, full)
		}
	case options.Client().ApplyURI(x.deployment.uri).Auth == nil:
		ctx, cancel := context.WithTimeout(ctx, adminTimeout)
		defer cancel()
		if denied := x.conn.Database().RunCommand(ctx, bson.D{{Key: "dbStats", Value: 1}}).Err(); doctor.NotPermitted(denied) {
			err = fmt.Errorf("%w: it requires a user and a password, and --mongo-uri has none; allowed: mongodb://USER:PASSWORD@HOST:PORT/?authSource=admin: %w", errRefused, denied)
		}
	}
	if err == nil {
		return nil // the findings name missing permissions
	}
	return fmt.Errorf("sample %s: %w", config.MaskURI(x.deployment.uri), err)
}

// fullDisk asks the daemon whether the disk under MongoDB's files is full.
func (x *examination) fullDisk(ctx context.Context) string {
	if x.deployment.daemon == nil {
		return ""
	}
	seen, err := x.deployment.caller.metrics(ctx, x.deployment.admin)
	if err != nil {
		return ""
	}
	return doctor.FullDisk(seen)
}

// print prints a report. With --watch it includes changes since before, the previous report;
// nil: there is none.
func (o *doctorOptions) print(p *process, now, before *doctor.Report) error {
	text := newDoctorText(p.stdout, p.env)
	switch {
	case *o.output == "json" && o.watch:
		return json.NewEncoder(p.stdout).Encode(now)
	case *o.output == "json":
		return p.print("json", now, "")
	case o.watch:
		return text.watch(now, before)
	}
	return text.report(now)
}

// A doctorText writes a report as text, in colour only on a terminal without NO_COLOR.
type doctorText struct {
	w        io.Writer
	terminal bool // a watch redraws
	colour   bool
	width    int // of prose; 0: unlimited
	columns  int // of a terminal, otherwise math.MaxInt
	b        strings.Builder
}

func newDoctorText(w io.Writer, env []string) *doctorText {
	terminal := config.IsTerminal(w)
	return &doctorText{w: w, terminal: terminal, colour: terminal && config.LookupEnv(env, "NO_COLOR") == "", width: textWidth(w), columns: columnsOf(w)}
}

func (t *doctorText) line(format string, args ...any) { _, _ = fmt.Fprintf(&t.b, format+"\n", args...) }

func (t *doctorText) flush() error {
	_, err := io.WriteString(t.w, t.b.String())
	t.b.Reset()
	return err
}

// report writes one or two samples.
func (t *doctorText) report(r *doctor.Report) error {
	t.head(r)
	t.signals(r.Signals, nil)
	t.findings(r, func(doctor.Finding) bool { return true })
	return t.flush()
}

// watch writes a sample: in place on a terminal, otherwise one below the other.
func (t *doctorText) watch(now, before *doctor.Report) error {
	switch {
	case t.terminal:
		t.b.WriteString("\x1b[H\x1b[2J")
	case before != nil:
		t.line("")
	}
	t.head(now)
	changes := make([]string, len(now.Signals))
	for i, s := range now.Signals {
		if before == nil {
			break
		}
		switch change := s.Value - before.Signals[i].Value; {
		case math.IsNaN(change):
		case s.Text() == before.Signals[i].Text():
			changes[i] = "="
		default:
			changes[i] = doctor.Signed(change)
		}
	}
	t.signals(now.Signals, changes)
	var rates []string
	for _, r := range now.Rates {
		if now.OverSeconds > 0 && !math.IsNaN(r.Value) {
			rates = append(rates, r.Title+" "+r.Text())
		}
	}
	if len(rates) > 0 {
		t.line("%s", t.strong("IN BETWEEN"))
		t.wrapped("", strings.Join(rates, "; "))
		t.line("")
	}
	t.findings(now, func(f doctor.Finding) bool {
		if before == nil {
			return f.Name != "unseen_rate" // the next sample will have them
		}
		return t.terminal || f.Kind != doctor.Setting // already shown
	})
	return t.flush()
}

// paint colours text by a class.
func (t *doctorText) paint(c doctor.Class, text string) string {
	return t.escape(map[doctor.Class]string{doctor.Healthy: "32", doctor.Degrading: "33", doctor.Bottleneck: "1;31", doctor.Unknown: "2"}[c], text)
}

// strong makes a heading stand out.
func (t *doctorText) strong(text string) string { return t.escape("1", text) }

func (t *doctorText) escape(code, text string) string {
	if !t.colour {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// head writes what was sampled, and the class.
func (t *doctorText) head(r *doctor.Report) {
	sampled := "one sample; rates are unknown"
	if r.OverSeconds > 0 {
		sampled = "two samples, " + config.FormatDuration(time.Duration(r.OverSeconds*float64(time.Second)).Round(100*time.Millisecond)) + " apart"
	}
	t.line("%s  %s, %s", t.paint(r.Class, strings.ToUpper(r.Class.String())), sampled, r.At.Format(time.DateTime))
	t.wrapped("MongoDB  ", r.Server.Describe(r.URI))
	t.wrapped("Disk     ", r.Disk.Describe())
	t.line("")
}

// signals writes the table, truncating lines to the available width; nil changes: no such
// column.
func (t *doctorText) signals(all []doctor.Signal, changes []string) {
	head := []string{"SIGNAL", "VALUE", "CHANGE", "CLASS", "DEGRADING", "BOTTLENECK", "THRESHOLD FROM"}
	if changes == nil {
		head = slices.Delete(head, 2, 3)
	}
	var rows [][]string
	for i, s := range all {
		row := []string{s.Title, s.Text()}
		if changes != nil {
			row = append(row, changes[i])
		}
		from, over := s.Bounds()
		rows = append(rows, append(row, s.Class.String(), from, over, s.Source))
	}
	for i, line := range strings.Split(strings.TrimRight(tableText(head, rows), "\n"), "\n") {
		line = strings.TrimRight(line, " ")
		if runes := []rune(line); len(runes) >= t.columns {
			line = string(runes[:t.columns-2]) + "…"
		}
		switch {
		case i == 0:
			line = t.strong(line)
		case all[i-1].Class != doctor.Healthy:
			line = t.paint(all[i-1].Class, line)
		}
		t.line("%s", line)
	}
	t.line("")
}

// findings writes the diagnosis, then the settings, then what could not be measured.
func (t *doctorText) findings(r *doctor.Report, shown func(doctor.Finding) bool) {
	groups := make(map[doctor.Kind][]doctor.Finding)
	for _, f := range r.Diagnosis {
		if shown(f) {
			groups[f.Kind] = append(groups[f.Kind], f)
		}
	}
	t.line("%s", t.strong("DIAGNOSIS"))
	if len(groups[doctor.Slow]) == 0 {
		t.wrapped("", r.Healthy()+".")
	}
	t.group("", groups[doctor.Slow])
	if r.Note != "" {
		t.wrapped("", r.Note+".")
	}
	t.group("SETTINGS", groups[doctor.Setting])
	t.group("NOT MEASURED", groups[doctor.Unseen])
}

// group writes the findings of one kind; findings with the same cause share its evidence.
func (t *doctorText) group(title string, findings []doctor.Finding) {
	if title != "" && len(findings) > 0 {
		t.line("\n%s", t.strong(title))
	}
	last, number := "", 0
	for _, f := range findings {
		if about := f.Name + f.Cause; about != last {
			class := ""
			if f.Kind == doctor.Slow {
				class = t.paint(f.Class, f.Class.String()) + "  "
				if last != "" {
					t.line("")
				}
			}
			last, number = about, 0
			t.line("%s%s", class, t.strong(f.Cause))
			t.wrapped("  seen  ", f.Evidence)
		}
		number++
		t.wrapped(fmt.Sprintf("  do %d  ", number), f.Action)
		t.wrapped("  cost  ", f.Cost)
	}
}

// wrapped writes words after a label on as many lines as needed.
func (t *doctorText) wrapped(label, words string) {
	report.Wrap(&t.b, label, strings.Repeat(" ", len(label)), words, t.width)
}
