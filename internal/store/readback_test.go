package store_test

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/internal/store/bucket"
	"github.com/brim-telemetry/brim/internal/store/storetest"
	"github.com/brim-telemetry/brim/internal/store/timeseries"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A side is one form in which the same readings are stored.
type side struct {
	name        string
	granularity time.Duration
	maxReadings int // in a part; 0: time series
}

func sides() []side {
	return []side{
		{"5m", 5 * time.Minute, 1000}, {"1h", time.Hour, 1000}, {"1h_parts_of_50", time.Hour, 50}, {"timeseries", time.Hour, 0},
	}
}

const (
	day    = 24 * time.Hour
	period = 5 * time.Second
)

// open returns a store in a database, ready to be written.
func (s side) open(t testing.TB, uri, database string) (storetest.Store, *mongo.Collection) {
	t.Helper()
	conn, err := store.Connect(store.ConnectionConfig{URI: uri, Database: database, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close(context.Background())) })
	var made storetest.Store
	if s.maxReadings == 0 {
		made, err = timeseries.New(timeseries.Config{Database: conn.Database(), Stream: storetest.Stream, Granularity: s.granularity, Registerer: prometheus.NewRegistry()})
	} else {
		made, err = bucket.New(bucket.Config{
			Database: conn.Database(), Stream: storetest.Stream, Granularity: s.granularity,
			MaxReadings: s.maxReadings, MaxBytes: 256 << 10, Registerer: prometheus.NewRegistry(),
		})
	}
	require.NoError(t, err)
	require.NoError(t, made.Prepare(t.Context()))
	return made, conn.Database().Collection(storetest.Stream)
}

// fill returns a store with readings of four fields of one sensor, from Base on.
func (s side) fill(t testing.TB, span time.Duration) (storetest.Store, *mongo.Collection) {
	t.Helper()
	made, coll := s.open(t, mongodtest.URI(t), mongodtest.Database(t).Name())
	random, session, seq := rand.New(rand.NewPCG(1, 2)), batch.NewSession(), uint64(1)
	var readings []telemetry.Reading
	for at := time.Duration(0); at < span; at += period {
		r := storetest.Reading("s", at, 20+random.NormFloat64())
		for _, name := range []string{"h", "p", "t"} {
			r.Fields = append(r.Fields, telemetry.Field{Name: name, Value: telemetry.FloatValue(float64(random.IntN(100_000)) / 100)})
		}
		if readings = append(readings, r); len(readings) == 12 || at+period >= span {
			storetest.WriteAll(t, made, storetest.Shares(storetest.Batch(t, session, seq, readings...), s.granularity))
			seq, readings = seq+uint64(len(readings)), readings[:0]
		}
	}
	return made, coll
}

func summaryOf(from time.Time, span, every time.Duration) telemetry.SummaryQuery {
	return telemetry.SummaryQuery{
		Query: telemetry.Query{Sensor: "s", From: from.UnixMilli(), To: from.Add(span).UnixMilli()},
		Every: every.Milliseconds(),
	}
}

func all[T any](t testing.TB, seq iter.Seq2[T, error]) []T {
	t.Helper()
	var out []T
	for v, err := range seq {
		require.NoError(t, err)
		out = append(out, v)
	}
	return out
}

// unwound is the summary that is made of the readings themselves.
func unwound(t testing.TB, s storetest.Store, q telemetry.SummaryQuery) []telemetry.Summary {
	t.Helper()
	steps := store.NewSteps(q)
	for r, err := range s.Readings(t.Context(), q.Query) {
		require.NoError(t, err)
		steps.Add(r)
	}
	var out []telemetry.Summary
	steps.CloseAll(func(s telemetry.Summary, _ error) bool { out = append(out, s); return true })
	return out
}

// TestEveryStoreGivesTheSameAnswer asks for the same readings, and for what
// becomes of them in steps that do and do not fit windows.
func TestEveryStoreGivesTheSameAnswer(t *testing.T) {
	t.Parallel()
	const span = 3 * time.Hour
	queries := []telemetry.SummaryQuery{
		summaryOf(storetest.Base, span, 0), summaryOf(storetest.Base, span, time.Hour), summaryOf(storetest.Base, span, 24*time.Hour),
		summaryOf(storetest.Base.Add(7*time.Minute+3*time.Second), 2*time.Hour, 17*time.Minute), summaryOf(storetest.Base, span, time.Minute),
	}
	var readings []telemetry.Reading
	var sums [][]telemetry.Summary
	for i, side := range sides() {
		s, _ := side.fill(t, span)
		got := storetest.ReadAll(t, s, "s")
		if i == 0 {
			readings = got
			require.Len(t, readings, int(span/period))
		}
		for j := range got {
			require.Equal(t, readings[j].Time, got[j].Time)
			require.ElementsMatch(t, readings[j].Fields, got[j].Fields)
		}
		for j, q := range queries {
			if i == 0 {
				sums = append(sums, unwound(t, s, q))
			}
			storetest.SameSummaries(t, sums[j], all(t, s.Summary(t.Context(), q)))
		}
	}
}

