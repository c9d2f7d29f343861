package maintain

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/internal/store/bucket"
)

// migratedKey marks what a migration has made: in w the parts that hold
// readings of other documents, at the top of a document the tombstones. Names of
// sessions begin with an s.
const migratedKey = "migrated"

// A Measurement is a reading on its way into another document.
type Measurement struct {
	Time     int64    // milliseconds since the epoch
	Document bson.Raw // {ts, fields…}
	Tags     bson.Raw // nil: none
}

// in returns the reading as it is stored in a part with these tags.
func (m *Measurement) in(tags bson.Raw) bson.Raw {
	if bytes.Equal(m.Tags, tags) {
		return m.Document
	}
	own := bsoncore.NewDocumentBuilder()
	if m.Tags != nil {
		own.AppendDocument(tagsKey, bsoncore.Document(m.Tags))
	}
	doc := append(make([]byte, 0, len(m.Document)+len(m.Tags)+32), m.Document[:len(m.Document)-1]...)
	return closed(bsoncore.AppendDocumentElement(doc, sensorKey, own.Build()))
}

// Parts says how readings become the parts of a bucket.
type Parts struct {
	Granularity time.Duration
	MaxReadings int // in a part
	MaxBytes    int // of the readings in a part, as bucket.Weight estimates them
}

// Make returns the parts of one window, numbered from first on, in the order of
// their _id. Readings are in the order of their time, those of one time as they
// came. A part has the tags of its first reading; readings with other tags keep
// their own. All parts but the last are full.
func (p Parts) Make(sensor string, start int64, first int32, readings []Measurement) ([]bson.Raw, error) {
	for _, m := range readings {
		if store.WindowStart(m.Time, p.Granularity) != start {
			return nil, fmt.Errorf("a reading of sensor %q at %s is outside the window of %s that begins at %s",
				sensor, time.UnixMilli(m.Time).UTC().Format(time.RFC3339Nano), p.Granularity, time.UnixMilli(start).UTC().Format(time.RFC3339))
		}
	}
	chunks := p.chunks(readings)
	out := make([]bson.Raw, len(chunks))
	for i, chunk := range chunks {
		id := partID{sensor: sensor, start: start, grain: int32(p.Granularity / time.Second), number: first + int32(i)}
		doc, err := newPart(id, chunk, i < len(chunks)-1)
		if err != nil {
			return nil, fmt.Errorf("make part %v: %w", id, err)
		}
		out[i] = doc
	}
	return out, nil
}

// chunks cuts readings into those of one part each.
func (p Parts) chunks(readings []Measurement) [][]Measurement {
	readings = slices.SortedStableFunc(slices.Values(readings), func(a, b Measurement) int { return cmp.Compare(a.Time, b.Time) })
	var out [][]Measurement
	from, weight := 0, int64(0)
	for i, m := range readings {
		w := bucket.Weight(m.in(readings[from].Tags))
		// A reading that is larger than an empty part goes alone.
		if i > from && (i-from >= p.MaxReadings || weight+w > int64(p.MaxBytes)) {
			out = append(out, readings[from:i])
			from, weight, w = i, 0, bucket.Weight(m.Document)
		}
		weight += w
	}
	if len(readings) > 0 {
		out = append(out, readings[from:])
	}
	return out
}

// newPart makes a document as the updates of a daemon would have made it.
func newPart(id partID, readings []Measurement, full bool) (bson.Raw, error) {
	var stats bucket.Statistics
	var weight int64
	tags, array := readings[0].Tags, bsoncore.NewArrayBuilder()
	for _, m := range readings {
		if err := stats.Add(m.Document); err != nil {
			return nil, err
		}
		document := m.in(tags)
		weight += bucket.Weight(document)
		array.AppendDocument(bsoncore.Document(document))
	}
	b := bsoncore.NewDocumentBuilder().
		AppendDocument("_id", id.document()).
		AppendDateTime("bucketStart", id.start).
		AppendInt32("bytes", int32(weight)).
		AppendInt32("count", int32(len(readings)))
	doc := b.AppendArray("measurements", array.Build()).AppendString("sensorId", id.sensor).Build()
	doc = doc[:len(doc)-1] // go on behind the last element
	doc = stats.Append(doc)
	if tags != nil {
		doc = bsoncore.AppendDocumentElement(doc, "tags", bsoncore.Document(tags))
	}
	guard := bsoncore.NewDocumentBuilder().AppendInt64(migratedKey, int64(len(readings))).Build()
	doc = bsoncore.AppendDocumentElement(doc, "w", guard)
	if full {
		doc = bsoncore.AppendBooleanElement(doc, "full", true)
	}
	return closed(doc), nil
}

// closed ends a document that elements were appended to.
func closed(doc bsoncore.Document) bson.Raw {
	doc = append(doc, 0)
	return bson.Raw(bsoncore.UpdateLength(doc, 0, int32(len(doc))))
}

// partID is the _id of a part.
type partID struct {
	sensor string
	start  int64 // milliseconds since the epoch
	grain  int32 // seconds
	number int32
}

func (id partID) document() bsoncore.Document {
	return bsoncore.NewDocumentBuilder().
		AppendString("s", id.sensor).AppendDateTime("b", id.start).AppendInt32("g", id.grain).AppendInt32("p", id.number).
		Build()
}

// window returns what all parts of a bucket have in common.
func (id partID) window() partID {
	id.number = 0
	return id
}

// compare orders parts of one sensor as MongoDB orders their _id.
func (id partID) compare(b partID) int {
	return cmp.Or(cmp.Compare(id.start, b.start), cmp.Compare(id.grain, b.grain), cmp.Compare(id.number, b.number))
}

// String names the part for people.
func (id partID) String() string {
	return fmt.Sprintf("%q %s %ds part %d", id.sensor, time.UnixMilli(id.start).UTC().Format(time.RFC3339), id.grain, id.number)
}
