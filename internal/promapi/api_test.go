package promapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/access"
	"github.com/brim-telemetry/brim/internal/promapi"
	"github.com/brim-telemetry/brim/internal/read"
	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// stored is a stream whose readings are in time order, with a catalog.
type stored struct {
	readings []telemetry.Reading
	cost     int           // size of a reading's document in bytes
	hang     chan struct{} // Readings waits until its context ends, after closing this; nil: it does not
	together atomic.Int64  // calls of ReadingsOf
}

func (s *stored) ReadingsOf(ctx context.Context, qs []telemetry.Query) iter.Seq2[telemetry.Reading, error] {
	s.together.Add(1)
	return store.ReadEach(ctx, qs, s.Readings)
}

func (s *stored) Readings(ctx context.Context, q telemetry.Query) iter.Seq2[telemetry.Reading, error] {
	return func(yield func(telemetry.Reading, error) bool) {
		if s.hang != nil {
			close(s.hang)
			<-ctx.Done()
			yield(telemetry.Reading{}, ctx.Err())
			return
		}
		for _, r := range s.readings {
			at := r.Time.UnixMilli()
			if r.Sensor != q.Sensor || at < q.From || at >= q.To {
				continue
			}
			if err := telemetry.Spend(ctx, s.cost); err != nil {
				yield(r, err)
				return
			}
			if !yield(r, nil) {
				return
			}
		}
	}
}

func (s *stored) Summary(ctx context.Context, q telemetry.SummaryQuery) iter.Seq2[telemetry.Summary, error] {
	return func(yield func(telemetry.Summary, error) bool) {
		steps := store.NewSteps(q)
		for r, err := range s.Readings(ctx, q.Query) {
			if err != nil {
				yield(telemetry.Summary{}, err)
				return
			}
			steps.Add(r)
		}
		steps.CloseAll(yield)
	}
}

func (s *stored) List(_ context.Context, q telemetry.SensorQuery) iter.Seq2[telemetry.Sensor, error] {
	return func(yield func(telemetry.Sensor, error) bool) {
		sensors := make(map[string]*telemetry.Sensor)
		var ids []string
		for _, r := range s.readings {
			at := r.Time.UnixMilli()
			one := telemetry.Sensor{ID: r.Sensor, Sets: []telemetry.TagSet{{Tags: r.Tags, From: at, To: at + 2}}}
			for _, f := range r.Fields {
				if f.Value.Kind() != telemetry.Text {
					one.Fields = append(one.Fields, f.Name)
				}
			}
			slices.Sort(one.Fields)
			if sensors[r.Sensor] == nil {
				ids, sensors[r.Sensor] = append(ids, r.Sensor), &telemetry.Sensor{ID: r.Sensor}
			}
			sensors[r.Sensor].Merge(&one)
		}
		slices.Sort(ids)
		for _, id := range ids {
			if sensors[id].Matches(&q) && !yield(*sensors[id], nil) {
				return
			}
		}
	}
}

func (*stored) Unwritten(*telemetry.SensorQuery) []telemetry.Sensor { return nil }
func (*stored) Complete() error                                     { return nil }
func (*stored) Overflowed() bool                                    { return false }
func (*stored) Forget(...string)                                    {}
func (*stored) Rebuild()                                            {}
func (*stored) Delete(context.Context, ...string) error             { return nil }

// A source is for readers: Delete differs between sources and catalogs.
type source struct{ *stored }

func (source) Sensors(context.Context, telemetry.SensorQuery) iter.Seq2[telemetry.SensorSeen, error] {
	return func(func(telemetry.SensorSeen, error) bool) {}
}

func (source) Latest(context.Context, string, []telemetry.Unstored) (r telemetry.Reading, found bool, err error) {
	return r, false, nil
}

func (source) Newest(context.Context, string) (ms int64, found bool, err error) { return 0, false, nil }

func (source) Delete(context.Context, string) (int64, error) { return 0, nil }

// An api is the API over a stream named readings.
type api struct {
	t testing.TB
	h http.Handler
}

