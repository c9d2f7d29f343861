package timeseries

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/internal/store/storetest"
)

// BenchmarkEncode makes documents of integer fields, as they go to the driver;
// the driver's own work is not in it.
func BenchmarkEncode(b *testing.B) {
	for _, perSensor := range []int{1, 12, 60, 360} {
		for _, fields := range []int{1, 10, 50} {
			b.Run(fmt.Sprintf("readings_per_sensor=%d/fields=%d", perSensor, fields), func(b *testing.B) {
				shares := storetest.Shares(storetest.Integers(b, 0, 6000/perSensor, perSensor, fields), time.Hour)
				in := (&inserts{}).get()
				readings := 0
				b.ReportAllocs()
				for b.Loop() {
					for _, share := range shares {
						for _, r := range share.Rows {
							in.encode(share, r)
						}
						readings += len(share.Rows)
					}
				}
				b.ReportMetric(0, "ns/op") // of no meaning here
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(readings), "ns/reading")
			})
		}
	}
}

const (
	writeTime    = 6 * time.Second // for both sides of the comparison together
	writeSensors = 100
)

// BenchmarkWrite writes readings of ten integer fields, grouped by sensor, into
// a time-series collection of a real mongod, in turns with the driver's
// InsertMany of documents that were encoded beforehand, 1,000 a call. It runs
// for a fixed time, whatever -benchtime says.
//
//	go test -run '^$' -bench Write ./internal/store/timeseries
func BenchmarkWrite(b *testing.B) {
	for _, perSensor := range []int{1, 12, 60} {
		b.Run(fmt.Sprintf("readings_per_sensor=%d", perSensor), func(b *testing.B) {
			s, raw := openBenchmark(b), openBenchmark(b)
			n, pid := writeSensors*perSensor, mongodtest.Shared(b).Pid()
			var ours, theirs storetest.Usage
			for began, at := time.Now(), 0; time.Since(began) < writeTime; at += perSensor {
				shares := storetest.Shares(storetest.Integers(b, at, writeSensors, perSensor, 10), time.Hour)
				docs := encoded(shares)
				theirs.Measure(b, pid, n, func() {
					for len(docs) > 0 {
						some := docs[:min(1000, len(docs))]
						_, err := raw.Majority.InsertMany(b.Context(), some, options.InsertMany().SetOrdered(false))
						require.NoError(b, err)
						docs = docs[len(some):]
					}
				})
				ours.Measure(b, pid, n, func() { storetest.WriteAll(b, s, shares) })
			}
			ours.Report(b, "")
			theirs.Report(b, "raw-")
			b.ReportMetric(ours.Rate()/theirs.Rate(), "rate/raw")
		})
	}
}

func encoded(shares []*batch.Share) []bson.Raw {
	var docs []bson.Raw
	in := (&inserts{}).get()
	for _, share := range shares {
		for _, r := range share.Rows {
			in.encode(share, r)
			docs = append(docs, append(bson.Raw(nil), in.doc...))
		}
	}
	return docs
}

func openBenchmark(b *testing.B) *Store {
	b.Helper()
	db := mongodtest.Database(b)
	conn, err := store.Connect(store.ConnectionConfig{URI: mongodtest.URI(b), Database: db.Name(), Logger: slog.New(slog.DiscardHandler)})
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, conn.Close(context.Background())) })
	s, err := New(Config{Database: conn.Database(), Stream: storetest.Stream, Granularity: time.Hour, Registerer: prometheus.NewRegistry()})
	require.NoError(b, err)
	require.NoError(b, s.Prepare(b.Context()))
	return s
}
