package maintain

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// A groupKey names a group: a sensor, and the beginning of a span of time.
type groupKey struct {
	Sensor string        `bson:"s"`
	Start  bson.DateTime `bson:"b"`
}

// compare orders groups as MongoDB orders the _id of their documents.
func (k groupKey) compare(l groupKey) int {
	return cmp.Or(strings.Compare(k.Sensor, l.Sensor), cmp.Compare(k.Start, l.Start))
}

// ids is the condition for the _id of the group's documents. A document
// compares by its elements, one after the other, so {s, b} is below all of
// {s, b, g, p}.
func (k groupKey) ids(span time.Duration) bson.D {
	return bson.D{{Key: "$gte", Value: k}, {Key: "$lt", Value: k.next(span)}}
}

func (k groupKey) next(span time.Duration) groupKey {
	return groupKey{k.Sensor, k.Start + bson.DateTime(span.Milliseconds())}
}

// A group is what a Reshaper is given.
type group struct {
	key       groupKey
	documents []bson.Raw
	bytes     int64
}

// groupOf finds the group that a document with this _id belongs to.
func groupOf(id bson.RawValue, span time.Duration) (groupKey, error) {
	doc, isDoc := id.DocumentOK()
	sensor, hasSensor := doc.Lookup("s").StringValueOK()
	start, hasStart := doc.Lookup("b").DateTimeOK()
	if !isDoc || !hasSensor || !hasStart || start < 0 || !bytes.Equal(firstKeys(doc), []byte("sb")) {
		return groupKey{}, fmt.Errorf("the document with _id %s is none of Brim's, whose _id is {s, b, g, p}: move it elsewhere first", id)
	}
	return groupKey{sensor, bson.DateTime(start - start%span.Milliseconds())}, nil
}

// firstKeys are the names of the first two elements; the order of documents
// rests on them.
func firstKeys(doc bson.Raw) []byte {
	elements, err := doc.Elements()
	if err != nil || len(elements) < 2 {
		return nil
	}
	return []byte(elements[0].Key() + elements[1].Key())
}

// A groupReader reads groups from a collection.
type groupReader struct {
	coll *mongo.Collection
	span time.Duration
	size int64 // average of a document, at least 1
}

const (
	// chunkBytes is about how much is read, reshaped and written at a time.
	chunkBytes = 4 << 20
	// mostInQuery is how many groups one query asks for.
	mostInQuery = 100
)

// after reads the groups that follow key, some megabytes of them, and reports
// whether there are more. A nil key stands before the first.
func (s *groupReader) after(ctx context.Context, key *groupKey) (groups []group, more bool, err error) {
	filter := bson.D{}
	if key != nil {
		filter = bson.D{{Key: "_id", Value: bson.D{{Key: "$gte", Value: key.next(s.span)}}}}
	}
	return s.read(ctx, filter, chunkBytes)
}

// between reads the groups from the one after key up to last, of both of which
// nil stands for the end.
func (s *groupReader) between(ctx context.Context, key, last *groupKey) ([]group, error) {
	groups, _, err := s.read(ctx, bson.D{{Key: "_id", Value: rangeOf(key, last, s.span)}}, 0)
	return groups, err
}

// of reads some groups; those without documents are left out.
func (s *groupReader) of(ctx context.Context, keys []groupKey) ([]group, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	groups, _, err := s.read(ctx, bson.D{{Key: "$or", Value: idsOf(keys, s.span)}}, 0)
	return groups, err
}

func idsOf(keys []groupKey, span time.Duration) bson.A {
	either := make(bson.A, len(keys))
	for i, k := range keys {
		either[i] = bson.D{{Key: "_id", Value: k.ids(span)}}
	}
	return either
}

// rangeOf is the condition for the _id of all that is behind the group after, up
// to the end of the group last.
func rangeOf(after, last *groupKey, span time.Duration) bson.D {
	from, to := bson.E{Key: "$gte", Value: bson.MinKey{}}, bson.E{Key: "$lte", Value: bson.MaxKey{}}
	if after != nil {
		from.Value = after.next(span)
	}
	if last != nil {
		to = bson.E{Key: "$lt", Value: last.next(span)}
	}
	return bson.D{from, to}
}

// read returns whole groups in their order, up to the one that brings them to
// most bytes; 0 means all.
func (s *groupReader) read(ctx context.Context, filter bson.D, most int64) (groups []group, more bool, err error) {
	find := options.Find().SetSort(bson.D{{Key: "_id", Value: 1}})
	if most > 0 {
		find.SetBatchSize(int32(min(max(most/max(s.size, 1), 2), 10_000)))
	}
	cursor, err := s.coll.Find(ctx, filter, find)
	if err != nil {
		return nil, false, fmt.Errorf("read collection %q: %w", s.coll.Name(), err)
	}
	defer cursor.Close(context.WithoutCancel(ctx))
	total := int64(0)
	for cursor.Next(ctx) {
		key, err := groupOf(cursor.Current.Lookup("_id"), s.span)
		if err != nil {
			return nil, false, fmt.Errorf("collection %q: %w", s.coll.Name(), err)
		}
		if n := len(groups); n == 0 || groups[n-1].key != key {
			if most > 0 && total >= most {
				return groups, true, nil
			}
			groups = append(groups, group{key: key})
		}
		g := &groups[len(groups)-1]
		g.documents = append(g.documents, bytes.Clone(cursor.Current))
		g.bytes += int64(len(cursor.Current))
		total += int64(len(cursor.Current))
	}
	if err := cursor.Err(); err != nil {
		return nil, false, fmt.Errorf("read collection %q: %w", s.coll.Name(), err)
	}
	return groups, false, nil
}
