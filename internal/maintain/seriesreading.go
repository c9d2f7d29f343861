package maintain

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/cespare/xxhash/v2"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/brim-telemetry/brim/internal/store"
)

// Keys of a reading in a time-series collection, beside its fields.
const (
	sensorKey = store.SensorKey
	tagsKey   = "tags"
)

// A seriesReading is a reading on its way into a time-series collection.
type seriesReading struct {
	id       bson.ObjectID
	time     int64    // milliseconds since the epoch
	document bson.Raw // as it is inserted
}

// seriesReadings returns the readings of a bucket document. Each is named by
// where it stands, so that the same reading has the same _id whenever it is
// sent: no two parts share one, and places in a part never change.
func seriesReadings(p *oldPart) ([]seriesReading, error) {
	measurements, err := p.readings()
	if err != nil {
		return nil, err
	}
	name := p.seriesName()
	out := make([]seriesReading, len(measurements))
	for i, m := range measurements {
		var id bson.ObjectID
		binary.BigEndian.PutUint64(id[:], name)
		binary.BigEndian.PutUint32(id[8:], uint32(i))
		document, err := seriesDocument(id, p.id.sensor, m)
		if err != nil {
			return nil, fmt.Errorf("document %v: measurement %d: %w", p.id, i, err)
		}
		out[i] = seriesReading{id: id, time: m.Time, document: document}
	}
	return out, nil
}

// seriesName is what the _id of all readings of a part begin with.
func (p *oldPart) seriesName() uint64 { return xxhash.Sum64(p.id.document()) }

// seriesDocument is a reading as a daemon would have stored it, with its fields
// byte for byte.
func seriesDocument(id bson.ObjectID, sensor string, m Measurement) (bson.Raw, error) {
	elements, err := m.Document.Elements()
	if err != nil {
		return nil, fmt.Errorf("read its fields: %w", err)
	}
	meta := bsoncore.NewDocumentBuilder().AppendString("id", sensor)
	if m.Tags != nil {
		meta.AppendDocument(tagsKey, bsoncore.Document(m.Tags))
	}
	_, doc := bsoncore.AppendDocumentStart(make([]byte, 0, len(m.Document)+len(sensor)+len(m.Tags)+64))
	doc = bsoncore.AppendObjectIDElement(doc, "_id", id)
	doc = bsoncore.AppendDateTimeElement(doc, store.TimeKey, m.Time)
	doc = bsoncore.AppendDocumentElement(doc, sensorKey, meta.Build())
	for _, e := range elements {
		switch e.Key() {
		case store.TimeKey:
		case "_id", sensorKey:
			return nil, fmt.Errorf("a field is named %q, which means something else in a time-series collection", e.Key())
		default:
			doc = append(doc, e...)
		}
	}
	return closed(doc), nil
}

// measurementOf is a reading of a time-series collection on its way into a
// bucket document, its fields sorted by name, for the order that the server gives
// them in changes from one reading to the next. It keeps nothing of the document's
// memory.
func measurementOf(document bson.Raw) (Measurement, error) {
	at, ok := document.Lookup(store.TimeKey).DateTimeOK()
	if !ok {
		return Measurement{}, fmt.Errorf("a reading has no %s: %s", store.TimeKey, document)
	}
	m := Measurement{Time: at}
	if sensor, ok := document.Lookup(sensorKey).DocumentOK(); ok {
		m.Tags = bytes.Clone(tagsIn(sensor))
	}
	elements, err := document.Elements()
	if err != nil {
		return m, fmt.Errorf("read a reading: %w", err)
	}
	sortElements(elements)
	_, doc := bsoncore.AppendDocumentStart(make([]byte, 0, len(document)))
	doc = bsoncore.AppendDateTimeElement(doc, store.TimeKey, at)
	for _, e := range elements {
		switch e.Key() {
		case store.TimeKey, "_id", sensorKey:
		default:
			doc = append(doc, e...)
		}
	}
	m.Document = closed(doc)
	return m, nil
}

// A summer works out checksums of documents in which the order of fields means
// nothing, since a time-series collection does not keep it.
type summer struct {
	hash *xxhash.Digest
}

func newSummer() *summer { return &summer{hash: xxhash.New()} }

// sum returns the checksum of a document without its _id.
func (s *summer) sum(documents ...bson.Raw) (uint64, error) {
	s.hash.Reset()
	for _, d := range documents {
		if err := s.add(d); err != nil {
			return 0, err
		}
	}
	return s.hash.Sum64(), nil
}

func (s *summer) add(document bson.Raw) error {
	_, _ = s.hash.Write([]byte{0}) // a checksum takes everything
	if document == nil {
		return nil
	}
	elements, err := document.Elements()
	if err != nil {
		return fmt.Errorf("read a document: %w", err)
	}
	sortElements(elements)
	for _, e := range elements {
		if e.Key() == "_id" {
			continue
		}
		if inner, ok := e.Value().DocumentOK(); ok {
			_, _ = s.hash.Write(elementKey(e))
			if err := s.add(inner); err != nil {
				return err
			}
			continue
		}
		_, _ = s.hash.Write(e)
	}
	_, _ = s.hash.Write([]byte{1})
	return nil
}

// elementKey is an element's key without the copy that a string would be.
func elementKey(e bson.RawElement) []byte {
	end := bytes.IndexByte(e[1:], 0)
	return e[1 : 1+max(end, 0)]
}

func sortElements(elements []bson.RawElement) {
	slices.SortFunc(elements, func(a, b bson.RawElement) int { return bytes.Compare(elementKey(a), elementKey(b)) })
}
