package bucket

import (
	"math"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/internal/store/storetest"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

const window = 5 * time.Minute

func TestConformance(t *testing.T) {
	t.Parallel()
	variants := map[string]Config{
		"defaults":                            {},
		"tiny parts, two readings per update": {MaxReadings: 3, MaxReadingsPerUpdate: 2},
		"parts limited by bytes":              {MaxBytes: 1 << 10},
		"columns":                             {Format: store.Columns},
		"both formats, tiny parts":            {Format: store.Columns, MaxReadings: 5, MaxReadingsPerUpdate: 2, CanReadColumns: alternating()},
	}
	for name, cfg := range variants {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storetest.Run(t, func(t *testing.T) storetest.Store {
				return open(t, connect(t), cfg)
			})
		})
	}
}

func TestConformanceWhileSealing(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]Config{"documents": {MaxReadings: 20}, "columns": {Format: store.Columns}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storetest.Run(t, func(t *testing.T) storetest.Store { return sealing{open(t, connect(t), cfg)} })
		})
	}
}

// alternating is a Config.CanReadColumns that gives a document both formats.
func alternating() func() bool {
	var calls atomic.Int64
	return func() bool { return calls.Add(1)%2 == 0 }
}

// TestDocument pins the form of a bucket document, which other programs also read.
func TestDocument(t *testing.T) {
	t.Parallel()
	db := connect(t)
	s := open(t, db, Config{})
	reading := func(at time.Duration, fields ...telemetry.Field) telemetry.Reading {
		return telemetry.Reading{Sensor: "s-1", Time: storetest.Base.Add(at), Fields: fields, Tags: []telemetry.Tag{{Name: "site", Value: "north"}}}
	}
	b := storetest.Batch(t, "sabc", 41,
		reading(10*time.Second, telemetry.Field{Name: "t", Value: telemetry.FloatValue(23.5)}, telemetry.Field{Name: "h", Value: telemetry.IntValue(65)}),
		reading(5*time.Second, telemetry.Field{Name: "t", Value: telemetry.IntValue(-3)}, telemetry.Field{Name: "on", Value: telemetry.BoolValue(true)}),
		reading(7*time.Second, telemetry.Field{Name: "t", Value: telemetry.FloatValue(0.25)}, telemetry.Field{Name: "note", Value: telemetry.TextValue("x")}),
	)
	storetest.WriteAll(t, s, storetest.Pending(b, window))
	start := bson.NewDateTimeFromTime(storetest.Base)
	at := func(d time.Duration) bson.DateTime { return bson.NewDateTimeFromTime(storetest.Base.Add(d)) }
	docs := documents(t, db)
	require.Len(t, docs, 1)
	bytes, ok := docs[0]["bytes"].(int32)
	require.True(t, ok)
	assert.InDelta(t, 3*40, bytes, 60)
	delete(docs[0], "bytes")
	assert.Equal(t, bson.M{
		"_id":      bson.D{{Key: "s", Value: "s-1"}, {Key: "b", Value: start}, {Key: "g", Value: int32(300)}, {Key: "p", Value: int32(0)}},
		"sensorId": "s-1", "bucketStart": start, "count": int32(3),
		"first": at(5 * time.Second), "last": at(10 * time.Second),
		"stats": bson.D{
			{Key: "h", Value: bson.D{{Key: "max", Value: int64(65)}, {Key: "min", Value: int64(65)}, {Key: "n", Value: int64(1)}, {Key: "sum", Value: 65.0}}},
			{Key: "t", Value: bson.D{{Key: "max", Value: 23.5}, {Key: "min", Value: int64(-3)}, {Key: "n", Value: int64(3)}, {Key: "sum", Value: 20.75}}},
		},
		"tags": bson.D{{Key: "site", Value: "north"}},
		"w":    bson.D{{Key: "sabc", Value: int64(43)}},
		"measurements": bson.A{
			bson.D{{Key: "ts", Value: at(10 * time.Second)}, {Key: "t", Value: 23.5}, {Key: "h", Value: int64(65)}},
			bson.D{{Key: "ts", Value: at(5 * time.Second)}, {Key: "t", Value: int64(-3)}, {Key: "on", Value: true}},
			bson.D{{Key: "ts", Value: at(7 * time.Second)}, {Key: "t", Value: 0.25}, {Key: "note", Value: "x"}},
		},
	}, docs[0])
}

