package daemon

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/brim-telemetry/brim/internal/catalog"
	"github.com/brim-telemetry/brim/internal/crash"
	"github.com/brim-telemetry/brim/internal/daemon/staleness"
	"github.com/brim-telemetry/brim/internal/journal"
	"github.com/brim-telemetry/brim/internal/machine"
	"github.com/brim-telemetry/brim/internal/peers"
	"github.com/brim-telemetry/brim/internal/queue"
	"github.com/brim-telemetry/brim/internal/read"
	"github.com/brim-telemetry/brim/internal/seal"
	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/internal/store/claim"
	"github.com/brim-telemetry/brim/internal/store/generation"
	"github.com/brim-telemetry/brim/internal/store/memory"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A streamStore is the store of one stream.
type streamStore interface {
	queue.Store
	read.Source
	// Prepare creates the collection, or checks that the existing one fits the stream. A
	// *store.MismatchError or *store.ConcernError is final; other errors may pass.
	Prepare(ctx context.Context) error
	// CheckPrepared returns nil if the prepared collection still exists under the stream's name, and
	// store.ErrNotPrepared if it was dropped or replaced. Then nothing is written until
	// Prepare.
	CheckPrepared(ctx context.Context) error
}

// storage is the queue with the stores behind it.
type storage struct {
	conn   *store.Connection // nil if no stream needs MongoDB
	stores map[string]streamStore
	queue  *queue.Queue
	log    *slog.Logger
	// unapplied describes the readings in the journal at the start.
	unapplied []journal.Unapplied
	sessions  func() []string // see claim.Config

	claims *claim.Claims // nil if no stream needs MongoDB
	peers  *peers.Peers  // likewise

	catalog   *catalog.Catalog // likewise
	sealer    *seal.Sealer
	staleness *staleness.Watch
	recheck   chan struct{} // receives when a stream's collection may have been replaced

	mu       sync.Mutex
	prepared map[string]error         // by stream: nil while it can store readings
	ready    map[string]chan struct{} // by stream: closed when it was prepared for the first time
}

var errUnprepared = errors.New("its collection has not been checked yet")

// openStorage creates the stores and the queue. The lanes of a stream start when it is
// prepared. MongoDB may be unavailable; uri is empty if no stream needs it. With retarget,
// readings that an earlier process accepted are stored like those of this one.
func (d *daemon) openStorage(uri string, j *journal.Journal, retarget bool) (_ *storage, err error) {
	c := &d.cfg.Settings
	s := &storage{
		stores: make(map[string]streamStore), log: d.log, recheck: make(chan struct{}, 1),
		prepared: make(map[string]error), ready: make(map[string]chan struct{}), sessions: j.Sessions,
	}
	if !retarget {
		s.unapplied = j.Unapplied()
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.disconnect(context.Background()))
		}
	}()
	var database *mongo.Database
	if uri != "" {
		s.conn, err = store.Connect(store.ConnectionConfig{URI: uri, Database: c.Database, Monitor: crash.Monitor(), Logger: d.log, OnFound: s.recheckAll})
		if err != nil {
			return nil, err
		}
		database = s.conn.Database()
		s.claims = claim.New(claim.Config{
			Database: s.conn.ControlDatabase(), Holder: d.holder(), Sessions: j.Sessions, OnLost: j.Lose, LostBefore: j.LostSessions(),
			Unreachable: func() []string { return s.peers.Unreachable() },
			Places:      s.places, Unstored: j.Unstored,
			Logger: d.log, Registerer: d.registry,
		})
		if d.listeners.http != nil { // while a journal is replayed, no daemon can ask for its readings
			if s.peers, err = d.newPeers(s.claims); err != nil {
				return nil, err
			}
		}
	}
	after := make(map[string]time.Duration, len(c.Streams))
	for _, stream := range c.Streams {
		after[stream.Name] = stream.SilentAfter
	}
	s.staleness = staleness.New(staleness.Config{After: after, Logger: d.log, Registerer: d.registry})
	for _, stream := range c.Streams {
		h, err := d.newStore(stream, database, s)
		if err != nil {
			return nil, fmt.Errorf("set up stream %s: %w", stream.Name, err)
		}
		s.stores[stream.Name], s.prepared[stream.Name], s.ready[stream.Name] = h, errUnprepared, make(chan struct{})
	}
	s.catalog = d.newCatalog(s, database)
	streams := make(map[string]queue.Stream)
	for _, stream := range c.Streams {
		streams[stream.Name] = s.queueStream(stream)
	}
	_, lanes := c.queueParts(d.memory)
	s.queue, err = queue.New(queue.Config{
		Journal: j, Streams: streams, Lanes: c.Lanes, MaxBytes: lanes, LimitAge: s.peers.LimitAge,
		DeadLetters: &queue.DeadLetterFile{Path: filepath.Join(c.DataDir, queue.DeadLettersName)},
		Logger:      d.log, Registerer: d.registry,
	})
	if err != nil {
		return nil, fmt.Errorf("set up the queue: %w", err)
	}
	s.staleness.SetKnownUntil(s.queue.KnownUntil)
	s.sealer = d.newSealer(s)
	return s, nil
}