func newAPI(t testing.TB, s *stored, change ...func(*read.Config, *promapi.Config)) *api {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	cfg := read.Config{DefaultStream: "readings", Problem: func(http.ResponseWriter, error) {}, Logger: log}
	prom := promapi.Config{Logger: log, Version: "1"}
	for _, c := range change {
		c(&cfg, &prom)
	}
	reader, err := read.New(cfg)
	require.NoError(t, err)
	reader.Open(read.Stored{
		Sources: map[string]read.Source{"readings": source{s}}, Catalogs: map[string]read.Catalog{"readings": s},
		Available: func(string) error { return nil },
	})
	prom.Reader = reader
	a, err := promapi.New(prom)
	require.NoError(t, err)
	return &api{t, a.Handler()}
}

// get returns the status and the body of a response.
func (a *api) get(path string, form url.Values, header ...string) (int, string) {
	a.t.Helper()
	r := httptest.NewRequestWithContext(a.t.Context(), http.MethodGet, "/prometheus"+path+"?"+form.Encode(), http.NoBody)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	a.h.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

// epoch is the start of the tests' data, in seconds.
const epoch = 1_700_000_100

func reading(sensor string, second int, tags []telemetry.Tag, fields ...any) telemetry.Reading {
	r := telemetry.Reading{Sensor: sensor, Time: time.Unix(epoch+int64(second), 0).UTC(), Tags: tags}
	for i := 0; i+1 < len(fields); i += 2 {
		f := telemetry.Field{Name: fields[i].(string)}
		switch v := fields[i+1].(type) {
		case float64:
			f.Value = telemetry.FloatValue(v)
		case int:
			f.Value = telemetry.IntValue(int64(v))
		case bool:
			f.Value = telemetry.BoolValue(v)
		case string:
			f.Value = telemetry.TextValue(v)
		}
		r.Fields = append(r.Fields, f)
	}
	return r
}

func north() []telemetry.Tag { return []telemetry.Tag{{Name: "site", Value: "north"}} }

func some() *stored {
	return &stored{readings: []telemetry.Reading{
		reading("s-1", 0, north(), "t", 20.5, "open", true, "note", "x", "temp °C", 7),
		reading("s-2", 1, nil, "t", 3),
		reading("instance=a:9100,job=node", 2, []telemetry.Tag{{Name: "instance", Value: "a:9100"}, {Name: "job", Value: "node"}}, "up", 1),
		reading("s-1", 10, north(), "t", 21.5),
	}}
}

func at(second int) url.Values { return url.Values{"time": {strconv.Itoa(epoch + second)}} }

func ask(query string, form url.Values) url.Values {
	form.Set("query", query)
	return form
}

func TestReadingsAreSeries(t *testing.T) {
	t.Parallel()
	a := newAPI(t, some())
	for query, want := range map[string]string{
		`t{sensor="s-1"}`:            `{"metric":{"__name__":"t","sensor":"s-1","site":"north"},"value":[1700000120,"21.5"]}`,
		`t{site=""}`:                 `{"metric":{"__name__":"t","sensor":"s-2"},"value":[1700000120,"3"]}`,
		`open`:                       `{"metric":{"__name__":"open","sensor":"s-1","site":"north"},"value":[1700000120,"1"]}`,
		`{"temp °C"}`:                `{"metric":{"__name__":"temp °C","sensor":"s-1","site":"north"},"value":[1700000120,"7"]}`,
		`{job="node"}`:               `{"metric":{"__name__":"up","instance":"a:9100","job":"node"},"value":[1700000120,"1"]}`,
		`up{sensor=""}`:              `{"metric":{"__name__":"up","instance":"a:9100","job":"node"},"value":[1700000120,"1"]}`,
		`note`:                       ``,
		`t{sensor="s-1"} offset 15s`: `{"metric":{"__name__":"t","sensor":"s-1","site":"north"},"value":[1700000120,"20.5"]}`,
		`sum(t)`:                     `{"metric":{},"value":[1700000120,"24.5"]}`,
	} {
		code, body := a.get("/api/v1/query", ask(query, at(20)))
		assert.Equal(t, http.StatusOK, code, body)
		assert.JSONEq(t, `{"status":"success","data":{"resultType":"vector","result":[`+want+`]}}`, body, query)
	}
	_, body := a.get("/readings/api/v1/query", ask("1.5", at(20)))
	assert.JSONEq(t, `{"status":"success","data":{"resultType":"scalar","result":[1700000120,"1.5"]}}`, body)
	_, body = a.get("/api/v1/query", ask(`"x"`, at(20)), "Brim-Stream", "readings")
	assert.JSONEq(t, `{"status":"success","data":{"resultType":"string","result":[1700000120,"x"]}}`, body)
}

func TestAnEmptyTagIsNone(t *testing.T) {
	t.Parallel()
	empty := telemetry.Tag{Name: "room"}
	a := newAPI(t, &stored{readings: []telemetry.Reading{
		reading("s-1", 0, nil, "t", 1), reading("s-1", 1, []telemetry.Tag{empty}, "t", 2), reading("s-1", 2, nil, "t", 3),
		reading("s-1", 3, []telemetry.Tag{{Name: "__name__", Value: "x"}, empty}, "t", 4),
	}})
	_, body := a.get("/api/v1/query", ask("sum_over_time(t[1m])", at(20)))
	assert.JSONEq(t, `{"status":"success","data":{"resultType":"vector","result":[{"metric":{"sensor":"s-1"},"value":[1700000120,"10"]}]}}`, body)
}

func TestLabelsAreListed(t *testing.T) {
	t.Parallel()
	a := newAPI(t, some())
	for path, want := range map[string]string{
		"/api/v1/labels":                `["__name__","instance","job","sensor","site"]`,
		"/api/v1/label/__name__/values": `["open","t","temp °C","up"]`,
		"/api/v1/label/site/values":     `["north"]`,
		"/api/v1/label/U__site/values":  `["north"]`,
		"/api/v1/query_exemplars":       `[]`,
		"/api/v1/rules":                 `{"groups":[]}`,
	} {
		_, body := a.get(path, nil)
		assert.JSONEq(t, `{"status":"success","data":`+want+`}`, body, path)
	}
	_, body := a.get("/api/v1/series", url.Values{"match[]": {`t`, `{site="north"}`}, "limit": {""}})
	assert.NotContains(t, body, "warnings", "an empty limit is none, as in Prometheus")
	_, body = a.get("/api/v1/series", url.Values{"match[]": {`t`, `{site="north"}`}, "limit": {"2"}})
	assert.JSONEq(t, `{"status":"success","data":[{"__name__":"open","sensor":"s-1","site":"north"},{"__name__":"t","sensor":"s-1","site":"north"}],"warnings":["results truncated due to limit"]}`, body)
	_, body = a.get("/api/v1/series", url.Values{"match[]": {`t`}, "start": {strconv.Itoa(epoch + 5)}})
	assert.JSONEq(t, `{"status":"success","data":[{"__name__":"t","sensor":"s-1","site":"north"}]}`, body, "s-2 has sent nothing since")
	_, body = a.get("/api/v1/metadata", url.Values{"metric": {"t"}})
	assert.JSONEq(t, `{"status":"success","data":{"t":[{"type":"unknown","help":"","unit":""}]}}`, body)
}

func TestWrongRequestsAreRefused(t *testing.T) {
	t.Parallel()
	a := newAPI(t, some())
	span := func(step string) url.Values {
		return url.Values{"query": {"t"}, "start": {"0"}, "end": {"100000"}, "step": {step}}
	}
	for _, c := range []struct {
		path string
		form url.Values
		code int
		want string
	}{
		{"/api/v1/query", ask("sum(", at(0)), 400, "the query cannot be parsed"},
		{"/api/v1/query", url.Values{"query": {"t"}, "time": {"x"}}, 400, `time \"x\" is not a time`},
		{"/api/v1/query", url.Values{"query": {"t"}, "timeout": {"x"}}, 400, `timeout \"x\" is not a duration`},
		{"/api/v1/query", url.Values{"query": {"t"}, "lookback_delta": {"-1"}}, 400, "not a positive duration"},
		{"/api/v1/query", url.Values{"query": {strings.Repeat("(", 20_000) + "1" + strings.Repeat(")", 20_000)}}, 413, "more than 10000 names"},
		{"/api/v1/query", url.Values{"query": {`t{a="` + strings.Repeat("x", 130<<10) + `"}`}}, 413, "at most 131072 are allowed"},
		{"/api/v1/query_range", span("1"), 400, "100000 steps; at most 11000"},
		{"/api/v1/query_range", url.Values{"query": {"t"}, "start": {"0"}, "end": {"9e15"}, "step": {"145y"}}, 400, " steps; at most 11000"},
		{"/api/v1/query_range", url.Values{"query": {"t"}, "start": {"-9e15"}, "end": {"9e15"}, "step": {"145y"}}, 400, " steps; at most 11000"},
		{"/api/v1/query_range", span("0"), 400, "too short"},
		{"/api/v1/query_range", span("x"), 400, "not a duration"},
		{"/api/v1/query_range", url.Values{"query": {"t"}, "end": {"1"}, "step": {"1"}}, 400, "parameter start is missing"},
		{"/api/v1/query_range", url.Values{"query": {"t"}, "start": {"2"}, "end": {"1"}, "step": {"1"}}, 400, "is before start"},
		{"/api/v1/series", nil, 400, "match[] is missing"},
		{"/api/v1/series", url.Values{"match[]": {`{a=~".*"}`}}, 400, "an empty value does not satisfy"},
		{"/api/v1/labels", url.Values{"limit": {"-1"}}, 400, "limit"},
		{"/api/v1/metadata", url.Values{"limit": {"x"}}, 400, "limit"},
		{"/other/api/v1/labels", nil, 404, `stream \"other\" does not exist`},
		{"/api/v1/nothing", nil, 404, "does not exist"},
		{"/a/b/api/v1/labels", nil, 404, "does not exist"},
	} {
		code, body := a.get(c.path, c.form)
		assert.Equal(t, c.code, code, body)
		assert.Contains(t, body, c.want)
		assert.Contains(t, body, `"status":"error"`)
	}
}

func TestQueriesAreLimited(t *testing.T) {
	t.Parallel()
	s := some()
	s.cost = 1 << 20
	limited := newAPI(t, s, func(c *read.Config, _ *promapi.Config) { c.MaxBytes = 1 << 20 })
	code, body := limited.get("/api/v1/query", ask("t", at(20)))
	assert.Equal(t, http.StatusUnprocessableEntity, code)
	assert.Contains(t, body, "more than the 1048576 bytes")
	assert.Contains(t, body, "--query-max-bytes")

	registry := prometheus.NewRegistry()
	few := newAPI(t, some(), func(_ *read.Config, c *promapi.Config) { c.MaxSamples, c.Registerer = 2, registry })
	code, body = few.get("/api/v1/query", ask("t", at(20)))
	assert.Equal(t, http.StatusUnprocessableEntity, code)
	assert.Contains(t, body, "more than 2 samples in memory, which is the limit (--query-max-samples)")
	counted, err := testutil.GatherAndCount(registry, "brim_promql_requests_total")
	require.NoError(t, err)
	assert.Positive(t, counted)

	hung := some()
	hung.hang = make(chan struct{})
	slow := newAPI(t, hung)
	code, body = slow.get("/api/v1/query", url.Values{"query": {`t{sensor="s-1"}`}, "timeout": {"10ms"}, "time": {strconv.Itoa(epoch)}})
	assert.Equal(t, http.StatusServiceUnavailable, code)
	assert.Contains(t, body, `"errorType":"timeout"`)
}

func TestQueriesEndWithTheirClient(t *testing.T) {
	t.Parallel()
	s := some()
	s.hang = make(chan struct{})
	a := newAPI(t, s)
	ctx, gone := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/prometheus/api/v1/query?"+ask(`t{sensor="s-1"}`, at(5)).Encode(), http.NoBody)
		a.h.ServeHTTP(httptest.NewRecorder(), r)
	}()
	<-s.hang
	gone()
	<-done
}

