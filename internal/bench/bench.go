// Package bench runs experiments that compare published claims about MongoDB as a telemetry
// store with what this machine shows. An experiment is data (variants in rows, measures in
// columns, claims about them) plus one measuring script that stops at the first failed step.
// Each one is a package below this one:
//
//	             ┌ MongoDB   a mongod of its own in a scratch directory, or a scratch database of the user's ┐
//	Config ─▶ Lab┤                                                                                          ├─▶ tables ─▶ claims ─▶ Result ─▶ report
//	             └ Daemon    brim serve on that MongoDB, and brim load                                      ┘
//
// To add an experiment, declare its cells, tables and claims, and list it in `brim bench`.
package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/brim-telemetry/brim/internal/doctor"
	"github.com/brim-telemetry/brim/internal/launch"
	"github.com/brim-telemetry/brim/internal/load"
	"github.com/brim-telemetry/brim/internal/machine"
	"github.com/brim-telemetry/brim/internal/scrape"
)

// An Experiment answers one question.
type Experiment struct {
	Name     string // as in `brim bench NAME`
	Question string // one sentence, answered by the experiment
	// Full and Quick are roughly how long a run takes.
	Full, Quick time.Duration
	// Restarts names the part that needs its own mongod and is left out with a user's MongoDB;
	// empty: none.
	Restarts string
	// Extra experiments are not part of `brim bench all`.
	Extra  bool
	Cells  []Cell  // in the order in which they run
	Tables []Table // filled by Run
	Claims []Claim // about the figures in the tables
	// Answers to the question; the result uses the first one that holds.
	Answers []Answer
	// Run measures. It is a script: a failed step ends it, see Check.
	Run func(ctx context.Context, lab *Lab)
}

// A Cell is a part of an experiment that can run on its own.
type Cell struct {
	Name string `json:"name"` // as in --cells
	What string `json:"what"` // what it measures
	// Slow is why a quick run skips it unless asked for; empty: a quick run includes it.
	Slow string `json:"not_in_quick,omitempty"`
	// Own cells need the experiment's own mongod.
	Own bool `json:"-"`
	// OnRequest cells run only when asked for by name.
	OnRequest bool                      `json:"-"`
	Run       func(ctx context.Context) `json:"-"` // see Lab.RunCells
}

// Config says how experiments are run.
type Config struct {
	Brim    string // the binary for daemons and load
	Version string // of Brim
	// URI is the user's own MongoDB, where a scratch database is created. Empty: experiments
	// start their own mongods and remove them.
	URI       string
	MongodBin string // the mongod to start; empty: found or installed as by the daemon
	Dir       string // parent of the scratch directory; empty: the system's
	Quick     bool
	// Hasty measurements begin without waiting for a quiet mongod. For tests, where the figures
	// mean nothing.
	Hasty    bool
	Repeats  int      // 1 to 100; 0: 3
	Seed     uint64   // of random numbers
	Cells    []string // cells to run; empty: all that are not too slow
	Database string   // scratch database in a user's MongoDB; empty: ScratchName
	// Abort, once done, hurries the end: processes are killed, not stopped. Scratch data is
	// still removed. nil: never.
	Abort    context.Context
	Progress func(Progress) // called at each step; may be nil
	Out      io.Writer      // gets installation output and daemon warnings; may be nil
}

// The default and the maximum of Config.Repeats.
const (
	DefaultRepeats = 3
	MaxRepeats     = 100
)

// Progress is how far an experiment has got.
type Progress struct {
	Experiment string
	Step       int           // from 1
	What       string        // what the step does
	Elapsed    time.Duration // since the experiment began
	Expected   time.Duration // for all of it
}

// A Lab runs one experiment and fills the tables of its Result.
type Lab struct {
	*Result

	Dir string // scratch, removed at the end

	config     Config
	experiment *Experiment
	database   string // scratch database in a user's MongoDB
	began      time.Time
	expected   time.Duration
	step       int
	what       string      // what the current step does
	open       []io.Closer // daemons and MongoDBs, in start order
}

// ErrInterrupted means that an experiment was cut short.
var ErrInterrupted = errors.New("interrupted")

