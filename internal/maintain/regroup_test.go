package maintain

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/brim-telemetry/brim/internal/faulttest"
	"github.com/brim-telemetry/brim/internal/store/bucket"
)

// groupStart is the beginning of every group here, 2026-01-01.
const groupStart = int64(1767225600000)

// testPart describes a part as a daemon leaves it.
type testPart struct {
	start  int64 // seconds after groupStart
	grain  int32
	number int32
	full   bool
	tags   bson.D
	marked bool // in place of tags: those that a reading's mark asks for
	guard  bson.D
	times  []int64 // of the readings, milliseconds after groupStart
}

// testDocument makes the document of a part whose readings have the marks of
// producer 1 from number on.
func testDocument(t require.TestingT, p testPart, number int64) bson.Raw {
	readings := make([]Measurement, len(p.times))
	for i, at := range p.times {
		doc, err := bson.Marshal(bson.D{
			{Key: "ts", Value: bson.DateTime(groupStart + at)}, {Key: "producer", Value: int64(1)}, {Key: "number", Value: number + int64(i)},
			{Key: "t", Value: float64(at) / 8}, {Key: "on", Value: true}, {Key: "note", Value: "x"},
		})
		require.NoError(t, err)
		readings[i] = Measurement{Time: groupStart + at, Document: doc}
		tags := p.tags
		if p.marked {
			for _, tag := range (faulttest.Mark{Producer: 1, Number: number + int64(i)}).Tags("s") {
				tags = append(tags, bson.E{Key: tag.Name, Value: tag.Value})
			}
		}
		if tags != nil {
			readings[i].Tags, err = bson.Marshal(tags)
			require.NoError(t, err)
		}
	}
	id := partID{"s", groupStart + p.start*1000, p.grain, p.number}
	raw, err := newPart(id, readings, p.full)
	require.NoError(t, err)
	var doc bson.D
	require.NoError(t, bson.Unmarshal(raw, &doc))
	for i := range doc {
		if doc[i].Key == "w" {
			doc[i].Value = p.guard
			if p.guard == nil {
				doc[i].Value = bson.D{{Key: "sabc", Value: number + int64(len(p.times))}}
			}
		}
	}
	out, err := bson.Marshal(doc)
	require.NoError(t, err)
	return out
}

// testGroup makes the documents of parts, numbering their readings through.
func testGroup(t require.TestingT, parts ...testPart) (group []bson.Raw, readings int64) {
	for _, p := range parts {
		group = append(group, testDocument(t, p, readings))
		readings += int64(len(p.times))
	}
	slices.SortFunc(group, func(a, b bson.Raw) int { return idOf(t, a).compare(idOf(t, b)) })
	return group, readings
}

func idOf(t require.TestingT, raw bson.Raw) partID {
	p, err := readPart(raw)
	require.NoError(t, err)
	return p.id
}

func newRegroup(t require.TestingT, cfg RegroupConfig) *Regroup {
	cfg.MaxReadings, cfg.MaxBytes = cmp.Or(cfg.MaxReadings, 1000), cmp.Or(cfg.MaxBytes, 256<<10)
	r, err := NewRegroup(cfg)
	require.NoError(t, err)
	return r
}

func reshape(t require.TestingT, r *Regroup, group []bson.Raw) []bson.Raw {
	out, err := r.Reshape(group)
	require.NoError(t, err)
	require.NoError(t, r.Verify(group, out))
	require.True(t, slices.IsSortedFunc(out, func(a, b bson.Raw) int { return idOf(t, a).compare(idOf(t, b)) }))
	return out
}

// summary is what tests say of a document.
type summary struct {
	id        partID
	count     int32
	full      bool
	tombstone bool
	guard     string
}

func summaries(t require.TestingT, group []bson.Raw) []summary {
	var out []summary
	for _, raw := range group {
		p, err := readPart(raw)
		require.NoError(t, err)
		out = append(out, summary{p.id, raw.Lookup("count").Int32(), p.full, p.tombstone, p.guard.String()})
	}
	return out
}

func idAt(start int64, grain, number int32) partID {
	return partID{"s", groupStart + start*1000, grain, number}
}

