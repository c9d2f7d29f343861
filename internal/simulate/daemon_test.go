package simulate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/faulttest"
	"github.com/brim-telemetry/brim/internal/ingest"
	"github.com/brim-telemetry/brim/internal/journal"
	"github.com/brim-telemetry/brim/internal/machine"
	"github.com/brim-telemetry/brim/internal/peers"
	"github.com/brim-telemetry/brim/internal/queue"
	"github.com/brim-telemetry/brim/internal/read"
	"github.com/brim-telemetry/brim/internal/seal"
	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/internal/store/claim"
	"github.com/brim-telemetry/brim/internal/store/generation"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// The streams of every run, which are also collections.
const (
	bucketStream = "buckets"
	seriesStream = "series"
)

const (
	database   = "brim"
	journalDir = "/journal"
)

// settings are a daemon's, as far as runs differ in them.
type settings struct {
	granularity  time.Duration
	kinds        map[string]generation.Target // by stream
	maxReadings  int                          // of a part
	maxBytes     int                          // of a part
	maxPerUpdate int
	policy       queue.Policy
	queueBytes   int64
	journalBytes int64
	segmentBytes int64
	tailBytes    int64
	lanes        int
	heartbeat    time.Duration // of the driver
	pings        bool          // whether it notices that MongoDB has stopped answering
	remembered   int           // buckets that the queue remembers; 0: its default
	columns      bool          // of which buckets are made
	distinct     bool          // identical readings are dropped
	seal         time.Duration // how long after its end a window is packed; 0: never
	retention    time.Duration // of what is accepted; the collections keep all
}

// process is one process of a daemon: the write path and the queries, composed as
// internal/daemon does. It has no console, no doctor, no access rules and no detection of
// silent sensors. Requests, also those of other daemons, are calls of its handler.
type process struct {
	name     string // of its connections
	session  string
	settings settings
	files    *faulttest.Files
	letters  *letters
	log      *slog.Logger
	now      func() time.Time
	metrics  *prometheus.Registry

	journal *journal.Journal
	conn    *store.Connection
	claims  *claim.Claims
	peers   *peers.Peers
	queue   *queue.Queue
	sealer  *seal.Sealer
	ingest  *ingest.Server
	handler http.Handler
	flush   func(ctx context.Context) error

	stores   map[string]*generation.Store
	ready    map[string]chan struct{} // by stream: closed once it is prepared
	recheck  chan struct{}
	cut      context.CancelFunc // ends requests
	requests context.Context    //nolint:containedctx // that of its server
	end      context.CancelFunc
	running  sync.WaitGroup

	serving atomic.Bool              // the handler is there
	known   atomic.Pointer[[]string] // addresses of other daemons that it found last
	closed  chan struct{}            // all goroutines have ended
	err     error                    // why it ended by itself; valid once closed
}

// outside is what a process shares with the simulation.
type outside struct {
	address   string
	uri       string
	dialer    options.ContextDialer
	transport http.RoundTripper
}

// start starts a process, which has a handler once serving is set. It ends when its
// context does, or when the start fails.
func start(ctx context.Context, p *process, o outside) {
	p.closed, p.metrics = make(chan struct{}), prometheus.NewRegistry()
	p.ready = map[string]chan struct{}{bucketStream: make(chan struct{}), seriesStream: make(chan struct{})}
	p.recheck = make(chan struct{}, 1)
	ctx, p.end = context.WithCancel(ctx)
	p.requests, p.cut = context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		defer close(p.closed)
		p.err = p.run(ctx, o)
	}()
}