func TestIntegersKeepTheirLastBitInStatistics(t *testing.T) {
	t.Parallel()
	db := connect(t)
	s := open(t, db, Config{})
	var readings []telemetry.Reading
	for i, v := range []int64{math.MaxInt64 - 1, math.MaxInt64, math.MinInt64 + 1, math.MinInt64} {
		readings = append(readings, telemetry.Reading{
			Sensor: "a", Time: storetest.Base.Add(time.Duration(i) * time.Second),
			Fields: []telemetry.Field{{Name: "v", Value: telemetry.IntValue(v)}},
		})
	}
	storetest.WriteAll(t, s, storetest.Pending(storetest.Batch(t, "s1", 1, readings...), window))
	raw, err := bson.Marshal(documents(t, db)[0])
	require.NoError(t, err)
	assert.Equal(t, int64(math.MaxInt64), bson.Raw(raw).Lookup("stats", "v", "max").Int64())
	assert.Equal(t, int64(math.MinInt64), bson.Raw(raw).Lookup("stats", "v", "min").Int64())
}

func TestPartsKeepTheirCap(t *testing.T) {
	t.Parallel()
	db := connect(t)
	s := open(t, db, Config{MaxReadings: 7})
	var readings []telemetry.Reading
	for i := range 50 {
		readings = append(readings, storetest.Reading("a", time.Duration(i)*time.Second, float64(i)))
	}
	// A second store that does not know the first one's parts continues.
	storetest.WriteAll(t, s, storetest.Pending(storetest.Batch(t, "s1", 1, readings[:24]...), window))
	other := open(t, db, Config{MaxReadings: 7})
	storetest.WriteAll(t, other, storetest.Pending(storetest.Batch(t, "s2", 1, readings[24:]...), window))
	assert.Equal(t, readings, storetest.ReadAll(t, s, "a"))
	docs := documents(t, db)
	require.Len(t, docs, 8)
	for i, d := range docs {
		assert.Equal(t, i < 7, d["full"] == true, "part %d", i)
		if i < 7 {
			assert.Equal(t, int32(7), d["count"], "part %d", i)
		}
	}
}

func TestPartsKeepTheirCapInBytes(t *testing.T) {
	t.Parallel()
	db := connect(t)
	s := open(t, db, Config{MaxBytes: 4 << 10})
	long := telemetry.TextValue(string(make([]byte, telemetry.MaxTextBytes)))
	var readings []telemetry.Reading
	for i := range 20 {
		r := storetest.Reading("a", time.Duration(i)*time.Second, float64(i))
		r.Fields = append(r.Fields, telemetry.Field{Name: "x", Value: long})
		readings = append(readings, r)
	}
	// A reading larger than a part is alone in it.
	for i := range 6 {
		readings[9].Fields = append(readings[9].Fields, telemetry.Field{Name: "y" + string(rune('a'+i)), Value: long})
	}
	for i, r := range readings {
		storetest.WriteAll(t, s, storetest.Pending(storetest.Batch(t, "s1", uint64(i+1), r), window))
	}
	assert.Equal(t, readings, storetest.ReadAll(t, s, "a"))
	for i, d := range documents(t, db) {
		raw, err := bson.Marshal(bson.M{"m": d["measurements"]})
		require.NoError(t, err)
		if d["count"] != int32(1) {
			assert.LessOrEqual(t, len(raw), 4<<10, "part %d", i)
		}
		bytes, ok := d["bytes"].(int32)
		require.True(t, ok)
		assert.InEpsilon(t, len(raw), bytes, 0.05, "the estimate is near the truth")
	}
}

func TestRepeatedUpdateIsNotAppliedTwice(t *testing.T) {
	t.Parallel()
	db := connect(t)
	s := open(t, db, Config{MaxReadings: 5})
	var readings []telemetry.Reading
	for i := range 12 {
		readings = append(readings, storetest.Reading("a", time.Duration(i)*time.Second, float64(i)))
	}
	b := storetest.Batch(t, "s1", 1, readings...)
	storetest.WriteAll(t, s, storetest.Pending(b, window))
	// The same again, cut differently, by a lane with outdated state: as after
	// lost replies.
	for _, from := range []int{0, 3, 7, 11} {
		writes := storetest.Pending(b, window)
		writes[0].Rows = writes[0].Rows[from:]
		storetest.WriteAll(t, s, writes)
	}
	assert.Equal(t, readings, storetest.ReadAll(t, s, "a"))
}

