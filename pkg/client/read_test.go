package client

import (
	"fmt"
	"io"
	"math"
	"net/http"
	"path"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

func TestPagesAreJoined(t *testing.T) {
	t.Parallel()
	all := weather("a/b", 3)
	all = append(all, telemetry.Reading{Sensor: "a/b", Time: noon.Add(time.Hour), Fields: []telemetry.Field{
		{Name: "z", Value: telemetry.BoolValue(true)}, {Name: "a", Value: telemetry.TextValue("\n")}, {Name: "i", Value: telemetry.IntValue(math.MinInt64)}, {Name: "f", Value: telemetry.FloatValue(2)}}})
	var asked []string
	server := webServer(t, func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.RequestURI())
		assert.Contains(t, r.Header.Get("Accept"), "application/x-ndjson")
		w.Header().Set("Trailer", "Brim-After")
		for i := range all {
			switch first := i < 2; {
			case first && r.URL.Query().Get("after") == "", !first && r.URL.Query().Get("after") == "7.0":
				_, _ = w.Write(append(all[i].AppendJSON(nil), '\n'))
			}
		}
		if r.URL.Query().Get("after") == "" {
			w.Header().Set("Brim-After", "7.0")
		}
	})
	c := newClient(t, server.URL)
	var got []telemetry.Reading
	for r, err := range c.Readings(t.Context(), "a/b", Span{Stream: "x", From: noon, To: noon.AddDate(0, 0, 1)}) {
		require.NoError(t, err)
		got = append(got, r)
	}
	assert.Equal(t, all, got)
	assert.Equal(t, []string{
		"/v1/sensors/a%2Fb/readings?from=2026-01-02T12%3A00%3A00.000Z&limit=10000&stream=x&to=2026-01-03T12%3A00%3A00.000Z",
		"/v1/sensors/a%2Fb/readings?after=7.0&from=2026-01-02T12%3A00%3A00.000Z&limit=10000&stream=x&to=2026-01-03T12%3A00%3A00.000Z",
	}, asked)
	for range c.Readings(t.Context(), "a/b", Span{}) {
		break // the rest is not asked for
	}
	assert.Len(t, asked, 3)
}

// TestPagesAreJoinedWithoutTrailers is behind a proxy that removes them, as nginx does.
func TestPagesAreJoinedWithoutTrailers(t *testing.T) {
	t.Parallel()
	const limit = 3000
	for name, apart := range map[string]time.Duration{"many milliseconds": time.Millisecond, "one millisecond": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all := weather("s", 3*limit)
			for i := range all {
				all[i].Time = noon.Add(time.Duration(i) * apart)
			}
			var asked []string
			server := webServer(t, func(w http.ResponseWriter, r *http.Request) {
				after := r.URL.Query().Get("after")
				asked = append(asked, after)
				var ms int64
				var seen int
				_, _ = fmt.Sscanf(after, "%d.%d", &ms, &seen)
				left := slices.DeleteFunc(slices.Clone(all), func(r telemetry.Reading) bool {
					if r.Time.UnixMilli() == ms && seen > 0 {
						seen--
						return true
					}
					return r.Time.UnixMilli() < ms
				})
				for i := range left[:min(limit, len(left))] {
					_, _ = w.Write(append(left[i].AppendJSON(nil), '\n'))
				}
			})
			var got []telemetry.Reading
			for r, err := range newClient(t, server.URL).Readings(t.Context(), "s", Span{}) {
				require.NoError(t, err)
				got = append(got, r)
			}
			assert.Equal(t, all, got)
			assert.Len(t, asked, 4, asked) // the last one may be the end, or not
		})
	}
}

