package bucket

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"pgregory.net/rapid"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/store/storetest"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// TestUpdatesEqualMarshalledOnes compares the encoder's bytes with the driver's
// marshaller for documents that are built value by value: random shapes of all kinds,
// mixed within an operation, from several batches, encoded in the same memory.
func TestUpdatesEqualMarshalledOnes(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := unconnected(Settings{
			MaxReadings: rapid.IntRange(1, 40).Draw(t, "cap"),
			MaxBytes:    rapid.IntRange(1<<10, 8<<10).Draw(t, "byte cap"),
		})
		shapes := rapid.SliceOfN(drawShape(), 1, 4).Draw(t, "shapes")
		var enc encoder
		for range rapid.IntRange(1, 4).Draw(t, "operations") {
			pending := drawShare(t, shapes)
			p := &part{number: rapid.Int32Range(0, 3).Draw(t, "part")}
			if rapid.Bool().Draw(t, "the part's tags are known") {
				p.tags = &[]telemetry.Tag{{Name: "tag0", Value: "v"}}
			}
			for len(pending.Rows) > 0 {
				tags := pending.Rows[0].Batch.Reading(pending.Rows[0].Index).Tags
				if p.tags != nil {
					tags = *p.tags
				}
				op, ok := s.cut(pending, p)
				require.True(t, ok)
				filter, update := plainFilter(&op, tags), plainUpdate(&op, tags)
				requireSame(t, filter, enc.filter(nil, &op))
				encoded, err := enc.update(nil, &op)
				require.NoError(t, err)
				requireSame(t, update, encoded)
				p.next()
				pending.Drop(len(op.rows))
			}
		}
	})
}

func requireSame(t *rapid.T, want bson.D, got []byte) {
	bytes, err := bson.Marshal(want)
	require.NoError(t, err)
	if !slices.Equal(bytes, got) {
		require.Equal(t, bson.Raw(bytes).String(), bson.Raw(got).String())
		require.Equal(t, bytes, got)
	}
}

// drawShape draws names and kinds; shapes often share names, with other indexes
// and kinds.
func drawShape() *rapid.Generator[[]batch.FieldType] {
	return rapid.SliceOfNDistinct(rapid.Custom(func(t *rapid.T) batch.FieldType {
		return batch.FieldType{
			Name: rapid.SampledFrom([]string{"t", "h", "0", "sum", "longer name ☂", "on", "x", "y", "z"}).Draw(t, "name"),
			Kind: rapid.SampledFrom([]telemetry.Kind{
				telemetry.Float, telemetry.Float, telemetry.Int, telemetry.Int, telemetry.Bool, telemetry.Text,
			}).Draw(t, "kind"),
		}
	}), 1, 6, func(f batch.FieldType) string { return f.Name })
}

// drawShare draws one bucket's rows, from several batches.
func drawShare(t *rapid.T, shapes [][]batch.FieldType) *batch.Pending {
	pending := &batch.Pending{
		Stream: storetest.Stream, Sensor: rapid.StringMatching(`[a-z☂]{1,8}`).Draw(t, "sensor"),
		Start: storetest.Base.UnixMilli(), Granularity: time.Hour, Session: batch.NewSession(),
	}
	for range rapid.IntRange(1, 4).Draw(t, "batches") {
		var readings []telemetry.Reading
		for range rapid.IntRange(1, 30).Draw(t, "readings") {
			r := telemetry.Reading{Sensor: pending.Sensor, Time: storetest.Base.Add(rapid.SampledFrom([]time.Duration{0, 7, 1e9, 3e9, 6e11}).Draw(t, "at"))}
			for _, f := range rapid.SampledFrom(shapes).Draw(t, "shape") {
				r.Fields = append(r.Fields, telemetry.Field{Name: f.Name, Value: drawValue(t, f.Kind)})
			}
			for i := range rapid.IntRange(0, 2).Draw(t, "tags") {
				r.Tags = append(r.Tags, telemetry.Tag{Name: fmt.Sprint("tag", i), Value: "v"})
			}
			readings = append(readings, r)
		}
		b := storetest.Batch(t, pending.Session, uint64(1+len(pending.Rows)), readings...)
		for i := range uint32(b.Len()) {
			pending.Rows = append(pending.Rows, batch.Ref{Batch: b, Index: i})
		}
	}
	return pending
}

func drawValue(t *rapid.T, kind telemetry.Kind) telemetry.Value {
	switch kind {
	case telemetry.Int:
		return telemetry.IntValue(rapid.Int64().Draw(t, "int"))
	case telemetry.Bool:
		return telemetry.BoolValue(rapid.Bool().Draw(t, "bool"))
	case telemetry.Text:
		return telemetry.TextValue(rapid.StringN(0, 9, 40).Draw(t, "text"))
	default:
		// Sums of these numbers depend on their order.
		return telemetry.FloatValue(rapid.OneOf(
			rapid.SampledFrom([]float64{0, math.Copysign(0, -1), 1e300, -1e300, 0.1, 1e-300}),
			rapid.Float64Range(-1e6, 1e6),
		).Draw(t, "float"))
	}
}