func TestBucketsOfAnotherGranularityStayReadable(t *testing.T) {
	t.Parallel()
	db := connect(t)
	var readings []telemetry.Reading
	for i := range 30 {
		readings = append(readings, storetest.Reading("a", time.Duration(i)*2*time.Minute, float64(i)))
	}
	for i, g := range []time.Duration{time.Hour, time.Minute, 15 * time.Minute} {
		// Every third reading has this granularity, so that windows overlap.
		var some []telemetry.Reading
		for at := i; at < len(readings); at += 3 {
			some = append(some, readings[at])
		}
		storetest.WriteAll(t, open(t, db, Config{Granularity: g}), storetest.Pending(storetest.Batch(t, batch.NewSession(), 1, some...), g))
	}
	s := open(t, db, Config{})
	assert.Equal(t, readings, storetest.ReadAll(t, s, "a"))
	from := storetest.Base.Add(10 * time.Minute)
	assert.Equal(t, readings[5:10], storetest.Read(t, s, "a", from, from.Add(10*time.Minute)), "a span inside the longest window")
}

// TestTagsOfAPartAreThoseOfItsFirstReading pins their form in documents, which
// other programs also read.
func TestTagsOfAPartAreThoseOfItsFirstReading(t *testing.T) {
	t.Parallel()
	db := connect(t)
	s := open(t, db, Config{MaxReadings: 3})
	var readings []telemetry.Reading
	for i, site := range []string{"north", "south", "", "east"} {
		r := storetest.Reading("a", time.Duration(i)*time.Second, 1)
		if site != "" {
			r.Tags = []telemetry.Tag{{Name: "site", Value: site}}
		}
		readings = append(readings, r)
	}
	storetest.WriteAll(t, s, storetest.Pending(storetest.Batch(t, "s1", 1, readings...), window))
	docs := documents(t, db)
	require.Len(t, docs, 2)
	assert.Equal(t, bson.D{{Key: "site", Value: "north"}}, docs[0]["tags"])
	assert.Equal(t, bson.D{{Key: "site", Value: "east"}}, docs[1]["tags"])
	at := func(i int) bson.DateTime { return bson.NewDateTimeFromTime(readings[i].Time) }
	assert.Equal(t, bson.A{
		bson.D{{Key: "ts", Value: at(0)}, {Key: "v", Value: 1.0}},
		bson.D{{Key: "ts", Value: at(1)}, {Key: "v", Value: 1.0}, {Key: "sensor", Value: bson.D{{Key: "tags", Value: bson.D{{Key: "site", Value: "south"}}}}}},
		bson.D{{Key: "ts", Value: at(2)}, {Key: "v", Value: 1.0}, {Key: "sensor", Value: bson.D{}}},
	}, docs[0]["measurements"])
	assert.InDelta(t, 2, testutil.ToFloat64(s.Metrics.OwnTags), 0)
}

// TestForeignTagsEndTheirPart, since no update's filter matches them.
func TestForeignTagsEndTheirPart(t *testing.T) {
	t.Parallel()
	for name, tags := range map[string]any{"a number": bson.D{{Key: "floor", Value: 3}}, "an empty document": bson.D{}, "no document": "north", "null": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := connect(t)
			s := open(t, db, Config{})
			var all []telemetry.Reading
			for i := range 3 {
				all = append(all, storetest.Reading("a", time.Duration(i)*time.Second, 1))
				storetest.WriteAll(t, s, storetest.Pending(storetest.Batch(t, batch.NewSession(), 1, all[i]), window))
				if i == 0 {
					_, err := db.Collection(storetest.Stream).UpdateOne(t.Context(), bson.D{}, bson.D{{Key: "$set", Value: bson.D{{Key: "tags", Value: tags}}}})
					require.NoError(t, err)
				}
			}
			storetest.Answers(t, s, "a", all...)
			assert.Len(t, documents(t, db), 2)
		})
	}
}

func TestFailedWritesKeepTheirRows(t *testing.T) {
	t.Parallel()
	db := connect(t)
	s := open(t, db, Config{})
	// Collections are fenced with a validator that refuses everything.
	fence := bson.D{{Key: "collMod", Value: storetest.Stream}, {Key: "validator", Value: bson.D{{Key: "$expr", Value: false}}}}
	require.NoError(t, db.RunCommand(t.Context(), fence).Err())
	writes := storetest.Pending(storetest.Batch(t, "s1", 1, storetest.Reading("a", 0, 1)), window)
	s.Write(t.Context(), writes)
	assert.Equal(t, batch.Wait, writes[0].Verdict)
	assert.Len(t, writes[0].Rows, 1)
	lift := bson.D{{Key: "collMod", Value: storetest.Stream}, {Key: "validator", Value: bson.D{}}}
	require.NoError(t, db.RunCommand(t.Context(), lift).Err())
	storetest.WriteAll(t, s, writes)
	assert.Len(t, storetest.ReadAll(t, s, "a"), 1)
}
