package catalog

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A sensor's document:
//
//	{ _id: "s-1",
//	  sets: [ {tags: {region: "north"}, from: ISODate(…), to: ISODate(…)}, … ],   // the newest last
//	  pairs: [ "region=north", … ],         // of all sets, for the index
//	  fields: [ "h", "t" ], texts: [ "state" ],
//	  to: ISODate(…),                       // the latest of the sets', for retention
//	  written: ISODate(…) }
//
// The document with the empty _id, which no sensor can have, is the stream's state.
const (
	pairsIndex = "brim_pairs"
	// maxSets bounds the sets of a sensor; the oldest are dropped.
	maxSets = 64
	// maxNames bounds the fields of a sensor.
	maxNames = 4096
)

// A sensorUpdate is what one update adds to a sensor's document.
type sensorUpdate struct {
	sensor        string
	tags          []telemetry.Tag
	fields, texts []string
	span          written
	fresh         bool // the catalog does not have the sensor
}

// sensorUpdate returns the update for an entry.
func (e *entry) sensorUpdate(now time.Time) sensorUpdate {
	f := sensorUpdate{sensor: e.series.Sensor, tags: e.series.Tags, span: spanOf(e.series.Hash, e.first, e.last, now)}
	for _, field := range e.shape.Fields {
		f.add(field.Name, field.Kind)
	}
	return f
}

func (f *sensorUpdate) add(name string, kind telemetry.Kind) {
	to := &f.fields
	if kind == telemetry.Text {
		to = &f.texts
	}
	if !slices.Contains(*to, name) {
		*to = append(*to, name)
	}
}

// How far ahead a time range is extended, so that it need not be written again soon. Old readings
// usually arrive in order and fast.
const (
	ahead    = time.Hour
	aheadOld = 24 * time.Hour
	day      = 24 * time.Hour
)

// spanOf returns the time range to write for readings between two times. Its end has a per-sensor
// jitter, so that not all sensors are written in the same minute. The ranges of a sensor's sets
// end in the order of their newest readings.
func spanOf(hash uint64, first, last int64, now time.Time) written {
	by := ahead
	if now.UnixMilli()-last > aheadOld.Milliseconds() {
		by = aheadOld
	}
	jitter := int64(hash % uint64(ahead.Milliseconds()))
	return written{from: minutes(first - first%day.Milliseconds()), to: minutes(last+by.Milliseconds()+jitter) + 1}
}

func dateOf(minutes uint32) bson.DateTime { return bson.DateTime(int64(minutes) * minute) }

// document returns the document of a fresh sensor, as update would make it.
func (f *sensorUpdate) document(now time.Time) bson.D {
	pairs := make([]string, 0, len(f.tags))
	for _, t := range f.tags {
		pairs = append(pairs, pair(t.Name, t.Value))
	}
	slices.Sort(pairs)
	from, to := dateOf(f.span.from), dateOf(f.span.to)
	doc := bson.D{
		{Key: "_id", Value: f.sensor},
		{Key: "sets", Value: bson.A{bson.D{{Key: "tags", Value: f.tagsDocument()}, {Key: "from", Value: from}, {Key: "to", Value: to}}}},
		{Key: "to", Value: to},
		{Key: "written", Value: bson.NewDateTimeFromTime(now)},
	}
	s := f.asSensor()
	if n := min(len(s.Fields), maxNames); n > 0 {
		doc = append(doc, bson.E{Key: "fields", Value: s.Fields[:n]})
	}
	if n := min(len(s.Texts), maxNames); n > 0 {
		doc = append(doc, bson.E{Key: "texts", Value: s.Texts[:n]})
	}
	return append(doc, bson.E{Key: "pairs", Value: pairs})
}

func (f *sensorUpdate) tagsDocument() bson.D {
	tags := make(bson.D, 0, len(f.tags))
	for _, t := range f.tags {
		tags = append(tags, bson.E{Key: t.Name, Value: t.Value})
	}
	return tags
}

