package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"golang.org/x/term"

	"github.com/brim-telemetry/brim/internal/config"
	"github.com/brim-telemetry/brim/internal/daemon"
	"github.com/brim-telemetry/brim/internal/doctor"
	"github.com/brim-telemetry/brim/internal/machine"
	"github.com/brim-telemetry/brim/internal/maintain"
	"github.com/brim-telemetry/brim/internal/store"
)

// newDoctor returns `brim doctor`, which says why writes are slow:
//
//	site ─▶ doctor.Monitor ─▶ doctor.Seen ─▶ doctor.Diagnose ─┬─▶ doctorReport ─▶ text or JSON ─▶ stdout
//	               └─▶ doctor.Monitor.CheckSettings ─────────┘        └─▶ class ─▶ exit code
//
// The signals are those of /metrics and of the live page.
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
		Args: cobra.NoArgs,
	}
	flags := cmd.Flags()
	o := &doctorOptions{given: flags.Changed, over: 2 * time.Second}
	o.site = siteFlags(flags)
	o.where = func() string { return siteWords(flags) }
	o.output = outputFlag(cmd, "text", "json")
	add := flagAdder(flags)
	add("over", "2s", "DURATION", "time between two samples, from which rates are calculated; 0: take one sample", config.Duration(&o.over, time.Second, config.Day, true))
	flags.BoolVar(&o.watch, "watch", false, "sample again and again, and show what changed")
	add("interval", "5s", "DURATION", "of --watch: time between two samples", config.Duration(&o.interval, time.Second, time.Hour, false))
	add("looks", "0", "N", "of --watch: end after so many samples; 0: with Ctrl-C", config.Count(&o.looks, 0, 1_000_000))
	add("thresholds", "", "FILE", "YAML with thresholds of your own, like disk_busy: {degrading: 60, bottleneck: 90}", config.Text(&o.thresholds, daemon.CheckThresholds))
	add("disk", "", "DIR", "folder of MongoDB's files on this machine, if MongoDB cannot tell", config.Text(&o.disk, checkFolder))
	for _, name := range trendFlags {
		flags.String(name, "", "")
		_ = flags.MarkHidden(name) // it was just added
	}
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
	site       func(context.Context, *process) (*site, error)
	output     *string
	thresholds string        // file; empty: those of the configuration, or built in
	over       time.Duration // to the second sample; 0: there is none
	watch      bool
	interval   time.Duration // between two samples of a watch
	looks      int           // samples of a watch; 0: until it is stopped
	disk       string        // folder of MongoDB's files; empty: MongoDB tells
	given      func(flag string) bool
	where      func() string // the flags that name the site, for commands that are printed
}

// trendFlags were removed. Using one is answered with what replaces them.
var trendFlags = []string{"trend", "prometheus", "prometheus-token-file", "selector"}

// check refuses flags that make no sense together.
func (o *doctorOptions) check() error {
	if i := slices.IndexFunc(trendFlags, o.given); i >= 0 {
		return fmt.Errorf("--%s was removed: trends are alert rules now; load deploy/prometheus/alerts.yml into Prometheus, whose rules BrimDiskFullSoon, BrimDiskBusySoon, BrimProcessorBusySoon and BrimWritesSlowSoon look two weeks ahead", trendFlags[i])
	}
	switch {
	case o.watch && o.given("over"):
		return errors.New("--over and --watch exclude each other: a watch samples each --interval")
	case !o.watch && (o.given("interval") || o.given("looks")):
		return errors.New("--interval and --looks belong to --watch, which is missing")
	}
	return nil
}

// An examination is one run of `brim doctor`.
type examination struct {
	*doctorOptions
	site    *site
	conn    *store.Connection
	monitor *doctor.Monitor
	advice  []doctor.Finding // about settings, which are read once
	moves   []doctor.Finding // what maintenance has left behind
}

// errAway is that MongoDB did not answer the last sample.
var errAway = errors.New("MongoDB does not answer")

