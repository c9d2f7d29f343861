// Package mongod runs the daemon's own mongod: it finds one on the machine or
// installs the pinned one, starts it on loopback as a replica set of one member,
// restarts it when it dies, and stops it.
//
//	Start ── Obtain: --mongod-bin, PATH, the cache, or an installation
//	  │
//	  ├─ lock the data directory, end a mongod that a killed daemon left behind
//	  ├─ launch: spawn, connect, initiate or move the replica set, wait for writes
//	  └─ supervise ──── launch again, after a pause, whenever mongod dies
//	        │
//	Close ──┘ stop: SIGTERM, then SIGKILL
//
// It runs on Unix. The installation is for Linux on x86-64 only.
package mongod

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gofrs/flock"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/brim-telemetry/brim/internal/machine"
)

// Config says which mongod to run, on which files and with which settings. DataDir must
// be set for Start; everything else has a default.
type Config struct {
	// Bin is the mongod to run: an executable, or a script that execs one.
	// Empty: the one on PATH, then the one in the cache, then an installed one.
	Bin string
	// CacheDir holds installed mongods. Empty: $XDG_CACHE_HOME/brim, or brim
	// below os.UserCacheDir.
	CacheDir string
	// DataDir is the daemon's data directory. mongod's files are in its
	// subdirectory mongod.
	DataDir string
	// Port on 127.0.0.1. 0: the port of the last run if it is free, or any.
	Port int
	// Compressor of new collections: snappy, zstd or none. Empty: snappy.
	Compressor string
	// CacheSizeGB of WiredTiger. 0 leaves it to mongod, which respects the limits
	// of a container: half of (memory - 1 GiB), at least 0.25.
	CacheSizeGB float64
	// OplogSizeMB takes effect in a new data directory only. 0: 1,024. mongod's
	// own default, up to 50 GB, is meant for members that have to catch up.
	OplogSizeMB int
	// CheckpointInterval in whole seconds. 0: mongod's own, 60 s. It is set by
	// --syncdelay, because mongod 6.0 ignores the parameter.
	CheckpointInterval time.Duration
	// EngineConfig is passed to WiredTiger unchanged.
	EngineConfig string
	// Parameters are further --setParameter options; they override the defaults.
	Parameters map[string]string
	// Auth makes mongod require authentication. URI then carries a user with the
	// rights that the daemon needs, and the file at URIFile one with all rights.
	// Both are reset at each start; existing data needs no preparation.
	Auth bool
	// Database is the one that the daemon's user may access. Required with Auth.
	Database string
	// Standalone runs mongod without a replica set, for tests and experiments.
	Standalone bool
	// DieWithParent kills mongod when this process ends in any way, for tests. A
	// daemon's mongod outlives it, and the next daemon stops it cleanly. Linux only.
	DieWithParent bool
	// StopTimeout is how long a clean stop may take before mongod is killed. 0: 10 s.
	StopTimeout time.Duration

	Logger     *slog.Logger          // nil: none
	Progress   io.Writer             // of an installation; nil: none
	Registerer prometheus.Registerer // nil: no metrics
}

const (
	// replicaSet is stored in the data files, so it must never change.
	replicaSet = "brim"
	loopback   = "127.0.0.1"
)

// withDefaults fills in the defaults. Callers have checked the values; mongod refuses the others,
// and the error of Start has its reason.
func (c Config) withDefaults() Config {
	c.Compressor = cmp.Or(c.Compressor, "snappy")
	c.OplogSizeMB = cmp.Or(c.OplogSizeMB, 1024)
	c.StopTimeout = cmp.Or(c.StopTimeout, 10*time.Second)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	if c.Progress == nil {
		c.Progress = io.Discard
	}
	return c
}

// cacheDir is where installed mongods are.
func (c Config) cacheDir() (string, error) {
	if c.CacheDir != "" {
		return filepath.Abs(c.CacheDir)
	}
	dir := os.Getenv("XDG_CACHE_HOME")
	if !filepath.IsAbs(dir) {
		var err error
		if dir, err = os.UserCacheDir(); err != nil {
			return "", fmt.Errorf("find the cache directory: %w", err)
		}
	}
	return filepath.Join(dir, "brim"), nil
}

