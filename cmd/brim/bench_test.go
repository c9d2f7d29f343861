package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/bench"
)

// aTrial is an experiment without MongoDB: it reports the claimed figures, and then does what a
// test wants.
func aTrial(name string, then func(ctx context.Context, lab *bench.Lab) error) *bench.Experiment {
	return &bench.Experiment{
		Name: name, Question: "What comes of " + name + "?", Full: 10 * time.Minute, Quick: 30 * time.Second, Restarts: "the part with settings",
		Cells:  []bench.Cell{{Name: "push", What: "appends"}, {Name: "indexes", What: "further indexes", Slow: "it takes long"}},
		Tables: []bench.Table{{Name: "found", Title: "What was found"}},
		Claims: []bench.Claim{{Says: "it is " + name, Published: 1, PublishedAs: "one", Of: bench.Figure{Table: "found", Variant: name, Measure: "figure"}}},
		Run: func(ctx context.Context, lab *bench.Lab) {
			lab.Step("%d repeats", lab.Repeats)
			lab.Add("found", name, "figure", 1)
			lab.Step("the end")
			if then != nil {
				bench.Check(then(ctx, lab))
			}
		},
	}
}

// runTrials carries out one command with the test's own experiments.
func runTrials(t *testing.T, all []*bench.Experiment, args ...string) outcome {
	t.Helper()
	var stdout, stderr bytes.Buffer
	p := &process{stdin: strings.NewReader(""), stdout: &stdout, stderr: &stderr}
	err := p.carryOut(t.Context(), append([]string{"bench"}, args...), all)
	return outcome{stdout: stdout.String(), stderr: stderr.String(), err: err, code: exitCode(err)}
}

func TestBenchRunsOneExperiment(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	page, scratch := filepath.Join(dir, "trial.html"), filepath.Join(dir, "scratch")
	require.NoError(t, os.Mkdir(scratch, 0o700))
	all := []*bench.Experiment{aTrial("a", nil), aTrial("b", nil)}
	got := runTrials(t, all, "a", "--quick", "--report", page, "--scratch-dir", scratch)
	require.NoError(t, got.err)
	assert.Regexp(t, `^a: about 30 s\na 1 · 3 repeats · \d:\d\d of about 0:30\na 2 · the end · \d:\d\d of about 0:30\n$`, got.stderr)
	for _, want := range []string{"## a: What comes of a?", "- run: quick, 3 repeats, seed 1", "| it is a | one ", "| confirmed |", "- further indexes: not in a quick run: it takes long"} {
		assert.Contains(t, got.stdout, want)
	}
	assert.NotContains(t, got.stdout, "All experiments")
	written, err := os.ReadFile(page)
	require.NoError(t, err)
	assert.Contains(t, string(written), "it is a")
	assert.Contains(t, string(written), "</html>")
	left, err := os.ReadDir(scratch)
	require.NoError(t, err)
	assert.Empty(t, left)

	got = runTrials(t, all, "b", "--repeats", "5", "--seed", "9", "--cells", "indexes, push,push", "--output", "json")
	require.NoError(t, got.err)
	assert.Regexp(t, `^b: all cells with 3 repeats take about 10 min; this is a different selection\nb 1 · 5 repeats · \d:\d\d\n`, got.stderr)
	var r bench.Result
	require.NoError(t, json.Unmarshal([]byte(got.stdout), &r))
	assert.Equal(t, []any{"b", 5, uint64(9), 1}, []any{r.Experiment, r.Repeats, r.Seed, len(r.Rows)})
	assert.Empty(t, r.LeftOut)
}

