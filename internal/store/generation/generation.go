// Package generation stores a stream in a list of collections. When a daemon starts with another
// storage or compressor than the stream has had, a collection is added to the list; nothing is
// copied, and daemons with different settings write at the same time:
//
//	brim.streams: readings ─┬─▶ readings      bucket, snappy
//	                        ├─▶ readings.g2   timeseries, snappy   ◀── written by one daemon
//	                        └─▶ readings.g3   bucket, zstd         ◀── written by another
//	                              ▲
//	queries read all, in order ───┘
//
// What makes this safe:
//
//   - At most one generation of a stream fits a Target, a storage with a compressor, and the
//     answer never changes. The journal records the target of each process, so that what an
//     earlier process may have sent is only ever sent again to the same collection, whose
//     guards (the w of its buckets, the _ids of its readings) recognize it. So a session writes
//     to one generation of a stream, and its waiting readings are looked up only there.
//   - The list is changed by compare-and-set with majority, before the first write to a new
//     generation. A new one is written only after propagationDelay: until then, every daemon reads the
//     list again, since none uses what it read for longer than listTTL.
//   - A query gathers the waiting readings, then reads the list, and then the
//     generations. A reading that is stored in between is in a generation of the list.
//   - Collections are never renamed, and numbers are never reused.
//
// With one generation, a call costs no more than one of its store.
//
// registry.go has the list, read.go merges the answers of the generations, move.go empties generations
// into another one.
package generation

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/internal/store/bucket"
	"github.com/brim-telemetry/brim/internal/store/timeseries"
)

// A Target is how readings are meant to be stored.
type Target struct {
	Storage    store.Storage    `bson:"storage"`
	Compressor store.Compressor `bson:"compressor"` // empty: not recorded, by a release that knew one generation only
}

// String returns the form that parseTarget reads.
func (t Target) String() string { return string(t.Storage) + "/" + string(t.Compressor) }

// parseTarget parses a target. If s is not one, the result fits no generation.
func parseTarget(s string) Target {
	storage, compressor, _ := strings.Cut(s, "/")
	return Target{store.Storage(storage), store.Compressor(compressor)}
}

// Config describes a stream in MongoDB. Its Name must be empty.
type Config struct {
	store.Config
	Storage store.Storage // with Compressor, the target that is written

	// Earlier has the targets of sessions of earlier processes with readings in the journal. Other
	// sessions have the target of this process.
	Earlier map[string]Target
	// Sessions returns the sessions with unstored readings, and possibly others. Nil: all of
	// Earlier have some.
	Sessions func() []string
	// ReadGenerations reports whether all daemons of the stream can read several generations.
	// Until then, none is added. Nil: they can.
	ReadGenerations func() bool
}

// A Store writes and reads all generations of a stream. Its methods may be called by several
// goroutines, each with its own writes.
type Store struct {
	cfg      Config
	registry registry
	own      backend // the store that this process writes to; it has no collection until that is in the list

	preparing sync.Mutex
	routes    atomic.Pointer[routes]   // for writes; nil: not prepared yet
	snapshot  atomic.Pointer[snapshot] // for queries; nil: the list was not read yet

	mu       sync.Mutex         // guards the following fields
	settings store.Settings     // in force
	current  Generation         // the generation of own; zero until it has a collection
	backends map[string]backend // by collection
}

// backend is the store of a generation.
type backend interface {
	source
	Write(ctx context.Context, writes []*batch.Pending)
	Prepare(ctx context.Context) error
	CheckPrepared(ctx context.Context) error
	Rename(collection string, compressor store.Compressor)
}

// routes maps sessions to the stores that write their readings.
type routes struct {
	current backend
	earlier map[string]backend // by session, if it is not current
	all     []backend          // each once
	names   map[backend]string // collections
}

// New checks cfg; it does no I/O.
func New(cfg Config) (*Store, error) {
	s := &Store{
		cfg: cfg, settings: cfg.Settings(), backends: make(map[string]backend),
		registry: registry{database: cfg.Database, stream: cfg.Stream, rollups: cfg.Rollup > 0, pause: propagationDelay},
	}
	var err error
	s.own, err = s.open(Generation{Target: s.target()}, true)
	return s, err
}

func (s *Store) logger() *slog.Logger { return cmp.Or(s.cfg.Logger, slog.New(slog.DiscardHandler)) }

// target returns the target that this process writes.
func (s *Store) target() Target { return Target{s.cfg.Storage, s.cfg.Compressor} }

// Bucket returns the store that this process writes to; nil if it is not a bucket store. It has no
// collection until the stream is prepared.
func (s *Store) Bucket() *bucket.Store {
	b, _ := s.own.(*bucket.Store)
	return b
}

