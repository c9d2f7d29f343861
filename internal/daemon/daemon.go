// Package daemon is what `brim serve` runs: its configuration, the wiring of the
// packages on the write path, and the life cycle from start to stop.
//
//	--http-addr ─┬─▶ ingest.Server ─▶ daemon ──────▶ journal ─▶ queue.Queue ─┬─ lanes of a stream ─▶ bucket.Store ─────┐
//	--grpc-addr ─┤                    (refuses until   │            ▲        ├─ lanes of a stream ─▶ timeseries.Store ─┼─▶ MongoDB:
//	             │                     it is open) --journal-dir    │        └─ lanes of a stream ─▶ memory.Store      │   --mongo-uri, or
//	             └─▶ read.Reader ◀──────────────────────────────────┼─────────── stored readings ◀────────────────────┘   mongod.Server
//	--admin-addr ─▶ adminPages ─────────────────────────────────────┴─▶ flush, status, readiness, metrics
//
// The listeners start first, so that the start fails if a port is in use, and probes see a
// daemon that is starting. Readings are accepted when the journal is open; the queue starts
// when there is a MongoDB to connect to. A stop goes from left to right: ingest and the
// journal refuse requests, the queue stores what it can, and then the rest ends.
//
// Settings are in settings.go, their sources in config.go, reloading in reload.go, the
// admin listener in admin.go, /status in status.go.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/errgroup"

	"github.com/brim-telemetry/brim/internal/access"
	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/config"
	"github.com/brim-telemetry/brim/internal/daemon/console"
	"github.com/brim-telemetry/brim/internal/doctor"
	"github.com/brim-telemetry/brim/internal/ingest"
	"github.com/brim-telemetry/brim/internal/journal"
	"github.com/brim-telemetry/brim/internal/machine"
	"github.com/brim-telemetry/brim/internal/mongod"
	"github.com/brim-telemetry/brim/internal/mqtt"
	"github.com/brim-telemetry/brim/internal/promapi"
	"github.com/brim-telemetry/brim/internal/read"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// Options are what a daemon gets from its process.
type Options struct {
	Env     []string  // NAME=value
	Stderr  io.Writer // gets the log, and on a terminal a summary for people
	Version Version
}

// Serve runs a daemon until ctx ends or a signal arrives. On SIGHUP it reloads its
// configuration file, if it has one.
func Serve(ctx context.Context, c *Config, o Options) error {
	level := new(slog.LevelVar)
	level.Set(logLevel(c.LogLevel))
	log := newLogger(o.Stderr, level, c.LogFormat)
	stops, hangups := stopSignals(), make(chan os.Signal, 1)
	if c.from.file() != "" {
		stops = slices.DeleteFunc(stops, func(s os.Signal) bool { return s == syscall.SIGHUP })
		signal.Notify(hangups, syscall.SIGHUP)
		defer signal.Stop(hangups)
	}
	running, stopping, release := watchSignals(ctx, log, stops)
	defer release()
	d, err := newDaemon(c, log, o)
	if err != nil {
		return err
	}
	defer limitCollector(d.ingest.Memory)()
	d.level, d.reloads = level, newReloader(d, c.from, hangups)
	d.supervisor = newSupervisor(d, o.Env)
	defer d.supervisor.start()()
	serving, err := d.listen(running)
	if err == nil {
		ended := background(serving, d.reloads.run)
		err = d.run(serving)
		ended()
	}
	if serving.Err() != nil {
		err = nil // the start was interrupted; stop returns the error of a server that failed
	}
	return errors.Join(err, d.stop(stopping))
}

// background runs a function whose context ends with ctx or when end is called, which
// waits for the function to return.
func background(ctx context.Context, run func(context.Context)) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { run(ctx) })
	return func() {
		cancel()
		running.Wait()
	}
}

// ErrTwice means that the daemon got another signal while it was stopping.
var ErrTwice = errors.New("a second signal ended the daemon at once")

// repeatWindow is the time within which a repeated signal counts as one: a key cannot be
// pressed twice that fast.
const repeatWindow = 100 * time.Millisecond

