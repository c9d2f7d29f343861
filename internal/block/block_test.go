package block_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/brim-telemetry/brim/internal/block"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

const sensor = "s-1"

// documentTags are those of the document that the blocks of these tests are in.
var documentTags = []telemetry.Tag{{Name: "site", Value: "north"}}

func reading(ms int64, fields ...any) telemetry.Reading {
	r := telemetry.Reading{Sensor: sensor, Time: time.UnixMilli(ms).UTC(), Tags: documentTags}
	for i := 0; i < len(fields); i += 2 {
		r.Fields = append(r.Fields, telemetry.Field{Name: fields[i].(string), Value: value(fields[i+1])})
	}
	return r
}

func value(v any) telemetry.Value {
	switch v := v.(type) {
	case int:
		return telemetry.IntValue(int64(v))
	case int64:
		return telemetry.IntValue(v)
	case float64:
		return telemetry.FloatValue(v)
	case bool:
		return telemetry.BoolValue(v)
	case string:
		return telemetry.TextValue(v)
	}
	panic(fmt.Sprintf("no value: %T", v))
}

// built returns readings as a block.
func built(t require.TestingT, readings []telemetry.Reading, o block.Options) []byte {
	var b block.Builder
	for _, r := range readings {
		b.AddReading(r)
		if fmt.Sprint(r.Tags) != fmt.Sprint(documentTags) {
			b.Own(r.Tags)
		}
	}
	data, err := b.Append([]byte("before"), o)
	require.NoError(t, err)
	require.Equal(t, "before", string(data[:6]))
	return data[6:]
}

func readAll(t require.TestingT, data []byte, wanted []string) []telemetry.Reading {
	b, err := block.Open(data)
	require.NoError(t, err)
	var out []telemetry.Reading
	for r, err := range b.Readings(sensor, documentTags, wanted) {
		require.NoError(t, err)
		out = append(out, r)
	}
	require.Len(t, out, b.Len())
	return out
}

var variants = []block.Options{{}, {Statistics: true}, {Statistics: true, Compress: true}}

// series makes n readings, a second apart, of one field.
func series(n int, of func(i int) any) []telemetry.Reading {
	out := make([]telemetry.Reading, n)
	for i := range out {
		out[i] = reading(1_700_000_000_000+1000*int64(i), "v", of(i))
	}
	return out
}

