package fill

import (
	"context"
	"time"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/doctor"
	"github.com/brim-telemetry/brim/internal/machine"
	"github.com/brim-telemetry/brim/internal/scrape"
	"github.com/brim-telemetry/brim/internal/store"
)

// lookEvery is short enough for a checkpoint to stand out, and long against the
// few milliseconds that a look costs.
const lookEvery = 500 * time.Millisecond

// A look is what daemon and MongoDB say at a moment.
type look struct {
	at       time.Time
	mongod   time.Duration // processor time so far
	brim     time.Duration
	readings float64 // stored so far
	updates  scrape.Histogram
	writes   [len(store.Fills)]scrape.Histogram // store_write_seconds, by tenth
	counters doctor.Counters
}

// all are the writes of all tenths.
func (l *look) all() scrape.Histogram { return l.tenths(0, len(l.writes)) }

// tenths are the writes of those from one up to, not including, another.
func (l *look) tenths(from, to int) (h scrape.Histogram) {
	for _, w := range l.writes[from:to] {
		h = h.Add(w)
	}
	return h
}

// A watch looks at a daemon and its MongoDB again and again.
type watch struct {
	daemon  *bench.Daemon
	mongodb *bench.MongoDB
	looks   []look
}

// run looks until that is over.
func (w *watch) run(ctx context.Context, over <-chan struct{}) error {
	ticks := time.NewTicker(lookEvery)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-over:
			return nil
		case <-ticks.C:
			if err := w.look(ctx); err != nil {
				return err
			}
		}
	}
}

func (w *watch) look(ctx context.Context) (err error) {
	l := look{at: time.Now()}
	if l.mongod, err = w.mongodb.CPU(ctx); err != nil {
		return err
	}
	if l.brim, err = machine.CPU(w.daemon.Pid()); err != nil {
		return err
	}
	metrics, err := w.daemon.Look(ctx)
	if err != nil {
		return err
	}
	for i, fill := range store.Fills {
		l.writes[i] = metrics.Histogram("brim_store_write_seconds", scrape.Labels{"fill": fill})
	}
	l.updates = metrics.Histogram("brim_store_update_readings", nil)
	l.readings = l.updates.Sum
	if l.counters, err = w.mongodb.Counters(ctx); err != nil {
		return err
	}
	w.looks = append(w.looks, l)
	return nil
}