// BenchmarkSummary sums up a day of readings of one sensor, one every five
// seconds, in steps of a day and of an hour: as a store answers, by reading all of
// them back, by unwinding the same documents on the server, and as a store
// answers that finds no statistics in them. The shortest of several is told, too,
// which a busy machine disturbs least.
//
//	go test -run '^$' -bench Summary ./internal/store
func BenchmarkSummary(b *testing.B) {
	for _, side := range sides() {
		s, coll := side.fill(b, day)
		ask := func(b *testing.B, q telemetry.SummaryQuery) {
			b.Helper()
			require.NotEmpty(b, all(b, s.Summary(b.Context(), q)))
		}
		measure := func(way string, work func(b *testing.B, q telemetry.SummaryQuery)) {
			for _, every := range []time.Duration{day, time.Hour} {
				b.Run(fmt.Sprintf("%s/every=%s/%s", side.name, every, way), func(b *testing.B) {
					best, q := time.Duration(math.MaxInt64), summaryOf(storetest.Base, day, every)
					for b.Loop() {
						began := time.Now()
						work(b, q)
						best = min(best, time.Since(began))
					}
					b.ReportMetric(float64(best.Microseconds())/1000, "best-ms")
				})
			}
		}
		measure("summary", ask)
		measure("reading_back", func(b *testing.B, q telemetry.SummaryQuery) {
			b.Helper()
			require.NotEmpty(b, unwound(b, s, q))
		})
		measure("server", func(b *testing.B, q telemetry.SummaryQuery) {
			b.Helper()
			unwindOnServer(b, coll, q, side.maxReadings > 0)
		})
		if side.maxReadings > 0 {
			_, err := coll.UpdateMany(b.Context(), bson.D{}, bson.D{{Key: "$unset", Value: bson.D{{Key: "stats", Value: ""}}}})
			require.NoError(b, err)
			measure("without_statistics", ask)
		}
	}
}

// unwindOnServer has the server sum up four fields whose names it is told.
func unwindOnServer(b *testing.B, coll *mongo.Collection, q telemetry.SummaryQuery, buckets bool) {
	b.Helper()
	prefix, pipeline := "$", bson.A{}
	span := bson.D{{Key: "$gte", Value: bson.DateTime(q.From)}, {Key: "$lt", Value: bson.DateTime(q.To)}}
	if buckets {
		key := func(ms int64) bson.D {
			return bson.D{{Key: "s", Value: q.Sensor}, {Key: "b", Value: bson.DateTime(ms)}}
		}
		prefix = "$measurements."
		pipeline = bson.A{
			bson.D{{Key: "$match", Value: bson.D{{Key: "_id", Value: bson.D{{Key: "$gte", Value: key(q.From)}, {Key: "$lt", Value: key(q.To)}}}}}},
			bson.D{{Key: "$unwind", Value: "$measurements"}},
			bson.D{{Key: "$match", Value: bson.D{{Key: "measurements.ts", Value: span}}}},
		}
	} else {
		pipeline = append(pipeline, bson.D{{Key: "$match", Value: bson.D{{Key: "sensor.id", Value: q.Sensor}, {Key: "ts", Value: span}}}})
	}
	ts := prefix + "ts"
	group := bson.D{
		{Key: "_id", Value: bson.D{{Key: "$subtract", Value: bson.A{ts, bson.D{{Key: "$mod", Value: bson.A{bson.D{{Key: "$toLong", Value: ts}}, q.Every}}}}}}},
		{Key: "count", Value: bson.D{{Key: "$sum", Value: 1}}},
	}
	for _, f := range []string{"v", "h", "p", "t"} {
		for _, op := range []string{"min", "max", "sum"} {
			group = append(group, bson.E{Key: f + op, Value: bson.D{{Key: "$" + op, Value: prefix + f}}})
		}
	}
	cursor, err := coll.Aggregate(b.Context(), append(pipeline, bson.D{{Key: "$group", Value: group}}))
	require.NoError(b, err)
	var out []bson.Raw
	require.NoError(b, cursor.All(b.Context(), &out))
	require.NotEmpty(b, out)
}
