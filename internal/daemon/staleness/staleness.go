// Package staleness counts the sensors that stopped reporting. The lanes of the queue
// report what they store, and after a start the store reports what came before.
//
//	queue's lanes ── Came ──▶ Stream: newest arrival by sensor ──▶ brim_sensors_known
//	store ── Sensors, once ──▶                                     brim_sensors_silent
package staleness

import (
	"context"
	"hash/maphash"
	"iter"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/brim-telemetry/brim/internal/machine"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// remember is how long a silent sensor stays known.
const remember = 7 * 24 * time.Hour

// Config says which streams to watch.
type Config struct {
	// After is, by stream, how long after its last reading a sensor counts as silent; 0:
	// the stream is not watched, at no cost.
	After map[string]time.Duration
	// MaxSensors bounds the known sensors of a stream, some 30 bytes each; 0: 1,000,000.
	MaxSensors int
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// A Watch knows the sensors of all streams.
type Watch struct {
	cfg        Config
	streams    map[string]*Stream
	knownUntil atomic.Pointer[func(stream string) time.Time]
	changed    chan struct{} // holds one: a stream may have to be recalled
}

// New returns a Watch of the streams in cfg.After.
func New(cfg Config) *Watch {
	if cfg.MaxSensors == 0 {
		cfg.MaxSensors = 1_000_000
	}
	w := &Watch{cfg: cfg, streams: make(map[string]*Stream, len(cfg.After)), changed: make(chan struct{}, 1)}
	for name, after := range cfg.After {
		s := &Stream{watch: w, name: name, seed: maphash.MakeSeed()}
		s.after.Store(int64(after))
		for i := range s.shards {
			s.shards[i].newest = make(map[uint64]uint32)
		}
		w.streams[name] = s
	}
	if cfg.Registerer != nil {
		cfg.Registerer.MustRegister(collector{w})
	}
	return w
}

// Stream returns the watch over one stream; nil, which remembers nothing, if it is not
// in the configuration.
func (w *Watch) Stream(name string) *Stream { return w.streams[name] }

// SetKnownUntil sets the function that returns the time until which all arrivals in a
// stream were reported. While readings wait in the journal it is in the past, and no
// sensor falls silent. Without the function, it is now.
func (w *Watch) SetKnownUntil(f func(stream string) time.Time) { w.knownUntil.Store(&f) }

// A Stream knows when the last reading came from each sensor of a stream. Its methods
// may be called concurrently, and on nil.
type Stream struct {
	watch *Watch
	name  string
	after atomic.Int64
	seed  maphash.Seed

	shards   [64]shard // so that the lanes do not wait for each other, or for a count
	sensors  atomic.Int64
	full     atomic.Bool // logged that there is no room for more
	recalled atomic.Bool

	mu      sync.Mutex
	counted time.Time
	counts  counts
}

type shard struct {
	mu sync.Mutex
	// newest has the second, since the epoch, of the newest arrival by the hash of
	// the sensor's id. Among a million sensors, two have the same hash with a
	// probability of 1 in 37 million; they would count as one.
	newest map[uint64]uint32
}

// shardOf returns the shard of a sensor, locked, and the sensor's hash.
func (s *Stream) shardOf(sensor string) (*shard, uint64) {
	hash := maphash.String(s.seed, sensor)
	p := &s.shards[hash%uint64(len(s.shards))]
	p.mu.Lock()
	return p, hash
}

// SetAfter changes Config.After of the stream; with 0, what is known stays until the
// next count.
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

// Came reports that a reading of the sensor was received at that time.
func (s *Stream) Came(sensor string, at time.Time) {
	if s == nil || s.after.Load() == 0 {
		return
	}
	second := uint32(max(0, at.Unix()))
	p, hash := s.shardOf(sensor)
	defer p.mu.Unlock()
	before, known := p.newest[hash]
	if !known {
		if int(s.sensors.Load()) >= s.watch.cfg.MaxSensors {
			if !s.full.Swap(true) {
				s.watch.cfg.Logger.Warn("the stream has more sensors than can be watched; new ones are not counted when they fall silent",
					"stream", s.name, "watched", s.watch.cfg.MaxSensors)
			}
			return
		}
		s.sensors.Add(1)
	}
	if second > before || !known {
		p.newest[hash] = second
	}
}

// Forget removes a sensor that is not expected any more.
func (s *Stream) Forget(sensor string) {
	if s == nil {
		return
	}
	p, hash := s.shardOf(sensor)
	defer p.mu.Unlock()
	if _, known := p.newest[hash]; known {
		delete(p.newest, hash)
		s.sensors.Add(-1)
	}
}

type counts struct{ known, silent int }

// countAgain is how old a count may be. Counting a million sensors takes some 20 ms,
// and the live page requests it every second.
const countAgain = 5 * time.Second

// count returns how many sensors are known and silent, and forgets those that have been
// silent for too long.
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
	gone := uint32(max(0, until.Add(-after-remember).Unix()))
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

// Sensors yields the sensors in a stream's store. After an error it yields no more.
type Sensors func(ctx context.Context, stream string) iter.Seq2[telemetry.SensorSeen, error]

// A recall pauses after this many sensors, so that a million take two minutes and leave
// the database to other reads and writes in between.
const (
	recallAtOnce = 1000
	recallPause  = 100 * time.Millisecond
	recallAgain  = time.Minute // after one that failed
)

// Run recalls the sensors in the store, stream by stream, and again when watching
// of a stream begins; it returns when ctx ends.
func (w *Watch) Run(ctx context.Context, sensors Sensors) {
	for {
		var again <-chan time.Time
		for name, s := range w.streams {
			if s.after.Load() == 0 || s.recalled.Load() {
				continue
			}
			if s.recall(ctx, sensors(ctx, name)); !s.recalled.Load() {
				again = time.After(recallAgain)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-w.changed:
		case <-again:
		}
	}
}

// recall restores the state before a restart, so that sensors that fell silent
// while no daemon ran are counted. Arrival times are not stored, so the reading's
// own time is used unless it is in the future.
func (s *Stream) recall(ctx context.Context, sensors iter.Seq2[telemetry.SensorSeen, error]) {
	n := 0
	for seen, err := range sensors {
		if err != nil {
			if ctx.Err() == nil {
				s.watch.cfg.Logger.Warn("cannot recall the sensors of a stream; trying again", "stream", s.name, "again_in", recallAgain.String(), "err", err)
			}
			return
		}
		now := time.Now()
		newest := time.UnixMilli(seen.Newest)
		if newest.After(now) {
			newest = now
		}
		if now.Sub(newest) <= remember {
			s.Came(seen.Sensor, newest)
		}
		if n++; n%recallAtOnce == 0 && machine.Pause(ctx, recallPause) != nil {
			return
		}
	}
	if ctx.Err() != nil {
		return
	}
	s.recalled.Store(true)
	s.watch.cfg.Logger.Info("recalled the sensors of a stream", "stream", s.name, "sensors", n)
}

// A collector counts at each scrape. Streams that are not watched show 0.
type collector struct{ watch *Watch }

func knownDesc() *prometheus.Desc {
	return prometheus.NewDesc("brim_sensors_known",
		"Sensors that sent something within the last week, as far as this daemon knows; 0 where silent-after is 0.", []string{"stream"}, nil)
}

func silentDesc() *prometheus.Desc {
	return prometheus.NewDesc("brim_sensors_silent",
		"Of the known sensors, those that sent nothing for longer than the stream's silent-after.", []string{"stream"}, nil)
}

// Describe implements prometheus.Collector.
func (collector) Describe(ch chan<- *prometheus.Desc) {
	ch <- knownDesc()
	ch <- silentDesc()
}

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	now := time.Now()
	for name, s := range c.watch.streams {
		n := s.count(now)
		ch <- prometheus.MustNewConstMetric(knownDesc(), prometheus.GaugeValue, float64(n.known), name)
		ch <- prometheus.MustNewConstMetric(silentDesc(), prometheus.GaugeValue, float64(n.silent), name)
	}
}
