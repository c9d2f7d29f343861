package shape

import (
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/brim-telemetry/brim/internal/bench/lane"
	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// sensorKey is the key of the sensor in a document per reading.
const sensorKey = "sensor"

// A naive writer inserts a document per reading, with the driver's _id, and
// relies on nothing but insertMany.
type naive struct {
	readings Readings
	coll     *mongo.Collection
	named    bool // documents tell the sensor
	fields   []telemetry.Field
	memory   []byte // of the documents of a command
	docs     []any
}

// create makes the collection: with a unique index, by which a reading that
// comes twice is found out, or as a time series, which can have none.
func (n *naive) create(ctx context.Context, s Shape, c store.Collection) error {
	create := options.CreateCollection()
	if s.Kind == Series {
		create.SetTimeSeriesOptions(options.TimeSeries().SetTimeField(store.TimeKey).SetGranularity("seconds"))
	}
	if _, err := c.Ensure(ctx, create); err != nil {
		return err
	}
	if s.Kind == Series {
		return nil
	}
	keys := bson.D{{Key: store.TimeKey, Value: 1}}
	if n.named {
		keys = bson.D{{Key: sensorKey, Value: 1}, {Key: store.TimeKey, Value: 1}}
	}
	_, err := n.coll.Indexes().CreateOne(ctx, mongo.IndexModel{Keys: keys, Options: options.Index().SetUnique(true)})
	if err != nil {
		return fmt.Errorf("create the index of collection %q: %w", c.Name, err)
	}
	return nil
}

// Write inserts the portions with one insertMany.
func (n *naive) Write(ctx context.Context, portions []lane.Portion) (documents int, err error) {
	n.memory, n.docs = n.memory[:0], n.docs[:0]
	for _, p := range portions {
		for i := range p.Count {
			n.docs = append(n.docs, n.document(p.Sensor, p.First+uint64(i))) //nolint:gosec // counts from 0
		}
	}
	if _, err := n.coll.InsertMany(ctx, n.docs); err != nil {
		return 0, fmt.Errorf("insert %d documents: %w", len(n.docs), err)
	}
	return len(n.docs), nil
}

// document makes that of a reading.
func (n *naive) document(sensor int, k uint64) bson.Raw {
	time := n.readings.Time(k)
	from := len(n.memory)
	at, doc := bsoncore.AppendDocumentStart(n.memory)
	if n.named {
		doc = bsoncore.AppendStringElement(doc, sensorKey, n.readings.Source.ID(sensor))
	}
	doc = bsoncore.AppendDateTimeElement(doc, store.TimeKey, time.UnixMilli())
	n.fields = n.readings.Source.AppendFields(n.fields[:0], sensor, k, time)
	for _, f := range n.fields {
		doc = appendField(doc, f)
	}
	doc = store.AppendTags(doc, n.readings.Source.Tags(sensor))
	// The document has all of the memory, so that its end is found; an offset that
	// AppendDocumentStart gave cannot fail.
	doc, _ = bsoncore.AppendDocumentEnd(doc, at)
	n.memory = doc
	return bson.Raw(doc[from:len(doc):len(doc)])
}

func appendField(dst []byte, f telemetry.Field) []byte {
	switch v := f.Value; v.Kind() {
	case telemetry.Int:
		return bsoncore.AppendInt64Element(dst, f.Name, v.Int())
	case telemetry.Bool:
		return bsoncore.AppendBooleanElement(dst, f.Name, v.Bool())
	case telemetry.Text:
		return bsoncore.AppendStringElement(dst, f.Name, v.Text())
	default:
		return bsoncore.AppendDoubleElement(dst, f.Name, v.Float())
	}
}