// shapes are readings that differ in how they are encoded.
func shapes() map[string][]telemetry.Reading {
	long := strings.Repeat("ü", 512)
	noise := func(i int) uint64 { return uint64(i+1) * 0x9e3779b97f4a7c15 }
	own := []telemetry.Reading{reading(1, "v", 1), reading(2, "v", 2), reading(3, "v", 3), reading(4, "v", 4)}
	own[1].Tags = []telemetry.Tag{{Name: "a", Value: ""}, {Name: "b", Value: long}}
	own[2].Tags = nil
	own[3].Tags = own[1].Tags
	return map[string][]telemetry.Reading{
		"one reading":        {reading(1_700_000_000_123, "t", 21.5, "h", 40, "on", true, "state", "ok")},
		"order of times":     {reading(60_000, "v", 1), reading(59_999, "v", 2), reading(0, "v", 3), reading(0, "v", 4), reading(120_000, "v", 5)},
		"any times":          {reading(math.MaxInt64/2, "v", 1), reading(math.MinInt64/2, "v", 1), reading(0, "v", 1), reading(0, "v", 1), reading(-1, "v", 1)},
		"largest integers":   {reading(1, "v", math.MaxInt64), reading(2, "v", math.MinInt64), reading(3, "v", 0), reading(4, "v", -1), reading(5, "v", math.MaxInt64)},
		"special doubles":    {reading(1, "v", math.Copysign(0, -1)), reading(2, "v", 0.0), reading(3, "v", math.MaxFloat64), reading(4, "v", math.SmallestNonzeroFloat64), reading(5, "v", math.Inf(1)), reading(6, "v", math.Inf(-1)), reading(8, "v", -1e300), reading(9, "v", 1e22), reading(10, "v", 9007199254740993.0)},
		"not a number":       {reading(1, "v", math.Float64frombits(0x7ff8000000000123)), reading(2, "v", 1.5)},
		"strings":            {reading(1, "v", ""), reading(2, "v", long), reading(3, "v", ""), reading(4, "v", "x\x00y"), reading(5, "v", long)},
		"all kinds":          {reading(1, "v", 1), reading(2, "v", 1.5), reading(3, "v", true), reading(4, "v", "x"), reading(5, "v", 2), reading(6, "v", false), reading(7, "v", ""), reading(8, "v", -0.25)},
		"absent fields":      {reading(1, "a", 1), reading(2, "b", 2), reading(3, "a", 3, "b", 4), reading(4, "c", 5), reading(5, "a", 6, "c", 7)},
		"order of fields":    {reading(1, "a", 1, "b", 2, "c", 3), reading(2, "c", 1, "b", 2, "a", 3), reading(3, "b", 1, "x", 2, "a", 3), reading(4, "a", 1, "b", 2, "c", 3)},
		"name of JavaScript": {reading(1, "a", 1, "__proto__", 2)},
		"integers as JSON":   series(300, func(i int) any { return jsonNumber(float64(i*7%400) / 4) }),
		"whole doubles":      series(300, func(i int) any { return []any{1.5, 2.0, 3, 4}[i%4] }),
		"large beside small": series(60, func(i int) any { return []any{1.5, int64(1) << 60}[i%2] }),
		"own tags":           own,
		"constant":           series(1000, func(int) any { return 230.0 }),
		"counter":            series(1000, func(i int) any { return 17 * i }),
		"steps":              series(500, func(i int) any { return i / 100 * 1000 }),
		"spikes":             series(500, func(i int) any { return i%3 + i%97/96*1_000_000_000 - i%89/88*1_000_000_000_000 }),
		"decimals":           series(700, func(i int) any { return float64(2000+i*i%37) / 100 }),
		"some not decimal": series(700, func(i int) any {
			return map[bool]float64{true: math.Sqrt(float64(i)), false: float64(i) / 10}[i%50 == 0]
		}),
		"from float32":      series(300, func(i int) any { return float64(float32(math.Sin(float64(i)))) }),
		"full doubles":      series(300, func(i int) any { return math.Sin(float64(i)) }),
		"any bits":          series(300, func(i int) any { return math.Float64frombits(noise(i) &^ (1 << 62)) }),
		"any integers":      series(300, func(i int) any { return int64(noise(i)) }),
		"57 bits":           series(300, func(i int) any { return int64(noise(i) >> 7) }),
		"9 bits":            series(129, func(i int) any { return int64(noise(i) >> 55) }),
		"booleans":          series(300, func(i int) any { return i%7 < 3 }),
		"few strings":       series(300, func(i int) any { return []string{"ok", "", "failed"}[i%3] }),
		"different strings": series(300, func(i int) any { return fmt.Sprint("job ", i) }),
	}
}

// jsonNumber is an integer if it is whole, as in JSON of JavaScript.
func jsonNumber(v float64) any {
	if v == math.Trunc(v) {
		return int(v)
	}
	return v
}

func TestReadingsComeBackAsTheyWere(t *testing.T) {
	t.Parallel()
	for name, want := range shapes() {
		for _, o := range variants {
			assert.Equal(t, want, readAll(t, built(t, want, o), nil), "%s, %+v", name, o)
		}
	}
}

func drawnValue(t *rapid.T) any {
	switch rapid.IntRange(0, 6).Draw(t, "kind") {
	case 0:
		return rapid.Int64().Draw(t, "integer")
	case 1:
		return rapid.IntRange(-100, 100).Draw(t, "small integer")
	case 2:
		return math.Float64frombits(rapid.Uint64().Draw(t, "bits"))
	case 3:
		return float64(rapid.IntRange(-10000, 10000).Draw(t, "decimal")) / 100
	case 4:
		return rapid.Bool().Draw(t, "boolean")
	case 5:
		return rapid.StringN(0, 10, 40).Draw(t, "string")
	default:
		return rapid.Float64().Draw(t, "double")
	}
}

func drawnReadings(t *rapid.T) []telemetry.Reading {
	var out []telemetry.Reading
	at := rapid.Int64Range(-1e13, 1e13).Draw(t, "first time")
	for range rapid.IntRange(1, 30).Draw(t, "readings") {
		at += rapid.SampledFrom([]int64{0, 1, 1000, 1000, 1000, 60_000, -5}).Draw(t, "step")
		var fields []any
		for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c", "d", "é"}), 1, 5, rapid.ID).Draw(t, "fields") {
			fields = append(fields, name, drawnValue(t))
		}
		r := reading(at, fields...)
		if rapid.IntRange(0, 9).Draw(t, "own tags") == 0 {
			r.Tags = []telemetry.Tag{{Name: "t", Value: rapid.StringN(0, 3, 9).Draw(t, "tag")}}
		}
		out = append(out, r)
	}
	return out
}

func TestAnyReadingsComeBackAsTheyWere(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := drawnReadings(t)
		o := rapid.SampledFrom(variants).Draw(t, "options")
		require.Equal(t, want, readAll(t, built(t, want, o), nil))
	})
}