// run samples as it was asked to, and returns the class as a verdict.
func (o *doctorOptions) run(ctx context.Context, p *process) error {
	ctx, _, release := daemon.OnSignals(ctx, func(os.Signal) {}, func(os.Signal) {})
	defer release()
	x, err := o.begin(ctx, p)
	if err != nil {
		return err
	}
	defer func() { _ = within(x.conn.Close) }() // nothing was written on it
	if err := x.first(ctx); err != nil {
		return err
	}
	if !o.watch && o.over > 0 {
		if machine.Pause(ctx, o.over) != nil {
			return errors.New("interrupted before the second sample")
		}
		if err := x.first(ctx); err != nil {
			return err
		}
	}
	if x.advice, err = x.monitor.CheckSettings(ctx); err != nil {
		return err
	}
	last := x.report()
	if err := o.print(p, last, nil); err != nil {
		return err
	}
	for n := 1; o.watch && (o.looks == 0 || n < o.looks) && machine.Pause(ctx, o.interval) == nil; n++ {
		x.sample(ctx) // one that is not answered is shown, and the next may be
		if ctx.Err() != nil {
			break
		}
		before := last
		last = x.report()
		if err := o.print(p, last, before); err != nil {
			return err
		}
	}
	switch {
	case !last.Server.Answered:
		return fmt.Errorf("look at %s: %w", config.MaskURI(x.site.uri), errAway)
	case last.Class == doctor.Degrading:
		return verdict(exitDegrading)
	case last.Class == doctor.Bottleneck:
		return verdict(exitBottleneck)
	case last.Class == doctor.Unknown:
		return errBlind
	}
	return nil
}

// errBlind is that nothing is known of what is slow, which must not look healthy.
var errBlind = errors.New("the storage engine is unknown; NOT MEASURED says why, and what would help")

// begin finds the site and connects to it.
func (o *doctorOptions) begin(ctx context.Context, p *process) (*examination, error) {
	s, err := o.site(ctx, p)
	if err != nil {
		return nil, err
	}
	if o.given("stream") {
		if _, err := s.stream(); err != nil {
			return nil, err
		}
	}
	thresholds, err := daemon.LoadThresholds(cmp.Or(o.thresholds, s.thresholds))
	if err != nil {
		return nil, config.Usage(err)
	}
	x := &examination{doctorOptions: o, site: s}
	if x.conn, err = s.connect("doctor", slog.New(slog.DiscardHandler)); err != nil {
		return nil, err
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
		config.Streams = append(config.Streams, doctor.Stream{Name: one.Name, Storage: one.Storage})
	}
	if x.monitor, err = doctor.New(config); err != nil {
		return nil, errors.Join(err, x.conn.Close(ctx))
	}
	return x, nil
}

// sample samples the engine and the disk, and what maintenance has left behind. What
// cannot be read of that is said once.
func (x *examination) sample(parent context.Context) {
	x.monitor.Sample(parent)
	x.moves = nil
	if !x.monitor.Seen().Server.Answered {
		return
	}
	ctx, cancel := context.WithTimeout(parent, adminTimeout)
	defer cancel()
	for _, one := range x.site.streams {
		if one.Storage == store.Memory {
			continue
		}
		traces, err := maintain.LookForTraces(ctx, x.conn.Database(), one.Name)
		if err != nil {
			x.moves = append(x.moves, movesUnseen(err))
			return
		}
		x.moves = append(x.moves, movesLeft(traces, x.where())...)
	}
}

// first takes a sample. It is an error if MongoDB does not answer, or refuses the
// connection.
func (x *examination) first(ctx context.Context) error {
	x.sample(ctx)
	if ctx.Err() != nil {
		return errors.New("interrupted in the middle of a sample")
	}
	server := x.monitor.Seen().Server
	if server.Why == "" {
		return nil
	}
	err := x.conn.Available()
	if !server.Answered && (err == nil || errors.Is(err, store.ErrNoneFound)) {
		err = fmt.Errorf("%w: %s", errAway, server.Away)
	}
	// A server that refuses a password is marked as away by that, and one that
	// did not permit serverStatus may permit the rest. One that did not reply is not
	// asked again.
	if server.Answered || strings.Contains(server.Away, authError) {
		if refusal := x.permitted(ctx); refusal != nil && (err == nil || errors.Is(refusal, errRefused)) {
			err = refusal
		}
	}
	if err == nil {
		return nil
	}
	full := ""
	if x.site.daemon != nil { // a full disk may have ended MongoDB
		if seen, unread := x.site.caller.metrics(ctx, x.site.admin); unread == nil {
			full = doctor.FullDisk(seen)
		}
	}
	if full != "" {
		full = "; disk full: " + full
	}
	return fmt.Errorf("look at %s: %w%s", config.MaskURI(x.site.uri), err, full)
}

