package queue

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"runtime"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// takesAll is a store to which writing costs nothing.
type takesAll struct{}

func (takesAll) Write(_ context.Context, writes []*batch.Pending) {
	for _, s := range writes {
		s.Verdict = batch.Stored
		s.Drop(len(s.Rows))
	}
}

// BenchmarkLane measures what four lanes do with requests of a thousand
// readings of ten fields, from the journal's cursor to the store and
// back: every sensor once in a request, and ten sensors a hundred times.
//
//	go test -run '^$' -bench Lane ./internal/queue
func BenchmarkLane(b *testing.B) {
	const rows = 1000
	for _, sensors := range []int{1000, 10} {
		b.Run(fmt.Sprintf("sensors=%d", sensors), func(b *testing.B) {
			interner := batch.NewInterner(0)
			journal := newFakeJournal()
			q, err := New(Config{
				Journal: journal, Streams: map[string]Stream{"readings": {Store: takesAll{}, Granularity: time.Hour}},
				DeadLetters: &fakeLetters{}, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
			})
			require.NoError(b, err)
			defer q.Close(b.Context())
			made := make([]*batch.Batch, b.N)
			for i := range made {
				made[i] = cpuLines(interner, i, rows, sensors)
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			b.ResetTimer()
			for _, one := range made {
				journal.add(one, nil)
			}
			require.NoError(b, q.Flush(b.Context()))
			b.StopTimer()
			runtime.ReadMemStats(&after)
			readings := float64(b.N * rows)
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/readings, "ns/reading")
			b.ReportMetric(float64(after.TotalAlloc-before.TotalAlloc)/readings, "B/reading")
			b.ReportMetric(float64(after.Mallocs-before.Mallocs)/readings, "allocs/reading")
		})
	}
}

// cpuLines is the n-th request of its kind, each ten seconds later.
func cpuLines(interner *batch.Interner, n, rows, sensors int) *batch.Batch {
	b := interner.Builder(time.Now())
	for i := range rows {
		b.Begin("readings", i, telemetry.TimeRange{Newest: math.MaxInt64})
		b.Sensor(fmt.Appendf(nil, "cpu,hostname=host_%d", i%sensors))
		b.Time(int64(n*rows/sensors+i/sensors) * 10_000)
		for f := range 10 {
			b.Int([]byte{'f', byte('0' + f)}, int64(i*f%101))
		}
		b.End()
	}
	return b.Batch()
}
