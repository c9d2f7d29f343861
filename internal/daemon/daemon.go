package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"github.com/brim-telemetry/brim/internal/access"
	"github.com/brim-telemetry/brim/internal/admin"
	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/config"
	"github.com/brim-telemetry/brim/internal/daemon/console"
	"github.com/brim-telemetry/brim/internal/doctor"
	"github.com/brim-telemetry/brim/internal/fault"
	"github.com/brim-telemetry/brim/internal/ingest"
	"github.com/brim-telemetry/brim/internal/mongod"
	"github.com/brim-telemetry/brim/internal/read"
)

// A daemon is what `brim serve` runs. It is made by newDaemon, then listens,
// runs and stops, each once and in this order.
type daemon struct {
	cfg      *Config
	log      *slog.Logger
	level    *slog.LevelVar // of log
	reloads  *reloader      // nil where nobody can ask for a reload
	stderr   io.Writer      // for people: progress, and what to try
	version  Version
	session  string
	faults   *fault.Injector // nil in every program that was not built for tests
	began    time.Time
	registry *prometheus.Registry
	guard    *access.Guard   // nil: nobody is asked, and nothing limited
	tls      *access.TLS     // nil: the listeners speak none
	limits   *access.Limits  // of connections
	known    *batch.Interner // series and shapes, of the door and of what is read from the journal

	supervisor *supervisor // nil where nobody wants to be told

	listeners listeners
	door      *ingest.Door
	inlet     inlet
	reader    *read.Reader
	http      *http.Server
	grpc      *grpc.Server
	admin     *http.Server
	console   *console.Console
	hangUp    context.CancelFunc // ends the requests that are under way
	serving   *errgroup.Group    // the servers; nil before they are started

	journal atomic.Pointer[journalLog]     // nil before it is open
	mongod  atomic.Pointer[mongod.Server]  // nil without an embedded one, and before it runs
	storage atomic.Pointer[storage]        // nil before there is a MongoDB to try
	monitor atomic.Pointer[doctor.Monitor] // nil where and while there is no MongoDB to look at
	looks   atomic.Pointer[looks]          // the console's; nil before they begin
	// following is closed when there is storage, whose lanes follow the journal.
	following chan struct{}
	draining  atomic.Bool
}

// newDaemon puts together what needs no I/O.
func newDaemon(c *Config, log *slog.Logger, o Options) (*daemon, error) {
	injector, err := Faults(o.Env)
	if err != nil {
		return nil, config.Usage(err)
	}
	d := &daemon{
		cfg: c, log: log, stderr: o.Stderr, version: o.Version, faults: injector, following: make(chan struct{}),
		session: batch.NewSession(), began: time.Now(), registry: prometheus.NewRegistry(),
		known: batch.NewInterner(0),
	}
	if injector.Off(fault.NewSession) {
		d.session = "sthesame"
	}
	d.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), d.version.Collector())
	if d.tls, err = d.openTLS(); err != nil {
		return nil, config.Usage(err)
	}
	if d.guard, err = d.openGuard(); err != nil {
		return nil, config.Usage(err)
	}
	d.limits = access.NewLimits(d.registry, d.log, listenerHTTP, listenerGRPC, listenerAdmin)
	if d.door, err = ingest.New(d.doorConfig(), &d.inlet); err != nil {
		return nil, fmt.Errorf("set up the door: %w", err)
	}
	d.inlet.holds = newHolds()
	d.door.SetReady(false) // until there is storage
	if d.console, err = d.newConsole(); err != nil {
		return nil, err
	}
	pages, err := admin.New(admin.Config{
		Gatherer: d.registry, Page: d.console, Parts: d.parts, Status: d.status, Flush: d.flush, Holder: holder{d}, Guard: d.guard, Hosts: c.hosts(c.AdminAddr), Logger: log,
	})
	if err != nil {
		return nil, err
	}
	if d.reader, err = d.newReader(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	d.hangUp = cancel
	d.http = newHTTPServer(ctx, d.sameSite(d.dataHandler()), log)
	d.http.WriteTimeout = answerTimeout
	d.admin = newHTTPServer(ctx, pages, log)
	d.secureHTTP(d.http, d.admin)
	d.grpc = d.door.NewGRPCServer(d.grpcOptions()...)
	return d, nil
}

