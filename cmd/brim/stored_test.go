package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// plainReading is a reading as sent by a test or found in MongoDB. Values keep their kinds:
// int64, float64, bool or string.
type plainReading struct {
	sensor string
	ts     int64 // ms since the epoch
	fields map[string]any
	tags   map[string]string
}

// String is equal only for equal readings.
func (r *plainReading) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%q %d", r.sensor, r.ts)
	for _, name := range slices.Sorted(maps.Keys(r.fields)) {
		b.WriteByte(' ')
		b.WriteString(name)
		switch v := r.fields[name].(type) {
		case int64:
			b.WriteString("=int64:" + strconv.FormatInt(v, 10))
		case float64:
			b.WriteString("=float64:" + strconv.FormatFloat(v, 'g', -1, 64))
		default:
			fmt.Fprintf(&b, "=%T:%q", v, fmt.Sprint(v))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.tags)) {
		fmt.Fprintf(&b, " %s:%q", name, r.tags[name])
	}
	return b.String()
}

// parseReading parses one NDJSON line with the standard library. As the contract has it, a
// number without fraction and exponent is an integer.
func parseReading(t testing.TB, line []byte) plainReading {
	t.Helper()
	var in struct {
		SensorID string
		TS       time.Time
		Fields   map[string]any
		Tags     map[string]string
	}
	d := json.NewDecoder(bytes.NewReader(line))
	d.UseNumber()
	require.NoError(t, d.Decode(&in))
	for name, v := range in.Fields {
		number, ok := v.(json.Number)
		if !ok {
			continue
		}
		if n, err := number.Int64(); err == nil {
			in.Fields[name] = n
			continue
		}
		f, err := number.Float64()
		require.NoError(t, err)
		in.Fields[name] = f
	}
	return plainReading{sensor: in.SensorID, ts: in.TS.UnixMilli(), fields: in.Fields, tags: in.Tags}
}

// sameReadings checks that every reading is stored as often as it was sent, and nothing else
// is.
func sameReadings(t testing.TB, sent, stored []plainReading) {
	t.Helper()
	assert.Len(t, stored, len(sent))
	surplus := make(map[string]int, len(sent))
	for i := range stored {
		surplus[stored[i].String()]++
	}
	for i := range sent {
		surplus[sent[i].String()]--
	}
	const most = 5
	missing, twice := 0, 0
	for reading, n := range surplus {
		switch {
		case n < 0:
			if missing++; missing <= most {
				t.Errorf("missing %d times: %s", -n, reading)
			}
		case n > 0:
			if twice++; twice <= most {
				t.Errorf("stored %d times too often: %s", n, reading)
			}
		}
	}
	assert.Zero(t, missing, "readings that are missing")
	assert.Zero(t, twice, "readings that are stored too often, or were never sent")
}

// bucketRules are the constraints on a bucket stream's documents.
type bucketRules struct {
	granularity time.Duration
	maxReadings int
}

type bucketDocument struct {
	ID struct {
		S string        `bson:"s"`
		B bson.DateTime `bson:"b"`
		G int           `bson:"g"`
		P int           `bson:"p"`
	} `bson:"_id"`
	SensorID     string              `bson:"sensorId"`
	BucketStart  bson.DateTime       `bson:"bucketStart"`
	Count        int                 `bson:"count"`
	Bytes        int                 `bson:"bytes"`
	First        bson.DateTime       `bson:"first"`
	Last         bson.DateTime       `bson:"last"`
	Stats        map[string]bson.Raw `bson:"stats"`
	Tags         map[string]string   `bson:"tags"`
	Measurements []bson.Raw          `bson:"measurements"`
	W            map[string]int64    `bson:"w"`
	Full         bool                `bson:"full"`
}

// checkBuckets reads a whole bucket collection and returns its readings. It checks that each
// document's summary matches its measurements, and that a window's parts are numbered from 0
// and all closed but the last.
func checkBuckets(t testing.TB, coll *mongo.Collection, rules bucketRules) []plainReading {
	t.Helper()
	type window struct {
		sensor string
		start  bson.DateTime
	}
	full := make(map[window]map[int]bool)
	var readings []plainReading
	cursor, err := coll.Find(t.Context(), bson.D{})
	require.NoError(t, err)
	for cursor.Next(t.Context()) {
		var d bucketDocument
		require.NoError(t, cursor.Decode(&d))
		readings = append(readings, d.check(t, rules)...)
		at := window{d.SensorID, d.BucketStart}
		if full[at] == nil {
			full[at] = make(map[int]bool)
		}
		full[at][d.ID.P] = d.Full
	}
	require.NoError(t, cursor.Err())
	for at, parts := range full {
		for p := range len(parts) {
			closed, ok := parts[p]
			assert.True(t, ok, "part %d of %v is missing", p, at)
			assert.True(t, closed || p == len(parts)-1, "part %d of %d of %v is still open", p, len(parts), at)
		}
	}
	return readings
}