// Default caps of buckets, if the stream's settings have none.
const (
	maxReadings = 1000
	maxBytes    = 256 << 10
)

// open returns a store of a generation. Only the first can have rollups.
func (s *Store) open(g Generation, first bool) (backend, error) {
	cfg := s.cfg.Config
	cfg.Name, cfg.Compressor = g.Collection, g.Compressor
	now := s.forStorage(g.Storage)
	cfg.Format, cfg.MaxReadings, cfg.MaxBytes, cfg.MaxReadingsPerUpdate = now.Format, now.MaxReadings, now.MaxBytes, now.MaxReadingsPerUpdate
	cfg.Retention, cfg.WriteConcern, cfg.View, cfg.Duplicates = now.Retention, now.WriteConcern, now.View, now.Duplicates
	cfg.RollupRetention = now.RollupRetention
	if !first {
		cfg.Rollup, cfg.RollupRetention = 0, 0
	}
	if g.Storage != s.cfg.Storage && store.CheckGranularity(cfg.Granularity, now.Format) != nil { // a granularity that only columns allow
		cfg.Granularity = store.MaxGranularity
	}
	switch g.Storage {
	case store.Bucket:
		return bucket.New(cfg)
	case store.TimeSeries:
		return timeseries.New(cfg)
	default:
		return nil, fmt.Errorf("collection %q: storage %q is unknown; allowed: %s, %s", g.Collection, g.Storage, store.Bucket, store.TimeSeries)
	}
}

// forStorage returns the settings in force that apply to a generation.
func (s *Store) forStorage(storage store.Storage) store.Settings {
	now := s.settings
	if storage == store.TimeSeries {
		return store.Settings{Retention: now.Retention, WriteConcern: now.WriteConcern}
	}
	if storage == s.cfg.Storage {
		return now
	}
	now.MaxReadings, now.MaxBytes = cmp.Or(now.MaxReadings, maxReadings), cmp.Or(now.MaxBytes, maxBytes)
	return now
}

// Change puts settings in force, from the next write on. The collections follow at the next
// Prepare.
func (s *Store) Change(c store.Settings) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.settings
	s.settings = c
	all := []backend{s.own}
	for _, of := range s.backends {
		if of != s.own {
			all = append(all, of)
		}
	}
	for _, of := range all {
		switch st := of.(type) {
		case *bucket.Store:
			if err := st.Change(s.forStorage(store.Bucket)); err != nil {
				s.settings = before
				return err
			}
		case *timeseries.Store:
			st.Change(s.forStorage(store.TimeSeries))
		}
	}
	return nil
}

// Prepare adds the targets that this process writes to the list of generations, if necessary, and
// creates or checks the collections. A *store.MismatchError or *store.ConcernError is final; other
// errors may be temporary.
func (s *Store) Prepare(ctx context.Context) error {
	s.preparing.Lock()
	defer s.preparing.Unlock()
	wanted := []Target{s.target()}
	earlier := s.earlier()
	for _, t := range earlier {
		if !slices.Contains(wanted, t) {
			wanted = append(wanted, t)
		}
	}
	slices.SortFunc(wanted[1:], func(a, b Target) int { return strings.Compare(a.String(), b.String()) })
	began := time.Now()
	list, err := s.registry.ensure(ctx, wanted, s.mayAdd)
	if err != nil {
		return err
	}
	if s.cfg.Rollup > 0 && len(list.Generations) > 1 {
		return &store.MismatchError{
			Collection: list.Generations[1].Collection, What: "readings of", Have: "stream " + s.cfg.Stream, Want: "rollups, which need a single collection",
			Hint: "start all daemons of the stream without rollup, or move all readings into one collection with `brim move " + s.cfg.Stream + "`",
		}
	}
	current, err := s.findGeneration(list, s.target())
	if err != nil {
		return err
	}
	if err := s.name(&list.Generations[current]); err != nil {
		return err
	}
	now, err := s.setSnapshot(list, began)
	if err != nil {
		return err
	}
	r := &routes{current: now.backends[current], earlier: make(map[string]backend), names: make(map[backend]string)}
	for i, of := range now.backends {
		r.names[of] = now.list.Generations[i].Collection
	}
	r.all = append(r.all, r.current)
	for session, t := range earlier {
		i, err := s.findGeneration(list, t)
		if err != nil {
			return err
		}
		if i != current {
			r.earlier[session] = now.backends[i]
		}
		if !slices.Contains(r.all, now.backends[i]) {
			r.all = append(r.all, now.backends[i])
		}
	}
	for i, of := range now.backends {
		if now.list.Generations[i].Moving != nil {
			continue
		}
		if !slices.Contains(r.all, of) && list.gone[now.list.Generations[i].Collection] {
			continue // removed by hand, and not needed for writes
		}
		if err := of.Prepare(ctx); err != nil {
			return err
		}
	}
	s.routes.Store(r)
	return nil
}