// stopSignals end a command. A hangup ends a daemon only if it has no configuration file to
// reread.
func stopSignals() []os.Signal { return []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP} }

// watchSignals is OnSignals for the given signals, and logs them.
func watchSignals(ctx context.Context, log *slog.Logger, stops []os.Signal) (running, stopping context.Context, release func()) {
	return onSignals(ctx, stops,
		func(s os.Signal) { log.Info("stopping", "signal", s.String()) },
		func(s os.Signal) { log.Warn("stopping at once", "signal", s.String()) })
}

// OnSignals returns two contexts: running ends with ctx or at the first signal, for which soft
// is called; stopping ends at the second, for which hard is called. A third ends the process.
// The same signal repeated immediately counts as one: timeout(1) and some supervisors signal
// both the process and its group. A closed output pipe does not end the process, so that it
// can shut down in order.
func OnSignals(ctx context.Context, soft, hard func(os.Signal)) (running, stopping context.Context, release func()) {
	return onSignals(ctx, stopSignals(), soft, hard)
}

func onSignals(ctx context.Context, stops []os.Signal, soft, hard func(os.Signal)) (running, stopping context.Context, release func()) {
	signals := make(chan os.Signal, 2)
	for _, s := range stops {
		if !signal.Ignored(s) { // by nohup, or in a shell's background job
			signal.Notify(signals, s)
		}
	}
	broken := make(chan os.Signal, 1) // pipes: the write gets an error instead
	signal.Notify(broken, syscall.SIGPIPE)
	running, stop := context.WithCancel(ctx)
	stopping, end := context.WithCancelCause(context.WithoutCancel(ctx))
	ended := background(context.Background(), func(ctx context.Context) {
		handleSignals(signals, ctx.Done(),
			func(s os.Signal) { soft(s); stop() },
			func(s os.Signal) { hard(s); end(ErrTwice) })
		signal.Stop(signals)
	})
	return running, stopping, func() {
		signal.Stop(signals)
		signal.Stop(broken)
		ended()
		stop()
		end(nil)
	}
}

// handleSignals calls the next action for each signal, until all were called or done is closed.
func handleSignals(signals <-chan os.Signal, done <-chan struct{}, actions ...func(os.Signal)) {
	var last os.Signal
	var at time.Time // of last
	for len(actions) > 0 {
		select {
		case s := <-signals:
			if s == last && (s == syscall.SIGHUP || time.Since(at) < repeatWindow) { // a closed terminal hangs up twice
				continue
			}
			last, at = s, time.Now()
			actions[0](s)
			actions = actions[1:]
		case <-done:
			return
		}
	}
}

// newLogger returns a logger. Its output is the same on a terminal and in a file.
func newLogger(w io.Writer, level slog.Leveler, format string) *slog.Logger {
	options := &slog.HandlerOptions{Level: level}
	if format == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}

// logLevel returns the level of that name.
func logLevel(name string) slog.Level {
	var l slog.Level
	if err := l.UnmarshalText([]byte(name)); err != nil {
		return slog.LevelInfo
	}
	return l
}

// A daemon is what `brim serve` runs. newDaemon, listen, run and stop are called once
// each, in this order.
type daemon struct {
	cfg      *Config
	inForce  atomic.Pointer[Config] // never modified
	log      *slog.Logger
	level    *slog.LevelVar // of log
	reloads  *reloader      // nil without reloading
	stderr   io.Writer      // progress and commands to try, for the terminal
	version  Version
	session  string
	began    time.Time
	memory   uint64 // the memory limit at the start; 0: none
	registry *prometheus.Registry
	guard    *access.Guard   // nil: no authentication and no quota
	tls      *access.TLS     // nil: no TLS
	limits   *access.Limits  // of connections
	known    *batch.Interner // series and shapes, shared by ingest and the journal

	supervisor *supervisor // nil without a service manager

	listeners      listeners
	ingest         *ingest.Server
	reader         *read.Reader
	promapi        *promapi.API
	http           *http.Server
	grpc           *http.Server
	admin          *http.Server
	console        *console.Console
	endConsole     func()             // nil before it samples
	endWatch       func()             // of the access file and the certificates; nil before run
	cancelRequests context.CancelFunc // cancels the requests in flight
	serving        *errgroup.Group    // the servers; nil before they are started

	journal atomic.Pointer[journal.Journal] // nil before it is open
	mongod  atomic.Pointer[mongod.Server]   // nil without an embedded one, and before it runs
	storage atomic.Pointer[storage]         // nil before there is a MongoDB to connect to
	monitor atomic.Pointer[doctor.Monitor]  // nil without a MongoDB, and before storage

	subscribers atomic.Pointer[[]*mqtt.Subscriber] // nil before they are started
	// storageOpen is closed when storage is open and its lanes follow the journal.
	storageOpen chan struct{}
	draining    atomic.Bool
}

