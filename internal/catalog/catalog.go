// Package catalog keeps, for each stream in MongoDB, a collection of its sensors with
// their tags and fields, so that sensors are found by tags without reading readings:
//
//	lane ── Saw, if new ──▶ unwritten ── every second ──▶ STREAM.sensors
//	                           │                               ▲
//	Writer ── before a bucket is written that has something new┘
//	                           │
//	List ◀── unwritten, then STREAM.sensors
//
// A sensor is written to the catalog before its first reading is stored, so a crash in between
// loses nothing: the reading is still in the journal. This order costs one in-memory lookup for
// each update of a bucket. If the catalog cannot be written, readings are stored anyway, and the
// entries are written later.
//
// A document is correct regardless of the order in which several daemons update it: time ranges
// only grow, and sets of tags and field names are only added.
//
//	document.go  the documents, and the updates of them
//	known.go     what is known to be written
//	write.go     writing
//	list.go      finding sensors
//	check.go     comparing the catalog with what is stored, and building it from that
package catalog

import (
	"cmp"
	"context"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// Source is a stream's store, from which its catalog is built and checked.
type Source interface {
	Sensors(ctx context.Context, q telemetry.SensorQuery) iter.Seq2[telemetry.SensorSeen, error]
	Readings(ctx context.Context, q telemetry.Query) iter.Seq2[telemetry.Reading, error]
	Latest(ctx context.Context, sensor string, unstored []telemetry.Unstored) (r telemetry.Reading, found bool, err error)
}

// A StreamConfig describes a stream in MongoDB.
type StreamConfig struct {
	Source Source
	// Retention is how long readings are kept; 0: forever. Sensors without readings
	// leave the catalog some hours after their last reading.
	Retention time.Duration
	Ready     <-chan struct{} // closed when the stream can be read and written
}

// Config configures a Catalog.
type Config struct {
	Database   *mongo.Database // with the concerns of store.Connection.Database
	Daemon     string          // identifies this process
	Streams    map[string]StreamConfig
	Logger     *slog.Logger          // nil: nothing is logged
	Registerer prometheus.Registerer // nil: metrics are kept and not registered
}

// A Catalog has the catalogs of all streams. A nil *Catalog has none.
type Catalog struct {
	cfg     Config
	streams map[string]*Stream
	metrics *metrics
}

// maxKnown is how many combinations of a sensor, its tags and its fields are cached as written,
// some 25 bytes each.
const maxKnown = 2_000_000

// New returns a catalog; it does no I/O before Run.
func New(cfg Config) *Catalog {
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	c := &Catalog{cfg: cfg, streams: make(map[string]*Stream, len(cfg.Streams))}
	for name, of := range cfg.Streams {
		s := &Stream{
			StreamConfig: of, name: name, catalog: c, log: cfg.Logger.With("stream", name),
			collection: cfg.Database.Collection(store.SensorsName(name)), known: newKnown(maxKnown / len(cfg.Streams)),
			unwritten: make(map[uint64]*entry), wake: make(chan struct{}, 1), rebuild: make(chan struct{}, 1),
		}
		s.state.Store(&state{})
		s.retention.Store(int64(of.Retention))
		c.streams[name] = s
	}
	c.metrics = newMetrics(cfg.Registerer, c)
	return c
}

// Stream returns the catalog of a stream; nil if it has none.
func (c *Catalog) Stream(name string) *Stream {
	if c == nil {
		return nil
	}
	return c.streams[name]
}

// Run writes the catalogs, and checks them, until ctx ends.
func (c *Catalog) Run(ctx context.Context) {
	if c == nil {
		return
	}
	var running sync.WaitGroup
	for _, name := range slices.Sorted(maps.Keys(c.streams)) {
		s := c.streams[name]
		running.Go(func() {
			select {
			case <-s.Ready:
				running.Go(func() { s.write(ctx) })
				s.check(ctx)
			case <-ctx.Done():
			}
		})
	}
	running.Wait()
}

// A Stream is the catalog of one stream. Its methods may be called by several
// goroutines, and those for the write path on nil.
type Stream struct {
	StreamConfig

	name              string
	catalog           *Catalog
	log               *slog.Logger
	collection        *mongo.Collection
	retention         atomic.Int64
	known             *known
	wake              chan struct{} // capacity 1: there is something to write
	rebuild           chan struct{} // capacity 1: see Rebuild
	rebuildPending    atomic.Bool   // Rebuild was called, but the stored state does not show it yet
	lost              atomic.Bool   // stored readings have entries that did not fit into unwritten; once it is empty, Rebuild is called
	prepared          atomic.Bool   // the collection has its indexes
	writeThroughAfter atomic.Int64  // time, in ns since 1970, until which entries are not written before readings, after a failure
	state             atomic.Pointer[state]
	logged            atomic.Int64 // when a failure was last logged, in ns since 1970

	mu        sync.Mutex
	unwritten map[uint64]*entry
	dropped   time.Time // when unwritten was last full
}

// maxUnwritten bounds the entries that wait to be written, some 300 bytes each.
const maxUnwritten = 100_000

// An entry is a combination of a sensor, its tags and its fields, and the time range of its
// readings.
type entry struct {
	series      *batch.Series
	shape       *batch.Shape
	first, last int64 // milliseconds since 1970
}

// Saw notes a reading of a series with the fields of a shape. It does not block.
func (s *Stream) Saw(series *batch.Series, shape *batch.Shape, ms int64) {
	if s == nil {
		return
	}
	key := s.known.key(series, shape)
	if !s.known.covers(key, ms, ms) {
		s.note(key, entry{series, shape, ms, ms})
	}
}

// note adds an entry to be written; false if too many wait.
func (s *Stream) note(key uint64, e entry) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if before := s.unwritten[key]; before != nil {
		before.first, before.last = min(before.first, e.first), max(before.last, e.last)
		return true
	}
	if len(s.unwritten) >= maxUnwritten {
		s.dropped = time.Now()
		return false
	}
	s.unwritten[key] = &e
	notify(s.wake)
	return true
}

// notify sends to a channel of capacity 1 without blocking.
func notify(to chan struct{}) {
	select {
	case to <- struct{}{}:
	default:
	}
}

// waiting returns the number of unwritten entries.
func (s *Stream) waiting() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.unwritten)
}

// incompleteFor is how long readings, and so sensors that did not fit into unwritten, may wait
// until they are stored.
const incompleteFor = time.Hour + time.Minute

// Overflowed reports whether sensors whose readings are not stored yet may be missing.
func (s *Stream) Overflowed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.dropped.IsZero() && time.Since(s.dropped) < incompleteFor
}

// SetRetention changes StreamConfig.Retention.
func (s *Stream) SetRetention(d time.Duration) {
	if s != nil && time.Duration(s.retention.Swap(int64(d))) != d {
		s.prepared.Store(false)
		notify(s.wake)
	}
}

// Forget removes deleted sensors from the cache, so that their next reading writes them to the
// catalog again. Without arguments, it removes all sensors.
func (s *Stream) Forget(sensors ...string) {
	if len(sensors) == 0 {
		s.known.forgetAll()
		return
	}
	hashes := make([]uint64, len(sensors))
	gone := make(map[uint64]bool, len(sensors))
	for i, sensor := range sensors {
		hashes[i] = batch.SeriesHash(s.name, sensor)
		gone[hashes[i]] = true
	}
	s.known.forget(hashes)
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.unwritten, func(_ uint64, e *entry) bool { return gone[e.series.Hash] })
}
