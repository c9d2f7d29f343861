package storage

import (
	"slices"
	"sync"
	"time"

	"github.com/brim-telemetry/brim/internal/bench"
)

// latencies are how long writes took, each from the moment it was due. Several
// goroutines may use them.
type latencies struct {
	mu  sync.Mutex
	all []latency
}

type latency struct {
	done time.Duration // when it was, since the beginning
	took time.Duration
}

func (l *latencies) add(done, took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, latency{done, took})
}

// between returns how long those writes took that were done from one moment to
// before another, in seconds, the quickest first.
func (l *latencies) between(from, to time.Duration) sorted {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out sorted
	for _, one := range l.all {
		if one.done >= from && one.done < to {
			out = append(out, one.took.Seconds())
		}
	}
	slices.Sort(out)
	return out
}

// sorted are values, the smallest first.
type sorted []float64

func (s sorted) quantile(share float64) float64 { return bench.Samples(s).Quantile(share) }

func (s sorted) p50() float64 { return s.quantile(0.5) }
func (s sorted) p99() float64 { return s.quantile(0.99) }