func TestTokensSeeTheirSensors(t *testing.T) {
	t.Parallel()
	token, err := access.NewToken()
	require.NoError(t, err)
	path := t.TempDir() + "/access.yaml"
	require.NoError(t, os.WriteFile(path, fmt.Appendf(nil, "identities:\n  - name: one\n    hash: %s\n    scopes: [read]\n    sensor_prefix: s-1\n", access.HashOf(token)), 0o600))
	guard, err := access.Open(access.Config{Path: path})
	require.NoError(t, err)
	a := newAPI(t, some(), func(c *read.Config, p *promapi.Config) { c.Guard, p.Guard = guard, guard })
	code, body := a.get("/api/v1/query", ask("t", at(20)))
	assert.Equal(t, http.StatusUnauthorized, code)
	assert.Contains(t, body, `"errorType":"unauthorized"`)
	_, body = a.get("/api/v1/query", ask("count(t)", at(20)), "Authorization", "Bearer "+token)
	assert.JSONEq(t, `{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1700000120,"1"]}]}}`, body)
	_, body = a.get("/api/v1/query", ask(`t{sensor="s-2"}`, at(20)), "Authorization", "Bearer "+token)
	assert.JSONEq(t, `{"status":"success","data":{"resultType":"vector","result":[]}}`, body)
	_, body = a.get("/api/v1/label/sensor/values", nil, "Authorization", "Bearer "+token)
	assert.JSONEq(t, `{"status":"success","data":["s-1"]}`, body)
}

