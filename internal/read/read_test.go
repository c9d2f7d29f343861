package read

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

var base = time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)

// fakeSource holds readings in time order.
type fakeSource struct {
	readings []telemetry.Reading
	err      error // comes after the readings
}

func (s fakeSource) Readings(_ context.Context, q telemetry.Query) iter.Seq2[telemetry.Reading, error] {
	return func(yield func(telemetry.Reading, error) bool) {
		for _, r := range s.readings {
			ms := r.Time.UnixMilli()
			if r.Sensor != q.Sensor || ms < q.From || ms >= q.To {
				continue
			}
			if !yield(r, nil) {
				return
			}
		}
		if s.err != nil {
			yield(telemetry.Reading{}, s.err)
		}
	}
}

func reading(sensor string, at time.Duration, v int64) telemetry.Reading {
	return telemetry.Reading{Sensor: sensor, Time: base.Add(at), Fields: []telemetry.Field{{Name: "v", Value: telemetry.IntValue(v)}}}
}

// answer is what a client sees.
type answer struct {
	status int
	header http.Header
	body   string
}

func get(t require.TestingT, cfg Config, target string, accept ...string) answer {
	if cfg.Available == nil {
		cfg.Available = func() error { return nil }
	}
	cfg.DefaultStream = "readings"
	cfg.Problem = func(w http.ResponseWriter, err error) {
		w.WriteHeader(http.StatusTeapot)
		_, _ = io.WriteString(w, fmt.Sprint(telemetry.KindOf(err), " ", err))
	}
	r := httptest.NewRequest(http.MethodGet, target, http.NoBody)
	for _, a := range accept {
		r.Header.Set("Accept", a)
	}
	w := httptest.NewRecorder()
	Handler(cfg).ServeHTTP(w, r)
	return answer{w.Code, w.Header(), w.Body.String()}
}

func sources(readings ...telemetry.Reading) Config {
	return Config{Sources: map[string]Source{"readings": fakeSource{readings: readings}}}
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	cfg := sources(reading("a/b c", 0, 1), reading("a/b c", time.Second, 2), reading("other", 0, 3))
	cfg.Sources["second"] = fakeSource{readings: []telemetry.Reading{reading("a/b c", time.Minute, 9)}}
	const path = "/v1/sensors/a%2Fb%20c/readings"
	tests := []struct {
		name, target, accept, want string
	}{
		{
			"all of a sensor", path, "",
			`{"readings":[{"sensorId":"a/b c","ts":"2026-11-21T10:00:00.000Z","fields":{"v":1}},` + "\n" +
				`{"sensorId":"a/b c","ts":"2026-11-21T10:00:01.000Z","fields":{"v":2}}]}` + "\n",
		},
		{
			"lines", path, "application/x-ndjson",
			`{"sensorId":"a/b c","ts":"2026-11-21T10:00:00.000Z","fields":{"v":1}}` + "\n" +
				`{"sensorId":"a/b c","ts":"2026-11-21T10:00:01.000Z","fields":{"v":2}}` + "\n",
		},
		{
			"a span, its end not included", path + "?from=2026-11-21T10:00:00Z&to=2026-11-21T10:00:01Z", "application/json",
			`{"readings":[{"sensorId":"a/b c","ts":"2026-11-21T10:00:00.000Z","fields":{"v":1}}]}` + "\n",
		},
		{
			"a span in milliseconds", path + fmt.Sprintf("?from=%d", base.UnixMilli()+1), "*/*",
			`{"readings":[{"sensorId":"a/b c","ts":"2026-11-21T10:00:01.000Z","fields":{"v":2}}]}` + "\n",
		},
		{
			"another stream", path + "?stream=second", "",
			`{"readings":[{"sensorId":"a/b c","ts":"2026-11-21T10:01:00.000Z","fields":{"v":9}}]}` + "\n",
		},
		{"an unknown sensor has no readings", "/v1/sensors/none/readings", "", `{"readings":[]}` + "\n"},
		{
			"the first page says where the next begins", path + "?limit=1", "",
			`{"readings":[{"sensorId":"a/b c","ts":"2026-11-21T10:00:00.000Z","fields":{"v":1}}],"after":"1795255200000.1"}` + "\n",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := get(t, cfg, tt.target, slices.DeleteFunc([]string{tt.accept}, func(s string) bool { return s == "" })...)
			assert.Equal(t, http.StatusOK, got.status)
			assert.Equal(t, tt.want, got.body)
		})
	}
}

