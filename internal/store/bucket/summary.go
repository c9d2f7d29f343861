package bucket

import (
	"context"
	"fmt"
	"iter"
	"math"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/brim-telemetry/brim/internal/block"
	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// Summary yields the summaries of q's steps, in time order, including the readings of q.Unstored
// that are not stored. It ends with an error if one occurs.
//
// If all readings of a document belong to one step, its statistics are used, and its readings are
// not fetched; otherwise its readings are used:
//
//	step   ├────────────────────────┼───────────────
//	        ├ stats ┤├ stats ┤├ readings ┤├ stats ┤
//
// Steps of rollups replace the readings that they count.
func (s *Store) Summary(ctx context.Context, q telemetry.SummaryQuery) iter.Seq2[telemetry.Summary, error] {
	return func(yield func(telemetry.Summary, error) bool) {
		q.Limit = 0
		if q.Gone {
			s.expiredSteps(ctx, q.Query)(yield)
			return
		}
		from, err := s.newRollupOverlay(ctx, q)
		if err != nil {
			yield(telemetry.Summary{}, err)
			return
		}
		if q.Readings != nil {
			store.Summarize(q, from.visible(q.Readings(ctx, q.Query)), from.add)(yield)
			return
		}
		steps := store.NewSteps(q)
		for p, err := range s.walk(ctx, q.Query, summaryProjection(q)) {
			if err == nil {
				if from.add(steps, p.start); !steps.Close(p.start, yield) {
					return
				}
				err = s.addPiece(ctx, steps, p, from)
			}
			if err != nil {
				yield(telemetry.Summary{}, err)
				return
			}
		}
		from.add(steps, math.MaxInt64)
		steps.CloseAll(yield)
	}
}

// op returns an aggregation expression.
func op(name string, args ...any) bson.D { return bson.D{{Key: name, Value: bson.A(args)}} }

// summaryProjection includes the readings of a document only if its statistics cannot be used.
func summaryProjection(q telemetry.SummaryQuery) bson.D {
	whole := bson.A{
		op("$gte", "$first", bson.DateTime(q.From)), op("$lt", "$last", bson.DateTime(q.To)),
		op("$gt", "$stats", nil),
		op("$in", "$count", bson.A{"$sealed.n", op("$size", op("$ifNull", "$measurements", bson.A{}))}),
	}
	if q.Every > 0 {
		// Both times are in the same step if rounding down to a step gives the same.
		rest := func(field string) bson.D {
			return op("$subtract", field, op("$mod", op("$subtract", bson.D{{Key: "$toLong", Value: field}}, q.Offset), q.Every))
		}
		whole = append(whole, op("$eq", rest("$first"), rest("$last")))
	}
	unlessWhole := func(field string) bson.D { return op("$cond", bson.D{{Key: "$and", Value: whole}}, "$$REMOVE", field) }
	return bson.D{
		{Key: "count", Value: 1}, {Key: "first", Value: 1}, {Key: "last", Value: 1}, {Key: "stats", Value: 1},
		{Key: "measurements", Value: unlessWhole("$measurements")}, {Key: blocksKey, Value: unlessWhole("$" + blocksKey)},
	}
}

func (s *Store) addPiece(ctx context.Context, steps *store.Steps, p piece, from *rollupOverlay) error {
	for _, u := range p.unstored {
		steps.Add(u.Reading)
	}
	if p.doc == nil {
		return nil
	}
	doc, key, partly := p.doc, "", false
	if len(from.steps) > 0 {
		first, _ := doc.Lookup("first").DateTimeOK()
		last, _ := doc.Lookup("last").DateTimeOK()
		var all bool
		key = sourceKey(doc)
		if partly, all = from.coverage(key, first, last); all {
			return nil
		}
	}
	if !hasReadings(doc) {
		var err error
		if stats, first, last, ok := statisticsOf(doc); ok && !partly && steps.Whole(first, last) {
			steps.AddStatistics(first, stats)
			return nil
		}
		if doc, err = s.readingsOf(ctx, doc); err != nil {
			return fmt.Errorf("read a bucket of sensor %q: %w", from.sensor, err)
		}
	}
	wants := func(ms int64) bool { return steps.Contains(ms) && (!partly || !from.hides(key, ms)) }
	err := eachBlock(doc, from.sensor, func(b *block.Block) error {
		if err := spend(ctx, b, nil); err != nil {
			return err
		}
		for r, err := range b.Readings(from.sensor, nil, nil) {
			if err != nil {
				return err
			}
			if wants(r.Time.UnixMilli()) {
				steps.Add(r)
			}
		}
		return nil
	})
	if err == nil {
		err = eachMeasurement(doc, from.sensor, func(m bson.Raw) error {
			if at, ok := m.Lookup(store.TimeKey).DateTimeOK(); ok && !wants(at) {
				return nil
			}
			return steps.AddDocument(m)
		})
	}
	if err != nil {
		return fmt.Errorf("sum up a bucket of sensor %q: %w", from.sensor, err)
	}
	return nil
}

func hasReadings(doc bson.Raw) bool {
	_, measurements := doc.LookupErr("measurements")
	_, blocks := doc.LookupErr(blocksKey)
	return measurements == nil || blocks == nil
}

// readingsOf fetches the readings of a document whose statistics cannot be used after all.
func (s *Store) readingsOf(ctx context.Context, doc bson.Raw) (bson.Raw, error) {
	out, err := s.Answers.FindOne(ctx, bson.D{{Key: "_id", Value: doc.Lookup("_id")}},
		options.FindOne().SetProjection(bson.D{{Key: "measurements", Value: 1}, {Key: blocksKey, Value: 1}})).Raw()
	if err != nil {
		return nil, err
	}
	return out, telemetry.Spend(ctx, len(out))
}

// statisticsOf returns a document's statistics; false if they are missing or inconsistent.
func statisticsOf(raw bson.Raw) (out store.Sums, first, last int64, ok bool) {
	doc := bsoncore.Document(raw)
	first, hasFirst := doc.Lookup("first").DateTimeOK()
	last, hasLast := doc.Lookup("last").DateTimeOK()
	out.Count, ok = doc.Lookup("count").AsInt64OK()
	fields, hasStats := doc.Lookup("stats").DocumentOK()
	if !hasFirst || !hasLast || !ok || !hasStats || out.Count < 1 {
		return out, 0, 0, false
	}
	err := store.EachElement(bson.Raw(fields), func(_ int, e bsoncore.Element) error {
		of, isDocument := e.Value().DocumentOK()
		if !isDocument {
			ok = false
			return nil
		}
		f := telemetry.FieldSummary{Name: e.Key()}
		var least, most, sum, n bool
		f.Min, least = store.NumberOf(of.Lookup("min"))
		f.Max, most = store.NumberOf(of.Lookup("max"))
		f.Sum, sum = of.Lookup("sum").AsFloat64OK()
		f.N, n = of.Lookup("n").AsInt64OK()
		ok = ok && least && most && sum && n && f.N >= 1 && f.N <= out.Count
		out.Fields = append(out.Fields, f)
		return nil
	})
	return out, first, last, ok && err == nil
}