// value returns the value of a query at a time; empty if there is none.
func (a *api) value(query string, second int, form ...string) string {
	a.t.Helper()
	values := ask(query, at(second))
	for i := 0; i+1 < len(form); i += 2 {
		values.Set(form[i], form[i+1])
	}
	_, body := a.get("/api/v1/query", values)
	_, rest, found := strings.Cut(body, `"value":[`)
	if !found {
		return ""
	}
	_, rest, _ = strings.Cut(rest, `,"`)
	text, _, _ := strings.Cut(rest, `"`)
	return text
}

func TestLookbackFollowsTheInterval(t *testing.T) {
	t.Parallel()
	s := &stored{}
	for i := range 10 {
		s.readings = append(s.readings, reading("hourly", i*3600, nil, "hourly", i))
	}
	for i := range 100 {
		s.readings = append(s.readings, reading("fast", i*10, nil, "fast", i))
	}
	s.readings = append(s.readings, reading("once", 0, nil, "once", 1))
	slices.SortStableFunc(s.readings, func(a, b telemetry.Reading) int { return a.Time.Compare(b.Time) })
	a := newAPI(t, s)
	const last = 9 * 3600
	assert.Equal(t, "5", a.value("hourly", 6*3600-1))
	assert.Equal(t, "9", a.value("hourly", last+3*3600-1))
	assert.Empty(t, a.value("hourly", last+3*3600), "three intervals after its last reading")
	assert.Equal(t, "99", a.value("fast", 990+299))
	assert.Empty(t, a.value("fast", 990+300), "five minutes, as in Prometheus")
	assert.Equal(t, "1", a.value("once", 299))
	assert.Empty(t, a.value("once", 300))
	assert.Empty(t, a.value("hourly", last+400, "lookback_delta", "5m"))

	fixed := newAPI(t, s, func(_ *read.Config, c *promapi.Config) { c.Lookback = func(string) time.Duration { return time.Hour } })
	assert.Equal(t, "99", fixed.value("fast", 990+3599))
	assert.Empty(t, fixed.value("fast", 990+3600))
}

