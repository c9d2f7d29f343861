package speed

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"golang.org/x/sync/errgroup"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/bench/shape"
	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// raw inserts what the hosts send with the driver, as fast as possible: a document for each
// reading, three writers at once, unordered and with majority write concern.
type raw struct {
	of        hosts
	shape     shape.Kind
	perSensor int // readings of a host that stand together
	perCall   int // documents of a call, a multiple of perSensor
}

// together is how many readings of a sensor stand together where they are grouped.
const together = 60

// rawSides are the sides that insert: the first a step of the hosts in each call, and the
// second into a time-series collection, where each call has whole groups, so that no two
// writers share one, which would make two buckets of it.
func rawSides(of hosts) map[string]raw {
	return map[string]raw{
		rawDocuments: {of, shape.Plain, 1, len(of)},
		rawSeries:    {of, shape.Native, together, 16 * together},
	}
}

// measure inserts for a duration, from an event time on, into a collection that is dropped
// afterwards.
func (w raw) measure(ctx context.Context, m *bench.MongoDB, begin time.Time, length time.Duration) (documents int64, spent bench.Spent) {
	c := bench.Must(shape.New(ctx, m, shape.Config{Name: rawCollection, Shape: shape.Shape{Kind: w.shape}, Compressor: store.Snappy}))
	pages := make([]*page, rawWriters)
	for i := range pages {
		pages[i] = w.newPage()
	}
	coll := m.Database().Collection(rawCollection)
	spent = m.Measure(ctx, func(ctx context.Context) (err error) {
		documents, err = w.insert(ctx, coll, pages, begin, time.Now().Add(length))
		return err
	})
	expect(sumOf(ctx, coll, 1), documents, "documents", "inserted")
	bench.Check(c.Drop(ctx))
	return documents, spent
}

// insert writes until a time with one writer for each page, and returns how many documents
// were inserted.
func (w raw) insert(ctx context.Context, coll *mongo.Collection, pages []*page, begin, until time.Time) (int64, error) {
	var calls atomic.Int64
	group, under := errgroup.WithContext(ctx)
	for _, p := range pages {
		group.Go(func() error {
			for under.Err() == nil && time.Now().Before(until) {
				p.turn(calls.Add(1)-1, begin)
				if _, err := coll.InsertMany(under, p.documents, options.InsertMany().SetOrdered(false)); err != nil {
					return fmt.Errorf("insert documents: %w", err)
				}
			}
			return context.Cause(under)
		})
	}
	err := group.Wait()
	return calls.Load() * int64(w.perCall), err
}

// A page is the documents of one writer's calls, which are made before the clock starts, like the
// requests to Brim: from call to call only the times are set.
type page struct {
	raw
	readings  [][]bson.D // of each host, with its variants in turn; enough for those that stand together
	documents []any      // of the current call
}

func (w raw) newPage() *page {
	p := &page{raw: w, readings: make([][]bson.D, len(w.of)), documents: make([]any, w.perCall)}
	for i := range w.of {
		sensor := w.sensor(&w.of[i])
		for step := range max(w.perSensor, variants) {
			p.readings[i] = append(p.readings[i], document(sensor, w.of[i].fields[step%variants]))
		}
	}
	return p
}

// sensor is the element that says which host sent a reading: its name, as a program has it that
// inserts documents, or in a time series the metaField as Brim writes it.
func (w raw) sensor(h *host) bson.E {
	if w.shape != shape.Native {
		return bson.E{Key: "sensorId", Value: h.tags[0].Value}
	}
	sorted := slices.SortedFunc(slices.Values(h.tags), func(a, b telemetry.Tag) int { return cmp.Compare(a.Name, b.Name) })
	tags := make(bson.D, len(sorted))
	for i, t := range sorted {
		tags[i] = bson.E{Key: t.Name, Value: t.Value}
	}
	return bson.E{Key: store.SensorKey, Value: bson.D{{Key: "id", Value: h.id}, {Key: "tags", Value: tags}}}
}

// document is a reading as a usual client would give it to the driver, which encodes it and
// adds an _id. bson.D is the cheapest to encode of the usual ways. The time comes first.
func document(sensor bson.E, fields []telemetry.Field) bson.D {
	d := bson.D{{Key: store.TimeKey}, sensor}
	for _, f := range fields {
		d = append(d, bson.E{Key: f.Name, Value: f.Value.Int()})
	}
	return d
}

// turn turns the page to a call. Calls take groups of readings that stand together, one host
// after the other, and then the next readings of all hosts.
func (p *page) turn(call int64, begin time.Time) {
	groups := int64(p.perCall / p.perSensor)
	times, of := make([]any, p.perSensor), int64(-1)
	for g := range groups {
		number := call*groups + g
		host, first := number%int64(len(p.of)), number/int64(len(p.of))*int64(p.perSensor)
		if first != of {
			of = first
			for i := range times {
				times[i] = begin.Add(time.Duration(first+int64(i)) * interval)
			}
		}
		for i := range times {
			d := p.readings[host][(first+int64(i))%int64(len(p.readings[host]))]
			d[0].Value = times[i]
			p.documents[g*int64(p.perSensor)+int64(i)] = d
		}
	}
}
