package seal

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/internal/store/bucket"
)

// Rollups are updated at the end of a pass, when all parts of a step are sealed. A pass checks all
// sensors if a step has ended since the last pass, and otherwise those with late readings. Parts
// that it did not reach are not marked, so they do not expire, and a later pass finds them.

// makeRollups updates the steps that had ended by a time, of windows that the pass has checked.
func (s *stream) makeRollups(ctx context.Context, ended time.Time, from int64, late map[string]int64) error {
	every := s.opts.Store.Rollup
	if every == 0 {
		return nil
	}
	s.mu.Lock()
	until := s.rollupsUntil
	s.mu.Unlock()
	r := rollupBatch{stream: s, ended: ended.UnixMilli()}
	longest := max(s.opts.Store.Granularity, store.MaxGranularity)
	// from is earlier if not all sensors with late readings are known.
	if !until.IsZero() && from >= until.Add(-longest).UnixMilli() && store.WindowStart(r.ended, every) == store.WindowStart(until.UnixMilli(), every) {
		for sensor, start := range late {
			if err := r.add(ctx, sensor, start); err != nil {
				return err
			}
		}
	} else {
		if !until.IsZero() {
			from = min(from, store.WindowStart(until.UnixMilli(), every)-longest.Milliseconds())
		} else {
			from = 0
		}
		for sensor, err := range s.sensors(ctx) {
			if err == nil {
				start := from
				if at, ok := late[sensor]; ok {
					start = min(start, at)
				}
				err = r.add(ctx, sensor, start)
			}
			if err != nil {
				return err
			}
		}
	}
	if err := r.send(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rollupsUntil = ended
	return nil
}

// rollupBatch has the updates that are written with one command.
type rollupBatch struct {
	stream  *stream
	ended   int64
	updates []bucket.RollupUpdate
	first   time.Time // when the first of them was made
	began   time.Time // as in batch
}

// add updates the rollups of a sensor.
func (r *rollupBatch) add(ctx context.Context, sensor string, from int64) error {
	if r.began.IsZero() {
		r.began = time.Now()
	}
	for roll, err := range r.stream.opts.Store.RollupUpdates(ctx, sensor, from, r.ended) {
		if err != nil && (ctx.Err() != nil || store.Transient(err)) {
			return err
		}
		if err != nil { // its parts are not marked, so they do not expire
			r.stream.failed(err)
			break
		}
		if len(r.updates) == 0 {
			r.first = time.Now()
		}
		if r.updates = append(r.updates, roll); len(r.updates) >= maxBatchParts {
			if err := r.send(ctx); err != nil {
				return err
			}
		}
	}
	if len(r.updates) > 0 && time.Since(r.first) > maxSealAge {
		if err := r.send(ctx); err != nil {
			return err
		}
	}
	b := batch{stream: r.stream, began: r.began}
	err := b.pause(ctx)
	r.began = b.began
	return err
}

// send applies the updates.
func (r *rollupBatch) send(ctx context.Context) error {
	if len(r.updates) == 0 {
		return nil
	}
	changed, err := r.stream.opts.Store.ApplyRollups(ctx, r.updates)
	if err != nil {
		return err
	}
	var steps, refused, replayed int64
	for _, roll := range r.updates {
		steps += int64(roll.Steps)
		refused += roll.Refused
		replayed += roll.Replayed
	}
	r.updates = r.updates[:0]
	s, m := r.stream, r.stream.rollups
	m.written.Add(float64(steps))
	m.changed.Add(float64(changed))
	m.refused.Add(float64(refused))
	m.replayed.Add(float64(replayed))
	if refused > 0 && s.refusedLogged.CompareAndSwap(false, true) {
		s.log.Warn("readings came so late that others of their step had expired: they are stored, do not expire and are not in the rollup; counted in brim_rollup_refused_readings_total, and logged once", "readings", refused)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.progress.Rollups += steps
	return nil
}

// rollupLag is lag for rollups.
func (s *stream) rollupLag() float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lagLocked(s.rollupsUntil)
}

// rollupMetrics are those of one stream.
type rollupMetrics struct {
	written, changed  prometheus.Counter
	refused, replayed prometheus.Counter
}

type allRollupMetrics struct {
	factory promauto.Factory
	steps   *prometheus.CounterVec
	refused *prometheus.CounterVec
}

func newRollupMetrics(registerer prometheus.Registerer) *allRollupMetrics {
	factory := promauto.With(registerer)
	return &allRollupMetrics{
		factory: factory,
		steps: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "brim_rollup_steps_total",
			Help: "Steps of rollups, by outcome. written; changed: days that another daemon changed in the meantime and that were left to a later pass.",
		}, []string{"stream", "outcome"}),
		refused: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "brim_rollup_refused_readings_total",
			Help: "Readings that a rollup did not count, by reason. expired: other readings that the step counts have expired, so it cannot be made again; these readings stay stored. replayed: they had expired and were written again; the rollup counts them already.",
		}, []string{"stream", "reason"}),
	}
}

func (m *allRollupMetrics) of(stream string) *rollupMetrics {
	return &rollupMetrics{
		written: m.steps.WithLabelValues(stream, "written"), changed: m.steps.WithLabelValues(stream, "changed"),
		refused: m.refused.WithLabelValues(stream, "expired"), replayed: m.refused.WithLabelValues(stream, "replayed"),
	}
}

func (m *allRollupMetrics) lag(stream string, lag func() float64) {
	m.factory.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "brim_rollup_lag_seconds", Help: "Longest time that steps of rollups may have been waiting to be written, in seconds.",
		ConstLabels: prometheus.Labels{"stream": stream},
	}, lag)
}
