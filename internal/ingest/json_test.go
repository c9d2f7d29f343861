package ingest

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

const (
	typeJSON  = "application/json"
	typeLines = "application/x-ndjson"
	typeForm  = "application/x-www-form-urlencoded"
)

func TestFormsOfABody(t *testing.T) {
	t.Parallel()
	one := func(id string) string { return `{"sensorId":"` + id + `","fields":{"t":1}}` }
	pretty := "{\n  \"sensorId\": \"a\",\n  \"fields\": {\n    \"t\": 1\n  }\n}\n"
	for _, c := range []struct {
		name, contentType, body string
		status                  int
		sensors                 string // taken, in order
		message                 string // part of the answer
	}{
		{"an object", typeJSON, one("a"), 200, "a", ""},
		{"an object over several lines", typeJSON, pretty, 200, "a", ""},
		{"white space around", typeJSON, " \r\n\t" + one("a") + "\n\n", 200, "a", ""},
		{"an array", typeJSON, "[" + one("a") + "," + one("b") + "]", 200, "ab", ""},
		{"an array over several lines", typeForm, "[\n" + one("a") + ",\n" + one("b") + "\n]\n", 200, "ab", ""},
		{"objects one after the other as JSON", typeJSON, one("a") + "\n" + one("b") + one("c"), 200, "abc", ""},
		{"lines", typeLines, one("a") + "\n" + one("b") + "\n", 200, "ab", ""},
		{"lines that end like Windows", typeLines, one("a") + "\r\n" + one("b") + "\r\n", 200, "ab", ""},
		{"lines without a last end", typeLines, one("a") + "\n" + one("b"), 200, "ab", ""},
		{"empty lines", typeLines, "\n \n" + one("a") + "\n\r\n" + one("b") + "\n\n", 200, "ab", ""},
		{"another name of NDJSON", "application/jsonl; charset=utf-8", one("a") + "\n" + one("b"), 200, "ab", ""},
		{"one object without a type", "", one("a"), 200, "a", ""},
		{"an object over several lines without a type", "", pretty, 200, "a", ""},
		{"lines without a type", "", "\n" + one("a") + "\n" + one("b") + "\n", 200, "ab", ""},
		{"lines as curl sends them", typeForm, one("a") + "\n" + one("b") + "\n", 200, "ab", ""},
		{"an array as curl sends it", typeForm, "  [" + one("a") + "]", 200, "a", ""},

		{"a broken line", typeLines, one("a") + "\n{\"sensorId\": oops}\n" + one("b"), 207, "ab", `"errors":[{"index":1,"code":"malformed","message":"the line is not JSON: `},
		{"a broken first line without a type", "", "{\"sensorId\": oops}\n" + one("b"), 207, "b", `"index":0,"code":"malformed"`},
		{"a broken body of one line", "", "{'sensorId':'a'}\n", 400, "", "the body is not JSON: a string was expected at byte 1"},
		{"a line with two objects", typeLines, one("a") + one("b") + "\n" + one("c"), 207, "c", "unexpected '{' after the object"},
		{"a line that ends too early", typeLines, one("a")[:20] + "\n" + one("c"), 207, "c", "unexpected end at byte 20"},
		{"an array as a line", typeLines, "[" + one("a") + "]\n" + one("c"), 207, "c", "a reading must be an object, not an array"},
		{"broken syntax in an array", typeJSON, "[" + one("a") + "," + `{"sensorId":"b",,}` + "," + one("c") + "]", 400, "", `in or after reading 1: a string was expected at byte 51`},
		{"an array that does not end", typeJSON, "[" + one("a") + ",", 400, "", "unexpected end"},
		{"an array that ends with a comma", typeJSON, "[" + one("a") + ",]", 400, "", `"code":"malformed"`},
		{"something after an array", typeJSON, "[" + one("a") + "]" + one("b"), 400, "", "unexpected '{' after the array"},
		{"garbage behind an array", typeJSON, "[" + one("a") + "] x", 400, "", `"code":"malformed"`},
		{"garbage behind an object", typeJSON, one("a") + " garbage", 400, "", "nothing was accepted"},
		{"a broken second object as JSON", typeJSON, one("a") + "\n{oops}\n", 400, "", "in or after reading 1"},
		{"a number", typeJSON, "5", 400, "", "'5' where a reading should be"},
		{"a number behind an object", typeJSON, one("a") + "5", 400, "", "'5' where a reading should be"},
		{"words", typeJSON, "hello", 400, "", `"code":"malformed"`},
		{"half an object", typeJSON, one("a")[:12], 400, "", "unexpected end at byte 12"},
		{"nothing", typeJSON, "", 400, "", `"code":"no_readings"`},
		{"nothing as lines", typeLines, "\n\n", 400, "", `"code":"no_readings"`},
		{"nothing without a type", "", "", 400, "", `"code":"no_readings"`},
		{"an empty array", typeJSON, "[]", 400, "", `"code":"no_readings"`},
		{"deep nesting", typeJSON, strings.Repeat("[", 20_000), 400, "", `"code":"malformed"`},
		{"a byte order mark", typeJSON, "\ufeff" + one("a"), 400, "", `"code":"malformed"`},
		{"another type", "text/csv", one("a"), 415, "", `allowed: application/json and application/x-ndjson`},
		{"a broken type", ";", one("a"), 415, "", `"code":"type_unknown"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d, j := newTestServer(t)
			w := post(t, d, "/v1/readings", c.contentType, c.body)
			assert.Equal(t, c.status, w.Code, w.Body)
			sensors := ""
			for _, r := range j.readings() {
				sensors += r.Sensor
			}
			assert.Equal(t, c.sensors, sensors)
			assert.Contains(t, w.Body.String(), strings.ReplaceAll(c.message, `\`, `\\`))
		})
	}
}

func TestJSONReadingIsTakenAsItIs(t *testing.T) {
	t.Parallel()
	d, j := newTestServer(t)
	body := `{"ts":"2026-11-21T11:00:00.1239+01:00","tags":{"site":"n\u00f6rd","empty":""},"fields":{"d":23.5,"e":1e3,"i":65,
		"max":9223372036854775807,"min":-9223372036854775808,"nought":-0,"minus":-0.0,"tiny":1e-400,"on":true,"off":false,"s":"\"quoted\" \ud83d\ude00","empty":""},"sensorId":"s\u002d1"}`
	require.Equal(t, 200, post(t, d, "/v1/readings", typeJSON, body).Code)
	r := j.readings()[0]
	assert.Equal(t, "s-1", r.Sensor)
	assert.Equal(t, "2026-11-21T10:00:00.123Z", r.Time.Format(telemetry.TimeFormat))
	assert.Equal(t, []telemetry.Tag{{Name: "empty", Value: ""}, {Name: "site", Value: "nörd"}}, r.Tags)
	assert.Equal(t, []telemetry.Field{
		{Name: "d", Value: telemetry.FloatValue(23.5)},
		{Name: "e", Value: telemetry.FloatValue(1000)},
		{Name: "i", Value: telemetry.IntValue(65)},
		{Name: "max", Value: telemetry.IntValue(math.MaxInt64)},
		{Name: "min", Value: telemetry.IntValue(math.MinInt64)},
		{Name: "nought", Value: telemetry.IntValue(0)},
		{Name: "minus", Value: telemetry.FloatValue(math.Copysign(0, -1))},
		{Name: "tiny", Value: telemetry.FloatValue(0)},
		{Name: "on", Value: telemetry.BoolValue(true)},
		{Name: "off", Value: telemetry.BoolValue(false)},
		{Name: "s", Value: telemetry.TextValue(`"quoted" 😀`)},
		{Name: "empty", Value: telemetry.TextValue("")},
	}, r.Fields)
}

func TestReadingWithoutATimeGetsThatOfItsReceipt(t *testing.T) {
	t.Parallel()
	d, j := newTestServer(t)
	require.Equal(t, 200, post(t, d, "/v1/readings", typeJSON, `{"sensorId":"s","fields":{"t":1},"tags":null}`).Code)
	require.Equal(t, 204, post(t, d, "/write", "", `cpu t=1`).Code)
	for _, r := range j.readings() {
		assert.Equal(t, "2026-11-21T10:00:00.123Z", r.Time.Format(telemetry.TimeFormat))
	}
}

func TestDotsInNamesCanBeMapped(t *testing.T) {
	t.Parallel()
	d, j := newTestServer(t, func(c *Config) { c.MapDots = '_' })
	require.Equal(t, 200, post(t, d, "/v1/readings", typeJSON, `{"sensorId":"a.b","fields":{"t.x":1},"tags":{"k.v":"a.b"}}`).Code)
	r := j.readings()[0]
	assert.Equal(t, "a.b", r.Sensor)
	assert.Equal(t, "t_x", r.Fields[0].Name)
	assert.Equal(t, []telemetry.Tag{{Name: "k_v", Value: "a.b"}}, r.Tags)
	w := post(t, d, "/v1/readings", typeJSON, `{"sensorId":"s","fields":{"t.x":1,"t_x":2}}`)
	assert.Contains(t, w.Body.String(), "field_duplicate", "mapping must not make one name of two")
}

func TestAnswerListsAHundredRefusalsAndCountsAll(t *testing.T) {
	t.Parallel()
	d, j := newTestServer(t)
	var body strings.Builder
	for i := range 300 {
		fmt.Fprintf(&body, `{"sensorId":"s","fields":{"t":1},"ts":%d}`+"\n", 1795255200000*((i+1)%2))
	}
	w := post(t, d, "/v1/readings", typeLines, body.String())
	assert.Equal(t, 207, w.Code)
	var a answer
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &a))
	assert.Equal(t, 150, a.Accepted)
	assert.Equal(t, 150, a.Rejected)
	require.Len(t, a.Errors, 100)
	assert.Equal(t, 199, a.Errors[99].Index)
	require.Len(t, j.readings(), 150)
	assert.EqualValues(t, 298, j.batches[0].Row(149).Index, "rows know their place in the request")
}

func TestALineThatIsTooLongIsRefusedAlone(t *testing.T) {
	t.Parallel()
	d, j := newTestServer(t, func(c *Config) { c.MaxBodyBytes = 32 << 20 })
	const good = `{"sensorId":"s","fields":{"t":1}}`
	long := `{"sensorId":"s","fields":{"t":1},"tags":{"a":"` + strings.Repeat("a", maxReadingBytes) + `"}}`
	w := post(t, d, "/v1/readings", typeLines, good+"\n"+long+"\n"+good)
	assert.Equal(t, 207, w.Code)
	assert.Contains(t, w.Body.String(), `{"index":1,"code":"malformed","message":"the line is longer than 4194304 bytes"}`)
	assert.Len(t, j.readings(), 2)

	w = post(t, d, "/v1/readings", typeJSON, "["+good+","+long+"]")
	assert.Equal(t, 400, w.Code)
	assert.Contains(t, w.Body.String(), "in or after reading 1: it is longer than 4194304 bytes")

	w = post(t, d, "/write", "", "cpu t=1\ncpu t=\""+strings.Repeat("a", maxReadingBytes)+"\"\ncpu t=1\n")
	assert.Equal(t, 400, w.Code)
	assert.Contains(t, w.Body.String(), "1 of 3 lines were refused")
	assert.Contains(t, w.Body.String(), "line 2: malformed: the line is longer than")
}
