// Package mongod runs a mongod of the daemon's own: it finds one on the
// machine or installs the pinned one, starts it on loopback as a replica set
// of one member, starts it again when it dies, and stops it.
//
//	Start ── find ── install (when there is none)
//	  │
//	  ├─ own the data directory, end what a killed daemon left behind
//	  ├─ launch: spawn, connect, initiate or move the set, wait for writes
//	  └─ supervise ──── launch again, after a pause, whenever it dies
//	        │
//	Close ──┘ stop: ask, then kill
//
// It runs on Unix; the installation is for Linux on x86-64 alone.
package mongod

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/gofrs/flock"
)

// Server is a mongod that is kept running until Close. Its methods may be
// called from any goroutine.
type Server struct {
	config      Config
	binary      Binary
	files       files
	port        int
	credentials credentials
	lock        *flock.Flock
	metrics     *metrics
	log         *slog.Logger

	cancel context.CancelFunc // ends supervise
	done   chan struct{}      // closed when supervise has ended

	logged int64 // the log's size before the last start; of Start, then of supervise

	mu       sync.Mutex
	process  *process // the last that was started; nil before the first
	writable bool     // it has been seen to take writes
	restarts int
	others   []OtherUser
	closing  sync.Once
	closeErr error
}

// Start finds or installs a mongod, starts it and returns when it takes
// writes. ctx bounds the start alone; Close ends the server.
func Start(ctx context.Context, config Config) (*Server, error) {
	if config.DataDir == "" {
		return nil, errors.New("check mongod settings: data directory is missing")
	}
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	binary, err := obtain(ctx, config)
	if err != nil {
		return nil, err
	}
	files, err := openFiles(config.DataDir)
	if err != nil {
		return nil, err
	}
	lock, err := files.own()
	if err != nil {
		return nil, err
	}
	metrics, err := newMetrics(config.Registerer)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("register metrics: %w", err), lock.Unlock())
	}
	run, cancel := context.WithCancel(context.Background())
	s := &Server{
		config: config, binary: binary, files: files, lock: lock, metrics: metrics, log: config.Logger,
		cancel: cancel, done: make(chan struct{}),
	}
	if err := s.first(ctx); err != nil {
		close(s.done)
		// A caller that gave up still gets its mongod stopped in good order.
		return nil, errors.Join(err, s.Close(context.WithoutCancel(ctx)))
	}
	go s.supervise(run)
	return s, nil
}

// first starts mongod for the first time.
func (s *Server) first(ctx context.Context) error {
	began := time.Now()
	if err := s.files.endLeftOver(ctx, s.config.StopTimeout, s.log); err != nil {
		return err
	}
	if s.config.Auth {
		c, err := s.files.credentials()
		if err != nil {
			return err
		}
		s.credentials = c
	}
	if err := s.launchOnFreePort(ctx); err != nil {
		return err
	}
	s.log.Info("mongod takes writes", "version", s.binary.Version, "path", s.binary.Path, "port", s.port,
		"authentication", s.config.Auth, "uri_file", s.files.uri, "pid", s.Pid(), "took", time.Since(began).Round(time.Millisecond))
	return nil
}

// URI for clients in this process, with the daemon's password where mongod asks
// for one. It stays the same for as long as the server exists. Clients find the
// primary by the set's name, and so wait through a restart in place of failing
// on a member that is not primary yet.
func (s *Server) URI() string { return s.uriOf(daemonUser, s.credentials.daemon, "") }

// URIFile is the path of the file with the URI for people and other processes,
// with the owner's password where mongod asks for one. Only the user of this
// process can read it.
func (s *Server) URIFile() string { return s.files.uri }

// Asks reports whether mongod asks for passwords.
func (s *Server) Asks() bool { return s.credentials.asked() }

// DBPath is the folder that has the mongod's files.
func (s *Server) DBPath() string { return s.files.db }

// Version of the mongod, as in 6.0.5.
func (s *Server) Version() string { return s.binary.Version }

// Pid of the process that runs now; 0 while there is none.
func (s *Server) Pid() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process == nil || !s.process.alive() {
		return 0
	}
	return s.process.pid
}

// Running reports whether mongod took writes when it was last looked at, and
// has not died since.
func (s *Server) Running() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writable && s.process.alive()
}

// Restarts is how often mongod died and was started again.
func (s *Server) Restarts() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.restarts
}

// Kill ends the process at once, as a crash would; it is started again.
func (s *Server) Kill() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process == nil {
		return nil
	}
	return s.process.kill()
}

// Close stops mongod in good order, and kills it when ctx or the stop timeout
// is over, which is an error; the data is safe either way. No process and no
// goroutine is left. Further calls return what the first did.
func (s *Server) Close(ctx context.Context) error {
	s.closing.Do(func() { s.closeErr = s.close(ctx) })
	return s.closeErr
}

func (s *Server) close(ctx context.Context) error {
	s.cancel()
	<-s.done
	s.mu.Lock()
	process := s.process
	s.writable = false
	s.mu.Unlock()
	var err error
	if process != nil {
		began := time.Now()
		if err = process.stop(ctx, s.config.StopTimeout); err == nil {
			s.log.Info("mongod stopped", "took", time.Since(began).Round(time.Millisecond))
		}
	}
	s.metrics.unregister()
	if s.port != 0 {
		err = errors.Join(err, s.files.remember(memory{Port: s.port}))
	}
	return errors.Join(err, s.lock.Unlock())
}
