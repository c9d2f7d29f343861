package bucket

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/internal/store/storetest"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

const (
	guardSensors = 1000
	guardWriters = 4
	guardTime    = 20 * time.Second // for both sides together
)

// BenchmarkGuard compares updates with the guard, the fence and the caps in
// their filter with updates whose filter is `_id` alone: readings of four
// fields, 1,000 sensors in hourly buckets, 4 writers, alternating on one
// mongod. It runs for a fixed time, whatever -benchtime says.
//
//	go test -run '^$' -bench Guard ./internal/store/bucket
func BenchmarkGuard(b *testing.B) {
	for _, perUpdate := range []int{1, 12, 60} {
		b.Run(fmt.Sprintf("readings_per_update=%d", perUpdate), func(b *testing.B) {
			guarded := newGuardSide(b, "guarded", (*Store).Write)
			bare := newGuardSide(b, "bare", writeBare)
			for began := time.Now(); time.Since(began) < guardTime; {
				guarded.round(b, perUpdate)
				bare.round(b, perUpdate)
			}
			b.ReportMetric(0, "ns/op") // meaningless here
			b.ReportMetric(guarded.rate(), "guarded-readings/s")
			b.ReportMetric(bare.rate(), "bare-readings/s")
			b.ReportMetric(guarded.rate()/bare.rate(), "guarded/bare")
		})
	}
}

// guardSide is one side of the comparison.
type guardSide struct {
	store    *Store
	write    func(*Store, context.Context, []*batch.Pending)
	seq      uint64
	step     int // of event time
	readings int
	took     time.Duration
}

func newGuardSide(b *testing.B, name string, write func(*Store, context.Context, []*batch.Pending)) *guardSide {
	b.Helper()
	db := mongodtest.Database(b)
	conn, err := store.Connect(store.ConnectionConfig{URI: mongodtest.URI(b), Database: db.Name(), Logger: slog.New(slog.DiscardHandler)})
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, conn.Close(context.Background())) })
	s, err := New(Config{
		Database: conn.Database(), Stream: name, Granularity: time.Hour, MaxReadings: 100_000, MaxBytes: maxPartBytes,
		Registerer: prometheus.NewRegistry(),
	})
	require.NoError(b, err)
	require.NoError(b, s.Prepare(b.Context()))
	return &guardSide{store: s, write: write, seq: 1}
}

// writeBare is Write with only `_id` in the filters, for parts that are never full.
func writeBare(s *Store, ctx context.Context, writes []*batch.Pending) { //nolint:revive // as a method expression
	to := s.Target(writes)
	bulk := s.bulks.get()
	defer s.bulks.put(bulk)
	s.forget(writes, to)
	s.prepareAll(ctx, bulk, writes)
	for ops := bulk.ops; len(ops) > 0; {
		n := oneCommand(ops)
		models := make([]mongo.WriteModel, n)
		for i := range models {
			op := &ops[i]
			op.bulk = bulk
			at, filter := bsoncore.AppendDocumentStart(nil)
			filter = end(appendID(filter, op.pending, op.number), at)
			models[i] = mongo.NewUpdateOneModel().SetFilter(bson.Raw(filter)).SetUpdate((*updateOf)(op)).SetUpsert(true)
		}
		bulk.left = n
		_, err := s.Live.Load().Into.BulkWrite(ctx, models, to.Bulk)
		_, _ = s.settle(ctx, ops[:n], reply{err: err}) // see the verdicts
		ops = ops[n:]
	}
}

// round writes perUpdate readings per sensor.
func (g *guardSide) round(b *testing.B, perUpdate int) {
	b.Helper()
	builder := batch.NewBuilder(storetest.Base)
	for i := range guardSensors * perUpdate {
		builder.Begin(storetest.Stream, i, telemetry.TimeRange{Newest: math.MaxInt64})
		builder.Sensor(fmt.Appendf(nil, "sensor-%d", i%guardSensors))
		builder.Time(storetest.Base.Add(time.Duration(g.step+i/guardSensors) * 5 * time.Second).UnixMilli())
		for _, field := range []string{"t", "h", "p", "v"} {
			builder.Float([]byte(field), float64(i%1000)/10)
		}
		require.Nil(b, builder.End())
	}
	g.step += perUpdate
	readings := builder.Batch()
	readings.Session, readings.FirstSeq = "sguard", g.seq
	g.seq += uint64(readings.Len())
	writes := storetest.Pending(readings, time.Hour)

	began := time.Now()
	var writers sync.WaitGroup
	for part := range guardWriters {
		mine := writes[part*len(writes)/guardWriters : (part+1)*len(writes)/guardWriters]
		writers.Go(func() { g.write(g.store, b.Context(), mine) })
	}
	writers.Wait()
	g.took += time.Since(began)
	for _, pending := range writes {
		require.Equal(b, batch.Stored, pending.Verdict, pending.Err)
	}
	g.readings += readings.Len()
}

func (g *guardSide) rate() float64 { return float64(g.readings) / g.took.Seconds() }
