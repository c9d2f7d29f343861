package bucket

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/brim-telemetry/brim/internal/block"
	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/internal/store/storetest"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// BenchmarkEncode encodes guarded updates of integer fields, without the
// driver's own work.
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
	b.ReportMetric(0, "ns/op") // meaningless here
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/n, "ns/reading")
	b.ReportMetric(float64(after.Mallocs-before.Mallocs)/n, "allocs/reading")
	b.ReportMetric(float64(after.TotalAlloc-before.TotalAlloc)/n, "B/reading")
}

// BenchmarkRead reads two of ten fields from a day of documents with 5 and 60 readings, as
// received from the driver.
func BenchmarkRead(b *testing.B) {
	for _, sealed := range []bool{false, true} {
		for _, each := range []int{5, 60} {
			b.Run(fmt.Sprintf("sealed=%t/readings_per_document=%d", sealed, each), func(b *testing.B) { benchmarkRead(b, sealed, each) })
		}
	}
}

func benchmarkRead(b *testing.B, sealed bool, each int) {
	const documents, fields = 288, 10
	var pieces []piece
	for n := range documents {
		start := int64(n) * window.Milliseconds()
		doc := bson.D{{Key: "tags", Value: bson.D{{Key: "site", Value: "north"}}}, {Key: "first", Value: bson.DateTime(start)}}
		var measurements bson.A
		var builder block.Builder
		for i := range each {
			r := telemetry.Reading{Sensor: "a", Time: time.UnixMilli(start + int64(i)*window.Milliseconds()/int64(each))}
			m := bson.D{{Key: store.TimeKey, Value: r.Time}}
			for f := range fields {
				r.Fields = append(r.Fields, telemetry.Field{Name: fmt.Sprintf("field%d", f), Value: telemetry.FloatValue(float64(f*i) / 100)})
				m = append(m, bson.E{Key: r.Fields[f].Name, Value: r.Fields[f].Value.Float()})
			}
			measurements = append(measurements, m)
			builder.AddReading(r)
		}
		if sealed {
			data, err := builder.Append(nil, block.Options{Statistics: true})
			require.NoError(b, err)
			doc = append(doc, bson.E{Key: blocksKey, Value: bson.A{data}})
		} else {
			doc = append(doc, bson.E{Key: "measurements", Value: measurements})
		}
		raw, err := bson.Marshal(doc)
		require.NoError(b, err)
		pieces = append(pieces, piece{start: start, doc: raw})
	}
	b.ReportAllocs()
	for b.Loop() {
		n := 0
		q := telemetry.Query{Sensor: "a", To: documents * window.Milliseconds(), Fields: []string{"field3", "field7"}, Transient: true}
		e := emitter{query: q, decoder: store.Decoder{Sensor: q.Sensor, Fields: q.Fields}, yield: func(r telemetry.Reading, _ error) bool {
			n += len(r.Fields)
			return true
		}}
		for _, p := range pieces {
			_, err := e.emit(b.Context(), p.start)
			require.NoError(b, err)
			e.hold(p)
		}
		_, err := e.emit(b.Context(), q.To)
		require.NoError(b, err)
		require.Equal(b, 2*documents*each, n)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*documents*each), "ns/reading")
}