func (p *process) run(ctx context.Context, o outside) (err error) {
	if err := p.openJournal(o); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	if err := p.openStorage(o); err != nil {
		return err
	}
	if err := p.openHandler(o); err != nil {
		return err
	}
	p.serving.Store(true)
	watched, unwatch := context.WithCancel(ctx)
	defer p.running.Wait()
	defer unwatch()
	for i, do := range []func(context.Context){p.watch, p.claims.Run, p.peers.Run, p.pings, p.sealer.Run} {
		p.running.Go(func() {
			if machine.Pause(watched, time.Duration(1009*(i+1))) == nil { // one after the other: what begins at one instant has no order
				do(watched)
			}
		})
	}
	if err := p.prepare(ctx); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

func (p *process) pings(ctx context.Context) {
	if p.settings.pings {
		p.conn.WatchReplies(ctx)
	}
}

func (p *process) openJournal(o outside) error {
	c := &p.settings
	streams := map[string]journal.Stream{
		bucketStream: {Storage: string(c.kinds[bucketStream].Storage), Compressor: string(c.kinds[bucketStream].Compressor), Target: "mongodb", Granularity: c.granularity},
		seriesStream: {Storage: string(c.kinds[seriesStream].Storage), Compressor: string(c.kinds[seriesStream].Compressor), Target: "mongodb", Granularity: c.granularity},
	}
	var err error
	p.journal, err = journal.Open(journal.Config{
		Dir: journalDir, Session: p.session, Streams: streams, Files: p.files,
		MaxBytes: c.journalBytes, SegmentBytes: c.segmentBytes, TailBytes: c.tailBytes, Now: p.now,
		Logger: p.log, Registerer: p.metrics,
	})
	return err
}

func (p *process) openStorage(o outside) error {
	c := &p.settings
	var err error
	uri := fmt.Sprintf("%s&serverMonitoringMode=poll&heartbeatFrequencyMS=%d", o.uri, c.heartbeat.Milliseconds())
	p.conn, err = store.Connect(store.ConnectionConfig{
		URI: uri, Database: database, Dialer: o.dialer, OnFound: p.recheckAll, Logger: p.log,
	})
	if err != nil {
		return err
	}
	p.claims = claim.New(claim.Config{
		Database: p.conn.ControlDatabase(), Sessions: p.journal.Sessions, OnLost: p.journal.Lose, LostBefore: p.journal.LostSessions(),
		Holder: claim.Holder{
			Host: o.address, Pid: 1, Boot: "boot", Dir: journalDir, Lock: "lock of " + o.address, Since: time.Now(),
			Daemon: p.session, Address: o.address, Streams: []string{bucketStream, seriesStream}, Columns: true, LongWindows: true, Generations: true,
		},
		Unreachable: func() []string { return p.peers.Unreachable() },
		Logger:      p.log, Registerer: p.metrics,
	})
	p.peers = peers.New(peers.Config{
		Address: o.address, Streams: []string{bucketStream, seriesStream}, Live: p.live, Transport: o.transport, Logger: p.log, Registerer: p.metrics,
	})
	earlier := make(map[string]map[string]generation.Target)
	for _, u := range p.journal.Unapplied() {
		if earlier[u.Stream] == nil {
			earlier[u.Stream] = make(map[string]generation.Target)
		}
		earlier[u.Stream][u.Session] = generation.Target{Storage: store.Storage(u.Settings.Storage), Compressor: store.Compressor(u.Settings.Compressor)}
	}
	of := store.Config{
		Database: p.conn.Database(), Granularity: c.granularity, Compressor: c.kinds[bucketStream].Compressor, MaxReadings: c.maxReadings, MaxBytes: c.maxBytes,
		MaxReadingsPerUpdate: c.maxPerUpdate, OnLost: p.recheckAll, Logger: p.log, Registerer: p.metrics,
	}
	if of.Stream = bucketStream; c.columns {
		of.Format = store.Columns
	}
	if c.distinct {
		of.Duplicates = store.DropIdentical
	}
	of.CanReadColumns = func() bool { return p.peers.All(bucketStream, func(h *claim.Holder) bool { return h.Columns }) }
	of.CanReadLongWindows = func() bool { return p.peers.All(bucketStream, func(h *claim.Holder) bool { return h.LongWindows }) }
	knows := func() bool { return p.peers.All(bucketStream, func(h *claim.Holder) bool { return h.Generations }) }
	buckets, err := generation.New(generation.Config{Config: of, Storage: c.kinds[bucketStream].Storage, Earlier: earlier[bucketStream], ReadGenerations: knows})
	if err != nil {
		return err
	}
	of.Stream, of.Compressor = seriesStream, c.kinds[seriesStream].Compressor
	series, err := generation.New(generation.Config{Config: of, Storage: c.kinds[seriesStream].Storage, Earlier: earlier[seriesStream], ReadGenerations: knows})
	if err != nil {
		return err
	}
	seals := make(map[string]seal.Stream)
	if of := buckets.Bucket(); of != nil {
		seals[bucketStream] = seal.Stream{Store: of, After: c.seal, Ready: p.ready[bucketStream]}
	}
	p.sealer = seal.New(seal.Config{
		Streams: seals, Logger: p.log, Registerer: p.metrics,
	})
	p.stores = map[string]*generation.Store{bucketStream: buckets, seriesStream: series}
	streams := make(map[string]queue.Stream)
	for name, s := range p.stores {
		streams[name] = queue.Stream{Store: p.claims.Guard(s), Granularity: c.granularity, Policy: c.policy, Prepared: p.ready[name]}
	}
	p.queue, err = queue.New(queue.Config{
		Journal: p.journal, Streams: streams, Lanes: c.lanes, MaxBytes: c.queueBytes, Remembered: c.remembered, LimitAge: p.peers.LimitAge,
		DeadLetters: p.letters, Logger: p.log, Registerer: p.metrics,
	})
	return err
}

// live is what the peers are told, and notes it.
func (p *process) live(ctx context.Context) ([]claim.Other, error) {
	live, err := p.claims.Others(ctx)
	addresses := make([]string, len(live))
	for i := range live {
		addresses[i] = live[i].Address
	}
	if err == nil {
		p.known.Store(&addresses)
	}
	return live, err
}

func (p *process) openHandler(outside) error {
	c := &p.settings
	in := []ingest.Stream{
		{Name: bucketStream, Storage: string(c.kinds[bucketStream].Storage), Granularity: c.granularity, MaxReadings: c.maxReadings, MaxBytes: int64(c.maxBytes), Retention: c.retention},
		{Name: seriesStream, Storage: string(c.kinds[seriesStream].Storage), Granularity: c.granularity, Retention: c.retention},
	}
	var err error
	p.ingest, err = ingest.New(ingest.Config{
		Streams: in, DefaultStream: bucketStream, Acks: []telemetry.Ack{telemetry.Journaled, telemetry.Stored},
		Available: p.journal.Err, Logger: p.log, Registerer: p.metrics, Now: p.now,
	}, p.journal)
	if err != nil {
		return err
	}
	reader, err := read.New(read.Config{DefaultStream: bucketStream, Daemon: p.session, MaxQueries: 1000, MaxBacklog: 1 << 20, Problem: p.ingest.WriteProblem, Logger: p.log, Registerer: p.metrics})
	if err != nil {
		return err
	}
	p.flush = func(ctx context.Context) error {
		if err := p.queue.Flush(ctx); err != nil {
			return err
		}
		return p.journal.Secure()
	}
	sources := make(map[string]read.Source)
	for name, s := range p.stores {
		sources[name] = s
	}
	reader.Open(read.Stored{
		Sources: sources, Others: p.peers,
		Duplicates: func(string) store.Duplicates {
			if c.distinct {
				return store.DropIdentical
			}
			return store.Keep
		},
		FlushSensor: func(ctx context.Context, stream, sensor string) error {
			if durable, err := p.queue.FlushSensor(ctx, stream, sensor); err != nil || durable {
				return err
			}
			return p.flush(ctx)
		},
		Available: func(string) error { return p.conn.Available() },
		Up:        func(string) context.Context { return p.conn.Up() },
		Backlog: read.Backlog{
			Journal: p.journal, Target: func(stream, session string) string { return p.stores[stream].TargetOf(session) }, WaitingSensors: p.queue.WaitingSensors,
			Waiting: func(stream, sensor string) ([]batch.Ref, uint64) {
				w := p.queue.Waiting(stream, sensor)
				return w.Rows, w.From
			},
			Granularity: func(string) time.Duration { return c.granularity },
		},
	})
	write, answer := p.ingest.Handler(), reader.Handler()
	p.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case read.Serves(r):
			answer.ServeHTTP(w, r)
		case r.URL.Path == peers.ProbePath:
			w.Header().Set(peers.DaemonHeader, p.session)
			w.WriteHeader(http.StatusNoContent)
		default:
			write.ServeHTTP(w, r)
		}
	})
	return nil
}

