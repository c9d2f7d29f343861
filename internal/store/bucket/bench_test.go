package bucket

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/brim-telemetry/brim/internal/store/storetest"
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
	writes := storetest.Pending(storetest.Integers(b, 0, sensors, perUpdate, fields), time.Hour)
	s := unconnected(Settings{MaxReadings: 1000, MaxBytes: maxPartBytes})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	b.ResetTimer()
	for b.Loop() {
		bulk := s.bulks.get()
		for _, pending := range writes {
			op, _ := s.cut(pending, &part{})
			bulk.filter = bulk.encoder.filter(bulk.filter[:0], &op)
			bulk.update, _ = bulk.encoder.update(bulk.update[:0], &op)
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