// errRefused is that MongoDB does not know the user.
var errRefused = errors.New("MongoDB refuses the connection")

// authError is in what the driver says of every refusal of a user.
const authError = "auth error"

// permitted finds out whether MongoDB accepts the user. Other errors than errRefused
// only say that it did not answer.
func (x *examination) permitted(parent context.Context) error {
	const unauthorized = 13
	ctx, cancel := context.WithTimeout(parent, adminTimeout)
	defer cancel()
	err := x.conn.Client().Ping(ctx, nil)
	switch {
	case err != nil && strings.Contains(err.Error(), authError):
		return fmt.Errorf("%w: it rejects the user, the password or the authSource of --mongo-uri: %w", errRefused, err)
	case err != nil:
		return err
	case options.Client().ApplyURI(x.site.uri).Auth != nil:
		return nil // the user is known; the findings say what is not permitted
	}
	err = x.conn.Database().RunCommand(ctx, bson.D{{Key: "dbStats", Value: 1}}).Err()
	var server mongo.ServerError
	if errors.As(err, &server) && server.HasErrorCode(unauthorized) {
		return fmt.Errorf("%w: it requires a user and a password, and --mongo-uri has none; allowed is mongodb://USER:PASSWORD@HOST:PORT/?authSource=admin: %w", errRefused, err)
	}
	return nil
}

// A doctorReport is the result.
type doctorReport struct {
	At          time.Time        `json:"at"`
	OverSeconds float64          `json:"over_seconds"` // between the two samples; 0: there was one
	Class       doctor.Class     `json:"class"`        // the worst of the signals that are known; unknown: the engine's are not
	Server      doctor.Server    `json:"server"`
	URI         string           `json:"mongo_uri"` // secrets are masked
	Disk        doctor.Disk      `json:"disk"`
	Signals     []doctor.Signal  `json:"signals"`
	Rates       []doctor.Rate    `json:"rates"`
	WritePath   doctor.WritePath `json:"write_path"`     // of the daemon there, or else of the server
	Diagnosis   []doctor.Finding `json:"diagnosis"`      // what is slow, then settings, then what could not be seen
	Note        string           `json:"note,omitempty"` // what is over its threshold though nothing is wrong
}

// report combines what is known by now.
func (x *examination) report() *doctorReport {
	seen := x.monitor.Seen()
	all := doctor.Diagnose(seen)
	class := doctor.WorstOf(slices.Concat(x.moves, all))
	if seen.Server.Why != "" && class == doctor.Healthy {
		class = doctor.Unknown // what is left says nothing about writes
	}
	r := &doctorReport{
		At: seen.At, OverSeconds: seen.Over.Seconds(), Class: class,
		Server: seen.Server, URI: config.MaskURI(x.site.uri), Disk: seen.Disk, Signals: seen.Signals, Rates: seen.Rates, Note: seen.Excused(), WritePath: seen.WritePath,
		Diagnosis: []doctor.Finding{},
	}
	for _, kind := range []doctor.Kind{doctor.Slow, doctor.Setting, doctor.Unseen} {
		for _, f := range slices.Concat(x.moves, all, x.advice) {
			if f.Kind == kind && !said(r.Diagnosis, &f) {
				r.Diagnosis = append(r.Diagnosis, f)
			}
		}
	}
	return r
}

// said reports whether a setting was named already, as the cause of slow writes.
func said(findings []doctor.Finding, setting *doctor.Finding) bool {
	has := func(names ...string) bool {
		return slices.ContainsFunc(findings, func(f doctor.Finding) bool { return slices.Contains(names, f.Name) })
	}
	switch {
	case setting.Name == "setting_history_window":
		return has("history_store")
	case setting.Cause == doctor.CauseSmallCache:
		return has("cache", "eviction")
	default:
		return false
	}
}

