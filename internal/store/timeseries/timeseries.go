// Package timeseries keeps a stream's readings in a native time-series
// collection. Such a collection has no unique index, so the database cannot
// refuse a reading that it has already: after an unknown outcome this store
// looks which readings arrived, and sends only the others, see unanswered.
package timeseries

import (
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/brim-telemetry/brim/internal/fault"
	"github.com/brim-telemetry/brim/internal/store"
)

const (
	timeField = store.TimeKey
	metaField = store.SensorKey
)

// Config describes a time-series stream.
type Config struct {
	Database     *mongo.Database // with the concerns of store.Connection.Database
	Stream       string          // also the name of the collection
	Granularity  time.Duration   // span of the server's buckets where it can be chosen, see Prepare
	Compressor   store.Compressor
	Retention    time.Duration // this and the next, see Settings
	WriteConcern store.WriteConcern
	Exchanging   bool          // see store.Collection
	WriteTimeout time.Duration // of one command; 0: 10 s
	Logger       *slog.Logger  // nil: what Prepare finds is not told
	Lost         func()        // called when the collection is found to be gone, to have it prepared again; may be nil
	Registerer   prometheus.Registerer
	Faults       *fault.Injector // nil outside tests
}

// Store writes and reads one time-series stream. Its methods may be called by
// several goroutines, each with its own shares.
type Store struct {
	cfg     Config
	coll    *mongo.Collection // with the database's concerns
	live    atomic.Pointer[live]
	target  *store.Target
	metrics *store.Metrics
	inserts inserts

	preparing  sync.Mutex
	unanswered unanswered
}

// New checks cfg; it does no I/O.
func New(cfg Config) (*Store, error) {
	if err := store.CheckGranularity(cfg.Granularity); err != nil {
		return nil, err
	}
	if cfg.WriteTimeout == 0 {
		cfg.WriteTimeout = 10 * time.Second
	}
	metrics, err := store.NewMetrics(cfg.Registerer, cfg.Stream, store.TimeSeries, cfg.Granularity)
	if err != nil {
		return nil, fmt.Errorf("register metrics of stream %q: %w", cfg.Stream, err)
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Store{cfg: cfg, metrics: metrics, target: store.NewTarget(cfg.Lost), coll: cfg.Database.Collection(cfg.Stream)}
	s.Change(Settings{Retention: cfg.Retention, WriteConcern: cfg.WriteConcern})
	return s, nil
}

// collectionID is how a reading's own name is stored: as long as, and of the
// type of, the names that drivers give.
func collectionID(id [12]byte) bson.ObjectID { return bson.ObjectID(id) }
