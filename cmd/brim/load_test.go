package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/brimtest"
	"github.com/brim-telemetry/brim/internal/load"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
)

// fakeTarget is a daemon that accepts every reading, or answers otherwise.
type fakeTarget struct {
	code     atomic.Int64 // of answers to readings; 0: 200
	requests atomic.Int64
	paths    atomic.Value // the last

	deletes atomic.Value // query of the last request to delete sensors
	keeps   bool         // it refuses to delete
}

func (f *fakeTarget) serve(t *testing.T) string {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/streams", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"default":"readings","acks":["journaled"],"streams":[
			{"name":"readings","storage":"bucket","granularity_seconds":60,"granularity":"1m"},
			{"name":"machines","storage":"memory","granularity_seconds":3600,"granularity":"1h"}]}`)
	})
	mux.HandleFunc("POST /v1/", func(w http.ResponseWriter, r *http.Request) {
		f.requests.Add(1)
		f.paths.Store(r.URL.Path + " " + r.Header.Get("Brim-Ack"))
		body, _ := io.ReadAll(r.Body)
		if code := int(f.code.Load()); code != 0 {
			w.WriteHeader(code)
			_, _ = io.WriteString(w, `{"code":"journal_full","message":"the journal is full"}`)
			return
		}
		_, _ = fmt.Fprintf(w, `{"accepted":%d,"rejected":0,"ack":"journaled","errors":[]}`, max(1, strings.Count(string(body), "sensorId")))
	})
	mux.HandleFunc("DELETE /v1/sensors", func(w http.ResponseWriter, r *http.Request) {
		if f.keeps {
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, `{"code":"forbidden","message":"the scope admin is needed"}`)
			return
		}
		f.deletes.Store(r.URL.RawQuery)
		_, _ = io.WriteString(w, `{"sensors":100,"deleted":7000}`)
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.URL
}

// aSecond is a short run.
func aSecond(base string, more ...string) []string {
	return append([]string{"load", "--target", base, "--sensors", "100", "--interval", "1s", "--duration", "1s", "--connections", "4"}, more...)
}

func TestLoadPrintsAndWritesItsReports(t *testing.T) {
	t.Parallel()
	var f fakeTarget
	base, dir := f.serve(t), t.TempDir()
	page := filepath.Join(dir, "load.html")
	require.NoError(t, os.WriteFile(page, []byte(strings.Repeat("old", 1<<20)), 0o644))
	got := runBrim(t, nil, aSecond(base, "--speedup", "60", "--output", "json", "--fail-if", "dropped>0", "--fail-if", "p99>10s", "--report", page, "--stream", "machines", "--ack", "stored")...)
	require.NoError(t, got.err)
	assert.Equal(t, "/v1/streams/machines/readings stored", f.paths.Load())
	var r load.Result
	require.NoError(t, json.Unmarshal([]byte(got.stdout), &r))
	assert.EqualValues(t, 6000, r.Acked)
	assert.Equal(t, 3600, r.Setup.GranularitySeconds)
	assert.Len(t, r.ByFill, 10)
	assert.InDelta(t, 6000, r.OfferedRate, 1e-6)
	written, err := os.ReadFile(page)
	require.NoError(t, err)
	assert.Contains(t, string(written), "</html>")
	assert.NotContains(t, string(written), "oldold")

	got = runBrim(t, nil, aSecond(base)...)
	require.NoError(t, got.err)
	assert.Contains(t, got.stdout, "The readings cover 1s of a window of 1m")
	assert.NotContains(t, got.stderr, "ahead of the clock")
	got = runBrim(t, nil, aSecond(base, "--start", "now", "--speedup", "600")...)
	require.NoError(t, got.err)
	assert.Contains(t, got.stderr, "ahead of the clock")
}

func TestLoadFailIf(t *testing.T) {
	t.Parallel()
	var f fakeTarget
	base := f.serve(t)
	got := runBrim(t, nil, aSecond(base, "--fail-if", "max>1us", "--fail-if", "achieved<10%")...)
	assert.Equal(t, exitFailed, got.code)
	assert.ErrorContains(t, got.err, "max>1us")
	assert.NotContains(t, got.err.Error(), "achieved")
	assert.NotEmpty(t, got.stdout, "it reports all the same")

	f.code.Store(http.StatusServiceUnavailable)
	got = runBrim(t, nil, aSecond(base)...)
	assert.Equal(t, exitFailed, got.code)
	assert.ErrorIs(t, got.err, errNothingAccepted)
	assert.Contains(t, got.stdout, "503")
	assert.Regexp(t, `^SATURATED: 100 of 100 requests \(100 %\) were turned away`, got.stdout)
	got = runBrim(t, nil, aSecond(base, "--output", "json")...)
	assert.Contains(t, got.stdout, `"saturated": true`)
	assert.Contains(t, got.stderr, "saturated: 100 of 100 requests")
}

func TestLoadIsCheckedBeforeItBegins(t *testing.T) {
	t.Parallel()
	var f fakeTarget
	base := f.serve(t)
	for _, c := range []struct {
		args []string
		want string
		code int
	}{
		{[]string{"--fail-if", "p98>1ms"}, "p50, p90, p99", exitUsage},
		{[]string{"--rate", "fast"}, "500..5000", exitUsage},
		{[]string{"--rate", "10", "--sensors", "10"}, "--rate and --sensors cannot be used together", exitUsage},
		{[]string{"--steps", "3"}, "--steps needs --rate", exitUsage},
		{[]string{"--missing", "2"}, "5%", exitUsage},
		{[]string{"--signal", "sine"}, "mixed, walk, seasonal, steps", exitUsage},
		{[]string{"--speedup", "0"}, "from 0.001", exitUsage},
		{[]string{"--ack", "maybe"}, "journaled and stored", exitUsage},
		{[]string{"--grpc-form", "x"}, "plain and compact", exitUsage},
		{[]string{"--target", "ftp://x"}, "grpc://host:port", exitUsage},
		{[]string{"--target", "grpc://192.0.2.1:8431"}, "--http", exitUsage},
		{[]string{"--target", "grpc://127.0.0.1:19431"}, "name the HTTP listener of the same daemon with --http, or its admin listener with --admin", exitUsage},
		{[]string{"--seed", "0"}, "from 1 to", exitUsage},
		{[]string{"--start", "noon"}, "2026-11-21T10:00:00Z", exitUsage},
		{[]string{"--duplicates", "1"}, "from 0 to 0.99", exitUsage},
		{[]string{"--sensors", "1000001"}, "1000000", exitUsage},
		{[]string{"--http", "ftp://x"}, "--http", exitUsage},
		{[]string{"--stream", "nowhere"}, "readings, machines", exitFailed},
		{[]string{"--report", "/nowhere/x"}, "/nowhere/x", exitFailed},
		{[]string{"--rate", "1e8", "--interval", "1h"}, "shorten the interval", exitUsage},
		{[]string{"more"}, "no arguments", exitUsage},
		{[]string{"--admin", "127.0.0.1"}, "HOST:PORT", exitUsage},
		{[]string{"--sensor-prefix", "a\nb"}, "printable", exitUsage},
	} {
		got := runBrim(t, nil, append([]string{"load", "--target", base, "--duration", "1s"}, c.args...)...)
		assert.ErrorContains(t, got.err, c.want, "%v", c.args)
		assert.Equal(t, c.code, got.code, "%v: %v", c.args, got.err)
	}
	assert.Zero(t, f.requests.Load())
}

func TestFlagsWithoutEffectAreRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--sensor-prefix", "s", "--cleanup"}, "--cleanup and --sensor-prefix cannot be used together"},
		{[]string{"--late-by", "1s"}, "--late-by needs --late"},
		{[]string{"--grpc-form", "compact"}, "--grpc-form needs a --target of grpc://"},
	} {
		got := runBrim(t, nil, append([]string{"load", "--target", "http://127.0.0.1:1", "--duration", "1s"}, c.args...)...)
		assert.ErrorContains(t, got.err, c.want, "%v", c.args)
		assert.Equal(t, exitUsage, got.code, "%v: %v", c.args, got.err)
	}
}

// TestFailuresCountAsSlow: a daemon that refuses everything at once has no good p99.
func TestFailuresCountAsSlow(t *testing.T) {
	t.Parallel()
	var f fakeTarget
	f.code.Store(http.StatusServiceUnavailable)
	got := runBrim(t, nil, aSecond(f.serve(t), "--fail-if", "p99>10s", "--fail-if", "max>10s", "--fail-if", "p50<10s")...)
	assert.ErrorContains(t, got.err, "p99>10s: p99 is unknown, because it is among the readings that failed (100)")
	assert.ErrorContains(t, got.err, "max>10s: max is unknown")
	assert.NotContains(t, got.err.Error(), "p50")
	assert.Contains(t, got.stdout, "each percentile of the response time is a lower bound")
}

func TestLoadWarnsAboutADifferentInterval(t *testing.T) {
	t.Parallel()
	var f fakeTarget
	base := f.serve(t)
	run := func(rate string) outcome {
		return runBrim(t, nil, "load", "--target", base, "--rate", rate, "--interval", "1s", "--duration", "100ms", "--metrics-addr", "127.0.0.1:0")
	}
	got := run("10.4")
	require.NoError(t, got.err)
	assert.Contains(t, got.stderr, "--rate 10.4 takes 10 sensors, each reporting every 0.962 s of event time instead of every 1.000 s")
	assert.Regexp(t, `own metrics are at http://127\.0\.0\.1:[1-9]\d*/metrics`, got.stderr)
	got = run("100.4")
	require.NoError(t, got.err)
	assert.NotContains(t, got.stderr, "takes 100 sensors", "less than a hundredth is not worth a line")
}

