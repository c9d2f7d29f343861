package main

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/brimtest"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
)

// program is the program that is measured; with the race detector in it, it
// would be another.
var program = brimtest.Binary{Plain: true}

func TestMain(m *testing.M) {
	code := mongodtest.Run(m, mongodtest.NoLeaks())
	program.Remove()
	os.Exit(code)
}

func TestFlagsThatMakeNoSenseAreRefused(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"--pairs", "0"}, "allowed are 1 to 100"},
		{[]string{"--time", "1ms"}, "allowed are 100ms to 10m"},
		{[]string{"--single-runs", "0"}, "--single-runs 0 does not fit: allowed are 1 to 100"},
		{[]string{"--fill-runs", "101"}, "allowed are 1 to 100"},
		{[]string{"--connections", "0"}, "allowed are 1 to 64"},
		{[]string{"--output", "html"}, "allowed are text and json"},
		{[]string{"--rows", "lines,curves"}, `"curves" is not one of lines,grpc,ndjson`},
		{[]string{"lines"}, `"lines" is not a flag; what to measure is named by --rows (allowed are lines,grpc`},
		{[]string{"--rows", "lines", "--brim", "./no-such-program"}, "make build"},
	} {
		var stdout, stderr strings.Builder
		require.ErrorContains(t, run(t.Context(), test.args, &stdout, &stderr), test.want)
		assert.Empty(t, stdout.String())
	}
}

func TestRunsThatTakeAMinuteAreFew(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		args         []string
		single, fill int
	}{
		{nil, 1, 3},
		{[]string{"--pairs", "2"}, 1, 2},
		{[]string{"--pairs", "20"}, 1, 3},
		{[]string{"--pairs", "2", "--fill-runs", "5", "--single-runs", "4"}, 4, 5},
	} {
		var stderr strings.Builder
		c, err := parse(test.args, &stderr)
		require.NoError(t, err)
		assert.Equal(t, test.single, c.singleRuns)
		assert.Equal(t, test.fill, c.fillRuns)
	}
}

func TestHelpTellsWhatIsAllowed(t *testing.T) {
	t.Parallel()
	var stderr strings.Builder
	_, err := parse([]string{"--help"}, &stderr)
	require.ErrorIs(t, err, flag.ErrHelp)
	for _, name := range names() {
		assert.Contains(t, stderr.String(), name)
	}
	assert.Contains(t, stderr.String(), "100ms to 10m")
}

func TestListTellsEveryRow(t *testing.T) {
	t.Parallel()
	var stdout, stderr strings.Builder
	require.NoError(t, run(t.Context(), []string{"--list"}, &stdout, &stderr))
	var names []string
	for line := range strings.Lines(stdout.String()) {
		names = append(names, strings.Fields(line)[0])
	}
	assert.Equal(t, []string{"lines", "grpc", "ndjson", "timeseries", "single", "fill", "prefilled", "memory", "journal"}, names[:9])
}

func TestRowsAreMeasuredInTheirOwnOrder(t *testing.T) {
	t.Parallel()
	chosen, err := choose("journal,lines")
	require.NoError(t, err)
	require.Len(t, chosen, 2)
	assert.Equal(t, "lines", chosen[0].name)
	assert.Equal(t, "journal", chosen[1].name)
}
