package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/brim-telemetry/brim/internal/bench"
)

// Recovery is how long a killed mongod took until it took writes again.
type Recovery struct {
	// Bare seconds are those right after a checkpoint, with nothing to replay.
	Bare bench.Samples `json:"bare_seconds"`
	// Late seconds are those after the writing since the checkpoint, and Journal
	// the bytes that were written to the journal meanwhile.
	Late    bench.Samples `json:"late_seconds"`
	Journal bench.Samples `json:"journal_bytes"`
	Written bench.Samples `json:"written_seconds"`
}

// Replay is how long it took to replay what was written in a second, in seconds.
func (r *Recovery) Replay() bench.Samples {
	return r.Late.Each(func(late float64) float64 { return max(0, late-r.Bare.Median()) }).Over(r.Written)
}

// Checkpoints by time are so far apart that there is none but those asked for.
const noCheckpoints = 10 * time.Minute

var errCheckpoint = errors.New("a checkpoint came before mongod was killed")

// recovery kills a mongod right after a checkpoint, and late after one.
func recovery(ctx context.Context, lab *bench.Lab, p *plan) (r *Recovery, err error) {
	s, err := newSubject(ctx, lab, p.appends, noCheckpoints)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.m.Close()) }()
	r = &Recovery{}
	for n := range max(p.bare, lab.Repeats) {
		if n < p.bare {
			lab.Step("kill mongod right after a checkpoint")
			if err := s.m.Checkpoint(ctx); err != nil {
				return r, err
			}
			took, err := s.m.Kill(ctx)
			if err != nil {
				return r, err
			}
			r.Bare = append(r.Bare, took.Seconds())
		}
		if n < lab.Repeats {
			lab.Step("kill mongod %v after a checkpoint", p.writing)
			if err := s.killLate(ctx, p.writing, r); err != nil {
				return r, err
			}
		}
	}
	return r, nil
}

// killLate writes for so long after a checkpoint, and then kills.
func (s *subject) killLate(ctx context.Context, writing time.Duration, r *Recovery) error {
	if err := s.m.Checkpoint(ctx); err != nil {
		return err
	}
	before, err := s.m.Counters(ctx)
	if err != nil {
		return err
	}
	if _, err := s.writer.run(ctx, lasting(writing)); err != nil {
		return err
	}
	after, err := s.m.Counters(ctx)
	if err != nil {
		return err
	}
	if after.Since(before, "checkpoints_total") > 0 {
		return fmt.Errorf("write for %v: %w", writing, errCheckpoint)
	}
	took, err := s.m.Kill(ctx)
	if err != nil {
		return err
	}
	r.Late = append(r.Late, took.Seconds())
	r.Journal = append(r.Journal, after.Since(before, "journal_written_bytes_total"))
	r.Written = append(r.Written, after.At.Sub(before.At).Seconds())
	return nil
}
