package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/brim-telemetry/brim/internal/config"
	"github.com/brim-telemetry/brim/internal/daemon"
	"github.com/brim-telemetry/brim/internal/doctor"
	"github.com/brim-telemetry/brim/internal/machine"
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
			"Something is found to hold writes up where writes are slower than they usually are and a resource is at its limit.\n" +
			"What is usual a running daemon knows; without one MongoDB's own counters must do, from the second look on.\n\n" +
			"By default it takes two samples, 2 s apart, from which rates are worked out (--over). Exit codes: 0 healthy, 10 degrading,\n" +
			"20 bottleneck (by the worst that was found to hold writes up, of a watch at its last look), 1 when MongoDB does not\n" +
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
	o := newDoctorFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := o.check(); err != nil {
			return config.Usage(err)
		}
		return o.run(cmd.Context(), p)
	}
	return cmd
}

// An examination is one run of `brim doctor`.
type examination struct {
	*doctorOptions
	site    *site
	conn    *store.Connection
	monitor *doctor.Monitor
	advice  []doctor.Finding // about settings, which are looked at once
	moves   []doctor.Finding // what maintenance has left behind
}

// errAway is that MongoDB did not answer the last look.
var errAway = errors.New("MongoDB does not answer")

// run looks as it was asked to, and returns the class as a verdict.
func (o *doctorOptions) run(ctx context.Context, p *process) (err error) {
	running, _, release := daemon.OnSignals(ctx, func(os.Signal) {}, func(os.Signal) {})
	defer release()
	x, err := o.begin(running, p)
	if err != nil {
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = x.conn.Close(closing) // nothing was written on it
	}()
	if o.watch {
		return x.watchOn(running, p)
	}
	if err := x.look(running); err != nil {
		return err
	}
	if o.over > 0 {
		if machine.Pause(running, o.over) != nil {
			return errors.New("interrupted before the second look")
		}
		if err := x.look(running); err != nil {
			return err
		}
	}
	if x.advice, err = x.monitor.CheckSettings(running); err != nil {
		return err
	}
	r := x.report()
	if *o.output == "json" {
		err = printJSON(p.stdout, r)
	} else {
		err = newDoctorText(p.stdout, p.env).report(r)
	}
	if err != nil {
		return err
	}
	return foundExit(r.Class)
}

// begin finds the site and prepares to look at it.
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
		config.WritePath = s.writePath
	}
	for _, one := range s.streams {
		config.Streams = append(config.Streams, doctor.Stream{Name: one.Name, Storage: one.Storage})
	}
	if x.monitor, err = doctor.New(config); err != nil {
		return nil, errors.Join(err, x.conn.Close(ctx))
	}
	return x, nil
}

// lookAll looks at the engine, the disk, and what maintenance has left behind.
func (x *examination) lookAll(ctx context.Context) {
	x.monitor.Sample(ctx)
	x.moves = nil
	if x.monitor.Seen().Server.Answered {
		x.lookAtMoves(ctx)
	}
}

// look looks once more. That MongoDB does not answer, or lets nobody in, is an
// error.
func (x *examination) look(ctx context.Context) error {
	x.lookAll(ctx)
	if ctx.Err() != nil {
		return errors.New("interrupted in the middle of a look")
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
	// answered that it may not tell may let us in all the same. One that gave no
	// reply is not asked again.
	if server.Answered || strings.Contains(server.Away, authError) {
		if refusal := x.letIn(ctx); refusal != nil && (err == nil || errors.Is(refusal, errNotLetIn)) {
			err = refusal
		}
	}
	if err != nil {
		return fmt.Errorf("look at %s: %w%s", config.MaskURI(x.site.uri), err, x.fullDisk(ctx))
	}
	return nil
}

// fullDisk asks the daemon whether a full disk may have ended MongoDB.
func (x *examination) fullDisk(ctx context.Context) string {
	if x.site.daemon == nil {
		return ""
	}
	seen, err := x.site.metrics(ctx)
	if full := doctor.FullDisk(seen); err == nil && full != "" {
		return "; disk full: " + full
	}
	return ""
}

// errNotLetIn is that MongoDB does not know us.
var errNotLetIn = errors.New("MongoDB does not let brim in")

// authError is in what the driver says of every refusal of a user.
const authError = "auth error"

// letIn asks whether MongoDB lets us in. Other errors than errNotLetIn say no
// more than that it did not answer.
func (x *examination) letIn(parent context.Context) error {
	const unauthorized = 13
	ctx, cancel := context.WithTimeout(parent, lookTimeout)
	defer cancel()
	err := x.conn.Client().Ping(ctx, nil)
	switch {
	case err != nil && strings.Contains(err.Error(), authError):
		return fmt.Errorf("%w: it refuses the user, the password or the authSource of --mongo-uri: %w", errNotLetIn, err)
	case err != nil:
		return err
	case options.Client().ApplyURI(x.site.uri).Auth != nil:
		return nil // it is known; what it may do is said by the findings
	}
	err = x.conn.Database().RunCommand(ctx, bson.D{{Key: "dbStats", Value: 1}}).Err()
	var server mongo.ServerError
	if errors.As(err, &server) && server.HasErrorCode(unauthorized) {
		return fmt.Errorf("%w: it wants a user and a password, and --mongo-uri has none; allowed is mongodb://USER:PASSWORD@HOST:PORT/?authSource=admin: %w", errNotLetIn, err)
	}
	return nil
}

// A doctorReport is what came of the looks.
type doctorReport struct {
	At          time.Time        `json:"at"`
	OverSeconds float64          `json:"over_seconds"` // between the two looks; 0: there was one
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

// report puts together what is known by now.
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

// said reports whether a setting was named already, as what makes writes slow.
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

// errBlind is that nothing is known of what is slow, which must not look like
// health.
var errBlind = errors.New("the storage engine is unknown; NOT MEASURED says why, and what would help")

// foundExit is the exit code that a class comes to.
func foundExit(c doctor.Class) error {
	switch c {
	case doctor.Degrading:
		return verdict(exitDegrading)
	case doctor.Bottleneck:
		return verdict(exitBottleneck)
	case doctor.Unknown:
		return errBlind
	default:
		return nil
	}
}
