package granularity

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/bench/lane"
	"github.com/brim-telemetry/brim/internal/bench/shape"
	"github.com/brim-telemetry/brim/internal/load"
	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/internal/store/bucket"
)

// A part's caps, which no bucket of the experiment is to reach.
const (
	capReadings = 1_000_000
	capBytes    = 2 << 20
)

const (
	// grown is how much fuller than in the beginning a bucket may get while it is
	// measured, unless a single update makes it fuller than that.
	grown = 0.05
	// fewestBuckets is how many share the appends at least, so that it is not the
	// same page of the database all the time.
	fewestBuckets = 32
)

// A stockConfig describes buckets that are all alike.
type stockConfig struct {
	database   *mongo.Database
	collection string
	fields     int // of a reading; 0: 4
	residents  int // readings in a bucket
	perUpdate  int // readings that an append brings
	appends    int // that are going to be made
	seed       uint64
	indexes    []bson.D // beside the one on _id
}

// each is how often one bucket may be appended to.
func (c *stockConfig) each() int {
	return max(1, int(grown*float64(c.residents)/float64(c.perUpdate)))
}

// buckets is how many there must be.
func (c *stockConfig) buckets() int {
	return max(fewestBuckets, (c.appends+c.each()-1)/c.each())
}

// A stock is equal buckets that are appended to in turn, so that they fill as
// one.
type stock struct {
	stockConfig
	lane     *lane.Lane
	watch    *stopwatch
	bytes    int // of a document in the beginning, before compression
	count    int // of the documents
	appended int // so far
	portions []lane.Portion
}

// newStock makes the buckets: the store writes one, the others are its copies.
func newStock(ctx context.Context, c stockConfig) (*stock, error) {
	s := &stock{stockConfig: c, watch: &stopwatch{}, count: c.buckets()}
	sensors, err := load.NewSensors(load.SensorsConfig{Count: s.count, Fields: c.fields, Seed: c.seed, Prefix: c.collection + "-"})
	if err != nil {
		return nil, err
	}
	st, err := bucket.New(bucket.Config{
		Database: c.database, Stream: c.collection, Granularity: time.Hour, MaxReadings: capReadings, MaxBytes: capBytes,
		Compressor: store.Snappy, Registerer: prometheus.NewRegistry(),
	})
	if err != nil {
		return nil, err
	}
	if err := st.Prepare(ctx); err != nil {
		return nil, err
	}
	s.watch.store = st
	s.lane = lane.New(lane.Config{
		Store: s.watch, Source: sensors, Stream: c.collection, Granularity: time.Hour,
		Begin: shape.Begin(), Interval: s.interval(),
	})
	return s, s.fill(ctx)
}

// interval is that between a sensor's readings: as published, or less where a
// bucket holds more of them than a window has room for.
func (s *stock) interval() time.Duration {
	most := s.residents + s.perUpdate*s.each()
	return min(publishedInterval, (time.Hour / time.Duration(most+1)).Truncate(time.Millisecond))
}

func (s *stock) fill(ctx context.Context) error {
	coll := s.database.Collection(s.collection)
	for _, keys := range s.indexes {
		if _, err := coll.Indexes().CreateOne(ctx, mongo.IndexModel{Keys: keys}); err != nil {
			return fmt.Errorf("create an index: %w", err)
		}
	}
	model, err := s.lane.Model(ctx, coll, lane.Portion{Count: s.residents})
	if err != nil {
		return err
	}
	s.bytes = model.Bytes()
	all := make([]int, s.count)
	for i := range all {
		all[i] = i
	}
	_, err = s.lane.Copy(ctx, model, all, time.Time{})
	return err
}

// next takes the next buckets in turn, up to n, and says what is appended to
// them. Once the last one is reached the first one follows in the next call, so
// that a command has each bucket once.
func (s *stock) next(n int) []lane.Portion {
	at, round := s.appended%s.count, s.appended/s.count
	n = min(n, s.count-at)
	s.portions = s.portions[:0]
	for i := range n {
		s.portions = append(s.portions, lane.Portion{
			Sensor: at + i, First: uint64(s.residents + round*s.perUpdate), Count: s.perUpdate, //nolint:gosec // counts
		})
	}
	s.appended += n
	return s.portions
}

// held is how many readings a bucket holds before the next append.
func (s *stock) held() float64 { return float64(s.residents + s.appended/s.count*s.perUpdate) }

// single appends n times, one append a command, each when the one before it is
// stored, and returns how long each took in seconds.
func (s *stock) single(ctx context.Context, n int) (bench.Samples, error) {
	s.watch.times = s.watch.times[:0]
	for range n {
		if _, err := s.lane.Write(ctx, s.next(1)); err != nil {
			return nil, err
		}
	}
	return slices.Clone(s.watch.times), nil
}

// together is how many updates a lane hands to the store at once, at most.
const together = 250

// bulk appends n times as a lane does that has many buckets to write.
func (s *stock) bulk(ctx context.Context, n int) error {
	for n > 0 {
		portions := s.next(min(n, together))
		if _, err := s.lane.Write(ctx, portions); err != nil {
			return err
		}
		n -= len(portions)
	}
	return nil
}

// drop removes the buckets.
func (s *stock) drop(ctx context.Context) error {
	if err := s.database.Collection(s.collection).Drop(ctx); err != nil {
		return fmt.Errorf("drop collection %q: %w", s.collection, err)
	}
	return nil
}

// A stopwatch tells how long the writes of a store took: what a lane waits for,
// without the making of the readings.
type stopwatch struct {
	store lane.Store
	times bench.Samples // seconds
}

// Write implements lane.Store.
func (w *stopwatch) Write(ctx context.Context, shares []*batch.Share) {
	began := time.Now()
	w.store.Write(ctx, shares)
	w.times = append(w.times, time.Since(began).Seconds())
}

// acknowledged is the database with the concern of the published figures: the
// primary has the update in memory and, with its journal's next commit, on disk.
// The time of an append is then not that of a disk's sync.
func acknowledged(m *bench.MongoDB) *mongo.Database {
	journaled := false
	return m.Client().Database(m.Name(), options.Database().SetWriteConcern(&writeconcern.WriteConcern{W: 1, Journal: &journaled}))
}