func TestLoadWithoutADaemonSaysWhatToStart(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	page := filepath.Join(t.TempDir(), "load.html")
	got := runBrim(t, []string{"BRIM_URL=" + server.URL}, "load", "--report", page)
	assert.ErrorContains(t, got.err, "no daemon answers at "+server.URL+": start one with `brim serve`, or name another with --target")
	assert.Equal(t, exitFailed, got.code)
	assert.NoFileExists(t, page)
}

func TestLoadProgressLine(t *testing.T) {
	t.Parallel()
	p := load.Progress{
		Interval: load.Interval{Offered: 2004, Achieved: 1999, P50: 0.0008, P99: 0.0123, InFlight: 7, Fill: 0.42},
		Elapsed:  5 * time.Second, Duration: time.Minute, Asked: 2004, TotalDropped: 12,
	}
	var out strings.Builder
	l := newProgressLine(&out, 0)
	show := showLoad(l)
	for p.Elapsed = time.Second; p.Elapsed <= 10*time.Second; p.Elapsed += time.Second {
		show(p)
	}
	l.end()
	assert.Equal(t, 2, strings.Count(out.String(), "\n"), "a line every five seconds")
	assert.NotContains(t, out.String(), "\r")
	for _, want := range []string{"5s/1m ", "asked 2,004/s", "got 1,999/s", "████░░░░░░  42 %", "  p50 800 µs p99 12.3 ms", "in flight 7", "12 dropped"} {
		assert.Contains(t, out.String(), want)
	}

	out.Reset()
	l.terminal, l.columns = true, func() int { return 30 }
	show(p)
	l.end()
	assert.Equal(t, "\r\x1b[K11s/1m  asked 2,004/s got 1,9\r\x1b[K", out.String())
}

