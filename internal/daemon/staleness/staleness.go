// Package staleness counts the sensors of which nothing comes any more. It stands
// beside a reading's way: the lanes tell of what they bring to the store, and
// after a start the store tells of what came before.
//
//	queue's lanes ── Came ──▶ Stream: newest arrival by sensor ──▶ brim_sensors_known
//	store ── Sensors, once ──▶                                     brim_sensors_silent
package staleness

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Config says whom to watch.
type Config struct {
	// After is, by stream, for how long nothing may come from a sensor until it
	// counts as silent; 0: the stream is not watched, which costs nothing.
	After map[string]time.Duration
	// Remember is for how long a silent sensor is known; 0: a week.
	Remember time.Duration
	// MaxSensors is how many sensors of a stream are known at most, some 30 bytes
	// each; 0: 1,000,000.
	MaxSensors int
	// KnownUntil returns the time until which all arrivals in a stream were told of.
	// Where readings wait in the journal it lies back, and no sensor falls silent
	// meanwhile. nil: now. It may be set with SetKnownUntil, too.
	KnownUntil func(stream string) time.Time
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

func (c *Config) setDefaults() error {
	if c.Remember == 0 {
		c.Remember = 7 * 24 * time.Hour
	}
	if c.MaxSensors == 0 {
		c.MaxSensors = 1_000_000
	}
	switch {
	case c.Registerer == nil || c.Logger == nil:
		return errors.New("a watch needs a place for its metrics and a logger")
	case c.Remember < 0:
		return fmt.Errorf("remember %v is below 0", c.Remember)
	case c.MaxSensors < 0:
		return fmt.Errorf("max sensors %d is below 0", c.MaxSensors)
	}
	return nil
}

// A Watch knows the sensors of all streams.
type Watch struct {
	cfg        Config
	streams    map[string]*Stream
	knownUntil atomic.Pointer[func(stream string) time.Time]
	changed    chan struct{} // holds one: a stream may have to be recalled
}

// New returns a Watch of the streams in cfg.After.
func New(cfg Config) (*Watch, error) {
	if err := cfg.setDefaults(); err != nil {
		return nil, fmt.Errorf("set up the watch over silent sensors: %w", err)
	}
	w := &Watch{cfg: cfg, streams: make(map[string]*Stream, len(cfg.After)), changed: make(chan struct{}, 1)}
	if cfg.KnownUntil != nil {
		w.knownUntil.Store(&cfg.KnownUntil)
	}
	for name, after := range cfg.After {
		if after < 0 {
			return nil, fmt.Errorf("watch stream %s: silent-after %v is below 0", name, after)
		}
		s := &Stream{watch: w, name: name, seed: maphash.MakeSeed()}
		s.after.Store(int64(after))
		for i := range s.shards {
			s.shards[i].newest = make(map[uint64]uint32)
		}
		w.streams[name] = s
	}
	if err := cfg.Registerer.Register(collector{w}); err != nil {
		return nil, fmt.Errorf("register metrics of silent sensors: %w", err)
	}
	return w, nil
}

// Stream returns the watch over one stream; nil, which hears everything and
// remembers nothing, if it is not in the configuration.
func (w *Watch) Stream(name string) *Stream { return w.streams[name] }

// SetKnownUntil sets Config.KnownUntil.
func (w *Watch) SetKnownUntil(f func(stream string) time.Time) { w.knownUntil.Store(&f) }

// A Stream knows when something last came from each sensor of a stream. Its
// methods may be called by several goroutines, and on nil.
type Stream struct {
	watch *Watch
	name  string
	after atomic.Int64
	seed  maphash.Seed

	shards   [shards]shard
	sensors  atomic.Int64
	full     atomic.Bool // logged that there is no room for more
	recalled atomic.Bool

	mu      sync.Mutex
	counted time.Time
	counts  counts
}

// shards keep the lanes from waiting for each other, and for a count.
const shards = 64

type shard struct {
	mu sync.Mutex
	// newest holds the second, since the epoch, of the newest arrival by the hash of
	// the sensor's id. Of a million sensors two have the same hash with a
	// probability of 1 in 37 million; they would count as one.
	newest map[uint64]uint32
}

// SetAfter changes for how long nothing may come; 0 ends the watch, and what is
// known stays until something is counted.
func (s *Stream) SetAfter(d time.Duration) {
	if s == nil {
		return
	}
	s.after.Store(int64(d))
	s.mu.Lock()
	s.counted = time.Time{}
	s.mu.Unlock()
	select {
	case s.watch.changed <- struct{}{}:
	default:
	}
}

// Came says that a reading of the sensor was received at a time; an earlier
// time than is known already says nothing.
func (s *Stream) Came(sensor string, at time.Time) {
	if s == nil || s.after.Load() == 0 {
		return
	}
	hash, second := s.hash(sensor), uint32(max(0, at.Unix()))
	p := &s.shards[hash%shards]
	p.mu.Lock()
	defer p.mu.Unlock()
	before, known := p.newest[hash]
	if !known {
		if int(s.sensors.Load()) >= s.watch.cfg.MaxSensors {
			s.tellFull()
			return
		}
		s.sensors.Add(1)
	}
	if second > before || !known {
		p.newest[hash] = second
	}
}

func (s *Stream) tellFull() {
	if !s.full.Swap(true) {
		s.watch.cfg.Logger.Warn("there are more sensors than can be watched; those that come from now on are not missed when they fall silent",
			"stream", s.name, "watched", s.watch.cfg.MaxSensors)
	}
}

func (s *Stream) hash(sensor string) uint64 { return maphash.String(s.seed, sensor) }

// Forget says that the sensor is not expected any more.
func (s *Stream) Forget(sensor string) {
	if s == nil {
		return
	}
	hash := s.hash(sensor)
	p := &s.shards[hash%shards]
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, known := p.newest[hash]; known {
		delete(p.newest, hash)
		s.sensors.Add(-1)
	}
}

// counts are what is shown of a stream.
type counts struct{ known, silent int }

// countAgain is how old a count may be. A count of a million sensors takes some
// 20 ms, and the live page asks every second.
const countAgain = 5 * time.Second

// count returns how many sensors are known and silent, and forgets those that
// were silent for too long.
func (s *Stream) count(now time.Time) counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Sub(s.counted) < countAgain {
		return s.counts
	}
	s.counted, s.counts = now, counts{}
	after := time.Duration(s.after.Load())
	if after == 0 {
		return s.counts
	}
	until := now
	if known := s.watch.knownUntil.Load(); known != nil {
		if at := (*known)(s.name); at.Before(until) {
			until = at
		}
	}
	silent := uint32(max(0, until.Add(-after).Unix()))
	gone := uint32(max(0, until.Add(-after-s.watch.cfg.Remember).Unix()))
	for i := range s.shards {
		p := &s.shards[i]
		p.mu.Lock()
		for hash, second := range p.newest {
			switch {
			case second < gone:
				delete(p.newest, hash)
				s.sensors.Add(-1)
			case second < silent:
				s.counts.silent++
			}
		}
		s.counts.known += len(p.newest)
		p.mu.Unlock()
	}
	return s.counts
}

// Run recalls what the store has, stream by stream, and again when a stream
// begins to be watched; it ends with ctx.
func (w *Watch) Run(ctx context.Context, sensors Sensors) {
	for {
		for name, s := range w.streams {
			if s.after.Load() > 0 && !s.recalled.Load() {
				s.recall(ctx, sensors(ctx, name))
			}
		}
		var again <-chan time.Time
		if w.unrecalled() {
			again = time.After(recallAgain)
		}
		select {
		case <-ctx.Done():
			return
		case <-w.changed:
		case <-again:
		}
	}
}

func (w *Watch) unrecalled() bool {
	for _, s := range w.streams {
		if s.after.Load() > 0 && !s.recalled.Load() {
			return true
		}
	}
	return false
}
