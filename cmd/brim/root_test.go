package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/config"
	"github.com/brim-telemetry/brim/internal/daemon"
)

func TestWrongUsageExitsWith2AndNamesWhatIsAllowed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		want []string // in the message
	}{
		{[]string{"serv"}, []string{`"serv"`, "did you mean serve?", "query, seal, serve, ", "token, version"}},
		{[]string{"config", "chek"}, []string{`"chek"`, "did you mean check?", "check, print"}},
		{[]string{"config", "check"}, []string{"brim config check takes a FILE, and was given 0 arguments"}},
		{[]string{"serve", "now"}, []string{`brim serve takes no arguments, and was given "now"`}},
		{[]string{"seal"}, []string{"brim seal takes a stream, and was given 0 arguments"}},
		{[]string{"delete", "a", "b"}, []string{"brim delete takes at most one sensor id, and was given 2 arguments"}},
		{[]string{"serve", "--mongo-url=x"}, []string{"--mongo-url", "did you mean --mongo-uri?", "`brim serve --help` lists all"}},
		{[]string{"version", "--outpt", "json"}, []string{"--outpt", "did you mean --output?", "allowed: --help, --output"}},
		{[]string{"serve", "--mongod-cache", "256MiB"}, []string{"--mongod-cache", `"256MiB" is a size`, "mongod-cache-size"}},
		{[]string{"serve", "--storage"}, []string{"--storage", "a value is missing"}},
		{[]string{"version", "--output", "xml"}, []string{"--output", `"xml"`, "text, json"}},
		{[]string{"query"}, []string{"brim query takes a sensor id, or --sensors or --silent-for, and was given 0 arguments"}},
		{[]string{"query", "s", "--limit", "-1"}, []string{"--limit", `"-1"`, "0 to"}},
		{[]string{"query", "s", "--from", "yesterday"}, []string{"--from", `"yesterday"`, "2026-11-21T10:00:00Z"}},
		{[]string{"query", "s", "--url", "localhost"}, []string{"--url", `"localhost"`, "http://127.0.0.1:8430"}},
		{[]string{"shard", "init", "--dry-run"}, []string{"brim shard was removed", "docs/growing.md"}},
		{[]string{"recompress", "--to", "zstd"}, []string{"brim recompress was removed", "--compressor", "`brim move STREAM`"}},
		{[]string{"migrate", "--storage", "timeseries"}, []string{"brim migrate was removed", "--storage", "`brim move STREAM`", "--granularity"}},
		{[]string{"config", "print", "--granularity", "7m"}, []string{"--granularity", "divide an hour"}},
	} {
		got := runBrim(t, nil, c.args...)
		assert.Equal(t, exitUsage, got.code, "%v", c.args)
		assert.Empty(t, got.stdout, "%v", c.args)
		for _, want := range c.want {
			assert.ErrorContains(t, got.err, want, "%v", c.args)
		}
	}
}

func TestVersionIsPrintedInBothForms(t *testing.T) {
	t.Parallel()
	got := runBrim(t, nil, "version")
	require.NoError(t, got.err)
	assert.Regexp(t, `^brim \S+ .*\(go1\.\S+, \w+/\w+\)\n$`, got.stdout)

	got = runBrim(t, nil, "version", "--output", "json")
	require.NoError(t, got.err)
	var v daemon.Version
	require.NoError(t, json.Unmarshal([]byte(got.stdout), &v))
	assert.Equal(t, readVersion(), v)
}

func TestVersionIsAFlagToo(t *testing.T) {
	t.Parallel()
	command, flag := runBrim(t, nil, "version"), runBrim(t, nil, "--version")
	require.NoError(t, flag.err)
	assert.Equal(t, command.stdout, flag.stdout)
	assert.Empty(t, flag.stderr)
	assert.Contains(t, runBrim(t, nil).stdout, "--version")
}

func TestHelpAndCompletionGoToStdout(t *testing.T) {
	t.Parallel()
	got := runBrim(t, nil)
	require.NoError(t, got.err)
	assert.Contains(t, got.stdout, "serve")

	got = runBrim(t, nil, "serve", "--help")
	require.NoError(t, got.err)
	assert.Contains(t, got.stdout, "--granularity DURATION")
	assert.Contains(t, got.stdout, "brim serve --help-all")
	assert.NotContains(t, got.stdout, "--bucket-max-bytes")
	got = runBrim(t, nil, "serve", "--help-all")
	require.NoError(t, got.err)
	assert.Contains(t, got.stdout, "--bucket-max-bytes SIZE")
	assert.Contains(t, got.stdout, "--granularity DURATION")

	got = runBrim(t, nil, "completion", "bash")
	require.NoError(t, got.err)
	assert.Contains(t, got.stdout, "__start_brim")
}

func TestSimilarNamesAreSuggested(t *testing.T) {
	t.Parallel()
	names := []string{"granularity", "retention", "storage"}
	assert.Equal(t, " (did you mean granularity?)", config.DidYouMean("", "granularty", names))
	assert.Equal(t, " (did you mean --storage?)", config.DidYouMean("--", "storag", names))
	assert.Empty(t, config.DidYouMean("", "colour", names))
	assert.Equal(t, 3, config.Distance("kitten", "sitting"))
	assert.Equal(t, 4, config.Distance("", "four"))
}

// TestAnInvalidDurationNamesTheForms asks where durations are given: in flags,
// in a configuration, and for steps of a query.
func TestAnInvalidDurationNamesTheForms(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "brim.yaml")
	require.NoError(t, os.WriteFile(file, []byte("granularity: 5min\n"), 0o600))
	for _, args := range [][]string{
		{"config", "print", "--granularity", "5min"},
		{"config", "print", "--flush-interval", "5min"},
		{"config", "print", "--config", file},
		{"query", "s", "--every", "5min"},
		{"query", "--silent-for", "5min"},
		{"load", "--interval", "5min"},
	} {
		got := runBrim(t, nil, args...)
		assert.Equal(t, exitUsage, got.code, "%v", args)
		assert.ErrorContains(t, got.err, `"5min" is not a duration`, "%v", args)
		assert.ErrorContains(t, got.err, "a number with a unit: 300ms, 90s, 5m, 1h or 30d", "%v", args)
	}
}

func TestDefaultsOfFlagsAreInForce(t *testing.T) {
	t.Parallel()
	var interval time.Duration
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	flagAdder(flags)("interval", "5s", "DURATION", "", config.Duration(&interval, time.Second, time.Hour, false))
	assert.Equal(t, 5*time.Second, interval)
	require.NoError(t, flags.Parse([]string{"--interval", "7s"}))
	assert.Equal(t, 7*time.Second, interval)
}
