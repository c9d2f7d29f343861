package shape

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/bench/lane"
	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/internal/store/bucket"
	"github.com/brim-telemetry/brim/internal/store/timeseries"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// Config says what a collection is to be.
type Config struct {
	Name  string
	Shape Shape
	// Compressor of the collection; empty: the server's default for its kind.
	Compressor store.Compressor
	Readings   Readings
	// PerUpdate is how many readings of a sensor arrive together; 0: 1.
	PerUpdate int
	// MaxReadings and MaxBytes are the caps of a part; 0: as in a daemon.
	MaxReadings, MaxBytes int
}

const (
	// CommandReadings is how many readings a command carries at most, of every
	// shape.
	CommandReadings = 1000

	// The caps and the span of a time-series stream are a daemon's defaults.
	defaultMaxReadings = 1000
	defaultMaxBytes    = 256 << 10
	defaultGranularity = 5 * time.Minute
)

// A writer is a lane or a naive one.
type writer interface {
	// Write returns when the portions are stored: in how many updates or
	// documents.
	Write(ctx context.Context, portions []lane.Portion) (int, error)
}

// A brims is a store of production.
type brims interface {
	lane.Store
	Prepare(ctx context.Context) error
	Readings(ctx context.Context, q telemetry.Query) iter.Seq2[telemetry.Reading, error]
}

// A Collection holds readings in one shape.
type Collection struct {
	Config

	db     *mongo.Database
	coll   *mongo.Collection
	store  brims  // nil: naive
	naive  *naive // nil: Brim's
	writer writer
}

// New makes an empty collection in a MongoDB, in the place of one that had its
// name.
func New(ctx context.Context, m *bench.MongoDB, c Config) (*Collection, error) {
	if err := c.Shape.check(c.Readings); err != nil {
		return nil, fmt.Errorf("make collection %q: %w", c.Name, err)
	}
	if c.PerUpdate == 0 {
		c.PerUpdate = 1
	}
	if c.MaxReadings == 0 {
		c.MaxReadings = defaultMaxReadings
	}
	if c.MaxBytes == 0 {
		c.MaxBytes = defaultMaxBytes
	}
	s := &Collection{Config: c, db: m.Database(), coll: m.Database().Collection(c.Name)}
	if err := s.coll.Drop(ctx); err != nil {
		return nil, fmt.Errorf("drop collection %q: %w", c.Name, err)
	}
	if c.Shape.naive() {
		s.naive = &naive{readings: c.Readings, coll: s.coll, named: c.Readings.Sensors > 1}
		s.writer = s.naive
		return s, s.naive.create(ctx, c.Shape, store.Collection{Database: s.db, Name: c.Name, Compressor: c.Compressor})
	}
	var err error
	if s.store, err = s.newStore(); err != nil {
		return nil, err
	}
	s.writer = lane.New(lane.Config{
		Store: s.store, Source: c.Readings.Source, Stream: c.Name, Granularity: s.window(),
		Begin: c.Readings.Begin, Interval: c.Readings.Interval, Phase: c.Readings.Phase,
	})
	return s, s.store.Prepare(ctx)
}

// Attach goes on with the collection after its mongod was restarted, to read it.
func (c *Collection) Attach(m *bench.MongoDB) (err error) {
	c.db, c.coll = m.Database(), m.Database().Collection(c.Name)
	if c.naive != nil {
		c.naive.coll = c.coll
		return nil
	}
	c.store, err = c.newStore()
	return err
}

func (c *Collection) newStore() (brims, error) {
	if c.Shape.Kind == TimeSeries {
		return timeseries.New(timeseries.Config{
			Database: c.db, Stream: c.Name, Granularity: c.window(), Compressor: c.Compressor, Registerer: prometheus.NewRegistry(),
		})
	}
	return bucket.New(bucket.Config{
		Database: c.db, Stream: c.Name, Granularity: c.window(), Compressor: c.Compressor, Registerer: prometheus.NewRegistry(),
		MaxReadings: c.MaxReadings, MaxBytes: c.MaxBytes,
	})
}

// window is that of the stream.
func (c *Collection) window() time.Duration {
	if c.Shape.Granularity == 0 {
		return defaultGranularity
	}
	return c.Shape.Granularity
}

// Loaded is what a load took.
type Loaded struct {
	Took    time.Duration
	Updates int // or documents, where each reading is one
}

// Load writes all readings, command after command, by one writer.
func (c *Collection) Load(ctx context.Context) (l Loaded, err error) {
	began := time.Now()
	for portions := range c.Readings.commands(c.PerUpdate, CommandReadings) {
		n, err := c.writer.Write(ctx, portions)
		if err != nil {
			return l, fmt.Errorf("load %s: %w", c.Shape, err)
		}
		l.Updates += n
	}
	l.Took = time.Since(began)
	return l, nil
}

// Write writes portions of the collection's readings as one command.
func (c *Collection) Write(ctx context.Context, portions []lane.Portion) error {
	_, err := c.writer.Write(ctx, portions)
	return err
}

// Drop removes the collection.
func (c *Collection) Drop(ctx context.Context) error {
	if err := c.coll.Drop(ctx); err != nil {
		return fmt.Errorf("drop collection %q: %w", c.Name, err)
	}
	return nil
}
