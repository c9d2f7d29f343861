package maintain

import (
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/brim-telemetry/brim/internal/store"
)

// oldPart is a document as it is found.
type oldPart struct {
	raw       bson.Raw
	id        partID
	tombstone bool
	full      bool
	guard     bson.Raw // w; nil: none
}

// readPart reads what is needed of a document; the error names it.
func readPart(raw bson.Raw) (oldPart, error) {
	p := oldPart{raw: raw}
	id, ok := raw.Lookup("_id").DocumentOK()
	if !ok {
		return p, notOurs(raw)
	}
	var okS, okB, okG, okP bool
	p.id.sensor, okS = id.Lookup("s").StringValueOK()
	p.id.start, okB = id.Lookup("b").DateTimeOK()
	p.id.grain, okG = id.Lookup("g").Int32OK()
	p.id.number, okP = id.Lookup("p").Int32OK()
	if !okS || !okB || !okG || !okP {
		return p, notOurs(raw)
	}
	p.tombstone, _ = raw.Lookup(migratedKey).BooleanOK()
	p.full, _ = raw.Lookup("full").BooleanOK()
	p.guard, _ = raw.Lookup("w").DocumentOK()
	return p, nil
}

func notOurs(raw bson.Raw) error {
	return fmt.Errorf("document %s is none of a bucket stream, whose _id are {s, b, g, p}: remove it, or move it to another collection", raw.Lookup("_id"))
}

// readings returns those of the part, in their order.
func (p *oldPart) readings() ([]Measurement, error) {
	if _, err := p.raw.LookupErr("blocks"); err == nil {
		return nil, fmt.Errorf("document %v holds packed readings (--bucket-format columns, or brim seal), which this command cannot move: "+
			"export the stream with brim export, and import it into a new one", p.id)
	}
	array, ok := p.raw.Lookup("measurements").ArrayOK()
	if !ok {
		return nil, fmt.Errorf("document %v has no array of measurements", p.id)
	}
	values, err := array.Values()
	if err != nil {
		return nil, fmt.Errorf("read measurements of document %v: %w", p.id, err)
	}
	tags := tagsIn(p.raw)
	out := make([]Measurement, len(values))
	for i, v := range values {
		document, ok := v.DocumentOK()
		if !ok {
			return nil, fmt.Errorf("document %v: measurement %d is none: %s", p.id, i, v)
		}
		at, ok := document.Lookup(store.TimeKey).DateTimeOK()
		if !ok {
			return nil, fmt.Errorf("document %v: measurement %d has no %s: %s", p.id, i, store.TimeKey, document)
		}
		if end := p.id.start + int64(p.id.grain)*1000; at < p.id.start || at >= end {
			return nil, fmt.Errorf("document %v: measurement %d is outside its window: %s", p.id, i, document)
		}
		out[i] = Measurement{Time: at, Document: document, Tags: tags}
		if own, ok := document.Lookup(sensorKey).DocumentOK(); ok {
			out[i].Tags, out[i].Document = tagsIn(own), withoutKey(document, sensorKey)
		}
	}
	return out, nil
}

// tagsIn returns the tags of a part, or of a reading's own sensor document; nil:
// none.
func tagsIn(document bson.Raw) bson.Raw {
	const empty = 5
	if tags, ok := document.Lookup(tagsKey).DocumentOK(); ok && len(tags) > empty {
		return tags
	}
	return nil
}

// withoutKey returns a document without one of its elements. The document was read
// before, so it is well-formed.
func withoutKey(document bson.Raw, key string) bson.Raw {
	doc := make(bsoncore.Document, 4, len(document))
	elements, _ := document.Elements()
	for _, e := range elements {
		if e.Key() != key {
			doc = append(doc, e...)
		}
	}
	return closed(doc)
}

// closed returns the document with its part full.
func (p *oldPart) closed() bson.Raw {
	if p.full {
		return p.raw
	}
	doc := withoutKey(p.raw, "full")
	return closed(bsoncore.AppendBooleanElement(doc[:len(doc)-1], "full", true))
}
