package bucket

import (
	"fmt"
	"math"
	"runtime"
	"testing"
	"time"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/store/storetest"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// BenchmarkEncode makes guarded updates of integer fields, as they go to the
// driver; the driver's own work is not in it.
func BenchmarkEncode(b *testing.B) {
	for _, perUpdate := range []int{1, 12, 60, 360} {
		for _, fields := range []int{1, 10, 50} {
			b.Run(fmt.Sprintf("readings_per_update=%d/fields=%d", perUpdate, fields), func(b *testing.B) {
				benchmarkEncode(b, perUpdate, fields)
			})
		}
	}
}

func benchmarkEncode(b *testing.B, perUpdate, fields int) {
	sensors := 6000 / perUpdate
	shares := storetest.Shares(readings(b, sensors, perUpdate, fields), time.Hour)
	s := &Store{cfg: Config{MaxReadings: 1000, MaxBytes: maxPartBytes}}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	b.ResetTimer()
	for b.Loop() {
		bulk := s.bulks.get(nil)
		for _, share := range shares {
			op, _ := s.cut(share, &part{})
			bulk.filter = bulk.encoder.filter(bulk.filter[:0], &op)
			bulk.update = bulk.encoder.update(bulk.update[:0], &op)
		}
		s.bulks.put(bulk)
	}
	runtime.ReadMemStats(&after)
	n := float64(b.N * sensors * perUpdate)
	b.ReportMetric(0, "ns/op") // of no meaning here
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/n, "ns/reading")
	b.ReportMetric(float64(after.Mallocs-before.Mallocs)/n, "allocs/reading")
	b.ReportMetric(float64(after.TotalAlloc-before.TotalAlloc)/n, "B/reading")
}

// readings are of one request, the sensors in turns.
func readings(b *testing.B, sensors, perSensor, fields int) *batch.Batch {
	b.Helper()
	builder := batch.NewBuilder(storetest.Base)
	names := make([][]byte, fields)
	for f := range names {
		names[f] = fmt.Appendf(nil, "usage_field_%d", f)
	}
	for i := range sensors * perSensor {
		builder.Begin(storetest.Stream, i, telemetry.TimeRange{Newest: math.MaxInt64})
		builder.Sensor(fmt.Appendf(nil, "cpu,hostname=host_%d", i%sensors))
		builder.Tag([]byte("region"), []byte("eu-west-1"))
		builder.Time(storetest.Base.Add(time.Duration(i/sensors) * 10 * time.Second).UnixMilli())
		for _, name := range names {
			builder.Int(name, int64(i%100))
		}
		if r := builder.End(); r != nil {
			b.Fatal(r)
		}
	}
	return builder.Batch()
}
