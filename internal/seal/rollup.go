package seal

import (
	"context"
	"math"
	"time"

	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/internal/store/bucket"
)

// Rollups are updated at the end of a pass, when all parts of a step are sealed. A pass checks all
// sensors if a step has ended since the last pass, and otherwise those with late readings. Parts
// that it did not reach are not marked, so they do not expire, and a later pass finds them.

// makeRollups updates the steps that had ended by a time, of windows that the pass has checked.
func (s *stream) makeRollups(ctx context.Context, ended time.Time, from firstWindows) error {
	every := s.opts.Store.Rollup
	if every == 0 {
		return nil
	}
	s.mu.Lock()
	until := s.rollupsUntil
	s.mu.Unlock()
	step := func(at time.Time) int64 { return store.WindowStart(at.UnixMilli(), every) }
	sensors := s.sensors(ctx)
	switch {
	case until.IsZero():
		from.start = 0
	case from.start >= until.Add(-s.longestWindow()).UnixMilli() && step(ended) == step(until): // all sensors with late readings are known
		from.start = math.MaxInt64
		sensors = func(yield func(string, error) bool) {
			for sensor := range from.late {
				if !yield(sensor, nil) {
					return
				}
			}
		}
	default:
		from.start = min(from.start, step(until)-s.longestWindow().Milliseconds())
	}
	r := rollupBatch{stream: s, ended: ended.UnixMilli()}
	for sensor, err := range sensors {
		if err == nil {
			err = r.add(ctx, sensor, from.of(sensor))
		}
		if err != nil {
			return err
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
}

// add updates the rollups of a sensor.
func (r *rollupBatch) add(ctx context.Context, sensor string, from int64) error {
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
	if time.Since(r.first) > maxSealAge {
		if err := r.send(ctx); err != nil {
			return err
		}
	}
	return r.stream.pause(ctx)
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
	s := r.stream
	s.metrics.steps.WithLabelValues("written").Add(float64(steps))
	s.metrics.steps.WithLabelValues("changed").Add(float64(changed))
	s.metrics.refused.WithLabelValues("expired").Add(float64(refused))
	s.metrics.refused.WithLabelValues("replayed").Add(float64(replayed))
	if refused > 0 && !s.refusedLogged {
		s.refusedLogged = true
		s.log.Warn("readings came so late that others of their step had expired: they are stored, do not expire and are not in the rollup; counted in brim_rollup_refused_readings_total, and logged once", "readings", refused)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.progress.Rollups += steps
	return nil
}