// queueStream returns the queue's configuration of a stream.
func (s *storage) queueStream(stream Stream) queue.Stream {
	h := s.stores[stream.Name]
	out := queue.Stream{
		Store: h, Granularity: stream.Granularity, Policy: stream.policy(), Prepared: s.ready[stream.Name],
		Arrivals: s.staleness.Stream(stream.Name),
	}
	if !inMemory(h) {
		sensors := s.catalog.Stream(stream.Name)
		out.Catalog, out.Store = sensors, sensors.Wrap(s.claims.Guard(h))
	}
	return out
}

// ingestLag is how late updates must be for sealing to slow down.
const ingestLag = 10 // seconds

// newSealer returns the sealer of the bucket streams.
func (d *daemon) newSealer(s *storage) *seal.Sealer {
	streams := make(map[string]seal.Stream)
	for _, stream := range d.cfg.Streams {
		if of, ok := s.stores[stream.Name].(*generation.Store); ok && of.Bucket() != nil {
			streams[stream.Name] = seal.Stream{Store: of.Bucket(), After: stream.SealAfter, Ready: s.ready[stream.Name]}
		}
	}
	return seal.New(seal.Config{
		Streams: streams, Flush: func(ctx context.Context) error { return s.queue.Flush(ctx) }, Busy: func() bool { return s.queue.Status().PastDue > ingestLag }, Logger: d.log, Registerer: d.registry,
	})
}

// newCatalog returns the catalog of sensors; nil if no stream is in MongoDB.
func (d *daemon) newCatalog(s *storage, database *mongo.Database) *catalog.Catalog {
	if database == nil {
		return nil
	}
	streams := make(map[string]catalog.StreamConfig)
	for _, stream := range d.cfg.Streams {
		if h := s.stores[stream.Name]; !inMemory(h) {
			streams[stream.Name] = catalog.StreamConfig{Source: h, Retention: stream.longestRetention(), Ready: s.ready[stream.Name]}
		}
	}
	return catalog.New(catalog.Config{Database: database, Daemon: d.session, Streams: streams, Logger: d.log, Registerer: d.registry})
}

// catalogs returns the catalogs of the streams that have one.
func (s *storage) catalogs() map[string]read.Catalog {
	out := make(map[string]read.Catalog)
	for name, h := range s.stores {
		if !inMemory(h) {
			out[name] = s.catalog.Stream(name)
		}
	}
	return out
}

// holder describes this process to processes that want to claim its sessions, and to
// other daemons.
func (d *daemon) holder() claim.Holder {
	c := &d.cfg.Settings
	host, _ := os.Hostname() // empty if unknown
	h := claim.Holder{
		Host: host, Pid: os.Getpid(), Boot: machine.BootID(), Since: time.Now(),
		Daemon: d.session, Address: d.advertised(), TLS: d.tls != nil, Streams: c.inMongoDB(), Columns: true, LongWindows: true, Generations: true, Moves: true,
		Writes: make(map[string]string),
	}
	for _, stream := range c.Streams {
		if stream.Storage != store.Memory {
			h.Writes[stream.Name] = generation.Target{Storage: stream.Storage, Compressor: stream.Compressor}.String()
		}
	}
	if c.journaling() {
		h.Dir, h.Lock = c.JournalPath(), machine.FileID(journal.LockFile(c.JournalPath()))
	}
	return h
}

func inMemory(h streamStore) bool {
	_, yes := h.(*memory.Store)
	return yes
}

