package lane

import (
	"context"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

// A Model is a bucket that the store wrote, from which others are made.
type Model struct {
	coll     *mongo.Collection
	document bson.Raw
}

// Model stores a portion, which is of one bucket, and returns the document that
// it made. The document is taken out of the collection again.
func (l *Lane) Model(ctx context.Context, coll *mongo.Collection, p Portion) (*Model, error) {
	if _, err := l.Write(ctx, []Portion{p}); err != nil {
		return nil, err
	}
	m := &Model{coll: coll}
	id := bson.D{
		{Key: "s", Value: l.cfg.Source.ID(p.Sensor)}, {Key: "b", Value: bson.DateTime(l.windowStart(p.Sensor, p.First))},
		{Key: "g", Value: int32(l.cfg.Granularity / time.Second)}, {Key: "p", Value: int32(0)},
	}
	if err := coll.FindOneAndDelete(ctx, bson.D{{Key: "_id", Value: id}}).Decode(&m.document); err != nil {
		return nil, fmt.Errorf("read the first bucket: %w", err)
	}
	l.sensor(p.Sensor).state = nil // it is gone
	if n, ok := m.document.Lookup("count").AsInt64OK(); !ok || n != int64(p.Count) {
		return nil, fmt.Errorf("make a bucket of %d readings: it has %d; they are not all of one window and part", p.Count, n)
	}
	return m, nil
}

// Bytes are those of the document, before compression.
func (m *Model) Bytes() int { return len(m.document) }

const (
	copiesAtOnce = 1000
	bytesAtOnce  = 8 << 20
)

// Copy inserts the model's bucket for each of the sensors: many updates of the
// store would take longer than what is measured after it. Those that do not get
// theirs until a time, unless it is zero, are left out; it returns how many got
// one. To the lane they are buckets that it wrote: they have its session, though
// the store looks at nothing before the next append.
func (l *Lane) Copy(ctx context.Context, m *Model, sensors []int, until time.Time) (created int, err error) {
	atOnce := max(1, min(copiesAtOnce, bytesAtOnce/m.Bytes()))
	var documents []any
	for created < len(sensors) && (until.IsZero() || time.Now().Before(until)) {
		documents = documents[:0]
		for _, number := range sensors[created:min(created+atOnce, len(sensors))] {
			made, err := m.of(l.cfg.Source.ID(number))
			if err != nil {
				return created, err
			}
			documents = append(documents, made)
		}
		if _, err := m.coll.InsertMany(ctx, documents, options.InsertMany().SetOrdered(false)); err != nil {
			return created, fmt.Errorf("create buckets: %w", err)
		}
		created += len(documents)
	}
	return created, nil
}

// of is the document as that of another sensor.
func (m *Model) of(sensor string) (bson.Raw, error) {
	elements, err := m.document.Elements()
	if err != nil {
		return nil, fmt.Errorf("copy a bucket: %w", err)
	}
	at, dst := bsoncore.AppendDocumentStart(make([]byte, 0, len(m.document)+2*len(sensor)))
	for _, e := range elements {
		switch e.Key() {
		case "_id": // {s, b, g, p}
			if dst, err = appendID(dst, e.Value().Document(), sensor); err != nil {
				return nil, err
			}
		case "sensorId":
			dst = bsoncore.AppendStringElement(dst, "sensorId", sensor)
		default:
			dst = append(dst, e...)
		}
	}
	return bsoncore.AppendDocumentEnd(dst, at)
}

func appendID(dst []byte, id bson.Raw, sensor string) ([]byte, error) {
	elements, err := id.Elements()
	if err != nil {
		return nil, fmt.Errorf("copy a bucket: %w", err)
	}
	at, dst := bsoncore.AppendDocumentElementStart(dst, "_id")
	for _, e := range elements {
		if e.Key() == "s" {
			dst = bsoncore.AppendStringElement(dst, "s", sensor)
			continue
		}
		dst = append(dst, e...)
	}
	return bsoncore.AppendDocumentEnd(dst, at)
}