// TestPagesThatAreCutOffGoOn has a daemon that ends a page in the middle of a line, as it does after
// --query-timeout.
func TestPagesThatAreCutOffGoOn(t *testing.T) {
	t.Parallel()
	all := weather("s", 5)
	all[2].Time = all[1].Time
	var asked []string
	server := webServer(t, func(w http.ResponseWriter, r *http.Request) {
		after := r.URL.Query().Get("after")
		asked = append(asked, after)
		from := map[string]int{"": 0, "1767355201000.1": 2, "1767355203000.1": 4}[after]
		for i := range all[from:min(from+2, len(all))] {
			_, _ = w.Write(append(all[from+i].AppendJSON(nil), '\n'))
		}
		if from+2 < len(all) {
			_, _ = io.WriteString(w, `{"sensorId":"s","ts":"2026`)
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
	})
	var got []telemetry.Reading
	for r, err := range newClient(t, server.URL).Readings(t.Context(), "s", Span{}) {
		require.NoError(t, err)
		got = append(got, r)
	}
	assert.Equal(t, all, got)
	assert.Equal(t, []string{"", "1767355201000.1", "1767355203000.1"}, asked)
}

func TestIncompleteAnswersSaySo(t *testing.T) {
	t.Parallel()
	bodies := map[string]string{
		"readings": string(one("s", 1).AppendJSON(nil)) + "\n", "latest": string(one("s", 1).AppendJSON(nil)),
		"summary": `{"start":"2026-01-02T12:00:00.000Z","count":1,"fields":{}}`,
	}
	asked := 0
	server := webServer(t, func(w http.ResponseWriter, r *http.Request) {
		if asked++; asked != 2 { // the second page is complete
			w.Header().Set("Brim-Incomplete", "other:8430")
		}
		if asked == 1 {
			w.Header().Set("Brim-After", "7.0")
		}
		_, _ = io.WriteString(w, bodies[path.Base(r.URL.Path)])
	})
	c := newClient(t, server.URL)
	var incomplete *IncompleteError
	n := 0
	var last error
	for _, err := range c.Readings(t.Context(), "s", Span{}) {
		if last = err; err == nil {
			n++
		}
	}
	require.ErrorAs(t, last, &incomplete)
	assert.Equal(t, "other:8430", incomplete.Daemons)
	assert.Equal(t, 2, n)
	for range c.Readings(t.Context(), "s", Span{}) {
		break
	}
	r, err := c.Latest(t.Context(), "s", "")
	require.ErrorAs(t, err, &incomplete)
	assert.Equal(t, one("s", 1), r)
	steps, err := c.Summary(t.Context(), "s", Span{}, 0)
	require.ErrorAs(t, err, &incomplete)
	assert.Len(t, steps, 1)
}

func TestReadingsThatBreakOff(t *testing.T) {
	t.Parallel()
	line := string(one("s", 1).AppendJSON(nil)) + "\n"
	for want, handle := range map[string]http.HandlerFunc{
		"query_too_costly: m": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, line+`{"error":{"code":"query_too_costly","message":"m"}}`+"\n")
		},
		"unexpected EOF": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "1000")
			if r.URL.Query().Get("after") == "" {
				_, _ = io.WriteString(w, line)
			}
		},
		"decode reading": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, line+"{}\n") },
	} {
		n := 0
		var last error
		for r, err := range newClient(t, webServer(t, handle).URL).Readings(t.Context(), "s", Span{}) {
			if last = err; err == nil {
				n++
				assert.Equal(t, one("s", 1), r)
			}
		}
		require.ErrorContains(t, last, want)
		assert.Equal(t, 1, n)
	}
}

func TestQuestionsAreRepeated(t *testing.T) {
	t.Parallel()
	n := 0
	server := webServer(t, func(w http.ResponseWriter, _ *http.Request) {
		if n++; n < 3 {
			say(503, `{"code":"busy","message":"m"}`)(w)
			return
		}
		_, _ = w.Write(one("s", 4).AppendJSON(nil))
	})
	r, err := newClient(t, server.URL).Latest(t.Context(), "s", "")
	require.NoError(t, err)
	assert.Equal(t, one("s", 4), r)
	assert.Equal(t, 3, n)
}

func TestNoReading(t *testing.T) {
	t.Parallel()
	server := newAnswers(t, say(404, `{"code":"sensor_unknown","message":"m"}`), say(404, `{"code":"stream_unknown","message":"m"}`))
	c := newClient(t, server.URL)
	_, err := c.Latest(t.Context(), "s", "")
	require.ErrorIs(t, err, ErrNoReading)
	_, err = c.Latest(t.Context(), "s", "")
	require.ErrorContains(t, err, "read latest reading: ask "+server.URL+": stream_unknown: m")
}

func TestNoReadingIsKnown(t *testing.T) {
	t.Parallel()
	server := newAnswers(t, say(404, `{"code":"sensor_unknown","message":"m"}`, "Brim-Incomplete", "other:8430"))
	r, err := newClient(t, server.URL).Latest(t.Context(), "s", "")
	var incomplete *IncompleteError
	require.ErrorAs(t, err, &incomplete)
	assert.Equal(t, "other:8430", incomplete.Daemons)
	require.NotErrorIs(t, err, ErrNoReading)
	assert.Empty(t, r.Sensor)
}

func TestSummary(t *testing.T) {
	t.Parallel()
	server := webServer(t, func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, "/v1/sensors/s/summary?every=10m0s", r.URL.RequestURI())
		_, _ = io.WriteString(w, `{"start":"2026-01-02T12:00:00.000Z","count":3,"fields":{"t":{"n":2,"min":1,"max":9223372036854775807,"mean":4.5}}}
{"start":"2026-01-02T12:10:00.000Z","count":1,"fields":{"t":{"n":1,"min":1e308,"max":1e308,"mean":null}}}
`)
	})
	steps, err := newClient(t, server.URL).Summary(t.Context(), "s", Span{}, 10*time.Minute)
	require.NoError(t, err)
	require.Len(t, steps, 2)
	assert.Equal(t, Step{Start: noon, Count: 3, Fields: map[string]StepField{"t": {N: 2, Min: telemetry.IntValue(1), Max: telemetry.IntValue(math.MaxInt64), Mean: 4.5}}}, steps[0])
	assert.True(t, math.IsNaN(steps[1].Fields["t"].Mean))
	broken := newAnswers(t, say(200, `{"error":{"code":"internal","message":"m"}}`))
	_, err = newClient(t, broken.URL).Summary(t.Context(), "s", Span{}, 0)
	require.ErrorContains(t, err, "read summary: internal: m")
}

func TestReadingBackGoesOverHTTP(t *testing.T) {
	t.Parallel()
	c := newClient(t, "grpc://127.0.0.1:1")
	_, err := c.Latest(t.Context(), "s", "")
	require.ErrorContains(t, err, "reading back needs HTTP")
}