// args are mongod's arguments.
func (c Config) args(f files, port int) []string {
	args := []string{
		"--dbpath", f.db,
		"--logpath", f.log, "--logappend", "--logRotate", "reopen",
		"--bind_ip", loopback, "--port", strconv.Itoa(port), "--nounixsocket",
		"--quiet", // or each connection adds two lines to the log
		"--wiredTigerCollectionBlockCompressor", c.Compressor,
	}
	if c.CacheSizeGB > 0 {
		args = append(args, "--wiredTigerCacheSizeGB", fmt.Sprint(c.CacheSizeGB))
	}
	if c.CheckpointInterval > 0 {
		args = append(args, "--syncdelay", strconv.Itoa(int(c.CheckpointInterval/time.Second)))
	}
	if c.EngineConfig != "" {
		args = append(args, "--wiredTigerEngineConfigString", c.EngineConfig)
	}
	if !c.Standalone {
		args = append(args, "--replSet", replicaSet, "--oplogSize", strconv.Itoa(c.OplogSizeMB))
	}
	parameters := map[string]string{
		// Keeping five minutes of old versions of every bucket, for snapshot reads
		// that the daemon does not make, would cost a third of the write rate.
		"minSnapshotHistoryWindowInSeconds": "0",
		// Up to 200 MB of recordings for MongoDB's support; the daemon's
		// metrics and doctor have the same figures.
		"diagnosticDataCollectionEnabled": "false",
		// No other member could take over, so there is nothing to wait for.
		"shutdownTimeoutMillisForSignaledShutdown": "0",
	}
	if c.Auth {
		args = append(args, "--keyFile", f.key)
		// The users are created with the key file. Until then, no other local
		// process may create the first one.
		parameters["enableLocalhostAuthBypass"] = "false"
	}
	maps.Copy(parameters, c.Parameters)
	for _, name := range slices.Sorted(maps.Keys(parameters)) {
		args = append(args, "--setParameter", name+"="+parameters[name])
	}
	return args
}

// Server is a mongod that is kept running until Close. Its methods may be called
// from any goroutine.
type Server struct {
	config      Config
	binary      Binary
	files       files
	port        int
	credentials credentials
	lock        *flock.Flock
	log         *slog.Logger
	running     prometheus.Gauge
	restarted   prometheus.Counter

	cancel context.CancelFunc // ends supervise
	done   chan struct{}      // closed when supervise has ended

	logged int64 // size of the log before the last start; owned by Start, then by supervise

	process    atomic.Pointer[Process] // the last one started; nil before the first
	writable   atomic.Bool             // it has accepted writes
	restarts   atomic.Int64
	otherUsers atomic.Pointer[[]string] // see OtherUsers; nil: unknown
	closing    sync.Once
	closeErr   error
}

// Start finds or installs a mongod, starts it, and returns when it accepts writes.
// ctx bounds the start only; Close ends the server.
func Start(ctx context.Context, config Config) (*Server, error) {
	config = config.withDefaults()
	binary, err := Obtain(ctx, config)
	if err != nil {
		return nil, err
	}
	files, err := openFiles(config.DataDir)
	if err != nil {
		return nil, err
	}
	lock, err := files.lockDir()
	if err != nil {
		return nil, err
	}
	run, cancel := context.WithCancel(context.Background())
	metrics := promauto.With(config.Registerer)
	s := &Server{
		config: config, binary: binary, files: files, lock: lock, log: config.Logger, cancel: cancel, done: make(chan struct{}),
		running: metrics.NewGauge(prometheus.GaugeOpts{
			Name: "brim_mongod_running", Help: "Whether the embedded mongod accepts writes (1), or is down or starting (0).",
		}),
		restarted: metrics.NewCounter(prometheus.CounterOpts{
			Name: "brim_mongod_restarts_total", Help: "How often the embedded mongod died and was restarted.",
		}),
	}
	if err := s.firstStart(ctx); err != nil {
		close(s.done)
		// Even if the caller gave up, mongod is stopped cleanly.
		return nil, errors.Join(err, s.Close(context.WithoutCancel(ctx)))
	}
	go s.supervise(run)
	return s, nil
}

// firstStart starts mongod for the first time.
func (s *Server) firstStart(ctx context.Context) error {
	began := time.Now()
	err := s.files.stopOrphan(ctx, s.config.StopTimeout, s.log)
	if err == nil && s.config.Auth {
		s.credentials, err = s.files.credentials()
	}
	if err == nil {
		err = s.launchOnFreePort(ctx)
	}
	if err != nil {
		return err
	}
	s.log.Info("mongod accepts writes", "version", s.binary.Version, "path", s.binary.Path, "port", s.port,
		"authentication", s.config.Auth, "uri_file", s.files.uri, "pid", s.Pid(), "took", time.Since(began).Round(time.Millisecond))
	return nil
}

// URI is for clients in this process, with the daemon's password if mongod
// requires one. It stays the same for the server's lifetime. Clients find the
// primary by the replica set's name, so they wait through a restart.
func (s *Server) URI() string { return s.uriOf(daemonUser, s.credentials.daemon, "") }

