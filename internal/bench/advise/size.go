package advise

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/bench/shape"
	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/internal/store/bucket"
)

// size measures what readings take on disk in one way to store them, and what a
// query of them costs.
func (s *session) size(ctx context.Context, c Candidate) (out Sized, err error) {
	r, perUpdate, err := s.sample(c)
	if err != nil {
		return out, err
	}
	coll, err := s.collection(ctx, c, r, perUpdate)
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, coll.Drop(context.WithoutCancel(ctx))) }()
	if err := s.addExpiry(ctx, c); err != nil {
		return out, err
	}
	out = Sized{Candidate: c}
	if err := s.fill(ctx, coll, perUpdate, &out); err != nil {
		return out, err
	}
	out.Query, err = s.query(ctx, c, coll, out.perDocument())
	return out, err
}

// fill writes the sample and notes what it takes.
func (s *session) fill(ctx context.Context, coll *shape.Collection, perUpdate int, out *Sized) error {
	r := coll.Readings
	for at := 0; at < r.Count; at += perUpdate {
		if err := coll.Write(ctx, portions(r.Sensors, at, min(perUpdate, r.Count-at))); err != nil {
			return err
		}
	}
	begun := 0
	if out.Storage == store.TimeSeries {
		// The next reading packs the bucket before it, as in the long run nearly all
		// are.
		if err := coll.Write(ctx, portions(r.Sensors, r.Count, 1)); err != nil {
			return err
		}
		begun = r.Sensors
	}
	if err := s.m.Checkpoint(ctx); err != nil {
		return err
	}
	size, err := coll.Size(ctx)
	if err != nil {
		return err
	}
	out.Readings, out.Documents = size.Readings, max(1, size.Documents-int64(begun))
	out.Data, out.Index = size.Data(), size.Index()
	return nil
}

// addExpiry makes the index by which readings of a bucket stream expire. What it
// holds is the same whenever they do; here they stay.
func (s *session) addExpiry(ctx context.Context, c Candidate) error {
	if s.needs.Retention == 0 || c.Storage != store.Bucket {
		return nil
	}
	b, err := bucket.New(bucket.Config{
		Database: s.m.Database(), Stream: collectionName, Granularity: c.Granularity, MaxReadings: c.MaxReadings, MaxBytes: c.MaxBytes,
		Compressor: c.Compressor, Retention: MaxRetention, Registerer: prometheus.NewRegistry(),
	})
	if err != nil {
		return err
	}
	return b.Prepare(ctx)
}

const (
	sampledDocuments = 4    // of each sensor, or more
	sampledSensors   = 60   // or fewer, where there are fewer
	querySlack       = 1.25 // of the time that a query looks at
	// A sensor that is faster than that fills documents by many updates at any
	// flush interval, and how they are cut at the caps shows in their number.
	fastInterval = 100 * time.Millisecond
	// A single sensor's documents are written one in a command.
	alonesDocuments = 1500
	usualFields     = 4
)

// sample chooses the readings that a size is measured with: whole windows, or
// full parts where a window holds too many.
func (s *session) sample(c Candidate) (r shape.Readings, perUpdate int, err error) {
	interval, document := s.needs.Interval, c.full(s.needs.Interval)
	sensors := min(s.needs.Sensors, sampledSensors)
	total := float64(s.sizeReadings) * min(max(usualFields/float64(s.needs.Fields), 0.2), 2)
	if c.Storage == store.TimeSeries { // takes less for each
		total *= 2
	}
	most := min(int(total), s.sizeDocuments*document, alonesDocuments*document*sensors)
	count := int(querySlack * float64(s.needs.QuerySpan+reach(c.Storage)) / float64(interval))
	count = max(sampledDocuments*document, min(count, most/sensors))
	unit := perWindow(c.Granularity, interval)
	if c.Storage == store.TimeSeries || unit > most/sampledDocuments {
		unit = document
	}
	count = max(sampledDocuments, count/unit) * unit
	perUpdate = document
	if interval < fastInterval {
		perUpdate = min(document, int(time.Second/interval))
	}
	r, err = s.readings(min(max(most/count, 1), s.needs.Sensors), count, interval)
	return r, perUpdate, err
}

const (
	mostQueries  = 60
	queryingTime = 400 * time.Millisecond
)

// query measures what it costs to read the span of a query, of random sensors at
// random times; a shorter span, if the sample has not so much.
func (s *session) query(ctx context.Context, c Candidate, coll *shape.Collection, perDocument float64) (q Queried, err error) {
	r := coll.Readings
	count := max(1, min(int(s.needs.QuerySpan/r.Interval), r.Count*4/5))
	q.Span = time.Duration(count) * r.Interval
	random := rand.New(rand.NewPCG(s.lab.Seed, 0)) //nolint:gosec // no secret
	look := float64(reach(c.Storage)) / float64(r.Interval)
	var took bench.Samples
	before, err := s.used(ctx)
	if err != nil {
		return q, err
	}
	began := time.Now()
	for len(took) < mostQueries && (len(took) < 2 || time.Since(began) < queryingTime) {
		span := shape.Span{Sensor: random.IntN(r.Sensors), First: uint64(random.IntN(r.Count - count + 1)), Count: count} //nolint:gosec // counts from 0
		start := time.Now()
		if _, err := coll.Read(ctx, span); err != nil {
			return q, err
		}
		took = append(took, time.Since(start).Seconds())
		q.Documents += (float64(count)+min(look, float64(span.First)))/perDocument + 1
	}
	after, err := s.used(ctx)
	n := 1 / float64(len(took))
	q.Documents *= n
	q.Seconds, q.CPU = took.Median(), CPU{after.Mongod - before.Mongod, after.Brim - before.Brim}.times(n)
	return q, err
}
