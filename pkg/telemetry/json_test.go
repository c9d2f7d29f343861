package telemetry

import (
	"bytes"
	"encoding/json"
	"math"
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
