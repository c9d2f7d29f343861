package timeseries

import (
	"context"
	"reflect"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/store"
)

// insert is what one Write sends: its readings, and the memory that they are
// encoded in. The driver is given readings rather than bytes and asks each for
// its document when it composes the command. It copies what it gets before it
// asks the next, so all of them are encoded in the same few bytes, and nothing
// of ours is in its hands when it begins to send.
type insert struct {
	readings []reading
	docs     []*reading // of the command at hand
	left     int        // of docs that are not encoded yet
	sent     time.Time  // when all were

	templates *store.Shapes[store.Template]
	doc       []byte // of the reading at hand
	meta      []byte // the element with the sensor, of the series
	series    *batch.Series
}

// reading is one document, as bson.Marshaler.
type reading struct {
	insert *insert
	share  *batch.Share
	ref    batch.Ref
}

// MarshalBSON returns bytes that are valid until the next document's are made.
func (r *reading) MarshalBSON() ([]byte, error) {
	in := r.insert
	in.encode(r.share, r.ref)
	if in.left--; in.left == 0 {
		in.sent = time.Now()
	}
	return in.doc, nil
}

// encode makes the document of one reading.
func (in *insert) encode(share *batch.Share, r batch.Ref) {
	row := r.Row()
	if s := r.Batch.Series(row); s != in.series {
		in.series = s
		at, meta := bsoncore.AppendDocumentElementStart(in.meta[:0], metaField)
		meta = bsoncore.AppendStringElement(meta, "id", share.Sensor)
		in.meta, _ = bsoncore.AppendDocumentEnd(store.AppendTags(meta, s.Tags), at)
	}
	at, doc := bsoncore.AppendDocumentStart(in.doc[:0])
	doc = bsoncore.AppendObjectIDElement(doc, "_id", collectionID(batch.ReadingID(share.Session, r.Seq())))
	doc = bsoncore.AppendDateTimeElement(doc, timeField, row.Time)
	doc = append(doc, in.meta...)
	doc = in.templates.Of(r.Batch.Shape(row)).AppendFields(doc, r.Batch, row)
	in.doc, _ = bsoncore.AppendDocumentEnd(doc, at)
}

// inserts keeps what is needed again.
type inserts struct{ pool sync.Pool }

func (p *inserts) get() *insert {
	if in, ok := p.pool.Get().(*insert); ok {
		return in
	}
	return &insert{templates: store.NewShapes(store.NewTemplate)}
}

func (p *inserts) put(in *insert) {
	clear(in.readings) // they hold batches
	in.readings, in.series = in.readings[:0], nil
	p.pool.Put(in)
}

// commandBytes is about how large a command gets, see package bucket.
const commandBytes = 1 << 20

// oneCommand returns how many of the readings go into the next command; those
// of a share stay together.
func oneCommand(readings []reading) int {
	n, size := 0, int64(0)
	for n < len(readings) && (size < commandBytes || readings[n].share == readings[n-1].share) {
		size += int64(readings[n].ref.Row().Size) + 100
		n++
	}
	return n
}

// withoutIDs is a registry for a collection that is only inserted into. For the
// result of InsertMany, which nobody looks at here, the driver decodes every
// document that it is about to send into a struct of just its _id, a third of
// all that an insert costs this process. The registry leaves that struct
// empty. A driver that uses another one gets its ids, at the old price.
func withoutIDs() *bson.Registry {
	registry := bson.NewRegistry()
	registry.RegisterTypeDecoder(reflect.TypeFor[struct {
		ID any `bson:"_id"`
	}](), bson.ValueDecoderFunc(func(bson.DecodeContext, bson.ValueReader, reflect.Value) error { return nil }))
	return registry
}

// send inserts some of the readings with one command, which took the time that
// is returned, without the encoding before it.
func (in *insert) send(ctx context.Context, coll *mongo.Collection, readings []reading, to *store.Prepared) (time.Duration, error) {
	in.docs = in.docs[:0]
	for i := range readings {
		readings[i].insert = in
		in.docs = append(in.docs, &readings[i])
	}
	in.left, in.sent = len(readings), time.Now()
	_, err := coll.InsertMany(ctx, in.docs, to.Insert)
	return time.Since(in.sent), err
}
