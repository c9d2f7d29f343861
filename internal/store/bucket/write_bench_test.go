package bucket

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/procfs"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/internal/store/storetest"
)

const writeTime = 3 * time.Second

// BenchmarkWrite writes readings of ten integer fields of 1,000 sensors into
// hourly buckets of a real mongod, and tells what a reading costs this process
// and what it costs mongod. It runs for a fixed time, whatever -benchtime says.
//
//	go test -run '^$' -bench Write ./internal/store/bucket
func BenchmarkWrite(b *testing.B) {
	for _, perUpdate := range []int{1, 12, 60} {
		for _, writers := range []int{1, 4} {
			b.Run(fmt.Sprintf("readings_per_update=%d/writers=%d", perUpdate, writers), func(b *testing.B) {
				s := openBenchmark(b)
				var used usage
				for began, round := time.Now(), 0; time.Since(began) < writeTime; round++ {
					used.round(b, s, round, perUpdate, writers)
				}
				used.report(b)
			})
		}
	}
}

func openBenchmark(b *testing.B) *Store {
	b.Helper()
	db := mongodtest.Database(b)
	conn, err := store.Connect(store.ConnectionConfig{URI: mongodtest.URI(b), Database: db.Name(), Logger: slog.New(slog.DiscardHandler)})
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, conn.Close(context.Background())) })
	return openBenchmarkAt(b, conn.Database(), "write")
}

func openBenchmarkAt(b *testing.B, db *mongo.Database, stream string) *Store {
	b.Helper()
	s, err := New(Config{
		Database: db, Stream: stream, Granularity: time.Hour, MaxReadings: 720, MaxBytes: maxPartBytes,
		Registerer: prometheus.NewRegistry(),
	})
	require.NoError(b, err)
	require.NoError(b, s.Prepare(b.Context()))
	return s
}

// usage adds up what rounds of writing took.
type usage struct {
	readings             int
	wall, client, mongod time.Duration
	allocs               uint64
	states               map[string]any
}

// round writes perUpdate readings of every sensor.
func (u *usage) round(b *testing.B, s *Store, round, perUpdate, writers int) {
	b.Helper()
	if u.states == nil {
		u.states = make(map[string]any)
	}
	const sensors = 1000
	all := readings(b, sensors, perUpdate, 10)
	all.Session, all.FirstSeq = "swrite", uint64(1+round*all.Len())
	shares := storetest.Shares(all, time.Hour)
	for _, share := range shares {
		share.State = u.states[share.Sensor]
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	client, mongod, began := clientTime(b), mongodTime(b), time.Now()
	var group sync.WaitGroup
	for w := range writers {
		mine := shares[w*len(shares)/writers : (w+1)*len(shares)/writers]
		group.Go(func() {
			for len(mine) > 0 {
				s.Write(b.Context(), mine)
				mine = pending(mine)
			}
		})
	}
	group.Wait()
	u.wall, u.client, u.mongod = u.wall+time.Since(began), u.client+clientTime(b)-client, u.mongod+mongodTime(b)-mongod
	runtime.ReadMemStats(&after)
	u.allocs += after.Mallocs - before.Mallocs
	u.readings += sensors * perUpdate
	for _, share := range shares {
		u.states[share.Sensor] = share.State
	}
}

func pending(shares []*batch.Share) []*batch.Share {
	var left []*batch.Share
	for _, share := range shares {
		if len(share.Rows) > 0 {
			left = append(left, share)
		}
	}
	return left
}

func (u *usage) report(b *testing.B) {
	b.Helper()
	n := float64(u.readings)
	b.ReportMetric(0, "ns/op") // of no meaning here
	b.ReportMetric(n/u.wall.Seconds(), "readings/s")
	b.ReportMetric(float64(u.client)/n, "client-ns/reading")
	b.ReportMetric(float64(u.mongod)/n, "mongod-ns/reading")
	b.ReportMetric(float64(u.allocs)/n, "allocs/reading")
}

// clientTime is the CPU that this process has taken.
func clientTime(b *testing.B) time.Duration {
	b.Helper()
	var r syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &r))
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// mongodTime is the CPU that the shared mongod has taken, to 10 ms.
func mongodTime(b *testing.B) time.Duration {
	b.Helper()
	proc, err := procfs.NewProc(mongodtest.Shared(b).Pid())
	require.NoError(b, err)
	stat, err := proc.Stat()
	require.NoError(b, err)
	return time.Duration(stat.CPUTime() * float64(time.Second))
}
