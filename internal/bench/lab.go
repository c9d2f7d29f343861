package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/brim-telemetry/brim/internal/doctor"
	"github.com/brim-telemetry/brim/internal/machine"
)

// Config says how experiments are run.
type Config struct {
	// Brim is the program that daemons and load are run with.
	Brim string
	// Version of Brim.
	Version string
	// URI is of the user's own MongoDB, in which a scratch database is made. Empty:
	// experiments start mongods of their own, and remove them.
	URI string
	// MongodBin is the mongod to start. Empty: as the daemon finds or installs it.
	MongodBin string
	// Dir is where the scratch folder is made. Empty: the system's.
	Dir     string
	Quick   bool
	Repeats int      // 1 to 100; 0: 3
	Seed    uint64   // of what is random
	Cells   []string // of the experiment; empty: all that are not too slow
	// Database is that of scratch data in a user's MongoDB. Empty: one with the
	// name of ScratchName.
	Database string
	// Abort, when it ends, makes an end quick: processes are killed, not stopped.
	// Scratch data is removed all the same. nil: never.
	Abort context.Context
	// Progress hears of each step. nil: nobody.
	Progress func(Progress)
	// Out gets what an installation does, and warnings of daemons. nil: nobody.
	Out io.Writer
}

// The repeats of a measurement, where nobody says how many, and at most.
const (
	DefaultRepeats = 3
	MaxRepeats     = 100
)

// Progress is how far an experiment is.
type Progress struct {
	Experiment string
	Step, Of   int           // from 1; Of is 0 while the number of steps is not known
	What       string        // the step does
	Elapsed    time.Duration // since the experiment began
	Expected   time.Duration // for the whole of it
}

// A Lab is where one experiment runs.
type Lab struct {
	Quick   bool
	Repeats int
	Seed    uint64

	config     Config
	experiment *Experiment
	dir        string // scratch
	database   string // scratch, in a user's MongoDB
	began      time.Time
	expected   time.Duration
	step, of   int
	open       []io.Closer // daemons and MongoDBs, in the order of their start
	seen       *Environment
}

// ErrInterrupted is why an experiment ended before its time.
var ErrInterrupted = errors.New("interrupted")

// Run runs an experiment. The result is there also if it failed or was
// interrupted, with what was measured until then; nil only if it could not
// begin. When Run returns, scratch data and processes are removed.
func Run(ctx context.Context, e *Experiment, c Config) (r *Result, err error) {
	if c.Repeats == 0 {
		c.Repeats = DefaultRepeats
	}
	if c.Repeats < 1 || c.Repeats > MaxRepeats {
		return nil, fmt.Errorf("repeats: %d is not allowed; 1 to %d", c.Repeats, MaxRepeats)
	}
	if c.Out == nil {
		c.Out = io.Discard
	}
	if c.Abort == nil {
		c.Abort = context.Background()
	}
	if err := e.check(c.Cells); err != nil {
		return nil, err
	}
	lab := &Lab{Quick: c.Quick, Repeats: c.Repeats, Seed: c.Seed, config: c, experiment: e, began: time.Now(), expected: e.Full}
	if c.Quick {
		lab.expected = e.Quick
	}
	if lab.dir, err = os.MkdirTemp(c.Dir, "brim-bench-"); err != nil {
		return nil, fmt.Errorf("make a scratch folder: %w", err)
	}
	defer func() { err = errors.Join(err, lab.close()) }()
	if c.URI != "" {
		lab.database = cmp.Or(c.Database, ScratchName(lab.began))
	}
	r = &Result{
		Experiment: e.Name, Question: e.Question, Quick: c.Quick, Repeats: c.Repeats, Seed: c.Seed,
		Environment: lab.environment(c.Version),
	}
	lab.seen = &r.Environment
	lab.leaveOutCells(r)
	err = e.Run(ctx, lab, r)
	r.TookSeconds = time.Since(lab.began).Seconds()
	switch {
	case err == nil:
	case ctx.Err() != nil:
		// What a measurement says that was ended in its middle is no news.
		r.Interrupted, err = true, fmt.Errorf("%s: %w", e.Name, ErrInterrupted)
	default:
		err = fmt.Errorf("%s: %w", e.Name, err)
		r.Error = err.Error()
	}
	return r, err
}