// update returns the MongoDB update. It is an aggregation pipeline, because it merges the set with
// an existing one of the same tags.
func (f *sensorUpdate) update(now time.Time) *mongo.UpdateOneModel {
	e := func(key string, value any) bson.D { return bson.D{{Key: key, Value: value}} }
	literal := func(value any) bson.D { return e("$literal", value) }
	tags := f.tagsDocument()
	from, to := dateOf(f.span.from), dateOf(f.span.to)
	sets := func(operator string) bson.D {
		return e("$filter", bson.D{
			{Key: "input", Value: e("$ifNull", bson.A{"$sets", bson.A{}})},
			{Key: "cond", Value: e(operator, bson.A{"$$this.tags", literal(tags)})},
		})
	}
	set := bson.D{
		{Key: "tags", Value: literal(tags)},
		{Key: "from", Value: e("$min", bson.A{e("$min", "$$same.from"), from})},
		{Key: "to", Value: e("$max", bson.A{e("$max", "$$same.to"), to})},
	}
	names := func(field string, names []string) bson.D {
		return e("$slice", bson.A{e("$setUnion", bson.A{e("$ifNull", bson.A{"$" + field, bson.A{}}), literal(names)}), maxNames})
	}
	pairs := e("$reduce", bson.D{
		{Key: "input", Value: "$sets"}, {Key: "initialValue", Value: bson.A{}},
		{Key: "in", Value: e("$setUnion", bson.A{"$$value", e("$map", bson.D{
			{Key: "input", Value: e("$objectToArray", "$$this.tags")}, {Key: "as", Value: "tag"},
			{Key: "in", Value: e("$concat", bson.A{"$$tag.k", "=", "$$tag.v"})},
		})})},
	})
	first := bson.D{
		{Key: "sets", Value: e("$let", bson.D{
			{Key: "vars", Value: bson.D{{Key: "same", Value: sets("$eq")}}},
			{Key: "in", Value: e("$slice", bson.A{e("$concatArrays", bson.A{sets("$ne"), bson.A{set}}), -maxSets})},
		})},
		{Key: "to", Value: e("$max", bson.A{"$to", to})},
		{Key: "written", Value: bson.NewDateTimeFromTime(now)},
	}
	for field, more := range map[string][]string{"fields": f.fields, "texts": f.texts} {
		if len(more) > 0 {
			first = append(first, bson.E{Key: field, Value: names(field, more)})
		}
	}
	return mongo.NewUpdateOneModel().SetUpsert(true).SetFilter(bson.D{{Key: "_id", Value: f.sensor}}).
		SetUpdate(mongo.Pipeline{{{Key: "$set", Value: first}}, {{Key: "$set", Value: e("pairs", pairs)}}})
}

// pair returns the form of a tag in the field pairs.
func pair(name, value string) string { return name + "=" + value }

// decode decodes a sensor's document.
func decode(doc bson.Raw) (telemetry.Sensor, error) {
	id, ok := doc.Lookup("_id").StringValueOK()
	if !ok {
		return telemetry.Sensor{}, fmt.Errorf("the document with _id %v is not a sensor's", doc.Lookup("_id"))
	}
	s := telemetry.Sensor{ID: id, Fields: stringsOf(doc, "fields"), Texts: stringsOf(doc, "texts")}
	sets, _ := doc.Lookup("sets").ArrayOK()
	if len(sets) == 0 {
		return s, nil
	}
	err := store.EachElement(bson.Raw(sets), func(_ int, e bsoncore.Element) error {
		set, ok := e.Value().DocumentOK()
		if !ok {
			return fmt.Errorf("a set of tags of sensor %q is no document", id)
		}
		raw := bson.Raw(set)
		from, _ := raw.Lookup("from").DateTimeOK()
		to, _ := raw.Lookup("to").DateTimeOK()
		s.Sets = append(s.Sets, telemetry.TagSet{Tags: store.TagsOf(raw.Lookup("tags")), From: from, To: to})
		return nil
	})
	slices.SortStableFunc(s.Sets, func(a, b telemetry.TagSet) int { return cmp.Compare(a.To, b.To) })
	return s, err
}

// stringsOf returns the strings of an array, sorted.
func stringsOf(doc bson.Raw, field string) (out []string) {
	array, ok := doc.Lookup(field).ArrayOK()
	if !ok {
		return nil
	}
	values, err := array.Values()
	if err != nil {
		return nil
	}
	for _, v := range values {
		if s, ok := v.StringValueOK(); ok {
			out = append(out, s)
		}
	}
	slices.Sort(out)
	return out
}

// asSensor returns the update as a sensor with one set.
func (f *sensorUpdate) asSensor() telemetry.Sensor {
	s := telemetry.Sensor{ID: f.sensor, Fields: slices.Clone(f.fields), Texts: slices.Clone(f.texts)}
	s.Sets = []telemetry.TagSet{{Tags: f.tags, From: int64(f.span.from) * minute, To: int64(f.span.to) * minute}}
	slices.Sort(s.Fields)
	slices.Sort(s.Texts)
	return s
}
