package catalog

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// List yields the sensors that match a query, in the order of their ids' bytes, each with all its
// sets of tags. It includes this daemon's unwritten entries. The query's limit is used as the
// batch size only. Fetched documents count against the budget of ctx, see telemetry.Spend. It ends
// with an error if one occurs.
//
// It may list a sensor whose readings were removed since.
func (s *Stream) List(ctx context.Context, q telemetry.SensorQuery) iter.Seq2[telemetry.Sensor, error] {
	return func(yield func(telemetry.Sensor, error) bool) {
		// Before MongoDB is queried, so that an entry that is written meanwhile is in at least one
		// of both.
		waiting := s.Unwritten(&q)
		emit := func(one *telemetry.Sensor) bool { return !one.Matches(&q) || yield(*one, nil) }
		for one, err := range s.stored(ctx, &q, waiting) {
			if err != nil {
				yield(telemetry.Sensor{}, err)
				return
			}
			for len(waiting) > 0 && waiting[0].ID < one.ID {
				if !emit(&waiting[0]) {
					return
				}
				waiting = waiting[1:]
			}
			if len(waiting) > 0 && waiting[0].ID == one.ID {
				one.Merge(&waiting[0])
				waiting = waiting[1:]
			}
			if !emit(&one) {
				return
			}
		}
		for i := range waiting {
			if !emit(&waiting[i]) {
				return
			}
		}
	}
}

// Unwritten returns this daemon's unwritten entries for sensors that a query may match, sorted by
// id.
func (s *Stream) Unwritten(q *telemetry.SensorQuery) []telemetry.Sensor {
	now := time.Now()
	found := make(map[string]*telemetry.Sensor)
	s.mu.Lock()
	for _, e := range s.unwritten {
		if !q.Wants(e.series.Sensor) {
			continue
		}
		f := e.sensorUpdate(now)
		one := f.asSensor()
		if before := found[one.ID]; before != nil {
			before.Merge(&one)
		} else {
			found[one.ID] = &one
		}
	}
	s.mu.Unlock()
	out := make([]telemetry.Sensor, 0, len(found))
	for _, one := range found {
		out = append(out, *one)
	}
	slices.SortFunc(out, func(a, b telemetry.Sensor) int { return strings.Compare(a.ID, b.ID) })
	return out
}

// maxListBatch is the largest batch of documents.
const maxListBatch = 1000

// stored yields the sensors in MongoDB that may match the query, or that are in waiting.
func (s *Stream) stored(ctx context.Context, q *telemetry.SensorQuery, waiting []telemetry.Sensor) iter.Seq2[telemetry.Sensor, error] {
	return func(yield func(telemetry.Sensor, error) bool) {
		find := options.Find().SetSort(bson.D{{Key: "_id", Value: 1}}).SetProjection(bson.D{{Key: "pairs", Value: 0}})
		size := int32(maxListBatch)
		if q.Limit > 0 && q.Limit < maxListBatch {
			size = int32(q.Limit)
		}
		for doc, err := range s.find(ctx, withFields(filter(q), q, waiting), find.SetBatchSize(size)) {
			if err == nil {
				err = telemetry.Spend(ctx, len(doc))
			}
			var one telemetry.Sensor
			if err == nil {
				one, err = decode(doc)
			}
			if !yield(one, err) || err != nil {
				return
			}
		}
	}
}

// find yields documents; each is valid until the next one.
func (s *Stream) find(ctx context.Context, filter bson.D, o *options.FindOptionsBuilder) iter.Seq2[bson.Raw, error] {
	return func(yield func(bson.Raw, error) bool) {
		cursor, err := s.collection.Find(ctx, filter, o)
		if err == nil {
			defer cursor.Close(context.WithoutCancel(ctx))
			for cursor.Next(ctx) {
				if !yield(cursor.Current, nil) {
					return
				}
			}
			err = cursor.Err()
		}
		if err != nil {
			yield(nil, fmt.Errorf("read the catalog of sensors: %w", err))
		}
	}
}

