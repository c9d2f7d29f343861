package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/transfer"
)

// startTwoStreams starts a daemon with the in-memory streams readings and copy, which requires
// a token. It returns flags for it, with the token of an identity that may do everything, and
// one that may read two sensors.
func startTwoStreams(t *testing.T) (b *brimProcess, all, few []string) {
	t.Helper()
	dir := t.TempDir()
	access, file := filepath.Join(dir, "access.yaml"), filepath.Join(dir, "brim.yaml")
	require.NoError(t, os.WriteFile(file, []byte("storage: memory\nstreams:\n  readings: {}\n  copy: {}\n"), 0o600))
	token := func(name string, more ...string) string {
		got := runBrim(t, nil, append([]string{"token", "create", name, "--access-file", access}, more...)...)
		require.NoError(t, got.err)
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(got.stdout), 0o600))
		return path
	}
	allToken := token("all", "--scope", "ingest", "--scope", "read")
	fewToken := token("few", "--scope", "read", "--sensor-prefix", "s-1")
	b = startBrim(t, "--config", file, "--data-dir", filepath.Join(dir, "data"), "--access-file", access).awaitReady()
	url := []string{"--url", "http://" + b.HTTP, "--token-file"}
	return b, append(slices.Clone(url), allToken), append(slices.Clone(url), fewToken)
}

// TestExportAndImport moves readings of all kinds between streams through files of each format.
func TestExportAndImport(t *testing.T) {
	t.Parallel()
	_, all, few := startTwoStreams(t)
	dir := t.TempDir()
	state := []string{"--state-dir", filepath.Join(dir, "state")}
	var lines strings.Builder
	for i := range 3000 {
		value := []string{"23", "23.0", "-0.125", `"n/a, \"x\"\n"`, "true", "9007199254740993"}[i%6]
		fmt.Fprintf(&lines, `{"sensorId":"s-%d","ts":%d,"fields":{"mixed":%s,"day":%d,"site":"f%d"},"tags":{"site":"north","ort":"Köln"}}`+"\n", i%12, 1_795_000_000_000+i*60_000, value, i, i)
	}
	given := filepath.Join(dir, "given.ndjson")
	require.NoError(t, os.WriteFile(given, []byte(lines.String()+"nonsense\n"), 0o600))
	got := runBrim(t, nil, append(append([]string{"import", given, "--stream", "readings"}, state...), all...)...)
	require.ErrorContains(t, got.err, "1 of 3,001 rows could not be read or were refused")
	assert.Equal(t, exitFailed, exitCode(got.err))
	assert.Contains(t, got.stderr, given+":3001: this is not a reading in JSON")
	assert.NotContains(t, got.stderr, "jsontext")
	assert.Equal(t, "imported 3,000 readings from 1 file into stream readings\n", got.stdout)
	got = runBrim(t, nil, append(append([]string{"import", given, "--stream", "readings"}, state...), all...)...)
	require.ErrorContains(t, got.err, "1 of 3,001 rows could not be read or were refused")
	assert.Equal(t, "imported 0 readings from 1 file into stream readings; 1 file with 3,000 readings had been imported earlier\n", got.stdout)

	export := func(stream, format string, who []string, more ...string) (string, transfer.Exported) {
		out := filepath.Join(t.TempDir(), "out")
		got := runBrim(t, nil, slices.Concat([]string{"export", stream, "--out", out, "--format", format, "--output", "json"}, who, more)...)
		require.NoError(t, got.err)
		var done transfer.Exported
		require.NoError(t, json.Unmarshal([]byte(got.stdout), &done))
		return out, done
	}
	readingsOf := func(out string) (all []string) {
		files, err := filepath.Glob(filepath.Join(out, "day=*", "readings.ndjson"))
		require.NoError(t, err)
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			all = append(all, strings.Split(strings.TrimSpace(string(text)), "\n")...)
		}
		slices.Sort(all)
		return all
	}
	first, done := export("readings", "ndjson", all)
	want := readingsOf(first)
	assert.Equal(t, int64(3000), done.Readings)
	assert.Len(t, want, 3000)
	assert.Equal(t, 3, done.Files)
	for n, format := range []string{"parquet", "csv", "ndjson"} {
		out, done := export("readings", format, all)
		assert.Equal(t, int64(3000), done.Readings)
		got := runBrim(t, nil, append(append([]string{"import", out, "--stream", "copy"}, state...), all...)...)
		require.NoError(t, got.err, got.stderr)
		copied, _ := export("copy", "ndjson", all)
		var times []string // each reading, once per copy
		for _, line := range want {
			for range n + 1 {
				times = append(times, sortedMembers(t, line))
			}
		}
		var found []string
		for _, line := range readingsOf(copied) {
			found = append(found, sortedMembers(t, line))
		}
		slices.Sort(times)
		slices.Sort(found)
		require.Equal(t, times, found, format)
	}

	got = runBrim(t, nil, append([]string{"export", "readings", "--out", first, "--format", "ndjson"}, all...)...)
	require.NoError(t, got.err)
	assert.Contains(t, got.stdout, "; already complete: nothing was read; it begins at 2026-11-18T11:06:40.000Z and ends at 2026-11-20T13:05:40.001Z; choose another folder for newer readings\n")
	got = runBrim(t, nil, append([]string{"export", "readings", "--out", first, "--format", "ndjson", "--output", "json"}, all...)...)
	require.NoError(t, got.err)
	assert.Contains(t, got.stdout, `"already_complete": true`)

	_, done = export("readings", "csv", few)
	assert.Equal(t, int64(3*250), done.Readings, "of the sensors s-1, s-10 and s-11")
	_, done = export("readings", "parquet", all, "--sensor", "s-2", "--from", "2026-11-19", "--to", "2026-11-20")
	assert.Equal(t, int64(120), done.Readings)
	assert.Equal(t, "2026-11-19", done.From)
}