func (d *daemon) doorConfig() ingest.Config {
	c := d.cfg.Settings
	config := ingest.Config{
		DefaultStream: c.Default.Name,
		MaxBodyBytes:  c.MaxBodyBytes, MaxInflatedBytes: c.MaxInflatedBytes, MaxInflateRatio: int64(c.MaxInflateRatio), MaxReadings: c.MaxReadingsPerRequest,
		MaxBytes: c.ingestBytes(memoryLimit("/")), Connections: d.limits.Open,
		MinTime: c.MinTime, MaxFuture: c.MaxFuture, SensorTag: c.SensorTag,
		Ack: c.Ack, Acks: c.acks(), Available: d.available,
		Version: d.version.Version, Logger: d.log, Registerer: d.registry,
		Interner: d.known, Guard: d.guard,
	}
	if c.MapDots != "" {
		config.MapDots = c.MapDots[0]
	}
	for _, s := range c.Streams {
		config.Streams = append(config.Streams, s.atDoor())
	}
	return config
}

// atDoor is the stream as clients see it; only buckets have caps.
func (s Stream) atDoor() ingest.Stream {
	out := ingest.Stream{
		Name: s.Name, Storage: string(s.Storage), Granularity: s.Granularity, Retention: s.Retention,
		Fields: s.Fields, OtherFields: string(s.OtherFields),
	}
	if s.hasBuckets() {
		out.MaxReadings, out.MaxBytes = s.BucketMaxReadings, int64(s.BucketMaxBytes)
	}
	return out
}

// setStreams gives the door the streams as they are now.
func (d *daemon) setStreams(streams []Stream) error {
	at := make([]ingest.Stream, len(streams))
	for i, s := range streams {
		at[i] = s.atDoor()
	}
	return d.door.SetStreams(at)
}

// current returns the configuration in force; cfg is the one of the start.
func (d *daemon) current() *Config {
	if d.reloads == nil {
		return d.cfg
	}
	return d.reloads.current()
}

// listen binds all addresses and serves them; what comes is refused until
// there is storage. The context that it returns ends with ctx, or when a server
// fails.
func (d *daemon) listen(ctx context.Context) (context.Context, error) {
	most, perAddress, err := d.cfg.connectionLimits(openFiles(), d.log)
	if err != nil {
		return ctx, err
	}
	if err := d.listeners.bind(ctx, &d.cfg.Settings); err != nil {
		return ctx, err
	}
	l := &d.listeners
	if err := l.checkOpen(&d.cfg.Settings, d.guard.Asks(), d.log); err != nil {
		return ctx, err
	}
	d.warnOfUnnamed()
	d.log.Info("listening", "http", l.http.Addr().String(), "grpc", l.grpc.Addr().String(), "admin", l.admin.Addr().String(),
		"tls", d.tls != nil, "asks_for", d.asked())
	d.serving, ctx = errgroup.WithContext(ctx)
	d.serve(d.serving, most, perAddress)
	return ctx, nil
}

// served makes an error of a server's end, unless it was told to end.
func served(what string, err error) error {
	if err == nil || errors.Is(err, http.ErrServerClosed) || errors.Is(err, grpc.ErrServerStopped) {
		return nil
	}
	return fmt.Errorf("serve %s: %w", what, err)
}