// filter matches the documents that may match a query, using the indexes: ids, and tags that are
// matched by value. Regular expressions are not sent to MongoDB, whose engine has no time limit.
func filter(q *telemetry.SensorQuery) bson.D {
	id := bson.D{{Key: "$gt", Value: q.After}} // greater than "", the _id of the state
	prefix := q.Prefix
	var and bson.A
	for i := range q.Sensor {
		m := &q.Sensor[i]
		if values, few := m.Values(); few {
			and = append(and, bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: values}}}})
		} else if p := m.Prefix(); strings.HasPrefix(p, prefix) {
			prefix = p
		}
	}
	if from, _, _ := strings.Cut(strings.ToValidUTF8(prefix, "\xff"), "\xff"); from != "" { // it may end within a character
		id = append(id, bson.E{Key: "$gte", Value: from})
		if end := successor(from); end != "" {
			id = append(id, bson.E{Key: "$lt", Value: end})
		}
	}
	for i := range q.Tags {
		values, few := q.Tags[i].Values()
		if !few {
			if prefix := q.Tags[i].Prefix(); !q.Tags[i].Matches("") {
				from := pair(q.Tags[i].Name, prefix)
				and = append(and, bson.D{{Key: "pairs", Value: bson.D{{Key: "$elemMatch", Value: bson.D{{Key: "$gte", Value: from}, {Key: "$lt", Value: successor(from)}}}}}})
			}
			continue
		}
		pairs := make(bson.A, len(values))
		for k, v := range values {
			pairs[k] = pair(q.Tags[i].Name, v)
		}
		and = append(and, bson.D{{Key: "pairs", Value: bson.D{{Key: "$in", Value: pairs}}}})
	}
	out := bson.D{{Key: "_id", Value: id}}
	if len(and) > 0 {
		out = append(out, bson.E{Key: "$and", Value: and})
	}
	return out
}

// withFields excludes sensors without any of the query's fields. It keeps those with unwritten
// entries, which may add such a field; if they are too many for a filter, it keeps all sensors.
func withFields(of bson.D, q *telemetry.SensorQuery, waiting []telemetry.Sensor) bson.D {
	if len(q.Fields) == 0 || len(waiting) > maxListBatch {
		return of
	}
	has := bson.D{{Key: "fields", Value: bson.D{{Key: "$in", Value: q.Fields}}}}
	if len(waiting) == 0 {
		return append(of, has...)
	}
	ids := make(bson.A, len(waiting))
	for i := range waiting {
		ids[i] = waiting[i].ID
	}
	return append(of, bson.E{Key: "$or", Value: bson.A{has, bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: ids}}}}}})
}

// successor returns the smallest valid string that is greater than all strings with a prefix;
// empty if there is none.
func successor(prefix string) string {
	r := []rune(prefix)
	for len(r) > 0 {
		last := &r[len(r)-1]
		switch {
		case *last == 0xD7FF: // surrogates follow, which are not valid
			*last = 0xE000
			return string(r)
		case *last < 0x10FFFF:
			*last++
			return string(r)
		}
		r = r[:len(r)-1]
	}
	return ""
}

func byID(ids []string) bson.D {
	return bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: ids}}}}
}

// absent returns the ids that are not in the catalog.
func (s *Stream) absent(ctx context.Context, ids []string) (map[string]struct{}, error) {
	absent := make(map[string]struct{}, len(ids))
	for _, id := range ids {
		absent[id] = struct{}{}
	}
	for doc, err := range s.find(ctx, byID(ids), options.Find().SetProjection(bson.D{{Key: "_id", Value: 1}})) {
		if err != nil {
			return nil, err
		}
		if id, ok := doc.Lookup("_id").StringValueOK(); ok {
			delete(absent, id)
		}
	}
	return absent, nil
}

// Delete removes sensors whose readings are about to be deleted.
func (s *Stream) Delete(ctx context.Context, sensors ...string) error {
	_, err := s.collection.DeleteMany(ctx, byID(sensors))
	s.Forget(sensors...)
	if err != nil {
		return fmt.Errorf("remove sensors from the catalog: %w", err)
	}
	return nil
}