// A field keeps its look-back in queries that also select a more frequent field of its sensor.
func TestLookbackOfEachField(t *testing.T) {
	t.Parallel()
	s := &stored{}
	for i := range 10 * 60 {
		if s.readings = append(s.readings, reading("s", i*60, nil, "often", i)); i%60 == 0 {
			s.readings = append(s.readings, reading("s", i*60, nil, "hourly", i))
		}
	}
	a := newAPI(t, s)
	const last = 599 * 60
	assert.Equal(t, "540", a.value("hourly", last))
	assert.Equal(t, "1139", a.value("hourly + on (sensor) often", last))
	assert.Equal(t, "2", a.value(`count({sensor="s"})`, last))
}

// TestManySensorsAreReadTogether, with the same results as individual reads; sensors
// differ in intervals, tags and fields.
func TestManySensorsAreReadTogether(t *testing.T) {
	t.Parallel()
	const sensors = 400
	s := &stored{}
	for i := range sensors {
		sensor, tags := fmt.Sprintf("s-%03d", i), []telemetry.Tag{{Name: "site", Value: strconv.Itoa(i % 3)}}
		switch i % 5 {
		case 0: // every minute, with tags that change
			for at := -900; at < 0; at += 60 {
				if at == -120 {
					tags = north()
				}
				s.readings = append(s.readings, reading(sensor, at, tags, "t", i+at, "h", 1))
			}
		case 1: // every half hour
			for at := -3*3600 - 100; at < 0; at += 1800 {
				s.readings = append(s.readings, reading(sensor, at, tags, "t", i+at))
			}
		case 2: // once
			s.readings = append(s.readings, reading(sensor, -20, tags, "t", i))
		case 3: // a while ago
			s.readings = append(s.readings, reading(sensor, -7*3600, tags, "t", i))
		case 4: // another field
			s.readings = append(s.readings, reading(sensor, -20, tags, "h", i))
		}
	}
	a := newAPI(t, s)
	results := func(query string) (out []any) {
		code, body := a.get("/api/v1/query", ask(query, at(0)))
		require.Equal(t, http.StatusOK, code, body)
		var answer struct{ Data struct{ Result []any } }
		require.NoError(t, json.Unmarshal([]byte(body), &answer))
		return answer.Data.Result
	}
	for _, query := range []string{"tX", "max_over_time(tX[10m])", "hX + tX", "tX offset 10m", "lastX or tX"} {
		all := results(strings.ReplaceAll(query, "X", ""))
		assert.Positive(t, s.together.Swap(0), query)
		var parts []any
		for hundred := range sensors / 100 {
			parts = append(parts, results(strings.ReplaceAll(query, "X", fmt.Sprintf(`{sensor=~"s-%d.*"}`, hundred)))...)
		}
		assert.Zero(t, s.together.Load(), "a hundred sensors are read individually")
		assert.NotEmpty(t, all)
		assert.ElementsMatch(t, parts, all, query)
	}
}

