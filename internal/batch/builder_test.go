package batch

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"pgregory.net/rapid"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

var (
	received = time.Date(2026, 11, 21, 10, 0, 0, 123_456_789, time.UTC)
	always   = telemetry.TimeRange{Newest: math.MaxInt64}
)

// A draft is a reading as a decoder gives it, good or bad.
type draft struct {
	stream  string
	sensor  string
	timed   bool
	millis  int64
	fields  []telemetry.Field
	tags    []telemetry.Tag
	refused bool // by its decoder
}

// give builds the draft and returns why it was refused.
func (d *draft) give(b *Builder, index int) *telemetry.Refusal {
	b.Begin(d.stream, index, always)
	// The order of the calls does not matter: half of the drafts begin with fields.
	if index%2 == 0 {
		d.giveFields(b)
	}
	b.Sensor([]byte(d.sensor))
	for _, t := range d.tags {
		b.Tag([]byte(t.Name), []byte(t.Value))
	}
	if d.timed {
		b.Time(d.millis)
	}
	if d.refused {
		b.Refuse(telemetry.Refuse(telemetry.Malformed, "by the decoder"))
	}
	if index%2 == 1 {
		d.giveFields(b)
	}
	return b.End()
}

func (d *draft) giveFields(b *Builder) {
	for _, f := range d.fields {
		b.Add(f)
	}
}

// reading is what the draft must become.
func (d *draft) reading() telemetry.Reading {
	r := telemetry.Reading{Sensor: d.sensor, Time: time.UnixMilli(d.millis).UTC(), Fields: d.fields, Tags: slices.Clone(d.tags)}
	if !d.timed {
		r.Time = received.Truncate(time.Millisecond)
	}
	slices.SortFunc(r.Tags, func(x, y telemetry.Tag) int { return strings.Compare(x.Name, y.Name) })
	if len(r.Tags) == 0 {
		r.Tags = nil
	}
	return r
}

// good reports whether the rules, applied one by one, accept the draft.
func (d *draft) good() bool {
	if d.refused || telemetry.CheckSensor([]byte(d.sensor)) != nil || d.timed && always.CheckTime(d.millis) != nil {
		return false
	}
	if len(d.fields) == 0 || len(d.fields) > telemetry.MaxFields || len(d.tags) > telemetry.MaxTags {
		return false
	}
	seen := make(map[string]bool)
	for _, f := range d.fields {
		if telemetry.CheckFieldName([]byte(f.Name)) != nil || seen[f.Name] ||
			f.Value.Kind() == telemetry.Float && telemetry.CheckFloat(nil, f.Value.Float()) != nil ||
			f.Value.Kind() == telemetry.Text && telemetry.CheckFieldText(nil, []byte(f.Value.Text())) != nil {
			return false
		}
		seen[f.Name] = true
	}
	clear(seen)
	for _, t := range d.tags {
		if telemetry.CheckTagName([]byte(t.Name)) != nil || telemetry.CheckTagText(nil, []byte(t.Value)) != nil || seen[t.Name] {
			return false
		}
		seen[t.Name] = true
	}
	return true
}

