package ingest

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
)

// Each operation of these benchmarks decodes one request of 5,000 readings of
// 100 hosts.
const (
	benchReadings = 5000
	benchHosts    = 100
)

func BenchmarkDecodeJSON(b *testing.B) {
	benchHTTP(b, jsonArray(makeCPU(benchReadings, benchHosts)), func(in *intake, body *body) error { return in.decodeJSON(body, formJSON) })
}

func BenchmarkDecodeNDJSON(b *testing.B) {
	benchHTTP(b, ndjson(makeCPU(benchReadings, benchHosts)), func(in *intake, body *body) error { return in.decodeJSON(body, formLines) })
}

func BenchmarkDecodeProtobuf(b *testing.B) {
	for name, request := range map[string]proto.Message{
		"plain":   plainRequest(makeCPU(benchReadings, benchHosts)),
		"compact": compactRequest(makeCPU(benchReadings, benchHosts)),
	} {
		b.Run(name, func(b *testing.B) {
			message, err := proto.Marshal(request)
			require.NoError(b, err)
			bench(b, len(message), func(in *intake) error { return in.decodeProtobuf(message) })
		})
	}
}

func benchHTTP(b *testing.B, content []byte, decode func(*intake, *body) error) {
	b.Helper()
	bench(b, len(content), func(in *intake) error {
		return withBody(in.door, content, func(b *body) error { return decode(in, b) })
	})
}

// bench reports time, bytes and allocations for each reading.
func bench(b *testing.B, size int, decode func(*intake) error) {
	b.Helper()
	d, _ := newTestDoor(b)
	b.SetBytes(int64(size))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	b.ResetTimer()
	for b.Loop() {
		in := d.newIntake(d.streams["readings"], "stored")
		if err := decode(in); err != nil || in.builder.Len() != benchReadings {
			b.Fatal(in.builder.Len(), err, in.answer.Errors)
		}
	}
	b.StopTimer()
	runtime.ReadMemStats(&after)
	readings := float64(b.N) * benchReadings
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/readings, "ns/reading")
	b.ReportMetric(float64(after.TotalAlloc-before.TotalAlloc)/readings, "B/reading")
	b.ReportMetric(float64(after.Mallocs-before.Mallocs)/readings, "allocs/reading")
}
