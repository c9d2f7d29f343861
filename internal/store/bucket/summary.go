package bucket

import (
	"context"
	"fmt"
	"iter"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// Summary yields the summaries of q's steps, in time order, with what of
// q.Unstored is not stored. It ends with an error if one occurs.
//
// A document whose readings all belong to one step gives its statistics, and
// its readings stay on the server; the others give their readings:
//
//	step   ├────────────────────────┼───────────────
//	        ├ stats ┤├ stats ┤├ readings ┤├ stats ┤
func (s *Store) Summary(ctx context.Context, q telemetry.SummaryQuery) iter.Seq2[telemetry.Summary, error] {
	return func(yield func(telemetry.Summary, error) bool) {
		steps := store.NewSteps(q)
		q.Limit = 0
		for p, err := range s.walk(ctx, q.Query, summaryProjection(q)) {
			if err == nil {
				if !steps.Close(p.start, yield) {
					return
				}
				err = s.addPiece(ctx, steps, p, q.Sensor)
			}
			if err != nil {
				yield(telemetry.Summary{}, err)
				return
			}
		}
		steps.CloseAll(yield)
	}
}

// summaryProjection shows the readings of a document only where its statistics
// would not do.
func summaryProjection(q telemetry.SummaryQuery) bson.D {
	op := func(name string, args ...any) bson.D { return bson.D{{Key: name, Value: bson.A(args)}} }
	whole := bson.A{
		op("$gte", "$first", bson.DateTime(q.From)), op("$lt", "$last", bson.DateTime(q.To)),
		op("$gt", "$stats", nil),
		op("$eq", "$count", op("$size", "$measurements")),
	}
	if q.Every > 0 {
		// The remainder tells steps apart: in one step, it grows with the time.
		rest := func(field string) bson.D {
			return op("$subtract", field, op("$mod", bson.D{{Key: "$toLong", Value: field}}, q.Every))
		}
		whole = append(whole, op("$eq", rest("$first"), rest("$last")))
	}
	return bson.D{
		{Key: "count", Value: 1}, {Key: "first", Value: 1}, {Key: "last", Value: 1}, {Key: "stats", Value: 1},
		{Key: "measurements", Value: op("$cond", bson.D{{Key: "$and", Value: whole}}, "$$REMOVE", "$measurements")},
	}
}

func (s *Store) addPiece(ctx context.Context, steps *store.Steps, p piece, sensor string) error {
	for _, r := range p.unstored {
		steps.Add(r)
	}
	if p.doc == nil {
		return nil
	}
	doc := p.doc
	if _, err := doc.LookupErr("measurements"); err != nil {
		if stats, ok := statisticsOf(doc); ok && steps.Whole(stats.First, stats.Last) {
			steps.AddStatistics(stats)
			return nil
		}
		if doc, err = s.readingsOf(ctx, doc); err != nil {
			return fmt.Errorf("read a bucket of sensor %q: %w", sensor, err)
		}
	}
	err := eachMeasurement(doc, sensor, func(m bson.Raw) error { return steps.AddDocument(m) })
	if err != nil {
		return fmt.Errorf("sum up a bucket of sensor %q: %w", sensor, err)
	}
	return nil
}

// readingsOf fetches the readings of a document whose statistics turned out not
// to make sense.
func (s *Store) readingsOf(ctx context.Context, doc bson.Raw) (bson.Raw, error) {
	out, err := s.Answers().FindOne(ctx, bson.D{{Key: "_id", Value: doc.Lookup("_id")}},
		options.FindOne().SetProjection(bson.D{{Key: "measurements", Value: 1}, {Key: migratedMark, Value: 1}})).Raw()
	if err != nil {
		return nil, err
	}
	if _, moved := out.LookupErr(migratedMark); moved == nil { // it had readings a moment ago
		return nil, s.exchanged(errExchanged)
	}
	return out, telemetry.Spend(ctx, len(out))
}

// statisticsOf returns what a document says of its readings, false where that
// cannot be true.
func statisticsOf(doc bson.Raw) (out store.Statistics, ok bool) {
	var first, last, count, stats bool
	err := store.EachElement(doc, func(_ int, e bsoncore.Element) error {
		v := e.Value()
		switch string(e.KeyBytes()) {
		case "first":
			out.First, first = v.DateTimeOK()
		case "last":
			out.Last, last = v.DateTimeOK()
		case "count":
			out.Count, count = v.AsInt64OK()
		case "stats":
			out.Fields, stats = fieldsOf(v)
		}
		return nil
	})
	if err != nil || !first || !last || !count || !stats || out.Count < 1 {
		return out, false
	}
	for _, f := range out.Fields {
		if f.N < 1 || f.N > out.Count {
			return out, false
		}
	}
	return out, true
}

func fieldsOf(stats bsoncore.Value) (out []telemetry.FieldSummary, ok bool) {
	doc, ok := stats.DocumentOK()
	if !ok {
		return nil, false
	}
	err := store.EachElement(bson.Raw(doc), func(_ int, e bsoncore.Element) error {
		f, known := fieldOf(e)
		ok = ok && known
		out = append(out, f)
		return nil
	})
	return out, ok && err == nil
}

func fieldOf(e bsoncore.Element) (f telemetry.FieldSummary, ok bool) {
	of, ok := e.Value().DocumentOK()
	if !ok {
		return f, false
	}
	f.Name = e.Key()
	var least, most, sum, n bool
	err := store.EachElement(bson.Raw(of), func(_ int, e bsoncore.Element) error {
		v := e.Value()
		switch string(e.KeyBytes()) {
		case "min":
			f.Min, least = store.NumberOf(v)
		case "max":
			f.Max, most = store.NumberOf(v)
		case "sum":
			f.Sum, sum = v.AsFloat64OK()
		case "n":
			f.N, n = v.AsInt64OK()
		}
		return nil
	})
	return f, err == nil && least && most && sum && n
}