// URIFile is the path of the file with the URI for people and other processes,
// with the owner's password if mongod requires one. Only this process's user can
// read it.
func (s *Server) URIFile() string { return s.files.uri }

// RequiresAuth reports whether mongod requires authentication.
func (s *Server) RequiresAuth() bool { return s.config.Auth }

// DBPath is the directory of mongod's data files.
func (s *Server) DBPath() string { return s.files.db }

// Version of the mongod, such as 6.0.5.
func (s *Server) Version() string { return s.binary.Version }

// OtherUsers are the users, at most 20, other than the daemon's two at the last
// start of a mongod with authentication, such as "ann@admin (root@admin)". They may
// have been created while mongod did not require authentication.
func (s *Server) OtherUsers() []string {
	if users := s.otherUsers.Load(); users != nil {
		return *users
	}
	return nil
}

// Pid of the running process; 0 while there is none.
func (s *Server) Pid() int {
	if p := s.process.Load(); p != nil && p.alive() {
		return p.Pid
	}
	return 0
}

// Running reports whether mongod has accepted writes and has not died since.
func (s *Server) Running() bool { return s.writable.Load() && s.process.Load().alive() }

// Restarts is how often mongod died and was restarted.
func (s *Server) Restarts() int { return int(s.restarts.Load()) }

// Kill ends the process at once, as a crash would; it is restarted.
func (s *Server) Kill() error {
	if p := s.process.Load(); p != nil {
		return p.Kill()
	}
	return nil
}

// Close stops mongod cleanly. When ctx or the stop timeout ends first, it kills
// mongod and returns an error; the data is safe either way. No process and no
// goroutine is left. Further calls return what the first did.
func (s *Server) Close(ctx context.Context) error {
	s.closing.Do(func() { s.closeErr = s.close(ctx) })
	return s.closeErr
}

func (s *Server) close(ctx context.Context) error {
	s.cancel()
	<-s.done
	s.writable.Store(false)
	var err error
	if process := s.process.Load(); process != nil {
		began := time.Now()
		if err = process.stop(ctx, s.config.StopTimeout); err == nil {
			s.log.Info("mongod stopped", "took", time.Since(began).Round(time.Millisecond))
		}
	}
	if s.config.Registerer != nil { // another server of this process may register its own
		s.config.Registerer.Unregister(s.running)
		s.config.Registerer.Unregister(s.restarted)
	}
	if s.port != 0 {
		err = errors.Join(err, s.files.saveLastRun(lastRun{Port: s.port}))
	}
	return errors.Join(err, s.lock.Unlock())
}

const (
	// The pause before a restart doubles from the first to the last, and starts
	// over for a mongod that ran longer than the last.
	firstPause, lastPause = 100 * time.Millisecond, 30 * time.Second
	// rotateInterval is how often the size of the log is checked.
	rotateInterval = 5 * time.Second
	// slowStart is logged: after a crash mongod replays its journal, which can
	// take minutes.
	slowStart = 10 * time.Second
	// startAttempts is how many of the chosen ports may turn out to be taken.
	startAttempts = 5
)

var (
	errPortTaken = errors.New("the port is taken")
	errEnded     = errors.New("mongod ended") // cause of a wait that its end cut short
)

// launchOnFreePort starts mongod on the configured port; if there is none, on the
// port of the last run, and if that is taken, on a new one.
func (s *Server) launchOnFreePort(ctx context.Context) error {
	if s.config.Port != 0 {
		s.port = s.config.Port
		err := s.launch(ctx)
		if errors.Is(err, errPortTaken) {
			return fmt.Errorf("start mongod on port %d: %w; free it, or choose another with --mongod-port (0 for any)", s.port, err)
		}
		return err
	}
	s.port = s.files.loadLastRun().Port
	var err error
	for range startAttempts {
		if s.port == 0 {
			if s.port, err = pickPort(ctx); err != nil {
				return err
			}
		}
		if err = s.launch(ctx); !errors.Is(err, errPortTaken) {
			return err
		}
		s.log.Info("mongod's port is taken, drawing another", "port", s.port)
		s.port = 0
	}
	return err
}

