package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/brim-telemetry/brim/internal/bench"
)

// compare writes a load with each checkpoint interval, the shortest first, and
// returns what each costs. The intervals are whole seconds. A mongod of the
// lab's own is needed. When it fails, what it has until then is returned too.
func compare(ctx context.Context, lab *bench.Lab, l Load, intervals []time.Duration) (costs []*Cost, err error) {
	if len(intervals) == 0 {
		return nil, nil
	}
	s, err := newSubject(ctx, lab, l, intervals[0])
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.m.Close()) }()
	for i, interval := range intervals {
		// What was there before came by large updates, which are still in the last
		// page of the oplog: a mongod that starts on them begins a new one.
		if i > 0 || !l.Inserts {
			if err := s.restart(ctx, interval); err != nil {
				return costs, err
			}
		}
		c, err := s.observe(ctx, interval, periods(lab.Repeats, interval, intervals[0]))
		if err != nil {
			return costs, err
		}
		costs = append(costs, c)
	}
	return costs, nil
}

// mostWarm is as long as it takes until last pages have been split.
const mostWarm = 15 * time.Second

// A subject is a load on a MongoDB that starts again with one interval after
// the other.
type subject struct {
	lab    *bench.Lab
	load   Load
	m      *bench.MongoDB
	writer *writer
	warm   time.Duration // the writing before periods count
}

// newSubject starts a MongoDB and stores what was there before.
func newSubject(ctx context.Context, lab *bench.Lab, l Load, interval time.Duration) (s *subject, err error) {
	lab.Step("%s: store what was there before", l.Name())
	// The last pages of the oplog and of a collection of documents grow until they
	// are split, and each checkpoint writes them again: the first few write less.
	s = &subject{lab: lab, load: l, warm: min(2*interval, mostWarm)}
	if s.m, err = lab.Start(ctx, setting(l, interval)); err != nil {
		return nil, err
	}
	if err := s.prepare(ctx); err != nil {
		return nil, errors.Join(err, s.m.Close())
	}
	return s, nil
}

func (s *subject) prepare(ctx context.Context) (err error) {
	if s.writer, err = newWriter(s.m, s.load, s.lab.Seed); err != nil {
		return err
	}
	if err := s.writer.prepare(ctx); err != nil {
		return err
	}
	return s.m.Checkpoint(ctx)
}

func setting(l Load, interval time.Duration) bench.Setting {
	return bench.Setting{CacheGB: pinnedCacheGB, CheckpointInterval: interval, Compressor: l.Compressor}
}

func (s *subject) restart(ctx context.Context, interval time.Duration) error {
	s.lab.Step("%s: start mongod with a checkpoint every %v", s.load.Name(), interval)
	if err := s.m.Restart(ctx, setting(s.load, interval)); err != nil {
		return err
	}
	return s.writer.warm(ctx)
}

// observe writes until so many whole periods have passed.
func (s *subject) observe(ctx context.Context, interval time.Duration, periods int) (*Cost, error) {
	seen := 0
	s.lab.Step("%s with a checkpoint every %v", s.load.Name(), interval)
	w := &watcher{m: s.m, interval: interval, periods: periods, warm: s.warm, each: func(whole int) {
		for ; seen < whole; seen++ {
			s.lab.Step("%s with a checkpoint every %v, the next one", s.load.Name(), interval)
		}
	}}
	operations, err := s.writer.run(ctx, w.watch)
	if err != nil {
		return nil, fmt.Errorf("observe a checkpoint every %v: %w", interval, err)
	}
	return costOf(s.load, interval, seenBy{w.looks, operations, s.warm}), nil
}