// newDaemon builds what needs no I/O.
func newDaemon(c *Config, log *slog.Logger, o Options) (*daemon, error) {
	d := &daemon{
		cfg: c, log: log, stderr: o.Stderr, version: o.Version, storageOpen: make(chan struct{}),
		session: batch.NewSession(), began: time.Now(), registry: prometheus.NewRegistry(),
		known: batch.NewInterner(0),
	}
	d.memory = memoryLimit("/")
	d.inForce.Store(c)
	var err error
	d.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), d.version.Collector())
	if d.tls, err = d.openTLS(); err != nil {
		return nil, config.Usage(err)
	}
	if d.guard, err = d.openGuard(); err != nil {
		return nil, config.Usage(err)
	}
	d.limits = access.NewLimits(d.registry, d.log, listenerHTTP, listenerGRPC, listenerAdmin)
	if d.ingest, err = ingest.New(d.ingestConfig(), d); err != nil {
		return nil, fmt.Errorf("set up ingest: %w", err)
	}
	d.ingest.SetReady(false) // until there is storage
	d.console = d.newConsole()
	if d.reader, err = d.newReader(); err != nil {
		return nil, err
	}
	if d.promapi, err = d.newPromAPI(); err != nil {
		return nil, err
	}
	pages := adminPages{
		gatherer: d.registry, page: d.console, sensors: d.reader.UnguardedHandler(), parts: d.parts, status: d.status, flush: d.flush, seal: d.seal,
		guard: d.guard, hosts: c.hosts(c.AdminAddr), log: log,
	}
	ctx, cancel := context.WithCancel(context.Background())
	d.cancelRequests = cancel
	d.http = newHTTPServer(ctx, d.sameSite(d.dataHandler()), log)
	d.http.WriteTimeout = answerTimeout + c.StoredTimeout
	d.admin = newHTTPServer(ctx, pages.handler(), log)
	d.grpc = d.ingest.GRPCServer(d.tls.Config("h2"))
	return d, nil
}

func (d *daemon) ingestConfig() ingest.Config {
	c := d.cfg.Settings
	config := ingest.Config{
		DefaultStream: c.Default.Name,
		MaxBodyBytes:  c.MaxBodyBytes, MaxInflatedBytes: c.MaxInflatedBytes, MaxInflateRatio: int64(c.MaxInflateRatio), MaxReadings: c.MaxReadingsPerRequest,
		MaxBytes: c.ingestBytes(d.memory, machine.CPUs()), Connections: d.limits.Open,
		MinTime: c.MinTime, MaxFuture: c.MaxFuture, SensorTag: c.SensorTag,
		Ack: c.Ack, Acks: c.acks(), Available: d.available,
		Version: d.version.Version, Logger: d.log, Registerer: d.registry,
		Interner: d.known, Guard: d.guard,
	}
	if c.MapDots != "" {
		config.MapDots = c.MapDots[0]
	}
	for _, s := range c.Streams {
		config.Streams = append(config.Streams, s.forIngest())
	}
	return config
}

// forIngest is the stream as clients see it; only buckets have caps.
func (s Stream) forIngest() ingest.Stream {
	out := ingest.Stream{
		Name: s.Name, Storage: string(s.Storage), Granularity: s.Granularity, Retention: s.Retention,
		Fields: s.Fields, OtherFields: string(s.OtherFields),
	}
	if s.hasBuckets() {
		out.MaxReadings, out.MaxBytes = s.BucketMaxReadings, int64(s.BucketMaxBytes)
	}
	return out
}