// sortedMembers is a reading with sorted fields and tags, and unchanged numbers.
func sortedMembers(t *testing.T, line string) string {
	t.Helper()
	var r struct {
		SensorID, TS string
		Fields, Tags map[string]json.RawMessage
	}
	require.NoError(t, json.Unmarshal([]byte(line), &r))
	text, err := json.Marshal(r)
	require.NoError(t, err)
	return string(text)
}

func TestExportAndImportRefuse(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte(`{"code":"stream_unknown","message":"there is no such stream"}`))
	}))
	t.Cleanup(server.Close)
	dir := t.TempDir()
	file := filepath.Join(dir, "a.csv")
	require.NoError(t, os.WriteFile(file, []byte("ts,sensorId,t\n0,s,1\n"), 0o600))
	for name, one := range map[string]struct {
		args []string
		code int
		want string
	}{
		"no folder":        {[]string{"export", "readings"}, exitUsage, "--out: a folder to write to is missing"},
		"no stream":        {[]string{"export"}, exitUsage, "takes the name of a stream, and was given 0 arguments"},
		"unknown format":   {[]string{"export", "readings", "--out", "x", "--format", "xlsx"}, exitUsage, "--format: "},
		"times in reverse": {[]string{"export", "readings", "--out", "x", "--from", "2026-11-21", "--to", "2026-11-20"}, exitUsage, "--from 2026-11-21 is not before --to 2026-11-20"},
		"two selections":   {[]string{"export", "readings", "--out", "x", "--sensor", "a", "--prefix", "b"}, exitUsage, "--sensor and --prefix cannot be combined"},
		"unknown stream":   {[]string{"export", "no", "--out", filepath.Join(dir, "no")}, exitFailed, "export stream no: there is no such stream (stream_unknown, HTTP 404)"},
		"no daemon":        {[]string{"export", "no", "--out", filepath.Join(dir, "nobody"), "--url", "http://127.0.0.1:1"}, exitFailed, "no daemon answers at http://127.0.0.1:1"},
		"no files":         {[]string{"import"}, exitUsage, "takes files or folders, and was given none"},
		"unknown ending":   {[]string{"import", "a.xlsx"}, exitFailed, "find what to import: "},
		"unknown unit":     {[]string{"import", file, "--precision", "m"}, exitUsage, "--precision: "},
		"import to no stream": {
			[]string{"import", file, "--stream", "no"}, exitFailed, "import " + file + ": send readings to " + server.URL + ": stream_unknown: there is no such stream",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := slices.Clone(one.args)
			if !slices.Contains(args, "--url") {
				args = append(args, "--url", server.URL)
			}
			if args[0] == "import" {
				args = append(args, "--state-dir", filepath.Join(dir, "state", strings.ReplaceAll(name, " ", "-")))
			}
			got := runBrim(t, nil, args...)
			require.ErrorContains(t, got.err, one.want)
			assert.Equal(t, one.code, exitCode(got.err))
			assert.Empty(t, got.stdout)
		})
	}
}

