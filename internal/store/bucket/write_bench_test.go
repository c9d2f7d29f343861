package bucket

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/internal/store/storetest"
)

const (
	writeTime    = 3 * time.Second
	writeSensors = 1000
)

// BenchmarkWrite writes readings of ten integer fields of 1,000 sensors into
// hourly buckets of a real mongod, and tells what a reading costs this process
// and what it costs mongod. It runs for a fixed time, whatever -benchtime says.
//
//	go test -run '^$' -bench Write ./internal/store/bucket
func BenchmarkWrite(b *testing.B) {
	for _, perUpdate := range []int{1, 12, 60} {
		for _, writers := range []int{1, 4} {
			b.Run(fmt.Sprintf("readings_per_update=%d/writers=%d", perUpdate, writers), func(b *testing.B) {
				s, states := openBenchmark(b), make(map[string]any)
				var used storetest.Usage
				for began, at := time.Now(), 0; time.Since(began) < writeTime; at += perUpdate {
					shares := storetest.Shares(storetest.Integers(b, at, writeSensors, perUpdate, 10), time.Hour)
					remember(states, shares, func(state *any, share *batch.Share) { share.State = *state })
					used.Measure(b, mongodtest.Shared(b).Pid(), writeSensors*perUpdate, func() { writeAll(b, s, shares, writers) })
					remember(states, shares, func(state *any, share *batch.Share) { *state = share.State })
				}
				used.Report(b, "")
			})
		}
	}
}

// remember does for the lanes what they do between writes of a bucket.
func remember(states map[string]any, shares []*batch.Share, do func(state *any, share *batch.Share)) {
	for _, share := range shares {
		key := fmt.Sprint(share.Sensor, share.Start)
		state := states[key]
		do(&state, share)
		states[key] = state
	}
}

// writeAll writes the shares, each writer its part of them.
func writeAll(b *testing.B, s *Store, shares []*batch.Share, writers int) {
	b.Helper()
	var group sync.WaitGroup
	for w := range writers {
		mine := shares[w*len(shares)/writers : (w+1)*len(shares)/writers]
		group.Go(func() { storetest.WriteAll(b, s, mine) })
	}
	group.Wait()
}

func openBenchmark(b *testing.B) *Store {
	b.Helper()
	db := mongodtest.Database(b)
	conn, err := store.Connect(store.ConnectionConfig{URI: mongodtest.URI(b), Database: db.Name(), Logger: slog.New(slog.DiscardHandler)})
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, conn.Close(context.Background())) })
	s, err := New(Config{
		Database: conn.Database(), Stream: "write", Granularity: time.Hour, MaxReadings: 1000, MaxBytes: 256 << 10,
		Registerer: prometheus.NewRegistry(),
	})
	require.NoError(b, err)
	require.NoError(b, s.Prepare(b.Context()))
	return s
}
