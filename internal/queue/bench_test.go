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
				one.Received = time.Now() // not when it was made
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

// BenchmarkWaiting measures the memory of waiting readings with four fields and two tags,
// which arrive in requests of a thousand. heap is the memory in use after a garbage
// collection, charged is what --queue-max-bytes counts.
//
//	go test -run '^$' -bench Waiting -benchtime 1x ./internal/queue
func BenchmarkWaiting(b *testing.B) {
	for _, c := range []struct{ sensors, each int }{{100_000, 1}, {100_000, 10}, {20_000, 60}, {1_000_000, 12}} {
		b.Run(fmt.Sprintf("sensors=%d/each=%d", c.sensors, c.each), func(b *testing.B) {
			for b.Loop() {
				benchmarkWaiting(b, c.sensors, c.each)
			}
		})
	}
}

func benchmarkWaiting(b *testing.B, sensors, each int) {
	b.Helper()
	interner, journal := batch.NewInterner(0), newFakeJournal()
	before := heapInUse()
	q, err := New(Config{
		Journal: journal, Lanes: 4, MaxBytes: 4 << 30, DeadLetters: &fakeLetters{}, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
		Streams: map[string]Stream{"readings": {Store: takesAll{}, Granularity: time.Hour, Policy: Policy{Readings: MaxMerge, Max: time.Hour, Budget: -1}}},
	})
	require.NoError(b, err)
	defer q.Close(b.Context())
	n := 0
	for at := range each {
		for first := 0; first < sensors; first += 1000 {
			journal.add(waitingReadings(interner, at, first), nil)
			n += 1000
			if n%100_000 == 0 {
				journal.forgetWhat(b, q)
			}
		}
	}
	journal.forgetWhat(b, q)
	heap := heapInUse() - before
	b.ReportMetric(float64(heap)/float64(n), "heap-B/reading")
	b.ReportMetric(float64(q.Status().Bytes)/float64(n), "charged-B/reading")
	if got := len(q.Waiting("readings", "sensor-7").Rows); got != each {
		b.Fatalf("%d readings of a sensor wait, not %d", got, each)
	}
}

// forgetWhat drops the records when all lanes have packed their rows.
func (j *fakeJournal) forgetWhat(b *testing.B, q *Queue) {
	b.Helper()
	require.Eventually(b, func() bool {
		for _, l := range q.lanes {
			l.mu.Lock()
			left := l.parcels.Len()
			l.mu.Unlock()
			if left > 0 || l.cursor.Position() < j.End() {
				return false
			}
		}
		return true
	}, time.Minute, 10*time.Millisecond)
	j.mu.Lock()
	defer j.mu.Unlock()
	clear(j.records)
}

func heapInUse() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// waitingReadings returns a request of a thousand sensors that arrived long ago.
func waitingReadings(interner *batch.Interner, at, first int) *batch.Batch {
	b := interner.Builder(time.Now().Add(-time.Minute))
	for i := range 1000 {
		sensor := first + i
		b.Begin("readings", i, telemetry.TimeRange{Newest: math.MaxInt64})
		b.Sensor(fmt.Appendf(nil, "sensor-%d", sensor))
		b.Tag([]byte("site"), fmt.Appendf(nil, "site-%d", sensor%10))
		b.Tag([]byte("model"), []byte("m1"))
		b.Time(base.UnixMilli() + int64(at)*5000 + int64(sensor%1000))
		for f, name := range []string{"t", "h", "p", "v"} {
			b.Float([]byte(name), float64(200+(sensor*7+at*13+f*29)%100)/10)
		}
		b.End()
	}
	return b.Batch()
}
