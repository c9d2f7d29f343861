package timeseries

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/bench/shape"
)

const (
	// warmUp is how many finds or means go before those that count.
	warmUp = 50
	// turns is how many times one shape follows the other in a repeat, so that a slow
	// moment hits all.
	turns = 10
)

// finds looks for single readings by their time, the same in every shape.
func (t *trial) finds(ctx context.Context) error {
	for repeat := range t.lab.Repeats {
		t.lab.Step("find %d readings in every shape, repeat %d", t.scale.finds, repeat+1)
		places := t.places(repeat, t.scale.finds, 1)
		for _, s := range t.subject {
			if _, err := t.find(ctx, s, places[:min(warmUp, len(places))]); err != nil {
				return err
			}
		}
		took := make([]float64, len(t.subject))
		for some := range slices.Chunk(places, max(len(places)/turns, 1)) {
			for i, s := range t.subject {
				seconds, err := t.find(ctx, s, some)
				if err != nil {
					return err
				}
				took[i] += seconds
			}
		}
		for i, s := range t.subject {
			s.Finds = append(s.Finds, took[i])
		}
	}
	return nil
}

// places are random spans of so many readings.
func (t *trial) places(repeat, n, readings int) []shape.Span {
	random := rand.New(rand.NewPCG(t.lab.Seed, uint64(repeat))) //nolint:gosec // no secret, and counts from 0
	out := make([]shape.Span, n)
	for i := range out {
		out[i] = shape.Span{First: uint64(random.IntN(t.scale.readings - readings + 1)), Count: readings} //nolint:gosec // counts from 0
	}
	return out
}

// find looks for readings one after another, and returns how many seconds all
// took.
func (t *trial) find(ctx context.Context, s *subject, places []shape.Span) (seconds float64, err error) {
	began := time.Now()
	for _, at := range places {
		got, err := s.coll.Read(ctx, at)
		if err != nil {
			return 0, err
		}
		if got != 1 {
			return 0, fmt.Errorf("find reading %d in %s: %d came", at.First, s.Shape, got)
		}
	}
	return time.Since(began).Seconds(), nil
}

// A meanWay is a way to make means in one of the shapes.
type meanWay struct {
	*subject
	way  shape.Way
	into *Means
	took float64   // seconds of a repeat so far
	got  []float64 // the means of a repeat so far
}

func (t *trial) meanWays() []*meanWay {
	var out []*meanWay
	for _, s := range t.subject {
		out = append(out, &meanWay{subject: s, way: shape.Unwind, into: &s.Means})
		if s.Kind == shape.Buckets {
			out = append(out, &meanWay{subject: s, way: shape.Stats, into: &s.StatsMeans})
		}
	}
	return out
}

// means queries the mean over random windows, the same in every shape, whose
// answers must agree.
func (t *trial) means(ctx context.Context) error {
	const readings = int(queryTime / interval)
	for repeat := range t.lab.Repeats {
		t.lab.Step("mean over %d windows of 6 hours in every shape, repeat %d", t.scale.means, repeat+1)
		windows, ways := t.places(repeat, t.scale.means, readings), t.meanWays()
		for _, w := range ways {
			if err := w.query(ctx, windows[:min(warmUp, len(windows))]); err != nil {
				return err
			}
			w.took, w.got = 0, nil
		}
		for some := range slices.Chunk(windows, max(len(windows)/turns, 1)) {
			for _, w := range ways {
				if err := w.query(ctx, some); err != nil {
					return err
				}
				w.into.note(len(w.got), len(windows), w.took)
			}
		}
		for _, w := range ways[1:] {
			if err := agree(ways[0].got, w.got); err != nil {
				return fmt.Errorf("compare the means of %s, %s: %w", w.Shape, w.way, err)
			}
		}
	}
	return nil
}

// query makes means one after another.
func (w *meanWay) query(ctx context.Context, windows []shape.Span) error {
	began := time.Now()
	for _, span := range windows {
		mean, err := w.coll.Mean(ctx, span, shape.RatingField, w.way)
		if err != nil {
			return err
		}
		w.got = append(w.got, mean)
	}
	w.took += time.Since(began).Seconds()
	return nil
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
