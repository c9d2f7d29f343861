package read

import (
	"fmt"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

const (
	asJSON  = "application/json"
	asLines = "application/x-ndjson"
)

func TestAnswers(t *testing.T) {
	t.Parallel()
	r := newReader(t, fakeSource{readings: []telemetry.Reading{reading("a/b c", 0, 1), reading("a/b c", time.Second, 2), reading("other", 0, 3)}},
		func(_ *Config, s *Stored) {
			s.Sources["second"] = fakeSource{readings: []telemetry.Reading{reading("a/b c", time.Minute, 9)}}
		})
	const sensor = "/v1/sensors/a%2Fb%20c"
	const path = sensor + "/readings"
	first := `{"sensorId":"a/b c","ts":"2026-11-21T10:00:00.000Z","fields":{"v":1}}`
	second := `{"sensorId":"a/b c","ts":"2026-11-21T10:00:01.000Z","fields":{"v":2}}`
	tests := []struct {
		name, target, accept, want string
	}{
		{"all of a sensor", path, "", `{"readings":[` + first + ",\n" + second + "]}\n"},
		{"lines", path, asLines, first + "\n" + second + "\n"},
		{"a span, its end not included", path + "?from=2026-11-21T10:00:00Z&to=2026-11-21T10:00:01Z", asJSON, `{"readings":[` + first + "]}\n"},
		{"a span in milliseconds", path + fmt.Sprintf("?from=%d", base.UnixMilli()+1), "*/*", `{"readings":[` + second + "]}\n"},
		{"another stream", path + "?stream=second", "", `{"readings":[{"sensorId":"a/b c","ts":"2026-11-21T10:01:00.000Z","fields":{"v":9}}]}` + "\n"},
		{"an unknown sensor has no readings", "/v1/sensors/none/readings", "", `{"readings":[]}` + "\n"},
		{"an unknown sensor has no lines", "/v1/sensors/none/readings", asLines, ""},
		{"the first page says where the next begins", path + "?limit=1", "", `{"readings":[` + first + `],"after":"1795255200001.0"}` + "\n"},
		{"the newest", sensor + "/latest", "", second + "\n"},
		{
			"a summary of all", sensor + "/summary?from=2026-11-21T10:00:00Z", "",
			`{"summary":[{"start":"2026-11-21T10:00:00.000Z","count":2,"fields":{"v":{"n":2,"min":1,"max":2,"mean":1.5}}}]}` + "\n",
		},
		{
			"a summary in steps", sensor + "/summary?from=2026-11-21T10:00:00Z&to=2026-11-21T11:00:00Z&every=1s", asLines,
			`{"start":"2026-11-21T10:00:00.000Z","count":1,"fields":{"v":{"n":1,"min":1,"max":1,"mean":1.0}}}` + "\n" +
				`{"start":"2026-11-21T10:00:01.000Z","count":1,"fields":{"v":{"n":1,"min":2,"max":2,"mean":2.0}}}` + "\n",
		},
		{
			"sensors", "/v1/sensors", "",
			`{"sensors":[{"sensorId":"a/b c","newest":"2026-11-21T10:00:01.000Z","fields":["v"]},` + "\n" + `{"sensorId":"other","newest":"2026-11-21T10:00:00.000Z","fields":["v"]}]}` + "\n",
		},
		{"sensors with a prefix", "/v1/sensors?prefix=o", "", `{"sensors":[{"sensorId":"other","newest":"2026-11-21T10:00:00.000Z","fields":["v"]}]}` + "\n"},
		{"the first sensors", "/v1/sensors?limit=1", "", `{"sensors":[{"sensorId":"a/b c","newest":"2026-11-21T10:00:01.000Z","fields":["v"]}],"after":"a/b c"}` + "\n"},
		{"the sensors behind", "/v1/sensors?after=a/b%20c", "", `{"sensors":[{"sensorId":"other","newest":"2026-11-21T10:00:00.000Z","fields":["v"]}]}` + "\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var accept []string
			if tt.accept != "" {
				accept = []string{tt.accept}
			}
			got := get(r, tt.target, accept...)
			assert.Equal(t, http.StatusOK, got.status)
			assert.Equal(t, tt.want, got.body)
		})
	}
}