// drawDraft draws from few names, so that shapes and series repeat and names
// are given twice.
func drawDraft(t *rapid.T) *draft {
	name := rapid.SampledFrom([]string{"a", "b", "c", "temperature", "ö", "a", "b", "c", "d", "e", "f", "g", "", "$x", "x.y", "ts", strings.Repeat("n", 128), strings.Repeat("n", 129)})
	text := rapid.OneOf(rapid.StringN(0, 5, -1), rapid.SampledFrom([]string{"", "x", "\xff", strings.Repeat("t", 1024), strings.Repeat("t", 1025)}))
	value := rapid.Custom(func(t *rapid.T) telemetry.Value {
		switch rapid.IntRange(0, 3).Draw(t, "kind") {
		case 0:
			return telemetry.FloatValue(rapid.OneOf(rapid.Float64(), rapid.SampledFrom([]float64{0, math.Inf(1), math.Inf(-1)})).Draw(t, "double"))
		case 1:
			return telemetry.IntValue(rapid.Int64().Draw(t, "integer"))
		case 2:
			return telemetry.BoolValue(rapid.Bool().Draw(t, "boolean"))
		}
		return telemetry.TextValue(text.Draw(t, "string"))
	})
	d := &draft{
		stream: rapid.SampledFrom([]string{"readings", "other"}).Draw(t, "stream"),
		sensor: rapid.SampledFrom([]string{"s-1", "s-2", "s-3", "ö", "", "\x00", strings.Repeat("s", 1024), strings.Repeat("s", 1025)}).Draw(t, "sensor"),
		timed:  rapid.Bool().Draw(t, "timed"), millis: rapid.Int64Range(-1, 1<<50).Draw(t, "ms"),
		refused: rapid.IntRange(0, 9).Draw(t, "refused") == 0,
	}
	for range rapid.IntRange(0, 4).Draw(t, "fields") {
		d.fields = append(d.fields, telemetry.Field{Name: name.Draw(t, "field"), Value: value.Draw(t, "value")})
	}
	for range rapid.IntRange(0, 3).Draw(t, "tags") {
		d.tags = append(d.tags, telemetry.Tag{Name: name.Draw(t, "tag"), Value: text.Draw(t, "value")})
	}
	return d
}

func TestReadingsAreKeptAsGiven(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		b := NewBuilder(received)
		var taken []*draft
		var indexes []int
		for i := range rapid.IntRange(1, 30).Draw(t, "readings") {
			d := drawDraft(t)
			refusal := d.give(b, i)
			if (refusal == nil) != d.good() {
				t.Fatalf("%+v: refusal %v, but the rules say %v", d, refusal, d.good())
			}
			if refusal == nil {
				taken, indexes = append(taken, d), append(indexes, i)
			}
			if b.Len() != len(taken) {
				t.Fatalf("%d readings taken, want %d", b.Len(), len(taken))
			}
		}
		batch := b.Batch()
		for i, d := range taken {
			row := batch.Row(uint32(i))
			if got := batch.Reading(uint32(i)); !assert.ObjectsAreEqual(d.reading(), got) {
				t.Fatalf("got %+v, want %+v", got, d.reading())
			}
			if int(row.Index) != indexes[i] || batch.Series(row).Stream != d.stream {
				t.Fatalf("row %d has index %d and stream %s", i, row.Index, batch.Series(row).Stream)
			}
			if int(row.Size) != bsonSize(t, d.fields) {
				t.Fatalf("%+v: size %d, but as BSON %d", d.fields, row.Size, bsonSize(t, d.fields))
			}
		}
		checkSeries(t, batch)
	})
}

// bsonSize is the length of the fields as the driver encodes them, without what
// a document has around its elements.
func bsonSize(t *rapid.T, fields []telemetry.Field) int {
	var doc bson.D
	for _, f := range fields {
		var v any
		switch f.Value.Kind() {
		case telemetry.Float:
			v = f.Value.Float()
		case telemetry.Int:
			v = f.Value.Int()
		case telemetry.Bool:
			v = f.Value.Bool()
		case telemetry.Text:
			v = f.Value.Text()
		}
		doc = append(doc, bson.E{Key: f.Name, Value: v})
	}
	encoded, err := bson.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	return len(encoded) - 5
}

// checkSeries checks that hashes distinguish sensors just as their names do.
func checkSeries(t *rapid.T, b *Batch) {
	for i := range b.SeriesLen() {
		for j := range i {
			x, y := b.SeriesAt(i), b.SeriesAt(j)
			if same := x.Stream == y.Stream && x.Sensor == y.Sensor; same != (x.Hash == y.Hash) {
				t.Fatalf("%+v and %+v", x, y)
			}
		}
	}
}

func TestRefusedReadingsLeaveNoTrace(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		mixed, pure := NewBuilder(received), NewBuilder(received)
		for i := range rapid.IntRange(1, 30).Draw(t, "readings") {
			if d := drawDraft(t); d.give(mixed, 2*i) == nil {
				d.give(pure, 2*i)
			}
		}
		a, b := mixed.Batch(), pure.Batch()
		if a.Len() != b.Len() || a.SeriesLen() != b.SeriesLen() || len(a.values) != len(b.values) || a.text.mark() != b.text.mark() {
			t.Fatalf("%d rows, %d series, %d values, text %v, but %d, %d, %d, %v without the refused readings",
				a.Len(), a.SeriesLen(), len(a.values), a.text.mark(), b.Len(), b.SeriesLen(), len(b.values), b.text.mark())
		}
		for i := range uint32(a.Len()) {
			if !assert.ObjectsAreEqual(b.Reading(i), a.Reading(i)) {
				t.Fatalf("reading %d differs", i)
			}
		}
	})
}

