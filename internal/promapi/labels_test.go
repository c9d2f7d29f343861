package promapi_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// TestEscapedNamesAreRestored: some readings have names that remote write had to escape,
// others have names that only look escaped.
func TestEscapedNamesAreRestored(t *testing.T) {
	t.Parallel()
	s := &stored{}
	add := func(sensor string, tags []telemetry.Tag, fields ...any) {
		if sensor == "" {
			sensor = string(telemetry.AppendTagsKey(nil, tags))
		}
		s.readings = append(s.readings, reading(sensor, 0, tags, fields...))
	}
	add("", []telemetry.Tag{{Name: "%73ensor", Value: "s-1"}, {Name: "a%2Eb", Value: "x"}}, "http%2Erequests", 1)
	add("", nil, "alone", 2, "%74s", 3)
	add("", []telemetry.Tag{{Name: "text", Value: "two\nlines"}}, "hashed", 4)
	add("s-1", []telemetry.Tag{{Name: "%73ensor", Value: "s-1"}}, "load%20", 5)
	add("s-10", nil, "http%2Erequests", 6)
	api := newAPI(t, s)
	for query, want := range map[string]string{
		`{"http.requests", sensor="s-1"}`:                `{"metric":{"__name__":"http.requests","a.b":"x","sensor":"s-1"},"value":[1700000105,"1"]}`,
		`{"http.requests", "a.b"=~"x|y", sensor=~"s-."}`: `{"metric":{"__name__":"http.requests","a.b":"x","sensor":"s-1"},"value":[1700000105,"1"]}`,
		`{"http.requests", sensor!="s-1"}`:               `{"metric":{"__name__":"http.requests","sensor":"s-10"},"value":[1700000105,"6"]}`,
		`alone`:                                          `{"metric":{"__name__":"alone"},"value":[1700000105,"2"]}`,
		`ts`:                                             `{"metric":{"__name__":"ts"},"value":[1700000105,"3"]}`,
		`hashed{sensor=""}`:                              `{"metric":{"__name__":"hashed","text":"two\nlines"},"value":[1700000105,"4"]}`,
		`{"load%20", sensor="s-1"}`:                      `{"metric":{"__name__":"load%20","sensor":"s-1"},"value":[1700000105,"5"]}`,
		`{"http%2Erequests"}`:                            ``,
		`{__name__=~"http.+", sensor=~"s-10?"}`: `{"metric":{"__name__":"http.requests","a.b":"x","sensor":"s-1"},"value":[1700000105,"1"]},` +
			`{"metric":{"__name__":"http.requests","sensor":"s-10"},"value":[1700000105,"6"]}`,
	} {
		_, body := api.get("/api/v1/query", ask(query, at(5)))
		assert.JSONEq(t, `{"status":"success","data":{"resultType":"vector","result":[`+want+`]}}`, body, query)
	}
	_, body := api.get("/api/v1/label/sensor/values", nil)
	assert.JSONEq(t, `{"status":"success","data":["s-1","s-10"]}`, body)
	_, body = api.get("/api/v1/labels", nil)
	assert.JSONEq(t, `{"status":"success","data":["__name__","a.b","sensor","text"]}`, body)
}