// ScratchName is that of a database which nobody has. Those that begin in the
// same second are told apart by chance: in containers all have the same number
// of their process.
func ScratchName(at time.Time) string {
	return fmt.Sprintf("brim_bench_%s_%08x", at.UTC().Format("20060102_150405"), rand.Uint32()) //nolint:gosec // not secret
}

// check refuses cells that the experiment does not have.
func (e *Experiment) check(cells []string) error {
	var known []string
	for _, c := range e.Cells {
		known = append(known, c.Name)
	}
	for _, name := range cells {
		if !slices.Contains(known, name) {
			return fmt.Errorf("cells: %q is none of %s; it has %s", name, e.Name, strings.Join(known, ", "))
		}
	}
	return nil
}

// leaveOutCells says which cells were not chosen.
func (l *Lab) leaveOutCells(r *Result) {
	for _, c := range l.experiment.Cells {
		switch {
		case l.Has(c.Name):
		case len(l.config.Cells) > 0:
			r.LeaveOut(c.What, "not among the cells asked for")
		default:
			r.LeaveOut(c.What, "not in a quick run: "+c.Slow)
		}
	}
}

// Has reports whether a cell is to be measured.
func (l *Lab) Has(cell string) bool {
	if len(l.config.Cells) > 0 {
		return slices.Contains(l.config.Cells, cell)
	}
	for _, c := range l.experiment.Cells {
		if c.Name == cell {
			return !l.Quick || c.Slow == ""
		}
	}
	return false
}

// Asked reports whether a cell is to be measured because it was asked for by its
// name.
func (l *Lab) Asked(cell string) bool { return slices.Contains(l.config.Cells, cell) }

// Own reports whether experiments start mongods of their own, and may restart
// them and choose their settings.
func (l *Lab) Own() bool { return l.config.URI == "" }

// OwnOnly is why something is left out that needs a mongod of its own.
const OwnOnly = "it needs a mongod of its own, with other settings or restarts; run it without --mongo-uri"

// Steps says how many steps there will be from now on.
func (l *Lab) Steps(n int) { l.of = l.step + n }

// Step says what begins now.
func (l *Lab) Step(format string, args ...any) {
	l.step++
	if l.config.Progress == nil {
		return
	}
	l.config.Progress(Progress{
		Experiment: l.experiment.Name, Step: l.step, Of: max(l.of, 0), What: fmt.Sprintf(format, args...),
		Elapsed: time.Since(l.began), Expected: l.expected,
	})
}

// Dir is the scratch folder, which is removed in the end.
func (l *Lab) Dir() string { return l.dir }

// environment tells what is known before anything runs.
func (l *Lab) environment(version string) Environment {
	e := Environment{
		Time: l.began.UTC(), Cores: runtime.NumCPU(), Processor: machine.Processor(), MemoryMiB: machine.TotalMemory(),
		System: runtime.GOOS + "/" + runtime.GOARCH, Brim: version, Driver: machine.Driver(), Database: l.database,
	}
	if l.Own() {
		e.FileSystem, e.Disk = machine.FileSystem(l.dir), doctor.DiskKind(l.dir)
	}
	return e
}

// saw notes what a MongoDB is like.
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

// ended takes what was closed off the list, and reports whether it was on it.
func (l *Lab) ended(c io.Closer) bool {
	at := slices.Index(l.open, c)
	if at < 0 {
		return false
	}
	l.open = slices.Delete(l.open, at, at+1)
	return true
}

// close ends what is left over and removes the scratch folder.
func (l *Lab) close() error {
	var errs []error
	for len(l.open) > 0 {
		errs = append(errs, l.open[len(l.open)-1].Close())
	}
	return errors.Join(append(errs, os.RemoveAll(l.dir))...)
}
