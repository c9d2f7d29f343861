package timeseries

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/bench/shape"
)

// warmUp is how many finds or means go before those that count.
const warmUp = 50

// finds looks for single readings by their time.
func (t *trial) finds(ctx context.Context) error {
	for repeat := range t.lab.Repeats {
		t.lab.Step("find %d readings in every shape, repeat %d", t.scale.finds, repeat+1)
		for _, s := range t.subject {
			if err := t.find(ctx, s, warmUp, nil, repeat); err != nil {
				return err
			}
			if err := t.find(ctx, s, t.scale.finds, &s.Finds, repeat); err != nil {
				return err
			}
		}
	}
	return nil
}

// find looks for n readings, the same in every shape, and tells how long all
// took.
func (t *trial) find(ctx context.Context, s *subject, n int, took *bench.Samples, repeat int) error {
	random := t.random(repeat)
	began := time.Now()
	for range n {
		at := shape.Span{First: uint64(random.IntN(t.scale.readings)), Count: 1} //nolint:gosec // counts from 0
		got, err := s.coll.Read(ctx, at)
		if err != nil {
			return err
		}
		if got != 1 {
			return fmt.Errorf("find reading %d in %s: %d came", at.First, s.Shape, got)
		}
	}
	if took != nil {
		*took = append(*took, time.Since(began).Seconds())
	}
	return nil
}

func (t *trial) random(repeat int) *rand.Rand {
	return rand.New(rand.NewPCG(t.lab.Seed, uint64(repeat))) //nolint:gosec // no secret, and counts from 0
}

// means queries the mean over random windows.
func (t *trial) means(ctx context.Context) error {
	for repeat := range t.lab.Repeats {
		t.lab.Step("mean over %d windows of 6 hours in every shape, repeat %d", t.scale.means, repeat+1)
		var want []float64 // of the first shape: the others must agree
		for _, s := range t.subject {
			ways := []shape.Way{shape.Unwind}
			if s.Kind == shape.Buckets {
				ways = append(ways, shape.Stats)
			}
			for _, way := range ways {
				if _, err := t.mean(ctx, s, way, meanRun{n: warmUp, repeat: repeat}); err != nil {
					return err
				}
				of := &s.Means
				if way == shape.Stats {
					of = &s.StatsMeans
				}
				got, err := t.mean(ctx, s, way, meanRun{n: t.scale.means, repeat: repeat, into: of})
				if err != nil {
					return err
				}
				if want == nil {
					want = got
				}
				if err := agree(want, got); err != nil {
					return fmt.Errorf("compare the means of %s, %s: %w", s.Shape, way, err)
				}
			}
		}
	}
	return nil
}

// A meanRun is queries one after another.
type meanRun struct {
	n, repeat int
	into      *Means // nil: nobody wants to know
}

// mean runs the queries, and returns what came.
func (t *trial) mean(ctx context.Context, s *subject, way shape.Way, run meanRun) ([]float64, error) {
	random := t.random(run.repeat)
	const readings = int(queryTime / interval)
	means := make([]float64, run.n)
	began := time.Now()
	for i := range means {
		span := shape.Span{First: uint64(random.IntN(t.scale.readings - readings)), Count: readings} //nolint:gosec // counts from 0
		var err error
		if means[i], err = s.coll.Mean(ctx, span, shape.RatingField, way); err != nil {
			return nil, err
		}
		if run.into != nil {
			run.into.note(i+1, run.n, time.Since(began).Seconds())
		}
	}
	return means, nil
}

var errDisagree = errors.New("the shapes give different answers")

func agree(a, b []float64) error {
	for i := range a {
		if math.Abs(a[i]-b[i]) > 1e-9*math.Abs(a[i]) {
			return fmt.Errorf("%w: %v and %v for query %d", errDisagree, a[i], b[i], i)
		}
	}
	return nil
}

const sortLimit = "internalQueryMaxBlockingSortMemoryUsageBytes"

// sorts sorts everything by time, with the server's limit of memory made smaller
// as the number of readings is.
func (t *trial) sorts(ctx context.Context) (err error) {
	t.lab.Step("sort everything by time without an index")
	if !t.lab.Own() {
		t.result.LeaveOut("a sort of everything by time, without an index", bench.OwnOnly)
		return nil
	}
	t.data.SortLimit = t.sortLimit()
	if err := t.m.Set(ctx, map[string]any{sortLimit: t.data.SortLimit}); err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, t.m.Set(context.WithoutCancel(ctx), map[string]any{sortLimit: serverSortLimit}))
	}()
	for _, s := range t.subject {
		for _, disk := range []bool{false, true} {
			began := time.Now()
			err := s.coll.Sort(ctx, disk)
			took := SortData{Disk: disk, Seconds: time.Since(began).Seconds(), Failed: errors.Is(err, shape.ErrMemoryLimit)}
			if err != nil && !took.Failed {
				return err
			}
			s.Sorts = append(s.Sorts, took)
		}
	}
	return nil
}

func (t *trial) sortLimit() int {
	return int(float64(serverSortLimit) * float64(t.scale.readings) / published)
}