// TestExportRepeatsWhatFails has a daemon that answers only every other request, and otherwise
// with half a page, too many queries, or readings that other daemons might have.
func TestExportRepeatsWhatFails(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := asked.Add(1)
		if n == 1 {
			_, _ = w.Write([]byte(`{"sensors":[{"sensorId":"a","newest":"2026-11-21T10:00:00.000Z"}]}`))
			return
		}
		switch n % 8 {
		case 2:
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = w.Write([]byte(`{"code":"queries_too_many","message":"ask again"}`))
		case 4:
			w.Header().Set("Brim-Incomplete", "other:8430")
		case 6:
			_, _ = w.Write([]byte(`{"sensorId":"a","ts":"2026-11-`))
			panic(http.ErrAbortHandler) // makes net/http break the connection
		default:
			if strings.HasSuffix(r.URL.Path, "/readings") {
				_, _ = w.Write([]byte(`{"sensorId":"a","ts":"2026-11-21T10:00:00.000Z","fields":{"t":1.5}}` + "\n"))
				return
			}
			_, _ = w.Write([]byte(`{"sensors":[{"sensorId":"a","newest":"2026-11-21T10:00:00.000Z"}]}`))
		}
	}))
	t.Cleanup(server.Close)
	out := filepath.Join(t.TempDir(), "out")
	got := runBrim(t, nil, "export", "readings", "--out", out, "--format", "csv", "--url", server.URL)
	require.NoError(t, got.err)
	text, err := os.ReadFile(filepath.Join(out, "day=2026-11-21", "readings.csv"))
	require.NoError(t, err)
	assert.Equal(t, "ts,sensorId,t\n2026-11-21T10:00:00.000Z,\"a\",1.5\n", string(text))
	assert.Contains(t, got.stdout, "1 reading of stream readings, from 2026-11-21 to 2026-11-21")
}

// TestExportWithoutTrailers is behind a proxy that removes them, as nginx does.
func TestExportWithoutTrailers(t *testing.T) {
	t.Parallel()
	const n, page = 9000, 4000
	noon := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for name, apart := range map[string]time.Duration{"many milliseconds": time.Millisecond, "one millisecond": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/v1/sensors" {
					_, _ = w.Write([]byte(`{"sensors":[{"sensorId":"a.b","newest":"2026-11-21T13:00:00.000Z"}]}`))
					return
				}
				if r.URL.Query().Get("limit") == "1" { // the oldest one
					w.Header().Set("Brim-After", "1.0.a.b")
					_, _ = fmt.Fprintf(w, `{"sensorId":"a.b","ts":"2026-11-21T12:00:00.000Z","fields":{"t":0}}`+"\n")
					return
				}
				var ms int64
				var seen int
				if after := r.URL.Query().Get("after"); after != "" {
					assert.True(t, strings.HasSuffix(after, ".a.b"), after)
					_, _ = fmt.Sscanf(after, "%d.%d.", &ms, &seen)
				}
				for i, written := 0, 0; i < n && written < page; i++ {
					at := noon.Add(time.Duration(i) * apart)
					if at.UnixMilli() < ms || at.UnixMilli() == ms && seen > 0 {
						seen -= map[bool]int{true: 1}[at.UnixMilli() == ms]
						continue
					}
					written++
					_, _ = fmt.Fprintf(w, `{"sensorId":"a.b","ts":"%s","fields":{"t":%d}}`+"\n", at.Format("2006-01-02T15:04:05.000Z"), i)
				}
			}))
			t.Cleanup(server.Close)
			out := filepath.Join(t.TempDir(), "out")
			got := runBrim(t, nil, "export", "readings", "--out", out, "--format", "ndjson", "--url", server.URL)
			require.NoError(t, got.err)
			text, err := os.ReadFile(filepath.Join(out, "day=2026-11-21", "readings.ndjson"))
			require.NoError(t, err)
			lines := strings.Split(strings.TrimSpace(string(text)), "\n")
			require.Len(t, lines, n)
			for i, line := range lines {
				require.Contains(t, line, fmt.Sprintf(`"t":%d}`, i))
			}
		})
	}
}