func TestBadRequestsAreNamed(t *testing.T) {
	t.Parallel()
	yesterday := fmt.Sprint(time.Now().Add(-24 * time.Hour).UnixMilli())
	r := newReader(t, fakeSource{})
	const path = "/v1/sensors/a/readings"
	tests := map[string]struct {
		kind telemetry.ErrorKind
		want string
	}{
		path + "?form=1":                                    {telemetry.Invalid, `parameter "form" is unknown; allowed: after, from`},
		path + "?from=yesterday":                            {telemetry.Invalid, `from: "yesterday" is not a time; use`},
		path + "?from=2&to=1":                               {telemetry.Invalid, "is after to"},
		path + "?limit=0":                                   {telemetry.Invalid, "1 to 100000"},
		path + "?limit=":                                    {telemetry.Invalid, "parameter limit has no value"},
		path + "?from=&to=5":                                {telemetry.Invalid, "parameter from has no value"},
		path + "?limit=100001":                              {telemetry.Invalid, "1 to 100000"},
		path + "?limit=1&limit=2":                           {telemetry.Invalid, "limit is given 2 times"},
		path + "?after=x":                                   {telemetry.Invalid, "not a cursor"},
		path + "?after=1.-1":                                {telemetry.Invalid, "not a cursor"},
		path + "?after=-1.1":                                {telemetry.Invalid, "not a cursor"},
		path + "?stream=none":                               {telemetry.NotFound, `stream "none" does not exist`},
		"/v1/sensors/a/summary?every=1ms&stream=none":       {telemetry.NotFound, `stream "none" does not exist`},
		path + "?unstored=maybe":                            {telemetry.Invalid, "allowed: on, off and only"},
		"/v1/sensors/a%00b/readings":                        {telemetry.Invalid, "unprintable"},
		path + "?from=%zz":                                  {telemetry.Invalid, "malformed"},
		path + "?to=-1":                                     {telemetry.Invalid, "to"},
		path + "?from=99999999999999999":                    {telemetry.Invalid, "from"},
		path + "?from=1795819780":                           {telemetry.Invalid, "from: 1795819780 looks like seconds; it is milliseconds since 1970, or a time like 2026-11-27T22:49:40Z"},
		"/v1/sensors?limit=10001":                           {telemetry.Invalid, "1 to 10000"},
		"/v1/sensors?prefix=%ff":                            {telemetry.Invalid, "prefix"},
		"/v1/sensors?from=1":                                {telemetry.Invalid, "allowed: after, limit, prefix, sensor, stream"},
		"/v1/sensors/a/latest?limit=1":                      {telemetry.Invalid, "allowed: stream, unstored"},
		"/v1/sensors/a/latest":                              {telemetry.NotFound, "sensor_unknown"},
		"/v1/sensors/a/summary?every=0s":                    {telemetry.Invalid, "5m"},
		"/v1/sensors/a/summary?every=1us":                   {telemetry.Invalid, "whole milliseconds"},
		"/v1/sensors/a/summary?every=5m":                    {telemetry.Invalid, "at most 10000 are allowed: give a narrower span"},
		"/v1/sensors/a/summary?from=0&to=10001&every=1ms":   {telemetry.Invalid, "10001 steps of 1ms"},
		"/v1/sensors/a/summary?from=1&to=10001&every=999ms": {},
		"/v1/sensors/a/summary?every=1d":                    {telemetry.Invalid, "from 1970-01-01T00:00:00.000Z to now has "},
		"/v1/sensors/a/summary?every=10d":                   {},
		"/v1/sensors/a/summary?every=5m&from=" + yesterday:  {},
		"/v1/sensors/":                                      {telemetry.NotFound, "path_unknown"},
		"/v1/sensors/a/b":                                   {telemetry.NotFound, "path_unknown"},
		"/v1/sensors/a/readings/":                           {telemetry.NotFound, "path_unknown"},
		"/v1/sensors//readings":                             {telemetry.NotFound, "path_unknown"},
	}
	for target, tt := range tests {
		got := get(r, target)
		if tt.want == "" {
			assert.Equal(t, http.StatusOK, got.status, target)
			continue
		}
		assert.Contains(t, got.body, fmt.Sprint(tt.kind, " "), target)
		assert.Contains(t, got.body, tt.want, target)
	}
	assert.Contains(t, get(r, path, "text/html").body, asLines)
	assert.NotContains(t, get(r, "/v1/sensors/a/latest", asLines).body, asLines+";", "there is no such form of one reading")
}