// Run runs an experiment. A failed or interrupted one still returns what was measured so far;
// the result is nil only if it could not begin. When Run returns, scratch data and processes
// are gone.
func Run(ctx context.Context, e *Experiment, c Config) (r *Result, err error) {
	c.Repeats = cmp.Or(c.Repeats, DefaultRepeats)
	if c.Out == nil {
		c.Out = io.Discard
	}
	if c.Abort == nil {
		c.Abort = context.Background()
	}
	lab := &Lab{config: c, experiment: e, began: time.Now(), expected: e.Full}
	if c.Quick {
		lab.expected = e.Quick
	}
	if lab.Dir, err = os.MkdirTemp(c.Dir, "brim-bench-"); err != nil {
		return nil, fmt.Errorf("make a scratch directory: %w", err)
	}
	defer func() { err = errors.Join(err, lab.close()) }()
	if c.URI != "" {
		lab.database = cmp.Or(c.Database, ScratchName(lab.began))
	}
	r = &Result{
		Experiment: e.Name, Question: e.Question, Quick: c.Quick, Repeats: c.Repeats, Seed: c.Seed,
		Environment: lab.environment(c.Version),
	}
	for _, t := range e.Tables {
		t.Measures = slices.Clone(t.Measures)
		r.Tables = append(r.Tables, &t)
	}
	lab.Result = r
	for i := range e.Cells {
		if c := &e.Cells[i]; lab.without(c) != "" {
			lab.LeaveOut(c.What, lab.without(c))
		}
	}
	running, cancel := context.WithCancel(ctx)
	err = Try(func() { e.Run(running, lab) })
	cancel() // what still runs in the background
	if err != nil && lab.what != "" {
		err = fmt.Errorf("%s: %w", lab.what, err)
	}
	r.conclude(e.Claims)
	r.Answer = answer(e.Answers, r.Rows)
	r.TookSeconds = time.Since(lab.began).Seconds()
	switch {
	case err == nil:
	case ctx.Err() != nil:
		// The error of an interrupted measurement adds nothing.
		r.Interrupted, err = true, fmt.Errorf("%s: %w", e.Name, ErrInterrupted)
	default:
		err = fmt.Errorf("%s: %w", e.Name, err)
		r.Error = err.Error()
	}
	return r, err
}

// A failure is what ended an experiment.
type failure struct{ error }

// Check ends the experiment if a step failed, as a failed requirement ends a test: Run keeps
// what was measured, closes what is open and returns the error. Call it only from
// Experiment.Run's goroutine or within Try.
func Check(err error) {
	if err != nil {
		panic(failure{err}) //nolint:forbidigo // Try recovers it
	}
}

// Checkf is Check with a description of what was being done.
func Checkf(err error, doing string, args ...any) {
	if err != nil {
		Check(fmt.Errorf(doing+": %w", append(args, err)...))
	}
}

// Must returns the result of a step, or ends the experiment as Check does.
func Must[T any](v T, err error) T {
	Check(err)
	return v
}

// Try calls do and returns the error that Check ended it with.
func Try(do func()) (err error) {
	defer func() {
		switch ended := recover().(type) {
		case nil:
		case failure:
			err = ended.error
		default:
			panic(ended) //nolint:forbidigo // a bug, not hidden
		}
	}()
	do()
	return nil
}

// Together runs n calls at once, and ends the experiment if one of them fails.
func Together(ctx context.Context, n int, do func(ctx context.Context, i int)) {
	group, under := errgroup.WithContext(ctx)
	for i := range n {
		group.Go(func() error { return Try(func() { do(under, i) }) })
	}
	Check(group.Wait())
}

// ScratchName returns a name for a new database. A random suffix tells apart those that begin
// in the same second; in containers the process IDs are all the same.
func ScratchName(at time.Time) string {
	return fmt.Sprintf("brim_bench_%s_%08x", at.UTC().Format("20060102_150405"), rand.Uint32()) //nolint:gosec // not secret
}

// without returns why a cell is not measured; empty: it is.
func (l *Lab) without(c *Cell) string {
	switch asked := l.Asked(c.Name); {
	case len(l.config.Cells) > 0 && !asked:
		return "not among the cells asked for"
	case c.Own && !l.Own():
		return OwnOnly
	case c.OnRequest && !asked:
		return c.Slow + "; --cells " + c.Name + " asks for it"
	case l.Quick && c.Slow != "" && !asked:
		return "not in a quick run: " + c.Slow
	}
	return ""
}

