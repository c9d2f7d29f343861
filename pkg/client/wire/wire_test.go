package wire

import (
	"fmt"
	"math/rand/v2"
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

// TestPlacesInMessages: some readings are in columns, which a daemon numbers
// after the others.
func TestPlacesInMessages(t *testing.T) {
	t.Parallel()
	all := weather(5)
	all[0].Sensor, all[3].Sensor = "a", "b" // alone; 1, 2 are a series, and so is 4 after them
	m := NewMessage(Compact, "", "")
	for range 2 {
		request := m.Of(all)
		assert.Len(t, request.GetReadings(), 2)
		assert.Len(t, request.GetSeries(), 2)
		for number, place := range []int{0, 3, 1, 2, 4, -1} {
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

// TestOrderInMessages: a daemon processes each sensor's readings in their original
// order.
func TestOrderInMessages(t *testing.T) {
	t.Parallel()
	m := NewMessage(Compact, "", "")
	for seed := range uint64(100) {
		random := rand.New(rand.NewPCG(seed, 0))
		all := weather(50)
		for i := range all {
			all[i].Sensor = string(rune('a' + random.IntN(3)))
			if all[i].Sensor == "c" && random.IntN(5) == 0 {
				all[i].Time = time.Time{}
			}
		}
		m.Of(all)
		last := map[string]int{}
		for index := range all {
			place := m.Place(index)
			sensor := all[place].Sensor
			require.GreaterOrEqual(t, place, last[sensor], "seed %d, sensor %s", seed, sensor)
			last[sensor] = place
		}
	}
}

// A daemon refuses series with more columns than a reading may have fields.
func TestSensorsWithManyFields(t *testing.T) {
	t.Parallel()
	all := weather(4)
	for i := range all {
		all[i].Fields = nil
		for n := range 100 {
			all[i].Fields = append(all[i].Fields, telemetry.Field{Name: fmt.Sprint(i, "-", n), Value: telemetry.IntValue(int64(n))})
		}
	}
	request := NewMessage(Compact, "", "").Of(all)
	assert.Empty(t, request.GetReadings())
	require.Len(t, request.GetSeries(), 2)
	for _, s := range request.GetSeries() {
		assert.Len(t, s.GetTsMs(), 2)
		assert.Len(t, s.GetColumns(), 200)
	}
}

func TestAddresses(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]Address{
		"http://127.0.0.1:8430":  {Name: "127.0.0.1", Host: "127.0.0.1:8430"},
		"http://[::1]:8430/":     {Name: "::1", Host: "[::1]:8430", Base: "http://[::1]:8430"},
		"http://brim.example":    {Name: "brim.example", Host: "brim.example:80", Base: "http://brim.example:80"},
		"https://brim.example":   {TLS: true, Name: "brim.example", Host: "brim.example:443", Base: "https://brim.example:443"},
		"grpc://localhost:8431":  {GRPC: true, Name: "localhost", Host: "localhost:8431"},
		"grpcs://localhost:8431": {GRPC: true, TLS: true, Name: "localhost", Host: "localhost:8431"},
	} {
		got, err := ParseAddress(given)
		require.NoError(t, err, given)
		if want.Base == "" {
			want.Base = given
		}
		assert.Equal(t, want, got)
		assert.Equal(t, want.Name != "brim.example", got.Loopback())
	}
	for _, given := range []string{
		"", "localhost:8430", "127.0.0.1:8430", "ftp://localhost:1", "http://", "http://:8430", "grpc://localhost", "http://h:0", "http://h:70000",
		"http://h:1/v1/readings", "http://h:1?a=b", "http://h:1#a", "http:h:1", "http://u:secret@h:1", "http://u:secret@h:x", "secret://u:secret@h:1", "http://%zz:secret@h",
		"http://:secret@h:1", "u:secret@h:1",
	} {
		_, err := ParseAddress(given)
		require.ErrorContains(t, err, "allowed: http://host:port, https://host:port, grpc://host:port and grpcs://host:port", given)
		assert.NotContains(t, err.Error(), ":secret@")
	}
	for _, given := range []string{"http://CANARY@h:1", "http://u:CANARY@h:1", "u:CANARY@h:1", "CANARY://u:CANARY@h:1", "http://u:CANARY@:1"} {
		_, err := ParseAddress(given)
		require.ErrorContains(t, err, "***@")
		assert.NotContains(t, err.Error(), "u:CANARY")
		assert.NotContains(t, err.Error(), "CANARY@")
	}
}

func BenchmarkEncode(b *testing.B) {
	r := weather(100)
	b.Run("json", func(b *testing.B) {
		var body []byte
		b.ReportAllocs()
		for b.Loop() {
			body = telemetry.AppendNDJSON(body[:0], r)
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