func TestAcceptHeader(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ lines, refused bool }{
		"":                                     {},
		"*/*":                                  {},
		asLines:                                {lines: true},
		"application/x-ndjson, */*":            {lines: true},
		"application/json;q=0, " + asLines:     {lines: true},
		"text/html, application/*;q=0.1":       {},
		"text/html":                            {refused: true},
		"application/json;q=0":                 {refused: true},
		"application/x-ndjson;q=nan, text/css": {refused: true},
	}
	for accept, want := range tests {
		media, err := wantedForm([]string{accept}, []string{typeJSON, typeLines})
		assert.Equal(t, want.lines, media == typeLines, accept)
		assert.Equal(t, want.refused, err != nil, accept)
	}
	_, err := wantedForm([]string{asLines}, []string{typeJSON})
	assert.Error(t, err, "of one reading there are no lines")
}

func TestMethodNotAllowed(t *testing.T) {
	t.Parallel()
	r := newReader(t, fakeSource{readings: []telemetry.Reading{reading("a", 0, 1)}})
	for target, allow := range map[string]string{
		"/v1/sensors": "GET, HEAD, DELETE", "/v1/sensors/a": "DELETE", "/v1/sensors/a/readings": "GET, HEAD", "/v1/sensors/a/latest": "GET, HEAD",
	} {
		for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodOptions, http.MethodTrace} {
			got := ask(r, method, target)
			assert.Equal(t, http.StatusMethodNotAllowed, got.status, method+target)
			assert.Equal(t, allow, got.header.Get("Allow"), method+target)
			assert.Contains(t, got.body, `"code":"method_not_allowed"`)
		}
	}
	assert.Equal(t, http.StatusMethodNotAllowed, get(r, "/v1/sensors/a").status)
	assert.Equal(t, http.StatusMethodNotAllowed, ask(r, http.MethodDelete, "/v1/sensors/a/readings").status)
	assert.Equal(t, http.StatusOK, ask(r, http.MethodHead, "/v1/sensors/a/readings").status)
}

func TestSensorIDsOfAnyShapeAreReached(t *testing.T) {
	t.Parallel()
	for _, id := range []string{".", "..", "a//b", "latest", "%2F", "ü/\"", "a b+c", strings.Repeat("x", telemetry.MaxSensorBytes)} {
		r := newReader(t, fakeSource{readings: []telemetry.Reading{reading(id, 0, 1)}})
		escaped := ""
		for _, c := range []byte(id) {
			escaped += fmt.Sprintf("%%%02X", c)
		}
		got := get(r, "/v1/sensors/"+escaped+"/latest")
		assert.Equal(t, http.StatusOK, got.status, id)
	}
}

func TestOverflowingMeanIsNull(t *testing.T) {
	t.Parallel()
	huge := telemetry.FieldSummary{Name: "b", N: 2, Min: telemetry.IntValue(1<<62 + 1), Max: telemetry.FloatValue(1e308), Sum: math.Inf(1)}
	got := string(appendSummary(nil, telemetry.Summary{Start: 0, Count: 2, Fields: []telemetry.FieldSummary{huge, {Name: "a", N: 1, Min: telemetry.IntValue(1), Max: telemetry.IntValue(1), Sum: 1}}}))
	assert.Contains(t, got, `{"start":"1970-01-01T00:00:00.000Z","count":2,"fields":{"a":{"n":1,"min":1,"max":1,"mean":1.0},"b":{"n":2,"min":4611686018427387905,"max":1e+308,"mean":null}}}`)
}