// current returns the configuration in force; cfg is the one at the start.
func (d *daemon) current() *Config { return d.inForce.Load() }

// listen binds all addresses and serves them; requests are refused until run has opened
// the journal. The context that it returns ends with ctx, or when a server fails.
func (d *daemon) listen(ctx context.Context) (context.Context, error) {
	most, perAddress, err := d.cfg.connectionLimits(openFiles(), d.log)
	if err != nil {
		return ctx, err
	}
	if err := d.listeners.bind(ctx, &d.cfg.Settings); err != nil {
		return ctx, err
	}
	l := &d.listeners
	if err := l.checkOpen(&d.cfg.Settings, d.guard.Authenticates(), d.log); err != nil {
		return ctx, err
	}
	d.warnOfUnmappedCertificates()
	d.log.Info("listening", "http", l.http.Addr().String(), "grpc", l.grpc.Addr().String(), "admin", l.admin.Addr().String(),
		"tls", d.tls != nil, "authentication", d.authentication())
	d.serving, ctx = errgroup.WithContext(ctx)
	d.serve(d.serving, most, perAddress)
	return ctx, nil
}

// run opens the journal and the storage. It returns when ctx ends, or with an error that does
// not go away by itself. With a journal on disk, readings are accepted once it is open, even
// if MongoDB is unavailable.
func (d *daemon) run(ctx context.Context) error {
	var watching sync.WaitGroup
	defer watching.Wait()
	watched, unwatch := context.WithCancel(ctx)
	defer unwatch()
	// Until the listeners are closed, because a token may be revoked while they accept requests.
	d.endWatch = background(context.WithoutCancel(ctx), func(ctx context.Context) { access.Watch(ctx, d.guard, d.tls) })
	if err := d.cfg.checkForgotten(); err != nil {
		return err
	}
	j, err := d.openJournal(false)
	if err != nil {
		return err
	}
	d.journal.Store(j)
	if d.cfg.journaling() && ctx.Err() == nil {
		d.ingest.SetReady(true)
		d.supervisor.reportReady()
		d.log.Info("journal is open", "dir", d.cfg.JournalPath(), "session", d.session)
	}
	if err := d.subscribe(); err != nil {
		return err
	}
	// The console runs until stop has stored all accepted readings, when its metrics matter
	// most.
	d.endConsole = background(context.WithoutCancel(ctx), d.console.Run)
	uri, err := d.findMongoDB(ctx)
	if err != nil {
		return err
	}
	s, err := d.openStorage(uri, j, false)
	if err != nil {
		return err
	}
	d.storage.Store(s)
	d.openReader(j, s)
	watching.Go(func() { watchReplay(watched, j, s.queue, d.log) })
	watching.Go(func() { s.watchStaleness(watched) })
	watching.Go(func() { s.catalog.Run(watched) })
	watching.Go(func() { s.sealer.Run(watched) })
	watching.Go(func() { s.peers.Run(watched) })
	if s.conn != nil {
		watching.Go(func() { s.conn.WatchReplies(watched) })
		watching.Go(func() { s.claims.Run(watched) })
	}
	monitor, err := d.openDoctor(s)
	if err != nil {
		return err
	}
	if monitor != nil {
		d.monitor.Store(monitor)
		watching.Go(func() { monitor.Run(watched) })
	}
	close(d.storageOpen)
	return s.keepPrepared(ctx, func() {
		d.ingest.SetReady(true)
		d.supervisor.reportReady()
		d.announce(uri)
	})
}

// findMongoDB returns the MongoDB URI; empty if no stream needs one. It starts the embedded
// mongod if no URI is configured.
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

// openedJournal returns the journal, or an error until it is open.
func (d *daemon) openedJournal() (*journal.Journal, error) {
	if j := d.journal.Load(); j != nil {
		return j, nil
	}
	return nil, errStarting()
}