func TestReadingsMoveAndTombstonesStay(t *testing.T) {
	t.Parallel()
	group, _ := testGroup(t,
		testPart{start: 0, grain: 60, number: 0, full: true, times: []int64{10_000, 5_000}},
		testPart{start: 0, grain: 60, number: 1, times: []int64{7_000}},
		testPart{start: 240, grain: 60, times: []int64{250_000, 250_000}},
		testPart{start: 300, grain: 60, times: []int64{300_000}},
	)
	r := newRegroup(t, RegroupConfig{Granularity: 5 * time.Minute, Found: []time.Duration{time.Minute}, MaxReadings: 3})
	assert.Equal(t, 5*time.Minute, r.Span())
	assert.Equal(t, []summary{
		{idAt(0, 60, 0), 0, true, true, `{"sabc": {"$numberLong":"2"}}`},
		{idAt(0, 60, 1), 0, true, true, `{"sabc": {"$numberLong":"3"}}`},
		{idAt(0, 300, 0), 3, true, false, `{"migrated": {"$numberLong":"3"}}`},
		{idAt(0, 300, 1), 2, false, false, `{"migrated": {"$numberLong":"2"}}`},
		{idAt(240, 60, 0), 0, true, true, `{"sabc": {"$numberLong":"5"}}`},
		{idAt(300, 60, 0), 0, true, true, `{"sabc": {"$numberLong":"6"}}`},
		{idAt(300, 300, 0), 1, false, false, `{"migrated": {"$numberLong":"1"}}`},
	}, summaries(t, reshape(t, r, group)))
}

func TestPartsHaveUnchangedReadingsInTimeOrder(t *testing.T) {
	t.Parallel()
	group, _ := testGroup(t,
		testPart{start: 0, grain: 60, tags: bson.D{{Key: "site", Value: "north"}}, times: []int64{10_000, 5_000, 5_000}},
		testPart{start: 60, grain: 60, tags: bson.D{{Key: "site", Value: "north"}}, times: []int64{60_000}},
	)
	r := newRegroup(t, RegroupConfig{Granularity: time.Hour, Found: []time.Duration{time.Minute}})
	out := reshape(t, r, group)
	require.Len(t, out, 3)
	var merged bson.Raw
	for _, d := range out {
		if d.Lookup("count").Int32() > 0 {
			merged = d
		}
	}
	first, err := group[0].Lookup("measurements").Array().Values()
	require.NoError(t, err)
	second, err := group[1].Lookup("measurements").Array().Values()
	require.NoError(t, err)
	values, err := merged.Lookup("measurements").Array().Values()
	require.NoError(t, err)
	want := []bson.RawValue{first[1], first[2], first[0], second[0]}
	require.Len(t, values, len(want))
	for i := range want {
		assert.Equal(t, want[i].Document(), values[i].Document(), "reading %d", i)
	}
	assert.Equal(t, group[0].Lookup("tags"), merged.Lookup("tags"))
	assert.Equal(t, group[0].Lookup("bytes").Int32()+group[1].Lookup("bytes").Int32(), merged.Lookup("bytes").Int32())
}

// TestReadingsKeepTheirTags merges parts with several tags, and then what was
// merged.
func TestReadingsKeepTheirTags(t *testing.T) {
	t.Parallel()
	north, south := bson.D{{Key: "site", Value: "north"}}, bson.D{{Key: "site", Value: "south"}}
	group, _ := testGroup(t,
		testPart{start: 0, grain: 60, tags: north, times: []int64{1000}},
		testPart{start: 60, grain: 60, tags: south, times: []int64{61_000}},
		testPart{start: 120, grain: 60, tags: north, times: []int64{121_000}},
		testPart{start: 180, grain: 60, times: []int64{181_000}},
	)
	first, second := group[0].Lookup("tags"), group[1].Lookup("tags")
	for _, granularity := range []time.Duration{15 * time.Minute, time.Hour} {
		r := newRegroup(t, RegroupConfig{Granularity: granularity, Found: []time.Duration{time.Minute, 15 * time.Minute}})
		group = reshape(t, r, group)
		merged := group[slices.IndexFunc(group, func(d bson.Raw) bool { return d.Lookup("count").Int32() > 0 })]
		assert.EqualValues(t, 4, merged.Lookup("count").Int32())
		assert.Equal(t, first, merged.Lookup("tags"))
		measurements := merged.Lookup("measurements").Array()
		for i, want := range []bson.RawValue{{}, second, {}, {}} {
			assert.Equal(t, want, measurements.Index(uint(i)).Document().Lookup("sensor", "tags"), "reading %d", i)
		}
		assert.Equal(t, bson.TypeEmbeddedDocument, measurements.Index(3).Document().Lookup("sensor").Type, "it has none")
		weight := int32(0)
		for i := range uint(4) {
			weight += int32(bucket.Weight(measurements.Index(i).Document()))
		}
		assert.Equal(t, weight, merged.Lookup("bytes").Int32())
	}
}