// The reading after dropped ones has their fields, and the reading before has others.
func TestDroppedReadingsLeaveNoTrace(t *testing.T) {
	t.Parallel()
	b := NewBuilder(received)
	add := func(name string, v int64) {
		b.Begin("readings", b.Len(), always)
		b.Sensor([]byte("s-1"))
		b.Int([]byte(name), v)
		require.Nil(t, b.End())
	}
	add("t", 1)
	add("h", 2)
	b.Truncate(1)
	add("h", 3)
	made := b.Batch()
	require.Equal(t, 2, made.Len())
	assert.Equal(t, []telemetry.Field{{Name: "t", Value: telemetry.IntValue(1)}}, made.Reading(0).Fields)
	assert.Equal(t, []telemetry.Field{{Name: "h", Value: telemetry.IntValue(3)}}, made.Reading(1).Fields)
}

// A series that only dropped readings have is not in the batch, and is listed anew if it
// comes again.
func TestDroppedReadingsLeaveNoSeries(t *testing.T) {
	t.Parallel()
	for first := range 3 {
		b := NewBuilder(received)
		add := func(sensors ...string) {
			for _, s := range sensors {
				b.Begin("readings", b.Len(), always)
				b.Sensor([]byte(s))
				b.Int([]byte("t"), 1)
				require.Nil(t, b.End())
			}
		}
		want := []string{"a", "b", "a"}[:first]
		add(want...)
		add("b", "c", "d", "a")
		b.Truncate(first)
		want = append(want, "d", "c", "a", "d", "c")
		add("d", "c", "a", "d", "c")
		made := b.Batch()
		var got []string
		for i := range made.Len() {
			got = append(got, made.Reading(uint32(i)).Sensor)
		}
		assert.Equal(t, want, got)
		var listed []string
		for i := range made.SeriesLen() {
			listed = append(listed, made.SeriesAt(i).Sensor)
		}
		slices.Sort(want)
		assert.ElementsMatch(t, slices.Compact(want), listed)
	}
}

func TestShapesAndSeriesAreKeptOnce(t *testing.T) {
	t.Parallel()
	b := NewBuilder(received)
	for i := range 100 {
		b.Begin("readings", i, always)
		b.Sensor(fmt.Append(nil, "s-", i%4))
		b.Tag([]byte("site"), []byte("north"))
		b.Float([]byte("t"), 1)
		if i%2 == 0 {
			b.Int([]byte("h"), 1)
		}
		require.Nil(t, b.End())
	}
	batch := b.Batch()
	assert.Equal(t, 4, batch.SeriesLen())
	assert.Same(t, batch.Shape(batch.Row(0)), batch.Shape(batch.Row(98)))
	assert.NotSame(t, batch.Shape(batch.Row(0)), batch.Shape(batch.Row(1)))
	assert.Len(t, batch.shapes, 2)
	assert.Equal(t, batch.SeriesNumber(batch.Row(3)), batch.SeriesNumber(batch.Row(7)))
	assert.Equal(t, batch.Series(batch.Row(3)), batch.SeriesAt(int(batch.SeriesNumber(batch.Row(7)))))
}