func errStarting() error {
	e := telemetry.Errorf(telemetry.Unavailable, "starting", "the daemon is starting; nothing was accepted, send the request again")
	e.RetryAfter = time.Second
	return e
}

// Append implements ingest.Journal. It refuses requests until the journal is open.
func (d *daemon) Append(ctx context.Context, b *batch.Batch, r batch.Request) (batch.Receipt, error) {
	j, err := d.openedJournal()
	if err != nil {
		return batch.Receipt{}, err
	}
	return j.Append(ctx, b, r)
}

// Repeat implements ingest.Journal like Append.
func (d *daemon) Repeat(ctx context.Context, r batch.Request) (batch.Receipt, error) {
	j, err := d.openedJournal()
	if err != nil {
		return batch.Receipt{}, err
	}
	return j.Repeat(ctx, r)
}

// available returns why no readings can be accepted now.
func (d *daemon) available() error {
	j, err := d.openedJournal()
	if err != nil {
		return err
	}
	if err := j.Err(); err != nil || d.cfg.journaling() {
		return err
	}
	for _, stream := range d.cfg.Streams {
		if err := d.admit(stream.Name); err != nil {
			return err
		}
	}
	return nil
}

// admit returns why a stream can accept no readings without a journal on disk.
func (d *daemon) admit(stream string) error {
	s := d.storage.Load()
	if s == nil {
		return errStarting()
	}
	if err := s.readable(stream); err != nil {
		return err
	}
	if err := s.reason(stream); err != nil {
		return fmt.Errorf("stream %s: %w", stream, err)
	}
	return nil
}

// flush implements adminPages.flush.
func (d *daemon) flush(ctx context.Context) error {
	if d.journal.Load() == nil {
		return errNotReady
	}
	select {
	case <-d.storageOpen:
		return d.storage.Load().queue.Flush(ctx)
	case <-ctx.Done():
		return fmt.Errorf("wait for the storage to be opened: %w", ctx.Err())
	}
}

// announce reports that the daemon is ready: in a log line, and on a terminal with commands to
// try.
func (d *daemon) announce(uri string) {
	scheme := d.scheme() + "://"
	http, page := scheme+reachable(d.listeners.http), scheme+reachable(d.listeners.admin)+"/"
	token := ""
	if d.guard.Authenticates() {
		token = " --oauth2-bearer $BRIM_TOKEN"
	}
	// The log quotes the text, so that it must not contain quotation marks.
	try := fmt.Sprintf("curl %s/write%s -d 's-1 t=23.5'", http, token)
	d.log.Info("ready", "took", time.Since(d.began).Round(time.Millisecond), "session", d.session, "page", page, "try", try)
	if !config.IsTerminal(d.stderr) {
		return
	}
	where := "in memory only"
	if uri != "" {
		where = fmt.Sprintf("%s  database %s, collection %s", config.MaskURI(uri), d.cfg.Database, d.cfg.Default.Name)
	}
	if server := d.mongod.Load(); server != nil {
		where += fmt.Sprintf("\n  mongosh         mongosh \"$(cat %s)\"", config.ShellWord(server.URIFile()))
	}
	_, _ = fmt.Fprintf(d.stderr, `
  Brim %s is ready.

  live page       %s
  HTTP            %s   gRPC %s
  authentication  %s
  storage         %s

  Try:
    %s
    %s query --url %s s-1

`, d.version.Version, page, http, reachable(d.listeners.grpc), d.authentication(), where, try, os.Args[0], http)
}

// progress returns the writer for the progress of long preparations: a terminal, or the log.
func (d *daemon) progress() io.Writer {
	if config.IsTerminal(d.stderr) {
		return d.stderr
	}
	return lineLogger{d.log}
}

// lineLogger logs the lines that are written to it.
type lineLogger struct{ log *slog.Logger }

func (l lineLogger) Write(p []byte) (int, error) {
	for line := range strings.Lines(string(p)) {
		if line = strings.TrimSpace(line); line != "" {
			l.log.Info("preparing", "step", line)
		}
	}
	return len(p), nil
}

// The parts of --stop-timeout, 15 s by default. If MongoDB is unavailable, the flush uses up
// its part; the other three tenths are for mongod, which takes one to three seconds to stop
// after heavy writing.
const (
	flushPart    = 0.6
	requestsPart = 0.1
)