// Between two attempts to prepare a stream, and between two checks of whether collections exist.
// prepare and watch together do what storage.keepPrepared of internal/daemon does.
const (
	firstPause     = 200 * time.Millisecond
	lastPause      = 5 * time.Second
	prepareTimeout = 10 * time.Second
	standsEvery    = 2 * time.Second
)

// prepare prepares all streams for the first time.
func (p *process) prepare(ctx context.Context) error {
	for _, name := range []string{bucketStream, seriesStream} {
		for pause := firstPause; ; pause = min(2*pause, lastPause) {
			err := p.prepareStream(ctx, name)
			if err == nil {
				close(p.ready[name])
				break
			}
			var held *claim.HeldError
			var mismatch *store.MismatchError
			if errors.As(err, &held) || errors.As(err, &mismatch) {
				return fmt.Errorf("prepare stream %s: %w", name, err)
			}
			if machine.Pause(ctx, pause) != nil {
				return nil //nolint:nilerr // it was told to end
			}
		}
	}
	return nil
}

func (p *process) prepareStream(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, prepareTimeout)
	defer cancel()
	if err := p.claims.Ensure(ctx); err != nil {
		return err
	}
	return p.stores[name].Prepare(ctx)
}

// watch prepares streams again whose collections are gone.
func (p *process) watch(ctx context.Context) {
	timer := time.NewTimer(standsEvery)
	defer timer.Stop()
	for ctx.Err() == nil {
		select {
		case <-timer.C:
		case <-p.recheck:
		case <-ctx.Done():
			return
		}
		if machine.Pause(ctx, time.Microsecond) != nil {
			return
		}
		select {
		case <-p.recheck: // several reasons at one instant
		default:
		}
		timer.Reset(standsEvery)
		for _, name := range []string{bucketStream, seriesStream} {
			select {
			case <-p.ready[name]:
			default:
				continue
			}
			asked, cancel := context.WithTimeout(ctx, prepareTimeout)
			err := p.stores[name].CheckPrepared(asked)
			cancel()
			if errors.Is(err, store.ErrNotPrepared) && p.prepareStream(ctx, name) != nil {
				timer.Reset(firstPause)
			}
		}
	}
}