func TestSameSeriesRepeatsSensorAndTags(t *testing.T) {
	t.Parallel()
	b := NewBuilder(received)
	first := &draft{stream: "readings", sensor: "s", tags: []telemetry.Tag{{Name: "a", Value: "1"}}, fields: []telemetry.Field{{Name: "t", Value: telemetry.IntValue(1)}}}
	require.Nil(t, first.give(b, 0))
	series := b.LastSeries()
	require.Nil(t, (&draft{stream: "readings", sensor: "other", fields: first.fields}).give(b, 1))

	b.Begin("readings", 2, always)
	b.SameSeries(series)
	b.Int([]byte("t"), 1)
	require.Nil(t, b.End())
	b.Begin("readings", 3, always)
	b.SameSeries(series)
	assert.Equal(t, telemetry.FieldsMissing, b.End().Code, "the other rules hold")
	b.Begin("readings", 4, always)
	b.Int([]byte("t"), 1)
	assert.Equal(t, telemetry.SensorMissing, b.End().Code, "the next reading begins anew")

	batch := b.Batch()
	require.Equal(t, 3, batch.Len())
	assert.Equal(t, batch.Reading(0), batch.Reading(2))
	assert.Same(t, series, batch.Series(batch.Row(2)))
}

func TestTheFirstRefusalCounts(t *testing.T) {
	t.Parallel()
	b := NewBuilder(received)
	b.Begin("readings", 0, always)
	assert.False(t, b.Refused())
	b.Float([]byte("t"), math.NaN())
	b.Sensor(nil)
	b.Refuse(telemetry.Refuse(telemetry.Malformed, ""))
	assert.True(t, b.Refused())
	assert.Equal(t, telemetry.ValueNotFinite, b.End().Code)
}

func TestManyFieldsAndTags(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		fields, tags int
		want         telemetry.Code
	}{{256, 256, ""}, {257, 0, telemetry.FieldsTooMany}, {1, 257, telemetry.TagsTooMany}} {
		b := NewBuilder(received)
		for i := range 3 { // once with a new shape, then with the last one
			b.Begin("readings", i, always)
			b.Sensor([]byte("s"))
			for f := range c.fields {
				b.Int(fmt.Append(nil, "f", f), int64(f))
			}
			for g := range c.tags {
				b.Tag(fmt.Append(nil, "g", g), nil)
			}
			if r := b.End(); c.want == "" {
				assert.Nil(t, r)
			} else {
				assert.Equal(t, c.want, r.Code)
			}
		}
	}
}

func TestDotsAreMappedBeforeNamesAreChecked(t *testing.T) {
	t.Parallel()
	b := NewBuilder(received)
	b.MapDots = '_'
	b.Begin("readings", 0, always)
	b.Sensor([]byte("a.b"))
	b.Tag([]byte("k.v"), []byte("x.y"))
	b.Int([]byte("t.x.y"), 1)
	require.Nil(t, b.End())
	b.Begin("readings", 1, always)
	b.Sensor([]byte("a.b"))
	b.Int([]byte("t.x"), 1)
	b.Int([]byte("t_x"), 1)
	assert.Equal(t, telemetry.FieldDuplicate, b.End().Code)
	b.Begin("readings", 2, always)
	b.Sensor([]byte("a"))
	b.Tag([]byte("k.v"), nil)
	b.Tag([]byte("k_v"), nil)
	b.Int([]byte("t"), 1)
	assert.Equal(t, telemetry.TagDuplicate, b.End().Code)
	assert.Equal(t, telemetry.Reading{
		Sensor: "a.b", Time: received.Truncate(time.Millisecond),
		Fields: []telemetry.Field{{Name: "t_x_y", Value: telemetry.IntValue(1)}}, Tags: []telemetry.Tag{{Name: "k_v", Value: "x.y"}},
	}, b.Batch().Reading(0))
}

func TestBuilderKeepsNoBytesThatItWasGiven(t *testing.T) {
	t.Parallel()
	b := NewBuilder(received)
	sensor, name, tag, text := []byte("sensor"), []byte("name"), []byte("tag"), []byte("text")
	b.Begin("readings", 0, always)
	b.Sensor(sensor)
	b.Tag(tag, text)
	b.Text(name, text)
	for _, s := range [][]byte{sensor, name, tag, text} {
		clear(s)
	}
	require.Nil(t, b.End())
	assert.Equal(t, telemetry.Reading{
		Sensor: "sensor", Time: received.Truncate(time.Millisecond),
		Fields: []telemetry.Field{{Name: "name", Value: telemetry.TextValue("text")}}, Tags: []telemetry.Tag{{Name: "tag", Value: "text"}},
	}, b.Batch().Reading(0))
}
