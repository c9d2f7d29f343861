package report

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/bench"
)

func textOf(t *testing.T, width int, results ...*bench.Result) string {
	t.Helper()
	var b bytes.Buffer
	for _, r := range results {
		require.NoError(t, Text(&b, width, r))
	}
	require.NoError(t, Table(&b, width, results))
	return b.String()
}

func TestText(t *testing.T) {
	t.Parallel()
	out := textOf(t, 0, aResult())
	assert.True(t, strings.HasPrefix(out, "## granularity: What does an append cost"))
	for _, want := range []string{
		"- machine: EPYC, 2 cores, 24 GiB of memory, linux/amd64\n", "- mongod: 8.0.4, replica set and standalone, compressor snappy, cache 1 GiB\n",
		"- disk: ext4 on NVMe\n", "- run: quick, 3 repeats, seed 7, 2026-11-21 16:49 UTC, took 55 s\n",
		"| confirmed ", "| direction holds, size differs | This mongod pays", "| not seen here ", "| opposite ",
		"4 claims: 1 confirmed; 1 direction holds, size differs; 1 not seen here; 1 opposite.",
		"### Round trip of an append", "| 360      |", `a\|b <b>`, "The median of 500 appends.",
		"### Held constant\n\n- compressor snappy", "- 5 of 10 fills", "- the standalone mongod: it needs a mongod of its own",
	} {
		assert.Contains(t, out, want)
	}
}

func TestTextIsMarkdownWhereItIsNotWrapped(t *testing.T) {
	t.Parallel()
	for line := range strings.Lines(textOf(t, 0, aResult(), aFailure())) {
		if strings.HasPrefix(line, "|") {
			assert.Contains(t, []int{3, 5, 6}, strings.Count(strings.ReplaceAll(line, `\|`, ""), "|")-1, line)
		}
	}
}

func TestTextFitsATerminal(t *testing.T) {
	t.Parallel()
	for _, width := range []int{80, 100, 120} {
		for line := range strings.Lines(textOf(t, width, aResult(), aFailure())) {
			assert.LessOrEqual(t, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")), width, line)
		}
	}
	whole := strings.Join(strings.Fields(strings.ReplaceAll(textOf(t, 80, aResult()), "|", " ")), " ")
	for _, word := range strings.Fields("pays more for each update as such") {
		assert.Contains(t, whole, word, "nothing is cut")
	}
}

func TestTextOfAllEndsWithOneTable(t *testing.T) {
	t.Parallel()
	interrupted := aResult()
	interrupted.Experiment, interrupted.Interrupted, interrupted.Error = "storage", true, ""
	out := textOf(t, 0, aResult(), aFailure(), interrupted)
	_, all, found := strings.Cut(out, "## All experiments\n")
	require.True(t, found)
	assert.Equal(t, 4, strings.Count(all, "| granularity "))
	assert.Equal(t, 4, strings.Count(all, "| storage "))
	assert.Contains(t, all, "8 claims: 2 confirmed;")
	assert.Contains(t, all, "fill failed: fill: mongod said <b>?[2J</b> no\n", "nothing moves the cursor")
	assert.Contains(t, all, "storage was interrupted.")
	assert.Contains(t, out, "It failed: fill: mongod said")
	assert.Contains(t, out, "It was interrupted: what follows is")
	assert.Contains(t, out, "- database: brim_bench_20261121_164900_77")

	assert.Contains(t, textOf(t, 0, aFailure(), aFailure()), "No claim was checked.")
}

func TestTextOfUnknownFacts(t *testing.T) {
	t.Parallel()
	r := &bench.Result{Experiment: "x", Environment: bench.Environment{System: "plan9/386"}}
	assert.Contains(t, textOf(t, 0, r), "- machine: unknown CPU, 0 cores, plan9/386\n- mongod: none was started\n- disk: unknown file system on a disk of unknown kind\n- brim: unknown version, MongoDB driver unknown\n")
	r.Environment.Database = "brim_bench_x"
	assert.Contains(t, textOf(t, 0, r), "- mongod: unknown\n- database: brim_bench_x")
	r.Environment.Mongod = "8.0.4"
	assert.Contains(t, textOf(t, 0, r), "- mongod: 8.0.4, compressors as held constant below, or its own\n")
}

type fullDisk struct{}

var errFull = errors.New("no space left")

func (fullDisk) Write([]byte) (int, error) { return 0, errFull }

func TestWriteErrors(t *testing.T) {
	t.Parallel()
	require.ErrorIs(t, Text(fullDisk{}, 0, aResult()), errFull)
	require.ErrorIs(t, JSON(fullDisk{}, aResult()), errFull)
	require.ErrorIs(t, HTML(fullDisk{}, aResult()), errFull)
}