// TestPartsOfTheNewGranularityStay: a daemon writes them already.
func TestPartsOfTheNewGranularityStay(t *testing.T) {
	t.Parallel()
	session := bson.D{{Key: "snew", Value: int64(7)}}
	group, _ := testGroup(t,
		testPart{start: 0, grain: 300, number: 0, full: true, guard: session, times: []int64{1000, 2000}},
		testPart{start: 0, grain: 300, number: 1, guard: session, times: []int64{100_000}},
		testPart{start: 60, grain: 60, times: []int64{61_000}},
		testPart{start: 300, grain: 300, guard: session, times: []int64{301_000}},
	)
	r := newRegroup(t, RegroupConfig{Granularity: 5 * time.Minute, Found: []time.Duration{time.Minute}})
	out := reshape(t, r, group)
	assert.Equal(t, []summary{
		{idAt(0, 300, 0), 2, true, false, `{"snew": {"$numberLong":"7"}}`},
		{idAt(0, 300, 1), 1, true, false, `{"snew": {"$numberLong":"7"}}`},
		{idAt(0, 300, 2), 1, false, false, `{"migrated": {"$numberLong":"1"}}`},
		{idAt(60, 60, 0), 0, true, true, `{"sabc": {"$numberLong":"4"}}`},
		{idAt(300, 300, 0), 1, false, false, `{"snew": {"$numberLong":"7"}}`},
	}, summaries(t, out))
	assert.Equal(t, group[0], out[0], "what nothing comes to is not touched")
	assert.Equal(t, out, reshape(t, r, out), "there is nothing more to move")
}

func TestBackAgainPartsFollowTheTombstones(t *testing.T) {
	t.Parallel()
	group, readings := testGroup(t, testPart{start: 0, grain: 60, number: 0, full: true, times: []int64{1000, 2000}}, testPart{start: 0, grain: 60, number: 1, times: []int64{3000}})
	both := []time.Duration{time.Minute, 5 * time.Minute}
	there := newRegroup(t, RegroupConfig{Granularity: 5 * time.Minute, Found: both})
	back := newRegroup(t, RegroupConfig{Granularity: time.Minute, Found: both})
	moved := reshape(t, there, group)
	// An old daemon writes on, behind the tombstones.
	late := testDocument(t, testPart{start: 0, grain: 60, number: 2, times: []int64{4000}}, readings)
	moved = slices.Insert(moved, 2, late)
	moved = reshape(t, there, moved)
	assert.Equal(t, []summary{
		{idAt(0, 60, 0), 0, true, true, `{"sabc": {"$numberLong":"2"}}`},
		{idAt(0, 60, 1), 0, true, true, `{"sabc": {"$numberLong":"3"}}`},
		{idAt(0, 60, 2), 4, false, false, `{"migrated": {"$numberLong":"4"}}`},
		{idAt(0, 60, 3), 4, false, false, ""},
	}[:2], summaries(t, moved)[:2])
	assert.Equal(t, []summary{
		{idAt(0, 60, 2), 0, true, true, `{"sabc": {"$numberLong":"4"}}`},
		{idAt(0, 300, 0), 3, true, false, `{"migrated": {"$numberLong":"3"}}`},
		{idAt(0, 300, 1), 1, false, false, `{"migrated": {"$numberLong":"1"}}`},
	}, summaries(t, moved)[2:])
	assert.Equal(t, []summary{
		{idAt(0, 60, 0), 0, true, true, `{"sabc": {"$numberLong":"2"}}`},
		{idAt(0, 60, 1), 0, true, true, `{"sabc": {"$numberLong":"3"}}`},
		{idAt(0, 60, 2), 0, true, true, `{"sabc": {"$numberLong":"4"}}`},
		{idAt(0, 60, 3), 4, false, false, `{"migrated": {"$numberLong":"4"}}`},
		{idAt(0, 300, 0), 0, true, true, `{"migrated": {"$numberLong":"3"}}`},
		{idAt(0, 300, 1), 0, true, true, `{"migrated": {"$numberLong":"1"}}`},
	}, summaries(t, reshape(t, back, moved)))
}

func TestUnknownGranularityIsNamed(t *testing.T) {
	t.Parallel()
	group, _ := testGroup(t, testPart{start: 0, grain: 3600, times: []int64{1000}})
	r := newRegroup(t, RegroupConfig{Granularity: 5 * time.Minute, Found: []time.Duration{time.Minute}})
	_, err := r.Reshape(group)
	var span *SpanError
	require.ErrorAs(t, err, &span)
	assert.Equal(t, time.Hour, span.Granularity)
	assert.Equal(t, 60*time.Minute, newRegroup(t, RegroupConfig{Granularity: 15 * time.Minute, Found: []time.Duration{12 * time.Minute}}).Span())
}