// check applies the rules to one document and returns its readings.
func (d *bucketDocument) check(t testing.TB, rules bucketRules) []plainReading {
	t.Helper()
	id := fmt.Sprintf("%+v", d.ID)
	assert.Equal(t, d.SensorID, d.ID.S, id)
	assert.Equal(t, d.BucketStart, d.ID.B, id)
	assert.Equal(t, int(rules.granularity.Seconds()), d.ID.G, id)
	assert.Zero(t, int64(d.BucketStart)%rules.granularity.Milliseconds(), "%s does not start with a window", id)
	assert.NotEmpty(t, d.Measurements, id)
	assert.Len(t, d.Measurements, d.Count, id)
	assert.LessOrEqual(t, d.Count, rules.maxReadings, id)
	assert.Positive(t, d.Bytes, id)
	assert.NotEmpty(t, d.W, "%s has no guard", id)

	readings := make([]plainReading, 0, len(d.Measurements))
	first, last := int64(math.MaxInt64), int64(math.MinInt64)
	stats := make(map[string]*recomputed)
	for _, m := range d.Measurements {
		r := plainReading{sensor: d.SensorID, tags: d.Tags}
		if own, ok := m.Lookup("sensor").DocumentOK(); ok {
			r.tags = nil
			if tags, ok := own.Lookup("tags").DocumentOK(); ok {
				require.NoError(t, bson.Unmarshal(tags, &r.tags))
			}
		}
		r.ts, r.fields = splitMeasurement(t, m)
		first, last = min(first, r.ts), max(last, r.ts)
		for name, v := range r.fields {
			recompute(stats, name, v)
		}
		readings = append(readings, r)
	}
	assert.Equal(t, first, int64(d.First), "first of %s", id)
	assert.Equal(t, last, int64(d.Last), "last of %s", id)
	assert.GreaterOrEqual(t, first, int64(d.BucketStart), "%s holds a reading from before its window", id)
	assert.Less(t, last, int64(d.BucketStart)+rules.granularity.Milliseconds(), "%s holds a reading from behind its window", id)
	assert.ElementsMatch(t, slices.Collect(maps.Keys(stats)), slices.Collect(maps.Keys(d.Stats)), "fields with stats of %s", id)
	for name, want := range stats {
		want.equal(t, d.Stats[name], id+" "+name)
	}
	return readings
}

// splitMeasurement returns the time and the fields of a stored reading.
func splitMeasurement(t testing.TB, m bson.Raw) (ts int64, fields map[string]any) {
	t.Helper()
	elements, err := m.Elements()
	require.NoError(t, err)
	fields = make(map[string]any, len(elements)-1)
	timed := false
	for _, e := range elements {
		if e.Key() == "ts" {
			ts, timed = e.Value().DateTime(), true
			continue
		}
		if e.Key() == "sensor" {
			continue
		}
		fields[e.Key()] = plainValue(t, e.Value())
	}
	assert.True(t, timed, "no ts in %s", m)
	return ts, fields
}

// plainValue checks that integers are stored with 64 bits.
func plainValue(t testing.TB, v bson.RawValue) any {
	t.Helper()
	switch v.Type {
	case bson.TypeInt64:
		return v.Int64()
	case bson.TypeDouble:
		return v.Double()
	case bson.TypeBoolean:
		return v.Boolean()
	case bson.TypeString:
		return v.StringValue()
	default:
		require.Fail(t, "a value of type "+v.Type.String(), v.String())
		return nil
	}
}

// recomputed are a field's statistics, computed from its readings.
type recomputed struct {
	min, max, sum float64
	magnitude     float64 // sum of absolute values, the scale of rounding errors
	n             int64
}

// recompute adds a value; non-numeric ones have no statistics.
func recompute(stats map[string]*recomputed, name string, value any) {
	var v float64
	switch value := value.(type) {
	case int64:
		v = float64(value)
	case float64:
		v = value
	default:
		return
	}
	s := stats[name]
	if s == nil {
		s = &recomputed{min: v, max: v}
		stats[name] = s
	}
	s.min, s.max, s.sum, s.magnitude = min(s.min, v), max(s.max, v), s.sum+v, s.magnitude+math.Abs(v)
	s.n++
}

// equal compares with the document's statistics. Its sum is a double and n a long; min and max
// are unchanged.
func (s *recomputed) equal(t testing.TB, raw bson.Raw, what string) {
	t.Helper()
	var have struct {
		Min, Max bson.RawValue
		Sum      float64
		N        int64
	}
	require.NoError(t, bson.Unmarshal(raw, &have), what)
	assert.Equal(t, bson.TypeDouble, raw.Lookup("sum").Type, "sum of %s", what)
	assert.Equal(t, bson.TypeInt64, raw.Lookup("n").Type, "n of %s", what)
	assert.Equal(t, s.n, have.N, "n of %s", what)
	assert.InDelta(t, s.sum, have.Sum, s.magnitude*1e-9, "sum of %s", what)
	for key, want := range map[string]float64{"min": s.min, "max": s.max} {
		number, ok := raw.Lookup(key).AsFloat64OK()
		assert.True(t, ok && number == want, "%s of %s is %s, not %g", key, what, raw.Lookup(key), want)
	}
}

// storedSeries returns the readings of a time-series collection.
func storedSeries(t testing.TB, coll *mongo.Collection) []plainReading {
	t.Helper()
	cursor, err := coll.Find(t.Context(), bson.D{})
	require.NoError(t, err)
	var readings []plainReading
	for cursor.Next(t.Context()) {
		elements, err := cursor.Current.Elements()
		require.NoError(t, err)
		r := plainReading{fields: make(map[string]any)}
		for _, e := range elements {
			switch e.Key() {
			case "_id":
			case "ts":
				r.ts = e.Value().DateTime()
			case "sensor":
				var meta struct {
					ID   string
					Tags map[string]string
				}
				require.NoError(t, e.Value().Unmarshal(&meta))
				r.sensor, r.tags = meta.ID, meta.Tags
			default:
				r.fields[e.Key()] = plainValue(t, e.Value())
			}
		}
		readings = append(readings, r)
	}
	require.NoError(t, cursor.Err())
	return readings
}