// earlier returns the targets of earlier sessions with readings that are not stored.
func (s *Store) earlier() map[string]Target {
	if s.cfg.Sessions == nil {
		return s.cfg.Earlier
	}
	out := make(map[string]Target)
	for _, session := range s.cfg.Sessions() {
		if t, ok := s.cfg.Earlier[session]; ok {
			out[session] = t
		}
	}
	return out
}

// mayAdd returns an error if no generation can be added now.
func (s *Store) mayAdd() error {
	if s.cfg.ReadGenerations == nil || s.cfg.ReadGenerations() {
		return nil
	}
	return errOlderDaemons
}

// findGeneration returns the index of the generation that fits the target.
func (s *Store) findGeneration(list *List, t Target) (int, error) {
	i := list.find(t)
	if i < 0 { // cannot happen: it was added
		return 0, fmt.Errorf("stream %q has no generation of %s", s.cfg.Stream, t)
	}
	g := list.Generations[i]
	if g.Storage == t.Storage {
		return i, nil
	}
	// The collection was migrated to another storage, so readings for the former one may be in it.
	types := map[store.Storage]string{store.Bucket: "collection", store.TimeSeries: "timeseries"}
	return 0, store.Collection{Database: s.cfg.Database, Name: g.Collection}.CheckType(&store.Info{Type: types[g.Storage]}, types[t.Storage])
}

// name sets the collection of this process's store.
func (s *Store) name(g *Generation) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current.Collection != "" {
		if s.backends[g.Collection] != s.own {
			return fmt.Errorf("stream %q: its readings were moved into another collection; restart the daemon", s.cfg.Stream)
		}
		return nil
	}
	compressor := cmp.Or(g.Compressor, s.cfg.Compressor)
	if compressor != s.cfg.Compressor {
		s.logger().Warn("the stream's collection was recompressed, and is used as it is", "stream", s.cfg.Stream, "collection", g.Collection, "compressor", compressor, "asked_for", s.cfg.Compressor)
	}
	s.own.Rename(g.Collection, compressor)
	s.backends[g.Collection] = s.own
	s.current = Generation{Collection: g.Collection, Target: Target{s.cfg.Storage, compressor}, State: g.State}
	return nil
}

// Current returns the generation that this process writes to; its Collection is empty until the
// stream is prepared.
func (s *Store) Current() Generation {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current
}

// CheckPrepared returns nil while the collections that were prepared for writing have their names,
// and otherwise store.ErrNotPrepared.
func (s *Store) CheckPrepared(ctx context.Context) error {
	r := s.routes.Load()
	if r == nil {
		return store.ErrNotPrepared
	}
	needed := []backend{r.current}
	for session := range s.earlier() {
		if of, other := r.earlier[session]; other && !slices.Contains(needed, of) {
			needed = append(needed, of)
		}
	}
	for _, of := range needed {
		if err := of.CheckPrepared(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Write implements queue.Store: the readings of each session go to the generation that they
// were accepted for.
func (s *Store) Write(ctx context.Context, writes []*batch.Pending) {
	r := s.routes.Load()
	switch {
	case r == nil:
		for _, pending := range writes {
			pending.Verdict, pending.Err = batch.Unsent, store.ErrNotPrepared
		}
		return
	case len(r.earlier) == 0:
		r.current.Write(ctx, writes)
		return
	}
	for _, to := range r.all {
		var part []*batch.Pending
		for _, pending := range writes {
			if r.of(pending.Session) == to {
				part = append(part, pending)
			}
		}
		if len(part) > 0 {
			to.Write(ctx, part)
		}
	}
}

// of returns the store for the readings of a session.
func (r *routes) of(session string) backend {
	if to, ok := r.earlier[session]; ok {
		return to
	}
	return r.current
}

// PlaceOf returns the collection that readings of this journal's sessions are written to; before
// the stream is prepared, their target.
func (s *Store) PlaceOf(session string) string {
	if r := s.routes.Load(); r != nil {
		return r.names[r.of(session)]
	}
	return s.TargetOf(session)
}

// TargetOf returns the target of this journal's sessions, for telemetry.Unstored.
func (s *Store) TargetOf(session string) string {
	if t, ok := s.cfg.Earlier[session]; ok {
		return t.String()
	}
	return s.target().String()
}
