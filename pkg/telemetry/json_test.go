package telemetry

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestJSONKeepsKinds(t *testing.T) {
	t.Parallel()
	r := Reading{
		Sensor: "s-1", Time: time.UnixMilli(1767355200000),
		Fields: []Field{{"t", FloatValue(21.5)}, {"n", IntValue(0)}, {"on", BoolValue(true)}, {"text", TextValue("a<\"\n")}},
		Tags:   []Tag{{"site", "north"}},
	}
	body := string(AppendNDJSON(nil, []Reading{r}))
	const content = `"fields":{"t":21.5,"n":0,"on":true,"text":"a\u003c\"\n"},"tags":{"site":"north"}}`
	assert.Equal(t, `{"sensorId":"s-1","ts":1767355200000,`+content, body)                                   //nolint:testifylint // the text itself
	assert.Equal(t, `{"sensorId":"s-1","ts":"2026-01-02T12:00:00.000Z",`+content, string(r.AppendJSON(nil))) //nolint:testifylint // likewise
	r.Time = time.Time{}
	body = string(AppendNDJSON(nil, []Reading{r, r}))
	assert.NotContains(t, body, `"ts"`)
	assert.Equal(t, 1, strings.Count(body, "\n"))
	for v, want := range map[float64]string{
		1: "1.0", -1: "-1.0", 0: "0.0", 0.1: "0.1", -0.001: "-0.001", 20.05: "20.05", 1e300: "1e+300", 0.0001: "0.0001", 1013.205: "1013.205", 1e8 + .5: "1.000000005e+08",
	} {
		assert.Equal(t, want, string(FloatValue(v).AppendJSON(nil)))
	}
}

func TestReadingsComeBackFromJSON(t *testing.T) {
	t.Parallel()
	r := Reading{
		Sensor: "s-1", Time: time.UnixMilli(1767355200123).UTC(),
		Fields: []Field{
			{"z", FloatValue(21.5)}, {"whole", FloatValue(2)}, {"minus", FloatValue(math.Copysign(0, -1))}, {"n", IntValue(math.MinInt64)},
			{"on", BoolValue(true)}, {"a", TextValue("a<\"\n")},
		},
		Tags: []Tag{{"site", "north"}, {"b", ""}},
	}
	var back Reading
	require.NoError(t, json.Unmarshal(r.AppendJSON(nil), &back))
	assert.Equal(t, r, back, "including kinds and order of the fields")
	for text, want := range map[string]string{
		`{"ts":"2026-11-21T10:00:00.123Z","fields":{"t":1}}`:                                   "sensorId or fields are missing",
		`{"sensorId":"a","ts":"2026-11-21T10:00:00.123Z"}`:                                     "sensorId or fields are missing",
		`{"sensorId":"a","ts":"2026-11-21T10:00:00.123Z","fields":[1]}`:                        "not an object",
		`{"sensorId":"a","ts":"2026-11-21T10:00:00.123Z","fields":{"t":null}}`:                 `field "t": its value is not`,
		`{"sensorId":"a","ts":"2026-11-21T10:00:00.123Z","fields":{"t":{}}}`:                   `field "t": its value is not`,
		`{"sensorId":"a","ts":"2026-11-21T10:00:00.123Z","fields":{"t":1e999}}`:                `field "t"`,
		`{"sensorId":"a","ts":"2026-11-21T10:00:00.123Z","fields":{"t":1},"tags":{"x":1}}`:     `tag "x" is not a string`,
		`{"sensorId":"a","ts":"yesterday","fields":{"t":1}}`:                                   "yesterday",
		`{"sensorId":"a","ts":"2026-11-21T10:00:00.123Z","fields":{"t":18446744073709551616}}`: `field "t"`,
	} {
		assert.ErrorContains(t, json.Unmarshal([]byte(text), &back), want, text)
	}
}

// FuzzReadingsComeBack: a reading that can be parsed is unchanged by a round trip.
func FuzzReadingsComeBack(f *testing.F) {
	for _, text := range []string{
		`{"sensorId":"s","ts":"2026-01-02T12:00:00.000Z","fields":{"a":true,"b":"x","c":1e3},"tags":{"site":"north"}}`,
		`{"sensorId":"s","fields":[1]}`, `{"sensorId":"s","fields":{"a":{}}}`,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var r, again Reading
		if json.Unmarshal([]byte(text), &r) != nil {
			return
		}
		require.NoError(t, json.Unmarshal(r.AppendJSON(nil), &again))
		assert.True(t, r.Time.Truncate(time.Millisecond).Equal(again.Time))
		assert.True(t, slices.Equal(r.Fields, again.Fields), "%v %v", r.Fields, again.Fields)
		assert.True(t, slices.Equal(r.Tags, again.Tags))
	})
}

func FuzzFloatsComeBack(f *testing.F) {
	for _, v := range []float64{0, 1, -1, 0.1, 0.125, 999999.999, 999999999.999, 1e12, 1e-7, 4.35, 2.675} {
		f.Add(v)
	}
	f.Fuzz(func(t *testing.T, v float64) {
		text := FloatValue(v).AppendJSON(nil)
		if math.IsNaN(v) || math.IsInf(v, 0) {
			assert.False(t, json.Valid(text), "%s", text)
			return
		}
		want := strconv.FormatFloat(v, 'g', -1, 64)
		if !strings.ContainsAny(want, ".e") {
			want += ".0"
		}
		require.Equal(t, want, string(bytes.Clone(text)))
	})
}