func TestBenchAllContinuesAfterAFailure(t *testing.T) {
	t.Parallel()
	failed := errors.New("no more disk")
	all := []*bench.Experiment{aTrial("a", nil), aTrial("b", func(context.Context, *bench.Lab) error { return failed }), aTrial("c", nil)}
	page := filepath.Join(t.TempDir(), "all.html")
	got := runTrials(t, all, "all", "--report", page)
	require.ErrorIs(t, got.err, failed)
	assert.Equal(t, exitFailed, got.code)
	assert.Contains(t, got.stderr, "3 experiments: about 30 min\n")
	_, table, found := strings.Cut(got.stdout, "## All experiments")
	require.True(t, found)
	for _, want := range []string{"| a          | it is a |", "| b          | it is b |", "| c          | it is c |", "3 claims: 3 confirmed.", "b failed: b: the end: no more disk"} {
		assert.Contains(t, table, want)
	}
	written, err := os.ReadFile(page)
	require.NoError(t, err)
	assert.Contains(t, string(written), `<section id="c">`)

	got = runTrials(t, all, "all", "--output", "json")
	assert.Equal(t, exitFailed, got.code)
	var results []bench.Result
	require.NoError(t, json.Unmarshal([]byte(got.stdout), &results))
	require.Len(t, results, 3)
	assert.Equal(t, "b: the end: no more disk", results[1].Error)
}

func TestBenchList(t *testing.T) {
	t.Parallel()
	got := runBrim(t, nil, "bench", "list")
	require.NoError(t, got.err)
	at := -1
	for _, name := range []string{"granularity", "fill", "timeseries", "compression", "sealed", "checkpoint", "storage", "speed", "all"} {
		next := strings.Index("\n"+got.stdout, "\n"+name+"\n  ")
		assert.Greater(t, next, at, name)
		at = next
	}
	got = runBrim(t, nil, "bench", "list", "--output", "json")
	require.NoError(t, got.err)
	var list []struct {
		Name, Question string
		Quick          float64 `json:"quick_seconds"`
		Full           float64 `json:"full_seconds"`
		Cells          []bench.Cell
	}
	require.NoError(t, json.Unmarshal([]byte(got.stdout), &list))
	require.Len(t, list, 8)
	for _, e := range list {
		assert.NotEmpty(t, e.Question, e.Name)
		assert.Greater(t, e.Full, e.Quick, e.Name)
		full, most := 20*time.Minute, 90.0
		switch e.Name {
		case "fill":
			most = 180
		case "speed":
			full = time.Hour
		}
		assert.LessOrEqual(t, e.Full, full.Seconds(), e.Name)
		assert.LessOrEqual(t, e.Quick, most, e.Name)
	}
}

func TestBenchRefusesUnknownNames(t *testing.T) {
	t.Parallel()
	all := []*bench.Experiment{aTrial("trial", nil)}
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	for _, c := range []struct {
		args []string
		code int
		want []string
	}{
		{[]string{"tria"}, exitUsage, []string{`"tria"`, "did you mean trial?", "all, list, trial"}},
		{[]string{"trial", "more"}, exitUsage, []string{`"more"`}},
		{[]string{"trial", "--quik"}, exitUsage, []string{"did you mean --quick?", "--mongo-uri"}},
		{[]string{"trial", "--cells", "push,index"}, exitUsage, []string{`"index" is not a cell of trial`, "did you mean indexes?", "allowed: push, indexes"}},
		{[]string{"trial", "--cells", ""}, exitUsage, []string{`"" is not a cell`}},
		{[]string{"all", "--cells", "push"}, exitUsage, []string{"--cells", "allowed: --quick"}},
		{[]string{"trial", "--repeats", "101"}, exitUsage, []string{`"101"`, "1 to 100"}},
		{[]string{"trial", "--seed", "0"}, exitUsage, []string{`"0"`, "from 1"}},
		{[]string{"trial", "--output", "html"}, exitUsage, []string{"text, json"}},
		{[]string{"trial", "--mongo-uri", "localhost"}, exitUsage, []string{"mongodb://"}},
		{[]string{"trial", "--mongo-uri", ""}, exitUsage, []string{"must not be empty"}},
		{[]string{"trial", "--scratch-dir", filepath.Join(dir, "none")}, exitUsage, []string{"--scratch-dir", "none"}},
		{[]string{"trial", "--scratch-dir", file}, exitUsage, []string{"is not a folder"}},
		{[]string{"trial", "--report", filepath.Join(dir, "none", "x.html")}, exitFailed, []string{"open the report"}},
	} {
		got := runTrials(t, all, c.args...)
		assert.Equal(t, c.code, got.code, "%v", c.args)
		assert.Empty(t, got.stdout, "%v", c.args)
		assert.NotContains(t, got.stderr, "trial 1 ", "%v: nothing was begun", c.args)
		for _, want := range c.want {
			assert.ErrorContains(t, got.err, want, "%v", c.args)
		}
	}
}

