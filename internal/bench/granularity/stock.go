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
	// fewestBuckets get the appends at least, so that it is not always the same page
	// of the database.
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
	fleet *lane.Fleet // of one lane
	watch *stopwatch
	bytes int // of a document in the beginning, before compression
}

// newStock makes the buckets: the store writes one, the others are its copies.
func newStock(ctx context.Context, c stockConfig) (*stock, error) {
	sensors, err := load.NewSensors(load.SensorsConfig{Count: c.buckets(), Fields: c.fields, Seed: c.seed, Prefix: c.collection + "-"})
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
	s := &stock{stockConfig: c, watch: &stopwatch{store: st}}
	s.fleet = s.newFleet(lane.Config{
		Store: s.watch, Source: sensors, Stream: c.collection, Granularity: time.Hour, Begin: shape.Begin(), Interval: s.interval(),
	})
	coll := s.database.Collection(s.collection)
	for _, keys := range s.indexes {
		if _, err := coll.Indexes().CreateOne(ctx, mongo.IndexModel{Keys: keys}); err != nil {
			return nil, fmt.Errorf("create an index: %w", err)
		}
	}
	err = s.fleet.Fill(ctx, coll, c.residents, time.Time{})
	s.bytes = s.fleet.DocumentBytes
	return s, err
}

func (c *stockConfig) newFleet(l lane.Config) *lane.Fleet {
	return lane.NewFleet(lane.FleetConfig{Config: l, Order: lane.Order(c.buckets()), Lanes: 1, PerUpdate: c.perUpdate, PerCommand: 1})
}

// interval is that between a sensor's readings: as published, or less if a bucket
// holds more of them than a window has room for.
func (c *stockConfig) interval() time.Duration {
	most := c.residents + c.perUpdate*c.each()
	return min(publishedInterval, (time.Hour / time.Duration(most+1)).Truncate(time.Millisecond))
}

// held is how many readings a bucket holds before the next append.
func (s *stock) held() float64 { return float64(s.fleet.Writers[0].Held()) }

// together is how many updates a lane hands to the store at once, at most.
const together = 250

// single appends n times, one append a command, each when the one before it is
// stored, and returns how long each took in seconds.
func (s *stock) single(ctx context.Context, n int) (bench.Samples, error) {
	s.watch.times = s.watch.times[:0]
	s.fleet.PerCommand = 1
	for range n {
		if _, _, err := s.fleet.Writers[0].Write(ctx); err != nil {
			return nil, err
		}
	}
	return slices.Clone(s.watch.times), nil
}

// bulk appends n times as a lane does that has many buckets to write.
func (s *stock) bulk(ctx context.Context, n int) error {
	for n > 0 {
		s.fleet.PerCommand = min(n, together)
		done, _, err := s.fleet.Writers[0].Write(ctx)
		if err != nil {
			return err
		}
		n -= done
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

// A stopwatch notes how long the writes of a store took: what a lane waits for,
// without making the readings.
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