// Has reports whether a cell is to be measured.
func (l *Lab) Has(cell string) bool {
	return slices.ContainsFunc(l.experiment.Cells, func(c Cell) bool { return c.Name == cell && l.without(&c) == "" })
}

// RunCells runs the cells to be measured.
func (l *Lab) RunCells(ctx context.Context, cells []Cell) {
	for _, c := range cells {
		if l.Has(c.Name) {
			c.Run(ctx)
		}
	}
}

// Asked reports whether a cell was asked for by name.
func (l *Lab) Asked(cell string) bool { return slices.Contains(l.config.Cells, cell) }

// Own reports whether the experiment starts its own mongods, and so may restart and configure
// them.
func (l *Lab) Own() bool { return l.config.URI == "" }

// OwnOnly is why something that needs its own mongod is left out.
const OwnOnly = "it needs a mongod of its own, with other settings or restarts; run it without --mongo-uri"

// Add appends samples to a cell of a declared table.
func (l *Lab) Add(table, variant, measure string, values ...float64) {
	l.Table(table).Add(variant, measure, values...)
}

// Row appends one sample to each of a variant's declared measures, in order.
func (l *Lab) Row(table, variant string, values ...float64) {
	t := l.Table(table)
	for i, v := range values {
		t.Add(variant, t.Measures[i].Name, v)
	}
}

// On measures on a MongoDB and then closes it.
func (l *Lab) On(ctx context.Context, s Setting, measure func(m *MongoDB)) {
	m := l.Start(ctx, s)
	measure(m)
	Check(m.Close())
}

// InTurns gives each of n subjects a chunk of the items, then the next chunk, so that a slow
// moment affects all subjects.
func InTurns[T any](n int, items []T, atOnce int, do func(subject int, some []T)) {
	for some := range slices.Chunk(items, max(atOnce, 1)) {
		for subject := range n {
			do(subject, some)
		}
	}
}

// Every calls sample immediately and then at an interval, until it fails or stop is called.
// stop waits for the last call and returns its error.
func Every(ctx context.Context, interval time.Duration, sample func(ctx context.Context)) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		for {
			err := Try(func() { sample(ctx) })
			if err == nil && machine.Pause(ctx, interval) == nil {
				continue
			}
			if errors.Is(err, context.Canceled) { // in flight when it was stopped
				err = nil
			}
			ended <- err
			return
		}
	}()
	return func() error {
		cancel()
		return <-ended
	}
}

// Step reports what begins now.
func (l *Lab) Step(format string, args ...any) {
	l.step++
	l.what = fmt.Sprintf(format, args...)
	if l.config.Progress == nil {
		return
	}
	l.config.Progress(Progress{
		Experiment: l.experiment.Name, Step: l.step, What: l.what,
		Elapsed: time.Since(l.began), Expected: l.expected,
	})
}

// environment returns what is known before anything runs.
func (l *Lab) environment(version string) Environment {
	e := Environment{
		Time: l.began.UTC(), Cores: runtime.NumCPU(), Processor: machine.Processor(), MemoryMiB: machine.TotalMemory(),
		System: runtime.GOOS + "/" + runtime.GOARCH, Brim: version, Driver: machine.Driver(), Database: l.database,
	}
	if l.Own() {
		e.FileSystem, e.Disk = machine.FileSystem(l.Dir), doctor.DiskKind(l.Dir)
	}
	return e
}

// saw records the properties of a MongoDB.
func (e *Environment) saw(version, topology, compressor string, cacheMiB int64) {
	e.Mongod = version
	appendNew(&e.Topologies, topology)
	appendNew(&e.Compressor, compressor)
	appendNew(&e.CacheMiB, cacheMiB)
}

func appendNew[T comparable](to *[]T, v T) {
	var zero T
	if v != zero && !slices.Contains(*to, v) {
		*to = append(*to, v)
	}
}

// ended removes c from the open list, and reports whether it was there.
func (l *Lab) ended(c io.Closer) bool {
	at := slices.Index(l.open, c)
	if at < 0 {
		return false
	}
	l.open = slices.Delete(l.open, at, at+1)
	return true
}

// close closes what is still open and removes the scratch directory.
func (l *Lab) close() error {
	var errs []error
	for len(l.open) > 0 {
		errs = append(errs, l.open[len(l.open)-1].Close())
	}
	return errors.Join(append(errs, os.RemoveAll(l.Dir))...)
}

