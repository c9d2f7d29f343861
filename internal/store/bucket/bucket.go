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
	"errors"
	"fmt"
	"log/slog"
	"sync"
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
	Lost                 func()        // called when the collection is found to be gone, to have it prepared again; may be nil
	Registerer           prometheus.Registerer
	Faults               *fault.Injector // nil outside tests
}

// Store writes and reads one bucket stream. Its methods may be called by
// several goroutines, each with its own shares.
type Store struct {
	cfg     Config
	coll    *mongo.Collection // with the database's concerns
	live    atomic.Pointer[live]
	target  *store.Target
	metrics *store.Metrics
	bulks   bulks
	sharded atomic.Bool  // the collection is spread over shards; known once it is prepared
	slowest atomic.Int64 // of the last commands, in ns; see patience

	identity  identity
	preparing sync.Mutex
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
	s := &Store{cfg: cfg, coll: cfg.Database.Collection(cfg.Stream), metrics: metrics, target: store.NewTarget(cfg.Lost)}
	return s, s.Change(cfg.settings())
}

// Write sends each share, or as much of it as one update can carry, in as few
// commands as are quick to make, resolves what was refused, and leaves in every
// share what is not yet stored, with a verdict. It returns when all verdicts
// are there; ctx cuts it short, which leaves outcomes unknown.
func (s *Store) Write(ctx context.Context, shares []*batch.Share) {
	to := s.target.Now()
	if to == nil {
		for _, share := range shares {
			share.Verdict, share.Err = batch.Unsent, store.ErrNotPrepared
		}
		return
	}
	bulk := s.bulks.get(s.cfg.Faults)
	defer s.bulks.put(bulk)
	s.forget(shares, to)
	s.prepareAll(ctx, bulk, shares)
	for ops := bulk.ops; len(ops) > 0; {
		n := oneCommand(ops)
		if err := s.command(ctx, bulk, ops[:n], to); err != nil {
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

// command sends some of the bulk's operations and settles them. An error says that
// the outcome of the command as a whole is unknown. A command that hangs while
// MongoDB answers others is divided.
func (s *Store) command(outer context.Context, bulk *bulk, ops []operation, to *store.Prepared) error {
	if err := store.Permitted(outer); err != nil {
		unsent(ops, err)
		return err
	}
	ctx, cancel := context.WithTimeout(outer, s.cfg.WriteTimeout)
	defer cancel()
	r := s.exchange(ctx, bulk, ops, to)
	switch {
	case !errors.Is(r.err, errHangs):
		return s.settle(ctx, ops, r)
	case len(ops) == 1:
		s.hangs(&ops[0])
		return nil
	}
	return s.divide(outer, ops, to)
}

// exchange sends the operations and returns the reply. It leaves the shares as they
// are, so that it may run on any goroutine.
func (s *Store) exchange(ctx context.Context, bulk *bulk, ops []operation, to *store.Prepared) (r reply) {
	s.cfg.Faults.At(fault.BeforeBulk)
	err := s.unlessItHangs(ctx, ops, func(ctx context.Context) error {
		r = bulk.send(ctx, s.live.Load().into, ops, to)
		return r.err
	})
	s.cfg.Faults.At(fault.AfterBulk)
	s.target.Wrote(to, r.err)
	if errors.Is(err, errHangs) {
		r.err = err
	}
	return r
}

func unsent(ops []operation, err error) {
	for i := range ops {
		ops[i].share.Verdict, ops[i].share.Err = batch.Unsent, err
	}
}