func TestBadRequestsAreNamed(t *testing.T) {
	t.Parallel()
	cfg := sources()
	const path = "/v1/sensors/a/readings"
	tests := map[string]struct {
		kind telemetry.ErrorKind
		want string
	}{
		path + "?form=1":                 {telemetry.Invalid, `parameter "form" is unknown; allowed are after, from`},
		path + "?from=yesterday":         {telemetry.Invalid, `from "yesterday" is neither`},
		path + "?from=2&to=1":            {telemetry.Invalid, "is after to"},
		path + "?limit=0":                {telemetry.Invalid, "1 to 100000"},
		path + "?limit=100001":           {telemetry.Invalid, "1 to 100000"},
		path + "?after=x":                {telemetry.Invalid, "not a cursor"},
		path + "?after=1.0":              {telemetry.Invalid, "not a cursor"},
		path + "?stream=none":            {telemetry.NotFound, `stream "none" does not exist`},
		"/v1/sensors/a%00b/readings":     {telemetry.Invalid, "unprintable"},
		path + "?from=%zz":               {telemetry.Invalid, "malformed"},
		path + "?to=-1":                  {telemetry.Invalid, "to"},
		path + "?from=99999999999999999": {telemetry.Invalid, "from"},
	}
	for target, tt := range tests {
		got := get(t, cfg, target)
		assert.Contains(t, got.body, fmt.Sprint(tt.kind, " "), target)
		assert.Contains(t, got.body, tt.want, target)
	}
	assert.Contains(t, get(t, cfg, path, "text/html").body, "application/x-ndjson")
}

func TestDatabaseAway(t *testing.T) {
	t.Parallel()
	cfg := sources()
	cfg.Available = func() error { return errors.New("no server") }
	assert.Contains(t, get(t, cfg, "/v1/sensors/a/readings").body, "mongodb_away")
}

func TestDatabaseThatHangsIsAway(t *testing.T) {
	t.Parallel()
	cfg := Config{Sources: map[string]Source{"readings": fakeSource{err: fmt.Errorf("find: %w", context.DeadlineExceeded)}}}
	assert.Contains(t, get(t, cfg, "/v1/sensors/a/readings").body, "mongodb_away")
}

func TestFailureBeforeTheAnswerBegan(t *testing.T) {
	t.Parallel()
	cfg := Config{Sources: map[string]Source{"readings": fakeSource{readings: []telemetry.Reading{reading("a", 0, 1)}, err: errors.New("broken")}}}
	got := get(t, cfg, "/v1/sensors/a/readings")
	assert.Equal(t, http.StatusTeapot, got.status)
	assert.Contains(t, got.body, "broken")
}

// TestPagesAddUp follows pages of any size over readings of which many share
// their time: each is seen once.
func TestPagesAddUp(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		times := rapid.SliceOfN(rapid.IntRange(0, 6), 0, 40).Draw(rt, "times")
		slices.Sort(times)
		all := make([]telemetry.Reading, len(times))
		for i, at := range times {
			all[i] = reading("a", time.Duration(at)*time.Second, int64(i))
		}
		cfg := sources(all...)
		limit := rapid.IntRange(1, 10).Draw(rt, "limit")
		lines := rapid.Bool().Draw(rt, "lines")
		var got []int64
		for after, first := "", true; first || after != ""; first = false {
			target := fmt.Sprintf("/v1/sensors/a/readings?limit=%d&after=%s&from=%d", limit, url.QueryEscape(after), base.UnixMilli())
			var page []int64
			page, after = getPage(rt, cfg, target, lines)
			require.LessOrEqual(rt, len(page), limit)
			got = append(got, page...)
		}
		want := make([]int64, 0, len(all))
		for i := range all {
			want = append(want, int64(i))
		}
		require.ElementsMatch(rt, want, got)
		require.True(rt, slices.IsSorted(got))
	})
}

func TestPageOfLargeReadingsEndsEarly(t *testing.T) {
	t.Parallel()
	large := make([]telemetry.Reading, 30)
	for i := range large {
		large[i] = reading("a", time.Duration(i)*time.Second, int64(i))
		large[i].Fields = append(large[i].Fields, telemetry.Field{Name: "x", Value: telemetry.TextValue(strings.Repeat("x", maxPageBytes/10))})
	}
	cfg := sources(large...)
	first, after := getPage(t, cfg, "/v1/sensors/a/readings", false)
	assert.Less(t, len(first), 12)
	require.NotEmpty(t, after)
	second, _ := getPage(t, cfg, "/v1/sensors/a/readings?after="+after, false)
	assert.EqualValues(t, len(first), second[0], "the next page goes on where the first ended")
}

func getPage(t require.TestingT, cfg Config, target string, lines bool) (values []int64, after string) {
	type line struct {
		Fields struct{ V int64 }
	}
	var body struct {
		Readings []line
		After    string
	}
	if lines {
		got := get(t, cfg, target, "application/x-ndjson")
		body.After = got.header.Get("Brim-After")
		for s := range strings.Lines(got.body) {
			var l line
			require.NoError(t, json.Unmarshal([]byte(s), &l))
			body.Readings = append(body.Readings, l)
		}
	} else {
		require.NoError(t, json.Unmarshal([]byte(get(t, cfg, target).body), &body))
	}
	for _, r := range body.Readings {
		values = append(values, r.Fields.V)
	}
	return values, body.After
}