// launch starts mongod on s.port and returns when it accepts writes. On failure no
// process is left, unless ctx has ended: then Close stops it.
func (s *Server) launch(ctx context.Context) error {
	free, err := awaitPort(ctx, s.port)
	if err != nil {
		return err
	}
	if !free {
		return errPortTaken
	}
	if _, err := rotate(s.files.log, maxLogBytes); err != nil {
		return err
	}
	if err := s.writeURI(); err != nil { // before a user has that password
		return err
	}
	s.logged = size(s.files.log)
	process, err := Spawn(s.binary.Path, s.config.args(s.files, s.port), s.files.out, s.config.DieWithParent)
	if err != nil {
		return err
	}
	s.process.Store(process)
	err = s.files.saveLastRun(lastRun{Port: s.port, Pid: process.Pid})
	if err == nil {
		err = s.awaitWritable(ctx, process)
	}
	if err == nil {
		s.writable.Store(true)
		s.running.Set(1)
		return nil
	}
	if ctx.Err() != nil {
		return err
	}
	if process.alive() {
		return errors.Join(err, process.stop(ctx, s.config.StopTimeout))
	}
	reason := exitReason(s.files, s.logged)
	if strings.Contains(reason, "Address already in use") {
		return errPortTaken
	}
	return fmt.Errorf("start mongod: it ended with %s: %s (its log is %s)", process.State, reason, s.files.log)
}

// awaitWritable returns when the process accepts writes, has ended, or ctx ends.
func (s *Server) awaitWritable(ctx context.Context, process *Process) error {
	ctx, cancel := context.WithCancelCause(ctx)
	began := time.Now()
	slow := time.AfterFunc(slowStart, func() {
		s.log.Warn("mongod is still starting", "pid", process.Pid, "for", time.Since(began).Round(time.Second), "log", s.files.log)
	})
	defer slow.Stop()
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel(nil)
	watching.Go(func() {
		select {
		case <-process.Ended:
			cancel(errEnded)
		case <-ctx.Done():
		}
	})
	admin, err := connect(ctx, s.port, s.credentials.key)
	if err != nil {
		return err
	}
	defer admin.close()
	if err := admin.awaitWritable(ctx, s.files.db, s.config.Standalone); err != nil || !s.config.Auth {
		return err
	}
	if err := admin.setUsers(ctx, s.credentials, s.config.Database); err != nil {
		return err
	}
	others, err := admin.otherUsers(ctx)
	if err != nil {
		s.log.Warn("list the other users of the embedded mongod", "err", err) // no reason not to start
	} else if len(others) > 0 {
		s.log.Warn("the embedded mongod has users that are not the daemon's; drop those that you did not create, with mongosh and db.getSiblingDB(DATABASE).dropUser(NAME)",
			"users", others, "at_most", maxOtherUsers, "uri_file", s.files.uri)
	}
	s.otherUsers.Store(&others)
	return nil
}

// supervise restarts mongod whenever it dies, until ctx ends, and rotates its log.
func (s *Server) supervise(ctx context.Context) {
	defer close(s.done)
	rotation := time.NewTicker(rotateInterval)
	defer rotation.Stop()
	pause := firstPause
	for started := time.Now(); ; {
		process := s.process.Load()
		select {
		case <-ctx.Done():
			return
		case <-rotation.C:
			s.rotateLog()
		case <-process.Ended:
			s.writable.Store(false)
			s.running.Set(0)
			s.log.Error("mongod died", "pid", process.Pid, "state", process.State, "reason", exitReason(s.files, s.logged), "log", s.files.log)
			if time.Since(started) > lastPause {
				pause = firstPause
			}
			if pause = s.restart(ctx, pause); ctx.Err() != nil {
				return
			}
			started = time.Now()
		}
	}
}

// restart retries until mongod accepts writes again or ctx ends, and returns the
// next pause. The port stays the same to keep the URI valid.
func (s *Server) restart(ctx context.Context, pause time.Duration) time.Duration {
	for machine.Pause(ctx, pause) == nil {
		pause = min(2*pause, lastPause)
		began := time.Now()
		err := s.launch(ctx)
		if ctx.Err() != nil {
			break
		}
		if err == nil {
			s.restarts.Add(1)
			s.restarted.Inc()
			s.log.Info("mongod accepts writes again", "pid", s.Pid(), "took", time.Since(began).Round(time.Millisecond))
			break
		}
		s.log.Error("restart mongod", "err", err, "port", s.port, "next_attempt_in", pause)
	}
	return pause
}

// rotateLog renames a log that has grown too large, and signals mongod to open a
// new one.
func (s *Server) rotateLog() {
	rotated, err := rotate(s.files.log, maxLogBytes)
	if err == nil && rotated {
		s.logged = 0
		err = s.process.Load().reopenLog()
	}
	if err != nil && !errors.Is(err, os.ErrProcessDone) {
		s.log.Warn("rotate mongod's log", "err", err)
	}
}