func movesUnseen(err error) doctor.Finding {
	f := doctor.Finding{
		Name: "unseen_moves", Kind: doctor.Unseen, Class: doctor.Unknown,
		Cause: "not examined: whether brim recompress or brim migrate was interrupted", Evidence: err.Error(),
		Action: "try again when MongoDB answers", Cost: "none",
	}
	if doctor.NotPermitted(err) {
		f.Evidence = "the user is not allowed to read the streams' database: the role read on it permits it"
		f.Action, f.Cost = "grant the user the role read on the database of the streams", "the user may read the readings"
	}
	return f
}

// movesLeft says what to do about maintenance of a stream that was interrupted; where are
// the flags that commands need to find the stream.
func movesLeft(t *maintain.Traces, where string) []doctor.Finding {
	if t.Alive {
		return nil // it finishes its work
	}
	pasted := func(command string) string { return "`" + command + where + "`" }
	begun := "brim_maintenance records no command"
	if t.Kind != "" {
		begun = fmt.Sprintf("`brim %s` to %s is in phase %s, and no process is working on it", t.Kind, t.To, t.Phase)
	}
	var out []doctor.Finding
	add := func(f doctor.Finding, actions ...[2]string) {
		for _, a := range actions {
			f.Action, f.Cost = a[0], a[1]
			out = append(out, f)
		}
	}
	const waits = "waiting readings are then stored"
	again := [][2]string{
		{"run the same command again, which continues from there: " + pasted(t.Again), "load on the disk while it runs"},
		{"or abort it, if possible: " + pasted(t.Abort), "the copy is dropped"},
	}
	fence := doctor.Finding{
		Name: doctor.FoundFenced, Kind: doctor.Slow, Class: doctor.Bottleneck,
		Cause:    "fenced: nothing of stream " + t.Stream + " is stored, since maintenance blocks writes",
		Evidence: "the validator of its collection refuses every document; readings wait in the daemons' journals; " + begun,
	}
	unfinished := doctor.Finding{
		Name: "setting_move", Kind: doctor.Setting, Class: doctor.Degrading,
		Cause: "maintenance of stream " + t.Stream + " was interrupted", Evidence: begun,
	}
	if t.Copy != nil {
		unfinished.Evidence += fmt.Sprintf("; its copy %s takes %s of disk", t.Copy.Collection, humanize.IBytes(uint64(t.Copy.Bytes)))
	}
	switch {
	case t.Fenced && t.Again != "":
		again[0][1], again[1][1] = waits, waits+"; the copy is dropped"
		add(fence, again...)
	case t.Fenced:
		add(fence, [2]string{fmt.Sprintf("in mongosh, if no command runs: db.runCommand({collMod: %q, validator: {}})", t.Stream), waits})
	case t.Kind != "" && !t.Done:
		add(unfinished, again...)
	case t.Copy != nil:
		add(unfinished, dropByHand(t.Copy))
	}
	if t.Old == nil || t.Kind != "" && !t.Done {
		return out // while it is not done, it may be needed
	}
	old := doctor.Finding{
		Name: "setting_old_collection", Kind: doctor.Setting, Class: doctor.Degrading,
		Cause:    "the old collection of stream " + t.Stream + " is still there",
		Evidence: fmt.Sprintf("%s takes %s of disk, and no daemon reads it", t.Old.Collection, humanize.IBytes(uint64(t.Old.Bytes))),
	}
	drop := dropByHand(t.Old)
	if t.DropOld != "" {
		drop = [2]string{"when all daemons have stored what they accepted before the move: " + pasted(t.DropOld), "it can no longer be read"}
	}
	add(old, drop)
	return out
}

func dropByHand(t *maintain.Trace) [2]string {
	return [2]string{
		fmt.Sprintf("check what is in it, and drop it in mongosh if no command runs: db.getCollection(%q).drop()", t.Collection),
		"it can no longer be read",
	}
}

// print prints a report, of a watch with what changed since the one before; nil: it is
// the first.
func (o *doctorOptions) print(p *process, now, before *doctorReport) error {
	if *o.output == "json" && o.watch {
		line, err := json.Marshal(now)
		if err != nil {
			return fmt.Errorf("print the result: %w", err)
		}
		_, err = p.stdout.Write(append(line, '\n'))
		return err
	}
	if *o.output == "json" {
		return printJSON(p.stdout, now)
	}
	text := newDoctorText(p.stdout, p.env)
	if o.watch {
		return text.watch(now, before)
	}
	return text.report(now)
}

