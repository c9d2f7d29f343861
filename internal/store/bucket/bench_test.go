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

// BenchmarkEncode makes guarded updates of ten integer fields, as they go to
// the driver.
func BenchmarkEncode(b *testing.B) {
	for _, perUpdate := range []int{1, 12, 60} {
		b.Run(fmt.Sprintf("readings_per_update=%d", perUpdate), func(b *testing.B) {
			const sensors = 100
			shares := storetest.Shares(tenFields(b, sensors, perUpdate), time.Hour)
			s := &Store{cfg: Config{MaxReadings: 1000, MaxBytes: 1 << 20}}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			b.ResetTimer()
			for b.Loop() {
				enc := encoder{}
				for _, share := range shares {
					enc.model(s.cut(share, &part{}))
				}
			}
			runtime.ReadMemStats(&after)
			readings := float64(b.N * sensors * perUpdate)
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/readings, "ns/reading")
			b.ReportMetric(float64(after.Mallocs-before.Mallocs)/readings, "allocs/reading")
			b.ReportMetric(float64(after.TotalAlloc-before.TotalAlloc)/readings, "B/reading")
		})
	}
}

func tenFields(b *testing.B, sensors, perSensor int) *batch.Batch {
	b.Helper()
	builder := batch.NewBuilder(storetest.Base)
	names := make([][]byte, 10)
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