func TestStatisticsAnswerAsReadings(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	s := &stored{}
	for at := 0; at < 20_000; at += 5 * (1 + random.IntN(20)) {
		s.readings = append(s.readings, reading("s", at, north(), "v", random.Float64(), "mixed", random.IntN(100)))
	}
	s.readings = append(s.readings, reading("s", 20_000, north(), "v", 0.5, "mixed", true))
	registry := prometheus.NewRegistry()
	a := newAPI(t, s, func(_ *read.Config, c *promapi.Config) {
		c.Registerer, c.Window = registry, func(string) time.Duration { return time.Minute }
	})
	for range 100 {
		step := 60 * (1 + random.IntN(10))
		width := 60 * (1 + random.IntN(60))
		start := epoch + random.IntN(15_000)/5*5
		form := func(query string) url.Values {
			return url.Values{"query": {query}, "start": {strconv.Itoa(start)}, "end": {strconv.Itoa(start + 6000)}, "step": {strconv.Itoa(step)}}
		}
		for _, f := range []string{"min", "max"} {
			for _, field := range []string{"v", "mixed"} {
				selector := fmt.Sprintf("%s[%ds]", field, width)
				_, statistics := a.get("/api/v1/query_range", form(f+"_over_time("+selector+")"))
				q := map[string]string{"min": "0", "max": "1"}[f]
				_, readings := a.get("/api/v1/query_range", form("quantile_over_time("+q+", "+selector+")"))
				require.Equal(t, readings, statistics, "%s of %s every %ds from %d", f, selector, step, start)
			}
		}
	}
	families, err := registry.Gather()
	require.NoError(t, err)
	used := make(map[string]float64)
	for _, f := range families {
		if f.GetName() == "brim_promql_sensors_total" {
			for _, m := range f.GetMetric() {
				used[m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue()
			}
		}
	}
	assert.GreaterOrEqual(t, used["statistics"], 200.0)
	assert.Greater(t, used["readings"], 400.0, "and where a boolean is among them")
}