func TestLoadServesItsMetrics(t *testing.T) {
	t.Parallel()
	o := &loadOptions{metricsAddr: "127.0.0.1:0"}
	reg := prometheus.NewRegistry()
	_, err := load.New(load.Config{Senders: func(context.Context) (load.Sender, error) { return nil, nil }, Stream: load.Stream{GranularitySeconds: 60}, Registerer: reg})
	require.NoError(t, err)
	var told strings.Builder
	stop, err := o.serveMetrics(t.Context(), &told, reg)
	require.NoError(t, err)
	url := regexp.MustCompile(`http://\S+/metrics`).FindString(told.String())
	code, body, err := carryOutGet(t, url)
	require.NoError(t, err)
	assert.Equal(t, http.StatusOK, code)
	assert.Contains(t, body, "brim_load_sent_readings_total 0")
	assert.Contains(t, body, "brim_build_info")
	assert.Contains(t, body, "go_goroutines")
	stop()
	_, _, err = carryOutGet(t, url)
	assert.Error(t, err)
}

func carryOutGet(t *testing.T, url string) (code int, answer string, err error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	require.NoError(t, err)
	return brimtest.CarryOut(req)
}

// TestAnInterruptedLoadReports sends ^C's signal.
func TestAnInterruptedLoadReports(t *testing.T) {
	t.Parallel()
	var f fakeTarget
	base := f.serve(t)
	var stdout, stderr synced
	cmd := exec.Command(brimBinary(t), "load", "--target", base, "--sensors", "100", "--interval", "1s", "--duration", "1h", "--speedup", "2", "--cleanup")
	cmd.Env, cmd.Stdout, cmd.Stderr = foreignEnv(), &stdout, &stderr
	process := brimtest.Launch(t, cmd, syscall.SIGKILL)
	require.Eventually(t, func() bool { return f.requests.Load() > 50 }, patience, 10*time.Millisecond)
	process.Signal(os.Interrupt)
	require.Zero(t, process.Wait(), stderr.String())
	assert.Contains(t, strings.ToLower(stdout.String()), "interrupted")
	assert.Contains(t, stdout.String(), "by elapsed part of the window")
	assert.Contains(t, stderr.String(), "; interrupt again to leave them\ndeleted 100 sensors with 7,000 readings\n")
	assert.Regexp(t, `^prefix=load-\w+-&stream=readings$`, f.deletes.Load(), "not the dry run before it")
}