// A doctorText writes a report as text. Colour is for a terminal alone, and not where
// NO_COLOR is set.
type doctorText struct {
	w       io.Writer
	colour  bool
	width   int        // of lines of words; 0: no limit
	columns int        // of a terminal, otherwise math.MaxInt
	rows    func() int // of a terminal, in which a watch redraws; nil: it is none
	b       strings.Builder
}

func newDoctorText(w io.Writer, env []string) *doctorText {
	t := &doctorText{w: w, width: textWidth(w), columns: columnsOf(w)}
	if file, ok := w.(*os.File); ok && config.IsTerminal(w) {
		t.colour = config.LookupEnv(env, "NO_COLOR") == ""
		t.rows = func() int {
			_, rows, _ := term.GetSize(int(file.Fd())) // 0: unknown
			return rows
		}
	}
	return t
}

func (t *doctorText) line(format string, args ...any) { _, _ = fmt.Fprintf(&t.b, format+"\n", args...) }

func (t *doctorText) flush() error {
	_, err := io.WriteString(t.w, t.b.String())
	t.b.Reset()
	return err
}

// report writes one or two samples.
func (t *doctorText) report(r *doctorReport) error {
	t.head(r)
	t.line("")
	t.signals(r.Signals, nil)
	t.line("")
	t.findings(r)
	return t.flush()
}

// watch writes a sample: on a terminal in place, elsewhere one below the other.
func (t *doctorText) watch(now, before *doctorReport) error {
	if t.rows == nil && before != nil {
		t.line("")
	}
	t.head(now)
	if t.rows != nil { // the causes, because there may be no room for the findings
		last := ""
		for _, f := range now.Diagnosis {
			if f.Kind == doctor.Slow && f.Cause != last {
				t.wrapped("Found    ", f.Cause)
				last = f.Cause
			}
		}
	}
	t.line("")
	changes := make(map[string]string)
	for i, s := range now.Signals {
		if before == nil {
			break
		}
		switch change := s.Value - before.Signals[i].Value; {
		case math.IsNaN(change):
		case s.Text() == before.Signals[i].Text():
			changes[s.Name] = "="
		default:
			changes[s.Name] = doctor.Signed(change)
		}
	}
	t.signals(now.Signals, changes)
	t.line("")
	t.rates(now)
	switch {
	case before == nil:
		now = now.without("unseen_rate") // the next sample has them
	case t.rows == nil:
		now = now.without("setting_") // they were shown
	}
	t.findings(now)
	if t.rows != nil {
		text, rows := t.b.String(), t.rows()
		// The last line is empty.
		if lines := strings.SplitAfter(text, "\n"); rows >= 2 && len(lines) > rows {
			text = strings.Join(lines[:rows-2], "") + "… the rest needs a higher terminal, or brim doctor --over 10s\n"
		}
		t.b.Reset()
		t.b.WriteString("\x1b[H\x1b[2J" + text)
	}
	return t.flush()
}

