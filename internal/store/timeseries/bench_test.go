package timeseries

import (
	"fmt"
	"testing"
	"time"

	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/internal/store/storetest"
)

// BenchmarkEncode encodes commands with documents of integer fields, without the driver's own
// work.
func BenchmarkEncode(b *testing.B) {
	for _, perSensor := range []int{1, 12, 60, 360} {
		for _, fields := range []int{1, 10, 50} {
			b.Run(fmt.Sprintf("readings_per_sensor=%d/fields=%d", perSensor, fields), func(b *testing.B) {
				writes := storetest.Pending(storetest.Integers(b, 0, 6000/perSensor, perSensor, fields), time.Hour)
				in := (&inserts{}).get()
				readings := 0
				b.ReportAllocs()
				for b.Loop() {
					for in.left = writes; len(in.left) > 0; in.left = in.left[len(in.parts):] {
						in.encodeCommand(storetest.Stream, store.WriteConcern{}, &store.Prepared{})
						for _, p := range in.parts {
							readings += p.rows
						}
					}
				}
				b.ReportMetric(0, "ns/op") // meaningless here
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(readings), "ns/reading")
			})
		}
	}
}