func TestForeignDocumentsAreNamed(t *testing.T) {
	t.Parallel()
	r := newRegroup(t, RegroupConfig{Granularity: 5 * time.Minute})
	whole, _ := testGroup(t, testPart{grain: 60, times: []int64{1000}})
	tests := []struct {
		name string
		doc  any
		want string
	}{
		{"another kind of _id", bson.D{{Key: "_id", Value: 7}}, "is none of a bucket stream"},
		{"an _id without a part", bson.D{{Key: "_id", Value: bson.D{{Key: "s", Value: "a"}}}}, "is none of a bucket stream"},
		{"a granularity that there is not", change(t, whole[0], "_id", bson.D{{Key: "s", Value: "s"}, {Key: "b", Value: bson.DateTime(0)}, {Key: "g", Value: int32(7)}, {Key: "p", Value: int32(0)}}), "granularity 7s is invalid"},
		{"no measurements", change(t, whole[0], "measurements", 1), "no array of measurements"},
		{"a measurement that is none", change(t, whole[0], "measurements", bson.A{1}), "measurement 0 is none"},
		{"a measurement without a time", change(t, whole[0], "measurements", bson.A{bson.D{}}), "measurement 0 has no ts"},
		{"a measurement outside its window", change(t, whole[0], "measurements", bson.A{bson.D{{Key: "ts", Value: bson.DateTime(groupStart + 60_000)}}}), "outside its window"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			raw, err := bson.Marshal(tt.doc)
			require.NoError(t, err)
			_, err = r.Reshape([]bson.Raw{raw})
			assert.ErrorContains(t, err, tt.want)
		})
	}
}

// change returns a document with one field replaced.
func change(t require.TestingT, raw bson.Raw, key string, value any) bson.D {
	var doc bson.D
	require.NoError(t, bson.Unmarshal(raw, &doc))
	for i := range doc {
		if doc[i].Key == key {
			doc[i].Value = value
		}
	}
	return doc
}

func TestVerifySeesWhatIsWrong(t *testing.T) {
	t.Parallel()
	group, _ := testGroup(t,
		testPart{start: 0, grain: 60, times: []int64{1000, 2000}}, testPart{start: 60, grain: 60, times: []int64{61_000}},
		testPart{start: 0, grain: 300, guard: bson.D{{Key: "snew", Value: int64(1)}}, times: []int64{200_000}})
	r := newRegroup(t, RegroupConfig{Granularity: 5 * time.Minute, Found: []time.Duration{time.Minute}})
	marshal := func(doc bson.D) bson.Raw {
		raw, err := bson.Marshal(doc)
		require.NoError(t, err)
		return raw
	}
	// {0,60,0} tombstone, {0,300,0} native, {0,300,1} merged, {60,60,0} tombstone
	tests := []struct {
		name string
		edit func(out []bson.Raw) []bson.Raw
		want string
	}{
		{"a reading is missing", func(out []bson.Raw) []bson.Raw { return slices.Delete(out, 2, 3) }, "1 readings were 4 before"},
		{"a reading is there twice", func(out []bson.Raw) []bson.Raw {
			return append(out, testDocument(t, testPart{start: 0, grain: 300, number: 2, times: []int64{1000}}, 0))
		}, "5 readings were 4 before"},
		{"a reading is another", func(out []bson.Raw) []bson.Raw {
			out[1] = testDocument(t, testPart{start: 0, grain: 300, full: true, guard: bson.D{{Key: "snew", Value: int64(1)}}, times: []int64{200_001}}, 3)
			return out
		}, "are not those from before"},
		{"other tags", func(out []bson.Raw) []bson.Raw {
			out[1] = testDocument(t, testPart{start: 0, grain: 300, full: true, tags: bson.D{{Key: "a", Value: "b"}}, guard: bson.D{{Key: "snew", Value: int64(1)}}, times: []int64{200_000}}, 3)
			return out
		}, "are not those from before"},
		{"a tombstone is missing", func(out []bson.Raw) []bson.Raw { return slices.Delete(out, 3, 4) }, "is missing"},
		{"a tombstone with another guard", func(out []bson.Raw) []bson.Raw {
			out[0] = marshal(change(t, out[0], "w", bson.D{{Key: "sabc", Value: int64(1)}}))
			return out
		}, "has another w"},
		{"a tombstone that is open", func(out []bson.Raw) []bson.Raw { out[0] = marshal(change(t, out[0], "full", false)); return out }, "has no tombstone"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			out := reshape(t, r, group)
			require.Len(t, out, 4)
			assert.ErrorContains(t, r.Verify(group, tt.edit(out)), tt.want)
		})
	}
}

func TestRegroupRefusesWhatNoStreamHas(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		cfg  RegroupConfig
		want string
	}{
		{RegroupConfig{Granularity: 7 * time.Minute, MaxReadings: 1, MaxBytes: 1 << 10}, "granularity 7m is invalid"},
		{RegroupConfig{Granularity: time.Minute, MaxReadings: 0, MaxBytes: 1 << 10}, "bucket-max-readings 0 is out of range"},
		{RegroupConfig{Granularity: time.Minute, MaxReadings: 1, MaxBytes: 3 << 20}, "bucket-max-bytes 3145728 is out of range"},
	} {
		_, err := NewRegroup(tt.cfg)
		assert.ErrorContains(t, err, tt.want)
	}
}
