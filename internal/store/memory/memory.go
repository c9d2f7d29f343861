// Package memory keeps a stream's newest readings in this process and nowhere
// else. It shows what the daemon and a load generator cost without a database,
// and forgets the older half of its readings whenever it is full.
package memory

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/store"
)

// Config describes a stream in memory.
type Config struct {
	Stream      string
	Granularity time.Duration // of the windows that the metrics speak of
	MaxReadings int           // kept at most; 0: 200,000, some 50 MB of ten-field readings
	Registerer  prometheus.Registerer
}

// Store keeps readings. Its methods may be called by several goroutines.
type Store struct {
	cfg     Config
	metrics *store.Metrics

	mu    sync.RWMutex
	young map[string][]batch.Ref // by sensor
	old   map[string][]batch.Ref // the generation before
	count int                    // readings in young
}

// New checks cfg.
func New(cfg Config) (*Store, error) {
	if err := store.CheckGranularity(cfg.Granularity); err != nil {
		return nil, err
	}
	if cfg.MaxReadings == 0 {
		cfg.MaxReadings = 200_000
	}
	if cfg.MaxReadings < 2 {
		return nil, fmt.Errorf("a memory store of %d readings is too small; it needs 2", cfg.MaxReadings)
	}
	metrics, err := store.NewMetrics(cfg.Registerer, cfg.Stream, store.Memory, cfg.Granularity)
	if err != nil {
		return nil, fmt.Errorf("register metrics of stream %q: %w", cfg.Stream, err)
	}
	return &Store{cfg: cfg, metrics: metrics, young: make(map[string][]batch.Ref)}, nil
}

// Prepare has nothing to do.
func (s *Store) Prepare(context.Context) error { return nil }

// Stands returns nil: there is no collection that could be dropped.
func (s *Store) Stands(context.Context) error { return nil }

// Write keeps all rows; every verdict is batch.Stored.
func (s *Store) Write(_ context.Context, shares []*batch.Share) {
	begin := time.Now()
	s.mu.Lock()
	for _, share := range shares {
		if share.Recovered {
			s.metrics.Duplicates.Add(float64(s.dropStored(share)))
		}
		s.young[share.Sensor] = append(s.young[share.Sensor], share.Rows...)
		s.count += len(share.Rows)
		if s.count >= s.cfg.MaxReadings/2 {
			s.old, s.young, s.count = s.young, make(map[string][]batch.Ref), 0
		}
	}
	s.mu.Unlock()
	took := time.Since(begin)
	for _, share := range shares {
		newest := share.Start
		for _, r := range share.Rows {
			newest = max(newest, r.Row().Time)
		}
		if n := len(share.Rows); n > 0 {
			s.metrics.Wrote(took, n, store.Fill(newest, share.Start, share.Granularity, 0))
			share.Drop(n)
		}
		share.Verdict, share.Err = batch.Stored, nil
	}
}

// dropStored takes the rows away that are kept already.
func (s *Store) dropStored(share *batch.Share) int {
	kept := make(map[[12]byte]bool)
	for _, r := range slices.Concat(s.old[share.Sensor], s.young[share.Sensor]) {
		kept[batch.ReadingID(r.Batch.Session, r.Seq())] = true
	}
	n := share.DropWhere(func(r batch.Ref) bool { return kept[batch.ReadingID(share.Session, r.Seq())] })
	share.Found += n
	return n
}