// TestBenchShowsTheScratchDatabaseAndNoSecret also checks that no variable makes it write to a
// daemon's MongoDB.
func TestBenchShowsTheScratchDatabaseAndNoSecret(t *testing.T) {
	t.Parallel()
	all := []*bench.Experiment{aTrial("trial", nil)}
	got := runTrials(t, all, "trial", "--mongo-uri", "mongodb://me:hidden@db.example:27017/?replicaSet=r")
	require.NoError(t, got.err)
	assert.Regexp(t, `scratch database brim_bench_\d{8}_\d{6}_[0-9a-f]{8} in mongodb://me:\*\*\*@db.example:27017/\?replicaSet=r, dropped at the end`, got.stderr)
	assert.Contains(t, got.stderr, "left out of trial with --mongo-uri: the part with settings\n")
	assert.NotContains(t, got.stderr+got.stdout, "hidden")

	var stdout, stderr bytes.Buffer
	p := &process{env: []string{"BRIM_MONGO_URI=mongodb://db.example", "BRIM_MONGOD_BIN=/bin/mongod"}, stdin: strings.NewReader(""), stdout: &stdout, stderr: &stderr}
	require.NoError(t, p.carryOut(t.Context(), []string{"bench", "trial"}, all))
	assert.NotContains(t, stderr.String(), "scratch database")
	stdout.Reset()
	require.NoError(t, p.carryOut(t.Context(), []string{"bench", "trial", "--help"}, all))
	assert.Contains(t, stdout.String(), "(BRIM_MONGOD_BIN) (default \"/bin/mongod\")")
	assert.Contains(t, stdout.String(), "push     appends")
}

func TestAnInterruptedBenchShowsWhatItHas(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	all := []*bench.Experiment{
		aTrial("a", nil),
		aTrial("b", func(ctx context.Context, _ *bench.Lab) error { cancel(); <-ctx.Done(); return ctx.Err() }),
		aTrial("c", nil),
	}
	var stdout, stderr bytes.Buffer
	p := &process{stdin: strings.NewReader(""), stdout: &stdout, stderr: &stderr}
	err := p.carryOut(ctx, []string{"bench", "all"}, all)
	require.EqualError(t, err, "b: interrupted\nc and the following: interrupted")
	assert.Equal(t, exitFailed, exitCode(err))
	for _, want := range []string{"| it is a |", "It was interrupted: what follows is", "| it is b |", "b was interrupted."} {
		assert.Contains(t, stdout.String(), want)
	}
	assert.NotContains(t, stdout.String(), "it is c")
}

func TestTheLiveLineOfABench(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		l := &progressLine{w: &out, terminal: true, columns: func() int { return 80 }}
		l.tick()
		showStep(l, bench.Progress{Experiment: "granularity", Step: 7, What: "360 resident", Elapsed: 20 * time.Second, Expected: 50 * time.Second}, true)
		synctest.Wait()
		<-time.After(1100 * time.Millisecond)
		synctest.Wait()
		_, err := io.WriteString(l, "a warning\n")
		require.NoError(t, err)
		l.clear()
		<-time.After(2 * time.Second)
		l.end()
		assert.Equal(t, "\r\x1b[Kgranularity 7 · 360 resident · 0:20 of about 0:50"+
			"\r\x1b[Kgranularity 7 · 360 resident · 0:21 of about 0:50"+
			"\r\x1b[Ka warning\n", out.String())
	})
	assert.Equal(t, []string{"0:05", "12:34", "1:00:01"}, []string{clockTime(5 * time.Second), clockTime(754 * time.Second), clockTime(3601 * time.Second)})
}
