package ingest

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// Each operation of these benchmarks decodes one request: a reading of each of
// 1,000 hosts, as they come when all report at the same time, or 50 readings of
// each of 100. The plain path stands beside the fast one.

func BenchmarkDecodeJSON(b *testing.B)   { benchJSON(b, formJSON, jsonArray) }
func BenchmarkDecodeNDJSON(b *testing.B) { benchJSON(b, formLines, ndjson) }

func BenchmarkDecodeOneJSON(b *testing.B) {
	content := ndjson(makeCPU(1, 1))
	benchDecode(b, 1, len(content), func(in *intake) error {
		return withBody(in.server, content, func(body []byte) error { return in.decodeJSON(body, formJSON) })
	})
}

func benchJSON(b *testing.B, f form, encode func([]cpuReading) []byte) {
	eachShapeOfRequest(b, func(b *testing.B, readings []cpuReading) {
		content := encode(readings)
		benchDecode(b, len(readings), len(content), func(in *intake) error {
			return withBody(in.server, content, func(body []byte) error { return in.decodeJSON(body, f) })
		})
	})
}

func BenchmarkDecodeProtobuf(b *testing.B) {
	for _, c := range []struct {
		name   string
		encode func([]cpuReading) proto.Message
	}{
		{"plain", func(r []cpuReading) proto.Message { return plainRequest(r) }},
		{"compact", func(r []cpuReading) proto.Message { return compactRequest(r) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			eachShapeOfRequest(b, func(b *testing.B, readings []cpuReading) {
				message, err := proto.Marshal(c.encode(readings))
				require.NoError(b, err)
				benchDecode(b, len(readings), len(message), func(in *intake) error { return in.decodeProtobuf(message) })
			})
		})
	}
}

func eachShapeOfRequest(b *testing.B, run func(*testing.B, []cpuReading)) {
	b.Run("hosts=1000", func(b *testing.B) { run(b, makeCPU(1000, 1000)) })
	b.Run("hosts=100", func(b *testing.B) { run(b, makeCPU(5000, 100)) })
}

// benchDecode reports time, bytes and allocations for each reading.
func benchDecode(b *testing.B, readings, size int, decode func(*intake) error) {
	b.Helper()
	d, _ := newTestServer(b)
	b.SetBytes(int64(size))
	request := func() {
		in := d.newIntake(d.streams["readings"], telemetry.Stored)
		if err := decode(in); err != nil || in.builder.Len() != readings {
			b.Fatal(in.builder.Len(), err, in.answer.Errors)
		}
		in.builder.Batch()
	}
	request() // in which the sensors are seen for the first time
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	b.ResetTimer()
	for b.Loop() {
		request()
	}
	b.StopTimer()
	runtime.ReadMemStats(&after)
	all := float64(b.N) * float64(readings)
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/all, "ns/reading")
	b.ReportMetric(float64(after.TotalAlloc-before.TotalAlloc)/all, "B/reading")
	b.ReportMetric(float64(after.Mallocs-before.Mallocs)/all, "allocs/reading")
}
