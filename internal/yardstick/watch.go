package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/brim-telemetry/brim/internal/machine"
	"github.com/brim-telemetry/brim/internal/scrape"
)

const (
	lagLook    = time.Second
	memoryLook = 100 * time.Millisecond
)

// pendingMetric is the readings that are taken and not stored.
const pendingMetric = "brim_queue_readings"

// every calls look at once and then in this interval, until what it returns is
// called; that waits for the last one and returns its error, if any.
func every(ctx context.Context, interval time.Duration, look func(ctx context.Context) error) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	var looking sync.WaitGroup
	var failed error
	looking.Go(func() {
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for {
			if failed = look(ctx); failed != nil {
				return
			}
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return
			}
		}
	})
	return func() error {
		cancel()
		looking.Wait()
		if errors.Is(failed, context.Canceled) { // under way when it was stopped
			return nil
		}
		return failed
	}
}

// A lag is how far the daemon was behind in one second.
type lag struct {
	at      time.Duration // since the watch began
	mean    float64       // seconds from receipt to stored, of what was stored in it; NaN: nothing was
	oldest  float64       // seconds since the receipt of the oldest reading that is not stored, at its end
	pending float64       // readings that are not stored, at its end
}

// A lagWatch looks at the queue each second.
type lagWatch struct {
	began time.Time
	seen  scrape.Histogram
	lags  []lag
}

// watchLag begins to look; stop ends it.
func watchLag(ctx context.Context, r *rig) (w *lagWatch, stop func() error) {
	w = &lagWatch{began: time.Now()}
	return w, every(ctx, lagLook, func(ctx context.Context) error {
		look, err := r.Look(ctx)
		if err != nil {
			return err
		}
		all := look.Histogram("brim_queue_lag_seconds", nil)
		w.lags = append(w.lags, lag{
			at: time.Since(w.began), mean: all.Since(w.seen).Mean(),
			oldest: look.Value("brim_journal_oldest_unapplied_seconds", nil), pending: look.Value(pendingMetric, nil),
		})
		w.seen = all
		return nil
	})
}

// until returns the lags of the first part of the watch, so that what comes
// after the load does not count.
func (w *lagWatch) until(end time.Duration) []lag {
	var lags []lag
	for _, l := range w.lags {
		if l.at <= end {
			lags = append(lags, l)
		}
	}
	return lags
}

// seconds is the lag of what was stored. Where nothing was, it is at least the
// age of what waits: a second in which nothing goes on counts against the
// daemon.
func (l *lag) seconds() float64 {
	if math.IsNaN(l.mean) {
		return l.oldest
	}
	return l.mean
}

// A trend says whether something grows.
type trend struct {
	first, last float64 // median of the first and of the last third
}

// trendOf looks at a value of each second.
func trendOf(values []float64) trend {
	third := max(1, len(values)/3)
	if len(values) < 2 {
		return trend{median(values), median(values)}
	}
	return trend{median(values[:third]), median(values[len(values)-third:])}
}

// Growth that counts: the last third above the first by a quarter, and by more
// than a flush that falls on another moment explains.
const (
	growthFactor = 1.25
	growthLeast  = 0.5 // seconds
)

func (t trend) grows() bool {
	return t.last > growthFactor*t.first && t.last-t.first > growthLeast
}

// String tells the median of the first third and of the last.
func (t trend) String() string { return fmt.Sprintf("%.2f s to %.2f s", t.first, t.last) }

// A memoryWatch looks at the memory of a daemon.
type memoryWatch struct {
	most int64 // bytes that it had at any look
	peak int64 // bytes that it ever had, as the system tells
}

func watchMemory(ctx context.Context, pid int) (w *memoryWatch, stop func() error) {
	w = &memoryWatch{}
	return w, every(ctx, memoryLook, func(context.Context) error {
		now, peak, err := machine.Memory(pid)
		w.most, w.peak = max(w.most, now), max(w.peak, peak)
		return err
	})
}
