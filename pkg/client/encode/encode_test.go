package encode

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// weather returns n readings of one sensor.
func weather(n int) []telemetry.Reading {
	all := make([]telemetry.Reading, n)
	for i := range all {
		all[i] = telemetry.Reading{
			Sensor: "s-1", Time: noon.Add(time.Duration(i) * time.Second),
			Fields: []telemetry.Field{
				{Name: "t", Value: telemetry.FloatValue(21.5 + float64(i)/10)}, {Name: "h", Value: telemetry.FloatValue(65.25)},
				{Name: "p", Value: telemetry.FloatValue(1013.2)}, {Name: "v", Value: telemetry.IntValue(int64(i))},
			},
			Tags: []telemetry.Tag{{Name: "site", Value: "north"}},
		}
	}
	return all
}

func TestCheckNamesWhatCannotBeWritten(t *testing.T) {
	t.Parallel()
	field := func(name string, v telemetry.Value) telemetry.Reading {
		return telemetry.Reading{Sensor: "s", Fields: []telemetry.Field{{Name: name, Value: v}}}
	}
	for _, row := range []struct {
		reading telemetry.Reading
		want    telemetry.Code // empty: the daemon decides
	}{
		{field("t", telemetry.FloatValue(1)), ""},
		{field("a.b", telemetry.FloatValue(1)), ""},
		{telemetry.Reading{}, ""},
		{field("t", telemetry.FloatValue(math.NaN())), telemetry.ValueNotFinite},
		{field("t", telemetry.FloatValue(math.Inf(-1))), telemetry.ValueNotFinite},
		{field("t", telemetry.TextValue("\xff")), telemetry.ValueText},
		{field("\xff", telemetry.IntValue(1)), telemetry.FieldName},
		{field("t", telemetry.Value{}), telemetry.ValueType},
		{telemetry.Reading{Sensor: "\xff"}, telemetry.SensorInvalid},
		{telemetry.Reading{Sensor: "s", Tags: []telemetry.Tag{{Name: "\xff"}}}, telemetry.TagName},
		{telemetry.Reading{Sensor: "s", Tags: []telemetry.Tag{{Name: "a", Value: "\xff"}}}, telemetry.TagValue},
	} {
		refusal := Check(&row.reading)
		if row.want == "" {
			assert.Nil(t, refusal, row.reading)
			continue
		}
		require.NotNil(t, refusal, row.reading)
		assert.Equal(t, row.want, refusal.Code)
	}
}

// TestPlacesInMessages has readings that go partly in columns, which a daemon
// numbers behind the others.
func TestPlacesInMessages(t *testing.T) {
	t.Parallel()
	all := weather(5)
	all[0].Sensor, all[3].Sensor = "a", "b" // alone; 1, 2 are a series
	m := NewMessage(Compact, "", "")
	for range 2 {
		request := m.Of(all)
		assert.Len(t, request.GetReadings(), 3)
		assert.Len(t, request.GetSeries(), 1)
		for number, place := range []int{0, 3, 4, 1, 2, -1} {
			assert.Equal(t, place, m.Place(number), number)
		}
		assert.Equal(t, -1, m.Place(-1))
	}
	m = NewMessage(Plain, "other", telemetry.Stored)
	request := m.Of(all)
	assert.Len(t, request.GetReadings(), 5)
	assert.Equal(t, "other", request.GetStream())
	assert.Equal(t, "ACK_STORED", request.GetAck().String())
	assert.Equal(t, 3, m.Place(3))
}

func TestBodiesAreJSONThatKeepsKinds(t *testing.T) {
	t.Parallel()
	r := weather(2)
	body := string(AppendBody(nil, r[:1]))
	assert.JSONEq(t, `{"sensorId":"s-1","ts":1767355200000,"fields":{"t":21.5,"h":65.25,"p":1013.2,"v":0},"tags":{"site":"north"}}`, body)
	assert.Contains(t, body, `"v":0}`)
	assert.Equal(t, 1, strings.Count(string(AppendBody(nil, r)), "\n"))
	for _, v := range []struct {
		given float64
		want  string
	}{{1, "1.0"}, {-1, "-1.0"}, {0, "0.0"}, {0.1, "0.1"}, {-0.001, "-0.001"}, {20.05, "20.05"}, {1e300, "1e+300"}, {0.0001, "0.0001"}, {1013.205, "1013.205"}, {1e8 + .5, "100000000.5"}} {
		assert.Equal(t, v.want, string(appendFloat(nil, v.given)))
	}
}

func FuzzFloatsComeBack(f *testing.F) {
	for _, v := range []float64{0, 1, -1, 0.1, 0.125, 999999999.999, 1e12, 1e-7, 4.35, 2.675} {
		f.Add(v)
	}
	f.Fuzz(func(t *testing.T, v float64) {
		var back float64
		if text := appendFloat(nil, v); json.Unmarshal(text, &back) == nil {
			assert.Equal(t, v, back)
			assert.Regexp(t, "[.e]", string(text))
		} else {
			assert.True(t, math.IsNaN(v) || math.IsInf(v, 0), "%g became %s", v, text) // only what is not finite has no JSON
		}
	})
}

func BenchmarkEncode(b *testing.B) {
	r := weather(100)
	b.Run("json", func(b *testing.B) {
		var body []byte
		b.ReportAllocs()
		for b.Loop() {
			body = AppendBody(body[:0], r)
		}
		perReading(b, r)
	})
	for _, form := range []Form{Plain, Compact} {
		b.Run(string(form), func(b *testing.B) {
			m := NewMessage(form, "", "")
			b.ReportAllocs()
			for b.Loop() {
				m.Of(r)
			}
			perReading(b, r)
		})
	}
}

func perReading(b *testing.B, r []telemetry.Reading) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(r)), "ns/reading")
}