func (p *process) recheckAll() {
	select {
	case p.recheck <- struct{}{}:
	default:
	}
}

// stopTimeout is how long a process may take to store what it has before it ends.
const stopTimeout = 9 * time.Second

// stop is daemon.stop. If the process was killed, it reaches nothing any more.
func (p *process) stop() error {
	if p.ingest != nil {
		p.ingest.Stop()
	}
	p.journal.Stop()
	ctx, cancel := context.WithTimeout(p.requests, stopTimeout)
	defer cancel()
	if p.queue != nil {
		p.queue.Close(ctx)
	}
	err := p.journal.Close()
	time.Sleep(time.Nanosecond) //nolint:forbidigo // fake time: requests are answered, and not broken off
	p.cut()
	if p.conn != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if p.claims != nil && p.conn.Available() == nil {
			p.claims.Close(ctx)
		}
		// With a deadline the driver polls without a pause while it still reads a late reply,
		// so that no time would pass. A killed process has no connections.
		_ = p.conn.Close(context.WithoutCancel(ctx))
	}
	return err
}

// call answers a request; ok is false if the process broke the answer off.
func (p *process) call(r *http.Request) (answer *httptest.ResponseRecorder, ok bool) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(p.requests, cancel)()
	answer = httptest.NewRecorder()
	if p.requests.Err() != nil { // its listener is closed
		return answer, false
	}
	defer func() {
		if why := recover(); why != nil {
			if why != http.ErrAbortHandler { //nolint:errorlint // a panic's value
				panic(why)
			}
			ok = false
		}
	}()
	p.handler.ServeHTTP(answer, r.WithContext(ctx))
	return answer, ctx.Err() == nil
}

// letters are the dead letters of a daemon. They are durable when Put returns.
type letters struct {
	mu  sync.Mutex
	all []queue.DeadLetter
}

// Put implements queue.DeadLetters.
func (l *letters) Put(letter queue.DeadLetter) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, letter)
	return nil
}
