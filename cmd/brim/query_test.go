package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// fakeReadings is a fake daemon with a number of readings of one sensor.
type fakeReadings struct {
	total int

	mu      sync.Mutex
	queries []url.Values
	paths   []string
}

// serve returns its URL.
func (s *fakeReadings) serve(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	return server.URL
}

func (s *fakeReadings) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.queries = append(s.queries, r.URL.Query())
	s.paths = append(s.paths, r.URL.EscapedPath())
	s.mu.Unlock()
	limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
	from, _ := strconv.Atoi(r.URL.Query().Get("after"))
	var page struct {
		Readings []json.RawMessage `json:"readings"`
		After    string            `json:"after,omitempty"`
	}
	page.Readings = []json.RawMessage{}
	for i := from; i < min(from+limit, s.total); i++ {
		page.Readings = append(page.Readings, json.RawMessage(fmt.Sprintf(`{"sensorId":"s","ts":"2026-11-21T10:00:00.%03dZ","fields":{"t":%d.5}}`, i%1000, i)))
	}
	if from+limit < s.total {
		page.After = strconv.Itoa(from + limit)
	}
	body, err := json.Marshal(page)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_, _ = w.Write(body)
}

func TestQueryPrintsATable(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"readings":[
			{"sensorId":"s","ts":"2026-11-21T10:00:00.000Z","fields":{"t":23.5,"note":"cold\u001b[2J"}},
			{"sensorId":"s","ts":"2026-11-21T10:00:00.500Z","fields":{"note":"` + "a\u009b31m\u202etxt ☂" + `"}},
			{"sensorId":"s","ts":"2026-11-21T10:00:01.000Z","fields":{"a\u001bb":9223372036854775807}}]}`))
	}))
	t.Cleanup(server.Close)
	got := runBrim(t, nil, "query", "s", "--url", server.URL)
	require.NoError(t, got.err)
	assert.Equal(t, `ts                        "a\x1bb"             note                     t
2026-11-21T10:00:00.000Z  -                    "cold\u001b[2J"          23.5
2026-11-21T10:00:00.500Z  -                    "a\u009b31m\u202etxt ☂"  -
2026-11-21T10:00:01.000Z  9223372036854775807  -                        -
`, got.stdout)
	assert.Empty(t, got.stderr)
}

func TestQueryFollowsPagesUpToItsLimit(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		total int
		limit string
		lines int
		sizes []string // requested, page by page
		note  string
	}{
		{total: 3, limit: "1000", lines: 3, sizes: []string{"1000"}},
		{total: 25_000, limit: "0", lines: 25_000, sizes: []string{"10000", "10000", "10000"}},
		{total: 25_000, limit: "12000", lines: 12_000, sizes: []string{"10000", "2000"}, note: "more than these 12000"},
		{total: 20_000, limit: "20000", lines: 20_000, sizes: []string{"10000", "10000"}},
		{total: 0, limit: "5", lines: 0, sizes: []string{"5"}, note: `sensor "s" has no readings in the default stream`},
	} {
		s := &fakeReadings{total: c.total}
		got := runBrim(t, []string{"BRIM_URL=" + s.serve(t)}, "query", "s", "--limit", c.limit, "--output", "ndjson")
		require.NoError(t, got.err)
		assert.Equal(t, c.lines, strings.Count(got.stdout, "\n"))
		var sizes []string
		for _, q := range s.queries {
			sizes = append(sizes, q.Get("limit"))
		}
		assert.Equal(t, c.sizes, sizes)
		assert.Contains(t, got.stderr, c.note)
		assert.Equal(t, c.note == "", got.stderr == "")
	}
}

func TestQueryPrintsJSON(t *testing.T) {
	t.Parallel()
	for _, total := range []int{0, 1, 10_001} {
		s := &fakeReadings{total: total}
		got := runBrim(t, nil, "query", "s", "--url", s.serve(t)+"/", "--limit", "0", "--output", "json")
		require.NoError(t, got.err)
		var page struct{ Readings []json.RawMessage }
		require.NoError(t, json.Unmarshal([]byte(got.stdout), &page))
		assert.Len(t, page.Readings, total)
		assert.NotNil(t, page.Readings)
	}
}

func TestQueryParameters(t *testing.T) {
	t.Parallel()
	s := &fakeReadings{}
	base := s.serve(t)
	got := runBrim(t, nil, "query", "a/b c", "--url", base, "--stream", "machines", "--from", "2026-11-21T10:00:00Z", "--to", "1795258800000")
	require.NoError(t, got.err)
	got = runBrim(t, nil, "query", "..", "--url", base)
	require.NoError(t, got.err)
	assert.Equal(t, []string{"/v1/sensors/a%2Fb%20c/readings", "/v1/sensors/%2E%2E/readings"}, s.paths)
	assert.Equal(t, url.Values{"stream": {"machines"}, "from": {"2026-11-21T10:00:00.000Z"}, "to": {"2026-11-21T11:00:00.000Z"}, "limit": {"1000"}}, s.queries[0])
	assert.Equal(t, url.Values{"limit": {"1000"}}, s.queries[1])
}

func TestQueryReportsServerErrors(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		code int
		body string
		want string
		exit int
	}{
		{http.StatusNotFound, `{"code":"stream_unknown","message":"stream x does not exist"}`, "stream x does not exist (stream_unknown, HTTP 404)", exitFailed},
		{http.StatusBadRequest, `{"code":"invalid_parameter","message":"limit is odd"}`, "limit is odd", exitUsage},
		{http.StatusServiceUnavailable, `{"code":"mongodb_away","message":"MongoDB does not answer"}`, "MongoDB does not answer", exitFailed},
		{http.StatusNotFound, `404 page not found`, "without saying why; is this its --http-addr?", exitFailed},
		{http.StatusOK, `{"readings":[`, "read the daemon's answer", exitFailed},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(c.code)
			_, _ = w.Write([]byte(c.body))
		}))
		got := runBrim(t, nil, "query", "s", "--url", server.URL)
		server.Close()
		assert.ErrorContains(t, got.err, c.want)
		assert.Equal(t, c.exit, got.code)
	}
}

func TestQueryWithoutADaemonSaysWhatToStart(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	got := runBrim(t, nil, "query", "s", "--url", server.URL)
	assert.ErrorContains(t, got.err, "no daemon answers at "+server.URL+": start one with `brim serve`")
	assert.Equal(t, exitFailed, got.code)
}