// TestLoadCleansUp but keeps the sensors from before.
func TestLoadCleansUp(t *testing.T) {
	t.Parallel()
	b := startBrim(t, "--storage", "memory", "--data-dir", t.TempDir()).awaitReady()
	code, answer := b.post("/v1/readings", `{"sensorId":"load-0-1","ts":"2026-01-01T00:00:01Z","fields":{"t":1}}`)
	require.Equal(t, http.StatusOK, code, answer)
	got := runBrim(t, nil, "load", "--target", "grpc://"+b.GRPC, "--admin", b.Admin, "--sensors", "50", "--interval", "1s", "--duration", "200ms", "--speedup", "10", "--cleanup", "--output", "json")
	require.NoError(t, got.err)
	var r load.Result
	require.NoError(t, json.Unmarshal([]byte(got.stdout), &r))
	assert.EqualValues(t, 100, r.Acked)
	assert.Contains(t, got.stderr, "deleting the sensors of this run ("+r.Setup.SensorPrefix+"…)\ndeleted 50 sensors with 100 readings\n")
	got = runBrim(t, nil, "query", "--sensors", "--url", "http://"+b.HTTP, "--output", "csv")
	require.NoError(t, got.err)
	assert.Equal(t, "sensorId,newest,fields\nload-0-1,2026-01-01T00:00:01.000Z,t\n", got.stdout)

	f := fakeTarget{keeps: true}
	got = runBrim(t, nil, aSecond(f.serve(t), "--cleanup")...)
	assert.ErrorContains(t, got.err, "--cleanup: the scope admin is needed")
	assert.Zero(t, f.requests.Load(), "nothing is sent that could not be deleted")
}