// stop refuses requests, stores accepted readings, and ends everything that the daemon has
// started, even if the start failed. When ctx ends, it stops storing.
func (d *daemon) stop(ctx context.Context) error {
	begin := time.Now()
	left, cancel := context.WithTimeout(ctx, d.current().StopTimeout)
	defer cancel()
	d.draining.Store(true)
	d.supervisor.reportStopping(d.current().StopTimeout)
	d.unsubscribe(left)
	d.ingest.Stop()
	errs := []error{d.drain(left)}
	d.endRequests(left)
	d.disconnect(left)
	if d.endConsole != nil {
		d.endConsole() // not before, since it shows metrics of mongod
	}
	if server := d.mongod.Load(); server != nil {
		if err := server.Close(left); err != nil {
			errs = append(errs, fmt.Errorf("stop the embedded MongoDB: %w", err))
		}
	}
	errs = append(errs, d.admin.Close(), d.listeners.close())
	if d.serving != nil {
		errs = append(errs, d.serving.Wait())
	}
	if d.endWatch != nil {
		d.endWatch()
	}
	d.cancelRequests()
	if err := context.Cause(ctx); err != nil {
		errs = append([]error{err}, errs...)
	}
	level := slog.LevelInfo
	if d.serving == nil {
		level = slog.LevelDebug // it never ran; the error says why
	}
	d.log.Log(context.Background(), level, "stopped", "took", time.Since(begin).Round(time.Millisecond))
	return errors.Join(errs...)
}

// drain stores accepted readings, as far as there is time, and closes the journal, which
// answers the requests that still wait.
func (d *daemon) drain(ctx context.Context) error {
	j, s := d.journal.Load(), d.storage.Load()
	if j == nil {
		return nil
	}
	j.Stop()
	left := 0
	if s != nil {
		within := time.Duration(flushPart * float64(d.current().StopTimeout))
		ctx, cancel := context.WithTimeout(ctx, within)
		defer cancel()
		if waiting := s.queue.Status().Readings; !s.anyPrepared() {
			cancel() // and none will be
		} else if waiting > 0 {
			d.log.Info("storing readings before stopping", "readings", waiting, "within", within)
		}
		left = s.queue.Close(ctx)
	}
	var errs []error
	if err := j.Close(); err != nil {
		errs = append(errs, fmt.Errorf("close the journal: %w", err))
	}
	switch {
	case left > 0 && errors.Is(j.Err(), journal.ErrGone):
		errs = append(errs, fmt.Errorf("stop with %d readings not known to be stored, and %w; they are lost, unless %s was moved: then run `brim journal replay --journal-dir` with its new path",
			left, journal.ErrGone, d.cfg.JournalPath()))
	case left > 0 && d.cfg.journaling():
		d.log.Info("readings stay in the journal and are stored after the next start", "readings", left)
	case left > 0:
		errs = append(errs, fmt.Errorf("stop with %d readings not known to be stored; none of them was acknowledged", left))
	}
	return errors.Join(errs...)
}

// disconnect closes the connections to MongoDB before an embedded mongod ends. If the server
// is gone, the driver waits until the timeout.
func (d *daemon) disconnect(ctx context.Context) {
	s := d.storage.Load()
	if s == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if err := s.disconnect(ctx); err != nil {
		d.log.Debug("disconnect from MongoDB", "err", err)
	}
}

// endRequests lets requests in flight get their answers, then ends the servers for
// readings and queries.
func (d *daemon) endRequests(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(requestsPart*float64(d.current().StopTimeout)))
	defer cancel()
	var servers sync.WaitGroup
	for what, server := range map[string]*http.Server{"HTTP requests": d.http, "gRPC calls": d.grpc} {
		servers.Go(func() {
			if err := server.Shutdown(ctx); err != nil {
				d.log.Warn("requests were cut off", "requests", what, "err", err)
				_ = server.Close() // its error adds nothing
			}
		})
	}
	servers.Wait()
	d.ingest.Wait()
}