// without is the report without findings whose names begin so.
func (r *doctorReport) without(prefix string) *doctorReport {
	out := *r
	out.Diagnosis = slices.DeleteFunc(slices.Clone(r.Diagnosis), func(f doctor.Finding) bool { return strings.HasPrefix(f.Name, prefix) })
	return &out
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

// head says what was sampled, and the class.
func (t *doctorText) head(r *doctorReport) {
	sampled := "one sample; rates are unknown"
	if r.OverSeconds > 0 {
		sampled = "two samples, " + config.FormatDuration(time.Duration(r.OverSeconds*float64(time.Second)).Round(100*time.Millisecond)) + " apart"
	}
	t.line("%s  %s, %s", t.paint(r.Class, strings.ToUpper(r.Class.String())), sampled, r.At.Format(time.DateTime))
	t.wrapped("MongoDB  ", serverInWords(r))
	t.wrapped("Disk     ", diskInWords(&r.Disk))
}

func serverInWords(r *doctorReport) string {
	s := &r.Server
	if !s.Answered {
		return "does not answer, " + r.URI // what it said before may no longer be true
	}
	var parts []string
	add := func(known bool, format string, args ...any) {
		if known {
			parts = append(parts, fmt.Sprintf(format, args...))
		}
	}
	add(s.Version != "", "%s %s", s.Version, strings.ReplaceAll(s.Topology, "_", " "))
	add(true, "%s", r.URI)
	add(s.Secondary, "a member that takes no writes: run brim doctor against the primary")
	add(s.Processors > 0, "%.0f CPUs", s.Processors)
	add(s.CacheBytes > 0, "cache %s", humanize.IBytes(uint64(s.CacheBytes)))
	add(s.Here, "on this machine")
	return strings.Join(parts, ", ")
}

// diskInWords says also why the thresholds of its latency are those.
func diskInWords(d *doctor.Disk) string {
	if d.Device == "" {
		return "unknown: " + d.Why
	}
	out := d.Device + ", " + map[string]string{
		"nvme": "NVMe", "ssd": "SSD", "hdd": "a hard disk",
		"unknown": "of unknown kind (virtual disks do not report theirs), compared with an SSD's thresholds",
	}[d.Kind]
	if d.Size > 0 {
		out += fmt.Sprintf(", %s of %s free", humanize.IBytes(uint64(d.Free)), humanize.IBytes(uint64(d.Size)))
	}
	if d.Path != "" {
		out += ", " + d.Path
	}
	return out
}

// signals writes the table; changes are by signal's name, nil: they have no column.
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
		if short {
			row(s.Title, s.Text(), changes[s.Name], s.Class.String(), fmt.Sprintf("%g/%g", s.Threshold.Degrading, s.Threshold.Bottleneck), s.Source)
		} else {
			row(s.Title, s.Text(), changes[s.Name], s.Class.String(), from, over, s.Source)
		}
	}
	_ = table.Flush() // into memory
	lines := strings.Split(strings.TrimRight(out.String(), "\n"), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return lines
}

// watchedRates are the rates that a watch shows, in lines. What stands in a format
// for the rate has its unit already.
var watchedRates = []struct {
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

// rates writes the rates, a line a subject, without those that are unknown.
func (t *doctorText) rates(r *doctorReport) {
	if r.OverSeconds == 0 {
		return
	}
	t.line("%s", t.strong("IN BETWEEN"))
	for _, g := range watchedRates {
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

// findings writes the diagnosis, then the settings, then what could not be measured.
func (t *doctorText) findings(r *doctorReport) {
	count := make(map[doctor.Kind]int)
	for _, f := range r.Diagnosis {
		count[f.Kind]++
	}
	t.line("%s", t.strong("DIAGNOSIS"))
	if count[doctor.Slow] == 0 {
		words := "nothing wrong"
		if count[doctor.Setting] > 0 { // such as members that lag, which slow writes as well
			words += " in the storage engine and its disk; the settings below may still cost"
		}
		if r.OverSeconds == 0 {
			words += ", as far as one sample can tell: rates are known from the second sample on"
		}
		if r.Class == doctor.Unknown {
			words = "unknown"
		}
		t.wrapped("", words+".")
	}
	t.group(r, doctor.Slow)
	if r.Note != "" {
		t.wrapped("", r.Note+".")
	}
	if count[doctor.Setting] > 0 {
		t.line("\n%s", t.strong("SETTINGS"))
		t.group(r, doctor.Setting)
	}
	if count[doctor.Unseen] > 0 {
		t.line("\n%s", t.strong("NOT MEASURED"))
		t.group(r, doctor.Unseen)
	}
}

// group writes the findings of a kind; those of one cause have its evidence in common.
func (t *doctorText) group(r *doctorReport, kind doctor.Kind) {
	last, number := "", 0
	for _, f := range r.Diagnosis {
		if f.Kind != kind {
			continue
		}
		if about := f.Name + f.Cause; about != last {
			class := ""
			if kind == doctor.Slow {
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

// wrapped writes words after a label, in as many lines as they need.
func (t *doctorText) wrapped(label, words string) {
	line := label
	for i, word := range strings.Fields(words) {
		switch {
		case i == 0:
			line += word
		case t.width > 0 && len([]rune(line))+1+len([]rune(word)) > t.width:
			t.line("%s", line)
			line = strings.Repeat(" ", len(label)) + word
		default:
			line += " " + word
		}
	}
	t.line("%s", line)
}
