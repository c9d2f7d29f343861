// Package bucket keeps a stream's readings in bucket documents: one document
// for each sensor, window and part, to which readings are appended with a
// guarded upsert. The guard and the data change in one update of one document,
// so an update can be repeated without storing a reading twice:
//
//	share ─▶ cut ─▶ guarded update ─▶ bulkWrite ─┬─ applied ───▶ drop the rows
//	           ▲                                 ├─ E11000 ────▶ look at all parts ─┬─ stored already ─▶ drop
//	           │                                 │                                  ├─ part full ──────▶ close it, next part
//	           │                                 │                                  └─ neither ────────▶ wait
//	           │                                 ├─ unknown ───▶ wait
//	           └─ smaller, or the next part ◀────┴─ content ───▶ halve, until one reading stands alone
package bucket

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/fault"
	"github.com/brim-telemetry/brim/internal/store"
)

// Config describes a bucket stream.
type Config struct {
	Database             *mongo.Database // with the concerns of store.Connection.Database
	Stream               string          // also the name of the collection
	Granularity          time.Duration   // length of a window, see store.CheckGranularity
	MaxReadings          int             // this and what follows, see Settings
	MaxBytes             int
	MaxReadingsPerUpdate int
	Retention            time.Duration
	WriteConcern         store.WriteConcern
	View                 bool
	Compressor           store.Compressor
	WriteTimeout         time.Duration // of one command; 0: 10 s
	Logger               *slog.Logger  // nil: what Prepare finds is not told
	Registerer           prometheus.Registerer
	Faults               *fault.Injector // nil outside tests
}

// Store writes and reads one bucket stream. Its methods may be called by
// several goroutines, each with its own shares.
type Store struct {
	cfg     Config
	coll    *mongo.Collection // with the database's concerns
	live    atomic.Pointer[live]
	metrics *store.Metrics
	bulks   bulks
	sharded atomic.Bool // the collection is spread over shards; known once it is prepared

	identity identity
}

// New checks cfg; it does no I/O.
func New(cfg Config) (*Store, error) {
	if err := store.CheckGranularity(cfg.Granularity); err != nil {
		return nil, err
	}
	if err := cfg.settings().check(); err != nil {
		return nil, err
	}
	if cfg.WriteTimeout == 0 {
		cfg.WriteTimeout = 10 * time.Second
	}
	metrics, err := store.NewMetrics(cfg.Registerer, cfg.Stream, store.Bucket, cfg.Granularity)
	if err != nil {
		return nil, fmt.Errorf("register metrics of stream %q: %w", cfg.Stream, err)
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Store{cfg: cfg, coll: cfg.Database.Collection(cfg.Stream), metrics: metrics}
	return s, s.Change(cfg.settings())
}

// Write sends each share, or as much of it as one update can carry, in as few
// commands as are quick to make, resolves what was refused, and leaves in every
// share what is not yet stored, with a verdict. It returns when all verdicts
// are there; ctx cuts it short, which leaves outcomes unknown.
func (s *Store) Write(ctx context.Context, shares []*batch.Share) {
	bulk := s.bulks.get(s.cfg.Faults)
	defer s.bulks.put(bulk)
	s.prepareAll(ctx, bulk, shares)
	for ops := bulk.ops; len(ops) > 0; {
		n := oneCommand(ops)
		if err := s.command(ctx, bulk, ops[:n]); err != nil {
			// What ended one command would end the next, after another wait.
			for i := range ops[n:] {
				ops[n+i].share.Verdict, ops[n+i].share.Err = batch.Unsent, err
			}
			return
		}
		ops = ops[n:]
	}
}

// prepareAll makes the operations of all shares that have something to send.
func (s *Store) prepareAll(ctx context.Context, bulk *bulk, shares []*batch.Share) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.WriteTimeout)
	defer cancel()
	s.lookWhereUnsure(ctx, shares)
	for _, share := range shares {
		if op, ok := s.prepare(ctx, share); ok {
			bulk.ops = append(bulk.ops, op)
		}
	}
}

// command sends some of the bulk's operations and settles them. An error says
// that the command as a whole came to nothing that is known.
func (s *Store) command(ctx context.Context, bulk *bulk, ops []operation) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.WriteTimeout)
	defer cancel()
	s.cfg.Faults.At(fault.BeforeBulk)
	r := bulk.send(ctx, s.live.Load().into, ops)
	s.cfg.Faults.At(fault.AfterBulk)
	return s.settle(ctx, ops, r)
}
