package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	sdnotify "github.com/coreos/go-systemd/v22/daemon"

	"github.com/brim-telemetry/brim/internal/admin"
	"github.com/brim-telemetry/brim/internal/config"
)

// A supervisor is the service manager that has started the daemon and wants to
// be told how it is, as systemd does of a unit with Type=notify:
//
//	start ─▶ EXTEND_TIMEOUT_USEC … ─▶ takes readings: READY=1 ─▶ WATCHDOG=1 … ─▶ stop: STOPPING=1
//	                                      SIGHUP: RELOADING=1 ─▶ READY=1
//
// With each beat goes a STATUS, the line that `systemctl status` shows. A nil
// supervisor is told nothing.
type supervisor struct {
	parts    func() []admin.Part // as /readyz shows them
	config   func() ConfigStatus
	tell     func(state string) error
	log      *slog.Logger
	every    time.Duration // from one beat to the next
	watchdog bool          // a daemon whose beats stay out is ended

	order    sync.Mutex  // no beat of a start is told after READY
	ready    atomic.Bool // it was told so
	stopping atomic.Bool
	deaf     atomic.Bool // it could not be told, which is logged once
}

const (
	// beatEvery is how old a status may become.
	beatEvery = 5 * time.Second
	// startsLonger is how much time each beat of a start asks for: on a busy
	// machine some beats come late.
	startsLonger = 6 * beatEvery
	// stopsLonger is how long a stop may go on after --stop-timeout, which ends
	// the waiting, before the process is killed.
	stopsLonger = 10 * time.Second
)

// newSupervisor returns who wants to be told about d; nil if the environment
// names nobody.
func newSupervisor(d *daemon, env []string) *supervisor {
	if config.LookupEnv(env, "NOTIFY_SOCKET") == "" {
		return nil
	}
	s := &supervisor{
		parts: d.parts, config: d.reloads.status, log: d.log, every: beatEvery,
		tell: func(state string) error { _, err := sdnotify.SdNotify(false, state); return err },
	}
	within, err := sdnotify.SdWatchdogEnabled(false)
	if err != nil {
		d.log.Warn("the watchdog is not told that the daemon lives", "err", err)
	}
	if within > 0 {
		s.watchdog, s.every = true, min(beatEvery, within/3)
	}
	return s
}

// start tells the supervisor how things are until ended is called, which waits
// for the last time.
func (s *supervisor) start() (ended func()) {
	if s == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { s.run(ctx) })
	return func() {
		cancel()
		running.Wait()
	}
}

func (s *supervisor) run(ctx context.Context) {
	beats := time.NewTicker(s.every)
	defer beats.Stop()
	for {
		s.beat()
		select {
		case <-beats.C:
		case <-ctx.Done():
			return
		}
	}
}

// beat tells that the daemon lives. It does live when it can say how its parts
// are: that goes through the locks of the journal and of every store, so where
// one of them is never given back the beats end. MongoDB and what is written to
// the disk are not waited for, since a restart would mend neither; but a file
// system that does not even say how much is free keeps the journal's.
func (s *supervisor) beat() {
	states := []string{s.status()}
	if s.watchdog {
		states = append(states, sdnotify.SdNotifyWatchdog)
	}
	s.order.Lock() // not for longer: the parts may never answer
	defer s.order.Unlock()
	if !s.ready.Load() && !s.stopping.Load() {
		states = append(states, longer(startsLonger))
	}
	s.send(states...)
}

// takesReadings tells that the daemon is ready.
func (s *supervisor) takesReadings() {
	if s == nil || s.ready.Load() {
		return
	}
	status := s.status()
	s.order.Lock()
	defer s.order.Unlock()
	s.ready.Store(true)
	s.send(sdnotify.SdNotifyReady, status)
}

// reloads tells that the daemon reads its configuration again; done tells that
// it has. A daemon that was not ready before is not by that.
func (s *supervisor) reloads() (done func()) {
	if s == nil || !s.ready.Load() || s.stopping.Load() {
		return func() {}
	}
	s.send(sdnotify.SdNotifyReloading, strings.TrimSpace(sdnotify.SdNotifyMonotonicUsec()))
	return func() { s.send(sdnotify.SdNotifyReady, s.status()) }
}

// stops tells that the daemon ends, and that it may take this long and a little
// more.
func (s *supervisor) stops(within time.Duration) {
	if s == nil {
		return
	}
	s.stopping.Store(true)
	s.send(sdnotify.SdNotifyStopping, longer(within+stopsLonger), s.status())
}

// longer asks for more time than the supervisor gives by itself.
func longer(d time.Duration) string { return fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", d.Microseconds()) }

// status is the line for people.
func (s *supervisor) status() string {
	text := inWords(s.parts())
	if c := s.config(); c.Outcome == reloadRefused {
		text += "; the configuration was read again and is wrong, what was in force before still is"
	}
	return "STATUS=" + strings.ReplaceAll(text, "\n", " ")
}

// inWords says in a line what /readyz says.
func inWords(parts []admin.Part) string {
	var wrong, waits []string
	for _, p := range parts {
		switch {
		case p.Ready:
		case p.Optional:
			waits = append(waits, p.Name+": "+p.Reason)
		default:
			wrong = append(wrong, p.Name+": "+p.Reason)
		}
	}
	switch {
	case len(wrong) > 0:
		return "takes no readings; " + strings.Join(wrong, "; ")
	case len(waits) > 0:
		return "takes readings; not ready behind the journal: " + strings.Join(waits, "; ")
	default:
		return "takes readings and stores them"
	}
}

// send tells several things at once. A supervisor that does not hear is no
// reason to end: it ends the daemon itself if it misses the beats.
func (s *supervisor) send(states ...string) {
	err := s.tell(strings.Join(states, "\n"))
	if err != nil && !s.deaf.Swap(true) {
		s.log.Warn("the service manager cannot be told how the daemon is", "err", err)
	}
}
