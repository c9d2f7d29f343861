// Package memory keeps a stream's newest readings in this process, to measure the daemon or a
// load generator without a database. Whenever it is full, it discards the older half.
package memory

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// Config describes a stream in memory.
type Config struct {
	Stream      string
	Granularity time.Duration // of the windows, for the metrics
	Registerer  prometheus.Registerer
}

// Between generationSize and twice as many readings are kept: some 50 MB of readings of ten fields.
const generationSize = 100_000

// Store keeps readings. Its methods may be called by several goroutines.
type Store struct {
	cfg     Config
	metrics *store.Metrics

	mu    sync.RWMutex
	young map[string][]batch.Ref // by sensor
	old   map[string][]batch.Ref // the previous generation
	count int                    // readings in young
}

// New checks cfg.
func New(cfg Config) (*Store, error) {
	if err := store.CheckGranularity(cfg.Granularity, ""); err != nil {
		return nil, err
	}
	metrics, err := store.NewMetrics(cfg.Registerer, cfg.Stream, store.Memory, cfg.Granularity)
	if err != nil {
		return nil, fmt.Errorf("register metrics of stream %q: %w", cfg.Stream, err)
	}
	return &Store{cfg: cfg, metrics: metrics, young: make(map[string][]batch.Ref)}, nil
}

// Prepare has nothing to do.
func (s *Store) Prepare(context.Context) error { return nil }

// CheckPrepared returns nil: there is no collection that could be dropped.
func (s *Store) CheckPrepared(context.Context) error { return nil }

// Write keeps all rows; every verdict is batch.Stored.
func (s *Store) Write(_ context.Context, writes []*batch.Pending) {
	begin := time.Now()
	s.mu.Lock()
	for _, pending := range writes {
		if pending.Recovered {
			s.metrics.Duplicates.Add(float64(s.dropStored(pending)))
		}
		s.young[pending.Sensor] = append(s.young[pending.Sensor], pending.Rows...)
		s.count += len(pending.Rows)
		if s.count >= generationSize {
			s.old, s.young, s.count = s.young, make(map[string][]batch.Ref), 0
		}
	}
	s.mu.Unlock()
	took := time.Since(begin)
	for _, pending := range writes {
		newest := pending.Start
		for _, r := range pending.Rows {
			newest = max(newest, r.Row().Time)
		}
		if n := len(pending.Rows); n > 0 {
			s.metrics.Wrote(took, n, store.Fill(newest, pending.Start, pending.Granularity, 0))
			pending.Drop(n)
		}
		pending.Verdict, pending.Err = batch.Stored, nil
	}
}

// dropStored removes the rows that are kept already.
func (s *Store) dropStored(pending *batch.Pending) int {
	kept := make(map[[12]byte]bool)
	for _, r := range slices.Concat(s.old[pending.Sensor], s.young[pending.Sensor]) {
		kept[batch.ReadingID(r.Batch.Session, r.Seq())] = true
	}
	n := pending.DropWhere(func(r batch.Ref) bool { return kept[batch.ReadingID(pending.Session, r.Seq())] })
	pending.Found += n
	return n
}

// Readings yields the readings for the query in time order: those that are kept, and those of
// q.Unstored that are not. Readings with the same time are in the order in which they were
// written, followed by the unstored ones. It ends with an error if ctx is canceled.
func (s *Store) Readings(ctx context.Context, q telemetry.Query) iter.Seq2[telemetry.Reading, error] {
	return store.Merge(q, func(yield func(store.Stored, error) bool) {
		refs := slices.DeleteFunc(s.refs(q.Sensor), func(r batch.Ref) bool { return r.Row().Time < q.From || r.Row().Time >= q.To })
		slices.SortStableFunc(refs, func(a, b batch.Ref) int { return cmp.Compare(a.Row().Time, b.Row().Time) })
		for _, r := range refs {
			if err := ctx.Err(); err != nil {
				yield(store.Stored{}, fmt.Errorf("read readings of sensor %q: %w", q.Sensor, err))
				return
			}
			if !yield(store.Stored{ID: batch.ReadingID(r.Batch.Session, r.Seq()), Reading: r.Batch.Reading(r.Index)}, nil) {
				return
			}
		}
	})
}

// ReadingsOf yields what Readings yields for each query, one query after the other.
func (s *Store) ReadingsOf(ctx context.Context, qs []telemetry.Query) iter.Seq2[telemetry.Reading, error] {
	return store.ReadEach(ctx, qs, s.Readings)
}

// Summary yields the summaries of q's steps, in time order, including the readings of q.Unstored
// that are not kept.
func (s *Store) Summary(ctx context.Context, q telemetry.SummaryQuery) iter.Seq2[telemetry.Summary, error] {
	q.Limit = 0
	readings := s.Readings
	if q.Readings != nil {
		readings = q.Readings
	}
	return store.Summarize(q, readings(ctx, q.Query), nil)
}

// refs returns what is kept of a sensor, in the order in which it was written.
func (s *Store) refs(sensor string) []batch.Ref {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Concat(s.old[sensor], s.young[sensor])
}

// Sensors yields the sensors with readings, in the order of their ids' bytes.
func (s *Store) Sensors(ctx context.Context, q telemetry.SensorQuery) iter.Seq2[telemetry.SensorSeen, error] {
	return func(yield func(telemetry.SensorSeen, error) bool) {
		s.mu.RLock()
		ids := make(map[string]bool)
		for _, generation := range []map[string][]batch.Ref{s.old, s.young} {
			for sensor := range generation {
				if strings.HasPrefix(sensor, q.Prefix) && sensor > q.After {
					ids[sensor] = true
				}
			}
		}
		s.mu.RUnlock()
		for _, sensor := range slices.Sorted(maps.Keys(ids)) {
			if err := ctx.Err(); err != nil {
				yield(telemetry.SensorSeen{}, fmt.Errorf("list sensors: %w", err))
				return
			}
			newest, found, _ := s.Newest(ctx, sensor)
			if !found { // it was deleted meanwhile
				continue
			}
			if !yield(telemetry.SensorSeen{Sensor: sensor, Newest: newest}, nil) {
				return
			}
			if q.Limit--; q.Limit == 0 {
				return
			}
		}
	}
}

// Newest returns the time of the sensor's newest reading, in milliseconds since the epoch,
// and whether there is one.
func (s *Store) Newest(_ context.Context, sensor string) (ms int64, found bool, err error) {
	for _, r := range s.refs(sensor) {
		if at := r.Row().Time; !found || at > ms {
			ms, found = at, true
		}
	}
	return ms, found, nil
}

// Latest returns the sensor's newest reading, kept or unstored. Of several with the same time, it
// is the last one.
func (s *Store) Latest(_ context.Context, sensor string, unstored []telemetry.Unstored) (telemetry.Reading, bool, error) {
	refs := s.refs(sensor)
	return store.Latest(sensor, unstored, func() (r telemetry.Reading, found bool, err error) {
		newest := -1
		for i, ref := range refs {
			if newest < 0 || ref.Row().Time >= refs[newest].Row().Time {
				newest = i
			}
		}
		if newest >= 0 {
			r = refs[newest].Batch.Reading(refs[newest].Index)
		}
		return r, newest >= 0, nil
	})
}

// Delete removes the sensor and returns how many readings it had.
func (s *Store) Delete(_ context.Context, sensor string) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.old[sensor]) + len(s.young[sensor])
	s.count -= len(s.young[sensor])
	delete(s.old, sensor)
	delete(s.young, sensor)
	return int64(n), nil
}