// TestCleanupSaysWhatIsLeft if the daemon disappears in between.
func TestCleanupSaysWhatIsLeft(t *testing.T) {
	t.Parallel()
	f := fakeTarget{keeps: true}
	base := f.serve(t)
	o := &loadOptions{caller: &caller{}}
	c := &loadCleanup{o.remote(base+"/", "--target"), "readings", "load-x-"}
	var out strings.Builder
	err := c.run(t.Context(), &out)
	assert.ErrorContains(t, err, "deleted 0 sensors with 0 readings; to delete the rest, run: brim delete --url "+base+" --stream readings --prefix load-x- --yes")
	assert.Equal(t, "deleting the sensors of this run (load-x-…)\n", out.String())
	c = &loadCleanup{o.remote("http://u:CANARY@127.0.0.1:1", "--http"), "readings", "load-x-"}
	err = c.run(t.Context(), &out)
	require.ErrorContains(t, err, "brim delete --url 'http://***@127.0.0.1:1' --stream readings")
	assert.NotContains(t, err.Error(), "CANARY")
}

// loaded runs `brim load` against a daemon and returns the result.
func loaded(t *testing.T, args ...string) *load.Result {
	t.Helper()
	got := runBrim(t, nil, append([]string{"load", "--output", "json"}, args...)...)
	require.NoError(t, got.err, got.stderr)
	var r load.Result
	require.NoError(t, json.Unmarshal([]byte(got.stdout), &r))
	return &r
}

// TestLoadOfADaemonInMemory runs an hour in two seconds, over both protocols.
func TestLoadOfADaemonInMemory(t *testing.T) {
	t.Parallel()
	b := startBrim(t, "--storage", "memory", "--granularity", "1h", "--data-dir", t.TempDir()).awaitReady()
	hour := []string{"--sensors", "2", "--interval", "5s", "--speedup", "1800", "--duration", "2s", "--connections", "8", "--admin", b.Admin}
	for _, way := range [][]string{
		{"--target", "http://" + b.HTTP},
		{"--target", "grpc://" + b.GRPC, "--batch", "10"},
		{"--target", "grpc://" + b.GRPC, "--batch", "360", "--grpc-form", "compact"},
	} {
		r := loaded(t, append(way, hour...)...)
		assert.EqualValues(t, 1440, r.Acked, way)
		assert.Zero(t, r.Failed+r.Rejected+r.Dropped, way)
		for _, row := range r.ByFill {
			assert.InDelta(t, 144, row.Count, 2, way)
			assert.Positive(t, row.P99)
		}
		assert.Len(t, r.StoreByFill, 10)
		assert.Equal(t, "memory", r.Setup.Storage)
	}
}

// TestLoadFillsBuckets sees tenths on both sides, and all readings in MongoDB.
func TestLoadFillsBuckets(t *testing.T) {
	t.Parallel()
	b := startBrim(t, append(onShared(t, mongodtest.Database(t)), "--granularity", "1h", "--flush-interval", "50ms")...).awaitStorage()
	r := loaded(t, "--target", "http://"+b.HTTP, "--admin", b.Admin, "--sensors", "2", "--interval", "5s", "--speedup", "1200", "--duration", "3s", "--ack", "journaled", "--sensor-prefix", "s-")
	assert.EqualValues(t, 1440, r.Acked)
	require.Len(t, r.StoreByFill, 10)
	written := 0
	for i, row := range r.StoreByFill {
		assert.InDelta(t, 144, r.ByFill[i].Count, 2)
		if row.Count > 0 { // a busy machine writes several tenths at once
			written++
			assert.Positive(t, row.P99)
		}
	}
	assert.Greater(t, written, 1)
	got := runBrim(t, nil, "query", "s-2", "--url", "http://"+b.HTTP, "--limit", "0", "--output", "ndjson")
	require.NoError(t, got.err)
	assert.Equal(t, 720, strings.Count(got.stdout, "\n"))
}