// newStore returns the store of a stream.
func (d *daemon) newStore(s Stream, database *mongo.Database, of *storage) (streamStore, error) {
	switch c := s.inStore(); s.Storage {
	case store.Bucket, store.TimeSeries:
		return generation.New(generation.Config{
			Config: store.Config{
				Database: database, Stream: s.Name, Granularity: s.Granularity,
				Format: c.Format, MaxReadings: c.MaxReadings, MaxBytes: c.MaxBytes, MaxReadingsPerUpdate: c.MaxReadingsPerUpdate,
				Compressor: s.Compressor, Retention: c.Retention, WriteConcern: c.WriteConcern, View: c.View, Duplicates: c.Duplicates, Rollup: s.Rollup, RollupRetention: c.RollupRetention,
				CanReadColumns:     func() bool { return of.peers.All(s.Name, func(h *claim.Holder) bool { return h.Columns }) },
				CanReadLongWindows: func() bool { return of.peers.All(s.Name, func(h *claim.Holder) bool { return h.LongWindows }) },
				OnLost:             of.recheckAll, Logger: d.log, Registerer: d.registry,
			},
			Storage: s.Storage, Earlier: of.earlier(s.Name), Sessions: of.sessions,
			ReadGenerations: func() bool { return of.peers.All(s.Name, func(h *claim.Holder) bool { return h.Generations }) },
		})
	case store.Memory:
		d.log.Warn("a stream is held in memory only: its readings, even acknowledged ones, are lost when this process ends", "stream", s.Name)
		return memory.New(memory.Config{Stream: s.Name, Granularity: s.Granularity, Registerer: d.registry})
	default:
		return nil, fmt.Errorf("storage %q is unknown", s.Storage)
	}
}

// earlier returns, by session, how earlier processes would have stored the stream's readings in
// the journal.
func (s *storage) earlier(stream string) map[string]generation.Target {
	out := make(map[string]generation.Target)
	for _, u := range s.unapplied {
		if u.Stream == stream {
			out[u.Session] = generation.Target{Storage: store.Storage(u.Settings.Storage), Compressor: store.Compressor(u.Settings.Compressor)}
		}
	}
	return out
}

// places returns where the readings of a session are stored, by stream, see claim.Config.
func (s *storage) places(session string) map[string]string {
	out := make(map[string]string)
	for name, of := range s.stores {
		if of, ok := of.(*generation.Store); ok {
			out[name] = of.PlaceOf(session)
		}
	}
	return out
}

// targetOf returns how the readings of a session are stored, see read.Backlog.
func (s *storage) targetOf(stream, session string) string {
	if of, ok := s.stores[stream].(*generation.Store); ok {
		return of.TargetOf(session)
	}
	return ""
}

const (
	// The pause between two attempts to prepare a stream, and the timeout of one.
	firstPause     = 200 * time.Millisecond
	lastPause      = 2 * time.Second
	prepareTimeout = 10 * time.Second
	// recheckEvery is how often prepared collections are checked. This also happens as soon as
	// MongoDB refuses a write because one was dropped or replaced, and when MongoDB becomes
	// available again.
	recheckEvery = 2 * time.Second
)

// keepPrepared prepares all streams, and prepares them again if their collections were dropped or
// replaced, until ctx ends. It calls ready when all are prepared for the first time, and returns an
// error if one can never be.
func (s *storage) keepPrepared(ctx context.Context, ready func()) error {
	ready = sync.OnceFunc(ready)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for pause := firstPause; ; {
		select {
		case <-timer.C:
		case <-s.recheck:
		case <-ctx.Done():
			return nil
		}
		all, err := s.prepareAll(ctx)
		if err != nil || ctx.Err() != nil {
			return err
		}
		if all {
			ready()
			pause = firstPause
			timer.Reset(recheckEvery)
			continue
		}
		timer.Reset(pause)
		pause = min(2*pause, lastPause)
	}
}

// prepareAll prepares the streams that were never prepared, or whose collection is gone, and
// reports whether all are prepared. It skips the latter while MongoDB is unavailable.
func (s *storage) prepareAll(ctx context.Context) (all bool, err error) {
	all = true
	for name, st := range s.stores {
		var err error
		if !s.preparedOnce(name) {
			if err = s.prepareStream(ctx, name); final(err) {
				return false, fmt.Errorf("prepare stream %s: %w", name, err)
			}
		} else if s.readable(name) == nil {
			checking, cancel := context.WithTimeout(ctx, prepareTimeout)
			err = st.CheckPrepared(checking)
			cancel()
			if errors.Is(err, store.ErrNotPrepared) {
				s.note(name, err)
				err = s.prepareStream(ctx, name)
			}
		}
		all = all && err == nil
	}
	return all, nil
}

