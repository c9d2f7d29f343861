// Command sabotage shows that the tests can fail. Each patch in testdata/sabotage removes
// one protection from the source, and names the tests that must fail then:
//
//	Protection: readings that are sent again are not stored again.
//	Test: ./internal/store/bucket ^TestGuard$
//	Says: stored twice
//
//	diff --git a/internal/store/bucket/update.go b/internal/store/bucket/update.go
//	…
//
// The output of a failing test must match Says, so that a test that fails for another
// reason does not count. Runs allows several runs of a test that needs luck. Tests of the
// simulation run seeds until one fails, and say how many. The source is not changed:
// `go test -overlay` reads the patched files from elsewhere, and tests that start brim build
// it with the overlay in BRIM_OVERLAY. `make sabotage` runs it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/brim-telemetry/brim/internal/sabotage/patch"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	r := runner{root: ".", dir: filepath.Join("internal", "sabotage", "testdata", "sabotage"), out: os.Stdout}
	flag.StringVar(&r.pkg, "package", "./...", "run only the tests of this package, or of all below it: ./internal/store/...")
	flag.BoolVar(&r.short, "short", false, "leave out the tests of "+strings.Join(long, " and ")+", which take long, except a few")
	flag.Parse()
	err := r.run(ctx, flag.Args()...)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "sabotage:", err)
		os.Exit(1) //nolint:forbidigo // this is main
	}
}

// long are the packages whose tests run whole daemons, and many of them.
var long = []string{"./internal/faulttest", "./internal/simulate"}

// A runner runs the tests of sabotages.
type runner struct {
	root string // of the module
	dir  string // of the patches
	pkg  string // whose tests are run; with /... at its end also those below it
	out  io.Writer

	short bool // leave out the tests in long, except those for short runs

	mu          sync.Mutex // guards what follows, and out
	total, done int        // tests
	missed      []string   // sabotages with the tests that did not notice them
}

// ranSeeds matches what a test of the simulation says in the end.
var ranSeeds = regexp.MustCompile(`: (\d+) seeds\n`)

// run runs the tests of the named sabotages, or of all. It returns an error unless each
// test fails and its output matches.
func (r *runner) run(ctx context.Context, names ...string) error {
	sabotages, err := patch.Load(r.dir, names...)
	if err != nil {
		return err
	}
	for _, s := range sabotages {
		if _, err := s.Apply(r.root); err != nil {
			return err
		}
		s.Tests = slices.DeleteFunc(s.Tests, func(c patch.Check) bool {
			return !c.In(r.pkg) || r.short && !c.Short && slices.ContainsFunc(long, c.In)
		})
		r.total += len(s.Tests)
	}
	sabotages = slices.DeleteFunc(sabotages, func(s *patch.Sabotage) bool { return len(s.Tests) == 0 })
	if r.total == 0 {
		return fmt.Errorf("no sabotage has a test in package %s", r.pkg)
	}
	began := time.Now()
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	for _, s := range sabotages {
		group.Go(func() error { return r.sabotage(ctx, s) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	_, _ = fmt.Fprintf(r.out, "\n%d sabotages in %s\n", len(sabotages), time.Since(began).Round(time.Second))
	if len(r.missed) > 0 {
		return fmt.Errorf("%d tests did not notice a sabotage: %s", len(r.missed), strings.Join(r.missed, "; "))
	}
	return nil
}

// sabotage runs the tests of one sabotage.
func (r *runner) sabotage(ctx context.Context, s *patch.Sabotage) error {
	dir, err := os.MkdirTemp("", "brim-sabotage-")
	if err != nil {
		return fmt.Errorf("make a folder for the overlay: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	overlay, err := s.Overlay(r.root, dir)
	if err != nil {
		return fmt.Errorf("write the overlay: %w", err)
	}
	for _, c := range s.Tests {
		var missed, output string
		began := time.Now()
		for range c.Runs {
			if missed, output = r.test(ctx, c, overlay); missed == "" || ctx.Err() != nil {
				break
			}
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		r.report(fmt.Sprintf("%s: %s", s.Name, c), missed, output, time.Since(began))
	}
	return nil
}

// notBuilt matches the last line that go test writes about a package without a test
// binary.
var notBuilt = regexp.MustCompile(`(?m)^FAIL\s.*\[(build|setup) failed\]$`)

// test runs a test once, and returns why it did not catch the sabotage, if so.
func (r *runner) test(ctx context.Context, c patch.Check, overlay string) (missed, output string) {
	cmd := exec.CommandContext(ctx, "go", "test", "-overlay", overlay, "-count=1", "-vet=off", "-timeout=10m", "-run", c.Run, c.Package)
	cmd.Dir = r.root
	cmd.Env = append(os.Environ(), "BRIM_OVERLAY="+overlay)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	text, err := cmd.CombinedOutput()
	output = string(text)
	var exit *exec.ExitError
	switch {
	case err == nil && strings.Contains(output, "[no tests to run]"):
		return "there is no such test", output
	case err == nil:
		return "the test passes", output
	case !errors.As(err, &exit):
		return err.Error(), output
	case notBuilt.MatchString(output):
		return "it does not compile", output
	case !c.Says.MatchString(output):
		return fmt.Sprintf("the test fails, but does not say %q", c.Says), output
	}
	return "", output
}

// report writes a line about a test that has ended, and its output if it did not notice the
// sabotage.
func (r *runner) report(name, missed, output string, took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.done++
	verdict := "caught"
	if m := ranSeeds.FindStringSubmatch(output); m != nil {
		verdict += " by " + m[1] + " seeds"
	}
	if missed != "" {
		verdict = "NOT CAUGHT: " + missed + "\n" + end(output)
		r.missed = append(r.missed, name)
	}
	_, _ = fmt.Fprintf(r.out, "%3d/%d  %6.1f s  %s  %s\n", r.done, r.total, took.Seconds(), name, verdict)
}

// end returns the last lines of an output.
func end(output string) string {
	const most = 60
	lines := strings.Split(strings.TrimSpace(output), "\n")
	return "    " + strings.Join(lines[max(0, len(lines)-most):], "\n    ")
}