// run opens the way in and brings what comes to MongoDB; it returns when ctx
// ends or something goes wrong that will not right itself. With a journal on
// disk readings are taken from the moment when it is open, wherever MongoDB is.
func (d *daemon) run(ctx context.Context) error {
	if err := d.cfg.checkForgotten(); err != nil {
		return err
	}
	j, err := openJournal(&d.cfg.Settings, journalSetup{
		session: d.session, admit: d.admit, faults: d.faults, logger: d.log, registry: d.registry,
		known: d.known,
	})
	if err != nil {
		return err
	}
	d.journal.Store(&j)
	d.inlet.letIn(j)
	if d.cfg.journaling() && ctx.Err() == nil {
		d.door.SetReady(true)
		d.supervisor.takesReadings()
		d.log.Info("journal is open", "dir", d.cfg.JournalPath(), "session", d.session)
	}
	d.look(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	watched, unwatch := context.WithCancel(ctx)
	defer unwatch()
	uri, err := d.findMongoDB(ctx)
	if err != nil {
		return err
	}
	s, err := openStorage(&d.cfg.Settings, storageSetup{uri: uri, journal: j, faults: d.faults, logger: d.log, registry: d.registry})
	if err != nil {
		return err
	}
	d.storage.Store(s)
	d.openReader(j, s)
	watching.Go(func() { watchReplay(watched, j, s.queue, d.log) })
	watching.Go(func() { s.watchStaleness(watched) })
	watching.Go(func() { s.watch(watched) })
	watching.Go(func() { s.watchReplies(watched) })
	watching.Go(func() { s.keepClaims(watched) })
	monitor, err := d.openDoctor(s)
	if err != nil {
		return err
	}
	if monitor != nil {
		d.monitor.Store(monitor)
		watching.Go(func() { monitor.Run(watched) })
	}
	close(d.following)
	if err := s.prepare(ctx); err != nil {
		return err
	}
	s.tellStrangers(ctx)
	if ctx.Err() == nil {
		d.door.SetReady(true)
		d.supervisor.takesReadings()
		d.announce(uri)
	}
	<-ctx.Done()
	return nil
}

// findMongoDB returns the URI to store at, none if no stream needs one. It
// starts the embedded mongod where the operator has not named another.
func (d *daemon) findMongoDB(ctx context.Context) (string, error) {
	c := &d.cfg.Settings
	if !c.needsMongoDB() || c.MongoURI != "" {
		return c.MongoURI, nil
	}
	server, err := mongod.Start(ctx, mongod.Config{
		Bin: c.MongodBin, CacheDir: c.MongodCache, DataDir: c.DataDir, Port: c.MongodPort,
		Compressor: string(c.Default.Compressor), CacheSizeGB: float64(c.MongodCacheSize) / (1 << 30), StopTimeout: c.StopTimeout, Logger: d.log, Progress: d.progress(), Registerer: d.registry,
		Auth: c.MongodAuth == On, Database: c.Database,
	})
	if err != nil {
		return "", fmt.Errorf("start the embedded MongoDB: %w", err)
	}
	d.mongod.Store(server)
	return server.URI(), nil
}

// available tells why no readings can be taken at present.
func (d *daemon) available() error {
	j := d.journal.Load()
	if j == nil {
		return errStarting()
	}
	if err := (*j).Err(); err != nil || d.cfg.journaling() {
		return err
	}
	for _, stream := range d.cfg.Streams {
		if err := d.admit(stream.Name); err != nil {
			return err
		}
	}
	return nil
}

// admit tells why a stream can take no readings where they are not journaled
// on disk.
func (d *daemon) admit(stream string) error {
	s := d.storage.Load()
	if s == nil {
		return errStarting()
	}
	return s.admit(stream)
}

// flush brings to the stores what was taken so far, see admin.Config.
func (d *daemon) flush(ctx context.Context) error {
	if d.journal.Load() == nil {
		return admin.ErrNotReady
	}
	select {
	case <-d.following:
		return d.storage.Load().queue.Flush(ctx)
	case <-ctx.Done():
		return fmt.Errorf("wait for the storage to be opened: %w", ctx.Err())
	}
}
