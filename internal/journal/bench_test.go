package journal_test

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/journal"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// tenFields returns a reading of ten fields of each of n sensors with ten tags.
func tenFields(n int) *batch.Batch {
	b := batch.NewBuilder(time.Now())
	names := make([][]byte, 10)
	for f := range names {
		names[f] = []byte{'f', byte('0' + f)}
	}
	for i := range n {
		b.Begin("readings", i, telemetry.TimeRange{Newest: math.MaxInt64})
		b.Sensor(fmt.Appendf(nil, "cpu,hostname=host_%d", i))
		for f := range names {
			b.Tag(names[f], fmt.Appendf(nil, "value-%d", (i+f)%20))
		}
		b.Time(int64(i))
		for f := range names {
			b.Int(names[f], int64(i*f))
		}
		b.End()
	}
	return b.Batch()
}

func benchConfig(b *testing.B, session string) journal.Config {
	return journal.Config{Dir: b.TempDir(), Session: session, Streams: streams()}
}

// BenchmarkAppend gives the time of one request in the midst of many, and of one
// reading; the time of a bare fsync of as many bytes stands beside.
func BenchmarkAppend(b *testing.B) {
	for _, size := range []struct {
		name            string
		rows, producers int
	}{{"single-1", 1, 1}, {"single-128", 1, 64}, {"1000-lines-1", 1000, 1}, {"1000-lines-16", 1000, 8}} {
		b.Run(size.name, func(b *testing.B) {
			cfg := benchConfig(b, "bench")
			cfg.MaxBytes = 1 << 40
			cfg.SegmentBytes = 64 << 20
			j, err := journal.Open(cfg)
			require.NoError(b, err)
			defer j.Close()
			b.SetParallelism(size.producers)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					// A batch belongs to the journal, but what it encodes is the same.
					view := sample(size.rows)
					if _, err := j.Append(context.Background(), view, batch.Request{Want: telemetry.Journaled}); err != nil {
						b.Error(err)
						return
					}
					if end := j.End(); end > 256<<20 {
						j.Trim(end - 256<<20 + 1)
					}
				}
			})
			b.StopTimer()
			runtime.ReadMemStats(&after)
			readings := float64(b.N * size.rows)
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/readings, "ns/reading")
			b.ReportMetric(float64(after.TotalAlloc-before.TotalAlloc)/readings, "B/reading")
			b.ReportMetric(float64(after.Mallocs-before.Mallocs)/readings, "allocs/reading")
			b.ReportMetric(float64(j.End())/readings, "written-B/reading")
		})
	}
}

var samples = map[int]*batch.Batch{1: tenFields(1), 1000: tenFields(1000)}

func sample(rows int) *batch.Batch {
	view := samples[rows].View(nil)
	return &view
}

func BenchmarkFsync(b *testing.B) {
	f, err := os.Create(filepath.Join(b.TempDir(), "file"))
	require.NoError(b, err)
	defer f.Close()
	block := make([]byte, 4096)
	for b.Loop() {
		_, err := f.Write(block)
		require.NoError(b, err)
		require.NoError(b, f.Sync())
	}
}

// BenchmarkOpen opens a journal with a million readings that are not stored.
func BenchmarkOpen(b *testing.B) {
	for _, size := range []struct {
		name string
		rows int
	}{{"single", 1}, {"1000-lines", 1000}} {
		b.Run(size.name, func(b *testing.B) {
			cfg := benchConfig(b, "writer")
			j, err := journal.Open(cfg)
			require.NoError(b, err)
			const total, writers = 1_000_000, 256
			done := make(chan error, writers)
			for range writers {
				go func() {
					for range total / size.rows / writers {
						if _, err := j.Append(context.Background(), sample(size.rows), batch.Request{Want: telemetry.Journaled}); err != nil {
							done <- err
							return
						}
					}
					done <- nil
				}()
			}
			for range writers {
				require.NoError(b, <-done)
			}
			require.NoError(b, j.Close())
			cfg.Session = "reader"
			b.ResetTimer()
			for b.Loop() {
				j, err := journal.Open(cfg)
				require.NoError(b, err)
				b.StopTimer()
				b.ReportMetric(float64(j.Taken()), "readings")
				require.NoError(b, j.Close())
				b.StartTimer()
			}
			b.ReportMetric(b.Elapsed().Seconds()/float64(b.N), "s/open")
		})
	}
}

// BenchmarkFollow reads readings back from the disk.
func BenchmarkFollow(b *testing.B) {
	cfg := benchConfig(b, "writer")
	cfg.TailBytes = 1
	j, err := journal.Open(cfg)
	require.NoError(b, err)
	defer j.Close()
	for range 200 {
		_, err := j.Append(context.Background(), sample(1000), batch.Request{Want: telemetry.Journaled})
		require.NoError(b, err)
	}
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		n = len(follow(b, j, 0)) * 1000
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/reading")
}