// A Daemon is a `brim serve` writing to an experiment's MongoDB.
type Daemon struct {
	*launch.Daemon
	lab *Lab
	dir string
}

// Daemon starts one on a MongoDB with extra flags. Its streams' collections are in that
// MongoDB's database.
func (l *Lab) Daemon(ctx context.Context, m *MongoDB, flags ...string) *Daemon {
	return l.daemon(ctx, m, false, flags)
}

// SecuredDaemon starts one with TLS on its listeners.
func (l *Lab) SecuredDaemon(ctx context.Context, m *MongoDB, flags ...string) *Daemon {
	return l.daemon(ctx, m, true, flags)
}

func (l *Lab) daemon(ctx context.Context, m *MongoDB, secured bool, flags []string) *Daemon {
	dir, err := os.MkdirTemp(l.Dir, "daemon-")
	Checkf(err, "make a directory for the daemon")
	config := filepath.Join(dir, "brim.yaml") // the URI may contain a secret, which must not show up in process lists
	err = os.WriteFile(config, fmt.Appendf(nil, "mongo-uri: %q\ndatabase: %q\ndata-dir: %q\n", m.URI(), m.Name, filepath.Join(dir, "data")), 0o600)
	Checkf(err, "write the daemon's configuration")
	c := launch.Config{Brim: l.config.Brim, Args: append([]string{"--config", config}, flags...), Out: l.config.Out, Abort: l.config.Abort}
	if secured {
		c.CertDir = dir
	}
	d := &Daemon{lab: l, dir: dir, Daemon: Must(launch.Start(ctx, c))}
	l.open = append(l.open, d)
	return d
}

// Load runs `brim load` against the daemon.
func (d *Daemon) Load(ctx context.Context, flags ...string) *load.Result {
	return d.StartLoad(ctx, flags...)()
}

// StartLoad starts `brim load`, which ends with ctx; wait returns its result.
func (d *Daemon) StartLoad(ctx context.Context, flags ...string) (wait func() *load.Result) {
	var result *load.Result
	var group errgroup.Group
	group.Go(func() (err error) {
		result, err = launch.Load(ctx, d.lab.config.Brim, d.Daemon, flags...)
		return err
	})
	return func() *load.Result {
		Check(group.Wait())
		return result
	}
}

// Between returns query parameters for a time range.
func Between(from, to time.Time) string {
	return url.Values{"from": {from.Format(time.RFC3339Nano)}, "to": {to.Format(time.RFC3339Nano)}}.Encode()
}

// Get returns the body of a GET response, which must have status 200.
func (d *Daemon) Get(ctx context.Context, client *http.Client, path string) []byte {
	address := "http://" + d.HTTP + path
	resp, err := client.Do(Must(http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)))
	Check(err)
	body, err := io.ReadAll(resp.Body)
	Checkf(errors.Join(err, resp.Body.Close()), "read the answer of %s", address)
	if resp.StatusCode != http.StatusOK {
		Check(fmt.Errorf("query %s: %s %s", address, resp.Status, body))
	}
	return body
}

// DaemonSpent is what something cost a daemon and its MongoDB.
type DaemonSpent struct {
	Spent

	Brim          float64 // seconds of the daemon's CPU time
	Before, After scrape.Sample
}

// Measure calls do and returns what it cost the daemon and its MongoDB.
func (d *Daemon) Measure(ctx context.Context, m *MongoDB, do func(ctx context.Context)) (s DaemonSpent) {
	s.Before = Must(d.Look(ctx))
	before := Must(machine.CPU(d.Pid()))
	s.Spent = m.Measure(ctx, do)
	s.Brim = (Must(machine.CPU(d.Pid())) - before).Seconds()
	s.After = Must(d.Look(ctx))
	return s
}

// Close stops the daemon, which first stores what it holds, and removes its directory. Further
// calls do nothing.
func (d *Daemon) Close() error {
	if !d.lab.ended(d) {
		return nil
	}
	abort := d.lab.config.Abort
	soft := context.AfterFunc(abort, d.Kill)
	defer soft()
	err := d.Stop()
	if abort.Err() != nil {
		err = nil // it was killed on purpose
	}
	return errors.Join(err, os.RemoveAll(d.dir))
}