// prepareStream claims the sessions, and then prepares a stream, which may write.
func (s *storage) prepareStream(parent context.Context, name string) error {
	ctx, cancel := context.WithTimeout(parent, prepareTimeout)
	defer cancel()
	var err error
	if !inMemory(s.stores[name]) {
		err = s.claims.Ensure(ctx)
	}
	if err == nil {
		err = s.stores[name].Prepare(ctx)
	}
	if parent.Err() == nil { // otherwise the error says nothing about the stream
		s.note(name, err)
	}
	return err
}

// anyPrepared reports whether readings of some stream can be stored.
func (s *storage) anyPrepared() bool {
	for name := range s.stores {
		if s.preparedOnce(name) {
			return true
		}
	}
	return false
}

// recheckAll makes keepPrepared check the collections immediately.
func (s *storage) recheckAll() {
	select {
	case s.recheck <- struct{}{}:
	default:
	}
}

// preparedOnce reports whether the stream was ever prepared.
func (s *storage) preparedOnce(stream string) bool {
	select {
	case <-s.ready[stream]:
		return true
	default:
		return false
	}
}

// note records whether a stream is prepared, and logs a change.
func (s *storage) note(stream string, err error) {
	s.mu.Lock()
	before := s.prepared[stream]
	if before != nil && errors.Is(err, store.ErrNotPrepared) {
		err = before // it has the reason
	}
	s.prepared[stream] = err
	s.mu.Unlock()
	switch {
	case err == nil && before == nil:
	case err == nil:
		if !s.preparedOnce(stream) {
			close(s.ready[stream])
		}
		details := []any{"stream", stream}
		if of, ok := s.stores[stream].(*generation.Store); ok {
			details = append(details, "collection", of.Current().Collection)
		}
		s.log.Info("stream is ready", details...)
	case before == nil:
		s.log.Warn("the stream's collection was dropped or replaced; its readings wait until one is prepared", "stream", stream)
	case final(err):
		if s.preparedOnce(stream) && err.Error() != before.Error() { // otherwise the start fails with it, or it was logged before
			s.log.Error("the stream's collection cannot take its readings; they wait", "stream", stream, "err", err)
		}
	case errors.Is(before, errUnprepared), errors.Is(before, store.ErrNotPrepared):
		s.log.Warn("stream waits for MongoDB", "stream", stream, "err", err)
	}
}

// reason returns why a stream cannot store readings; nil: it can.
func (s *storage) reason(stream string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.prepared[stream]
}

// available returns why MongoDB cannot be used now; nil: it can, or is not needed.
func (s *storage) available() error {
	if s.conn == nil {
		return nil
	}
	return s.conn.Available()
}

// readable returns why a stream cannot be read now.
func (s *storage) readable(stream string) error {
	if inMemory(s.stores[stream]) {
		return nil
	}
	return s.available()
}

// up returns a context that ends when the stream's database becomes unavailable.
func (s *storage) up(stream string) context.Context {
	if inMemory(s.stores[stream]) || s.conn == nil {
		return context.Background()
	}
	return s.conn.Up()
}

func (s *storage) sources() map[string]read.Source {
	sources := make(map[string]read.Source, len(s.stores))
	for name, h := range s.stores {
		sources[name] = watchedSource{h, s.staleness.Stream(name)}
	}
	return sources
}

// disconnect releases the claims and closes the connection. Nothing is written any more.
func (s *storage) disconnect(ctx context.Context) error {
	if s.conn == nil {
		return nil
	}
	if s.conn.Available() == nil {
		s.claims.Close(ctx)
	}
	return s.conn.Close(ctx)
}

// watchStaleness runs the detection of silent sensors. It loads the sensors of a stream when
// the stream is prepared.
func (s *storage) watchStaleness(ctx context.Context) {
	s.staleness.Run(ctx, func(ctx context.Context, stream string) iter.Seq2[telemetry.SensorSeen, error] {
		return func(yield func(telemetry.SensorSeen, error) bool) {
			select {
			case <-s.ready[stream]:
			case <-ctx.Done():
				yield(telemetry.SensorSeen{}, ctx.Err())
				return
			}
			s.stores[stream].Sensors(ctx, telemetry.SensorQuery{})(yield)
		}
	})
}

// A watchedSource is a stream's store. It removes deleted sensors from the detection of silent
// ones.
type watchedSource struct {
	read.Source

	staleness *staleness.Stream
}

// Delete implements read.Source.
func (w watchedSource) Delete(ctx context.Context, sensor string) (int64, error) {
	n, err := w.Source.Delete(ctx, sensor)
	if err == nil {
		w.staleness.Forget(sensor)
	}
	return n, err
}