func plainID(op *operation) bson.D {
	return bson.D{
		{Key: "s", Value: op.pending.Sensor}, {Key: "b", Value: bson.DateTime(op.pending.Start)},
		{Key: "g", Value: int32(op.pending.Granularity / time.Second)}, {Key: "p", Value: op.number},
	}
}

// plainFilter is the filter of an update of a part with these tags.
func plainFilter(op *operation, tags []telemetry.Tag) bson.D {
	first := int64(op.rows[0].Seq())
	has := bson.D{{Key: "$exists", Value: false}}
	if len(tags) > 0 {
		has = plainTags(tags)
	}
	return bson.D{
		{Key: "_id", Value: plainID(op)},
		{Key: "w." + op.pending.Session, Value: bson.D{{Key: "$not", Value: bson.D{{Key: "$gte", Value: first}}}}},
		{Key: "full", Value: bson.D{{Key: "$ne", Value: true}}},
		{Key: "count", Value: bson.D{{Key: "$lte", Value: op.maxReadings - int64(len(op.rows))}}},
		{Key: "bytes", Value: bson.D{{Key: "$lte", Value: op.maxBytes - op.bytes}}},
		{Key: "tags", Value: has},
	}
}

func plainTags(tags []telemetry.Tag) bson.D {
	var doc bson.D
	for _, tag := range tags {
		doc = append(doc, bson.E{Key: tag.Name, Value: tag.Value})
	}
	return doc
}

// plainUpdate is the update according to the write protocol: the readings, and
// the statistics of each numeric field in order of first appearance.
func plainUpdate(op *operation, tags []telemetry.Tag) bson.D {
	first, last := int64(math.MaxInt64), int64(math.MinInt64)
	var measurements bson.A
	var weight int64
	var names []string
	stats := make(map[string][]telemetry.Value)
	for _, r := range op.rows {
		reading := r.Batch.Reading(r.Index)
		ms := reading.Time.UnixMilli()
		first, last = min(first, ms), max(last, ms)
		doc := bson.D{{Key: "ts", Value: bson.DateTime(ms)}}
		for _, f := range reading.Fields {
			doc = append(doc, bson.E{Key: f.Name, Value: f.Value.Any()})
			if !f.Value.Kind().Numeric() {
				continue
			}
			if stats[f.Name] == nil {
				names = append(names, f.Name)
			}
			stats[f.Name] = append(stats[f.Name], f.Value)
		}
		switch {
		case slices.Equal(reading.Tags, tags):
		case len(reading.Tags) == 0:
			doc = append(doc, bson.E{Key: "sensor", Value: bson.D{}})
		default:
			doc = append(doc, bson.E{Key: "sensor", Value: bson.D{{Key: "tags", Value: plainTags(reading.Tags)}}})
		}
		measurements = append(measurements, doc)
		weight += plainWeight(doc)
	}
	inc := bson.D{{Key: "count", Value: int32(len(op.rows))}, {Key: "bytes", Value: int32(weight)}}
	low, high := bson.D{{Key: "first", Value: bson.DateTime(first)}}, bson.D{{Key: "last", Value: bson.DateTime(last)}}
	for _, name := range names {
		values := stats[name]
		sum := 0.0
		for _, v := range values {
			sum += plainNumber(v)
		}
		path := "stats." + name
		inc = append(inc, bson.E{Key: path + ".sum", Value: sum}, bson.E{Key: path + ".n", Value: int64(len(values))})
		low = append(low, bson.E{Key: path + ".min", Value: slices.MinFunc(values, plainCompare).Any()})
		// The first of equal values counts, for the maximum as well.
		high = append(high, bson.E{Key: path + ".max", Value: slices.MinFunc(values, func(a, b telemetry.Value) int { return plainCompare(b, a) }).Any()})
	}
	set := bson.D{{Key: "w." + op.pending.Session, Value: int64(op.rows[len(op.rows)-1].Seq())}}
	if op.fills {
		set = append(set, bson.E{Key: "full", Value: true})
	}
	insert := bson.D{{Key: "sensorId", Value: op.pending.Sensor}, {Key: "bucketStart", Value: bson.DateTime(op.pending.Start)}}
	return bson.D{
		{Key: "$push", Value: bson.D{{Key: "measurements", Value: bson.D{{Key: "$each", Value: measurements}}}}},
		{Key: "$inc", Value: inc}, {Key: "$min", Value: low}, {Key: "$max", Value: high},
		{Key: "$set", Value: set}, {Key: "$setOnInsert", Value: insert},
	}
}

func plainWeight(document bson.D) int64 {
	raw, err := bson.Marshal(document)
	if err != nil {
		panic(err)
	}
	return readingBytes(raw)
}

func plainNumber(v telemetry.Value) float64 {
	if v.Kind() == telemetry.Int {
		return float64(v.Int())
	}
	return v.Float()
}

// plainCompare compares integers as integers, everything else as doubles.
func plainCompare(a, b telemetry.Value) int {
	less := func(a, b telemetry.Value) bool {
		if a.Kind() == telemetry.Int && b.Kind() == telemetry.Int {
			return a.Int() < b.Int()
		}
		return plainNumber(a) < plainNumber(b)
	}
	switch {
	case less(a, b):
		return -1
	case less(b, a):
		return 1
	default:
		return 0
	}
}
