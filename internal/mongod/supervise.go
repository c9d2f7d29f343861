package mongod

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/brim-telemetry/brim/internal/machine"
)

const (
	// The pause before mongod is started again doubles from the first to the
	// last, and is the first again for one that ran longer than the last.
	firstPause, lastPause = 100 * time.Millisecond, 30 * time.Second
	// rotateInterval is how often the log's size is looked at.
	rotateInterval = 5 * time.Second
	// stillStarting is when a start is slow enough to be logged: after a
	// crash the journal is replayed, which can take minutes.
	stillStarting = 10 * time.Second
	// startAttempts is how many ports are tried that turn out to be taken
	// after they were seen to be free.
	startAttempts = 5
)

// errPortTaken is a start that failed because of its port.
var errPortTaken = errors.New("the port is taken")

// launchOnFreePort starts mongod on the configured port; without one, on the
// port of the last run, and when that is taken on a new one.
func (s *Server) launchOnFreePort(ctx context.Context) error {
	if s.config.Port != 0 {
		s.port = s.config.Port
		err := s.launch(ctx)
		if errors.Is(err, errPortTaken) {
			return fmt.Errorf("start mongod on port %d: %w; free it, or choose another with --mongod-port (0 for any)", s.port, err)
		}
		return err
	}
	s.port = s.files.recall().Port
	var err error
	for range startAttempts {
		if s.port == 0 {
			if s.port, err = drawPort(ctx); err != nil {
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

// launch starts mongod on s.port and returns when it takes writes. When it
// cannot, no process is left, unless ctx is over: then it is Close's.
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
	if err := s.writeURI(); err != nil { // before there is a user with that password
		return err
	}
	s.logged = size(s.files.log)
	process, err := spawn(s.binary.Path, s.config.args(s.files, s.port), s.files.out, s.config.DieWithParent)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.process = process
	s.mu.Unlock()

	err = s.files.remember(memory{Port: s.port, Pid: process.pid})
	if err == nil {
		err = s.awaitWritable(ctx, process)
	}
	if err == nil {
		s.mu.Lock()
		s.writable = true
		s.mu.Unlock()
		s.metrics.running.Set(1)
		return nil
	}
	if ctx.Err() != nil {
		return err
	}
	if process.alive() {
		return errors.Join(err, process.stop(ctx, s.config.StopTimeout))
	}
	words := lastWords(s.files, s.logged)
	if strings.Contains(words, "Address already in use") {
		return errPortTaken
	}
	return fmt.Errorf("start mongod: it ended with %s: %s (its log is %s)", process.state, words, s.files.log)
}

// errEnded is the cause of a wait that ends because mongod has.
var errEnded = errors.New("mongod ended")

// awaitWritable returns when the process takes writes, has ended, or ctx is
// over. It owns the goroutine that watches the process.
func (s *Server) awaitWritable(ctx context.Context, process *process) error {
	ctx, cancel := context.WithCancelCause(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		slow := time.NewTicker(stillStarting)
		defer slow.Stop()
		for began := time.Now(); ; {
			select {
			case <-process.ended:
				cancel(errEnded)
				return
			case <-ctx.Done():
				return
			case <-slow.C:
				s.log.Warn("mongod is still starting", "pid", process.pid, "for", time.Since(began).Round(time.Second), "log", s.files.log)
			}
		}
	}()
	defer func() {
		cancel(nil)
		<-watched
	}()
	admin, err := connect(ctx, s.port, s.credentials.key)
	if err != nil {
		return err
	}
	defer admin.close()
	if err := admin.awaitWritable(ctx, process.pid, s.config.Standalone); err != nil || !s.config.Auth {
		return err
	}
	if err := admin.admit(ctx, s.credentials, s.config.Database); err != nil {
		return err
	}
	s.nameOthers(ctx, admin)
	return nil
}

// supervise starts mongod again whenever it dies, until ctx is over. It also
// keeps the log small.
func (s *Server) supervise(ctx context.Context) {
	defer close(s.done)
	rotation := time.NewTicker(rotateInterval)
	defer rotation.Stop()
	pause := firstPause
	for started := time.Now(); ; {
		select {
		case <-ctx.Done():
			return
		case <-rotation.C:
			s.rotateLog()
		case <-s.process.ended:
			s.died()
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

// died records a death of a mongod that took writes.
func (s *Server) died() {
	s.mu.Lock()
	s.writable = false
	process := s.process
	s.mu.Unlock()
	s.metrics.running.Set(0)
	s.log.Error("mongod died", "pid", process.pid, "state", process.state,
		"last_words", lastWords(s.files, s.logged), "log", s.files.log)
}

// restart tries until mongod takes writes again or ctx is over, and returns
// the next pause. It is always the same port, so that the URI stays valid.
func (s *Server) restart(ctx context.Context, pause time.Duration) time.Duration {
	for {
		if machine.Pause(ctx, pause) != nil {
			return pause
		}
		pause = min(2*pause, lastPause)
		began := time.Now()
		err := s.launch(ctx)
		if ctx.Err() != nil {
			return pause
		}
		if err == nil {
			s.mu.Lock()
			s.restarts++
			s.mu.Unlock()
			s.metrics.restarts.Inc()
			s.log.Info("mongod takes writes again", "pid", s.Pid(), "took", time.Since(began).Round(time.Millisecond))
			return pause
		}
		s.log.Error("restart mongod", "error", err, "port", s.port, "next_attempt_in", pause)
	}
}

// rotateLog puts a log that has grown too large aside; mongod opens a new one
// on the signal.
func (s *Server) rotateLog() {
	rotated, err := rotate(s.files.log, maxLogBytes)
	if err == nil && rotated {
		s.logged = 0
		err = s.process.reopenLog()
	}
	if err != nil && !errors.Is(err, os.ErrProcessDone) {
		s.log.Warn("rotate mongod's log", "error", err)
	}
}
