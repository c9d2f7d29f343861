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

	"github.com/brim-telemetry/brim/internal/config"
	"github.com/brim-telemetry/brim/internal/daemon/console"
)

// A supervisor is the service manager that has started the daemon and expects
// notifications, as systemd does of a unit with Type=notify:
//
//	start ─▶ EXTEND_TIMEOUT_USEC … ─▶ accepts readings: READY=1 ─▶ WATCHDOG=1 … ─▶ stop: STOPPING=1
//	                                      SIGHUP: RELOADING=1 ─▶ READY=1
//
// With each beat goes a STATUS, the line that `systemctl status` shows. The methods of a
// nil supervisor do nothing.
type supervisor struct {
	parts    func() []console.Part // as /readyz shows them
	config   func() ConfigStatus
	notify   func(state string) error
	log      *slog.Logger
	every    time.Duration // from one beat to the next
	watchdog bool          // the daemon is killed if its beats stop

	order    sync.Mutex  // no beat of the start is sent after READY
	ready    atomic.Bool // READY was sent
	stopping atomic.Bool
	deaf     atomic.Bool // sending failed, which is logged once
}

const (
	// beatEvery is how old a status may become.
	beatEvery = 5 * time.Second
	// startsLonger is how much time each beat of a start asks for: on a busy
	// machine some beats come late.
	startsLonger = 6 * beatEvery
	// stopsLonger is how long a stop may go on after --stop-timeout before the process is
	// killed.
	stopsLonger = 10 * time.Second
)

// newSupervisor returns the supervisor named by the environment, nil if there is none.
func newSupervisor(d *daemon, env []string) *supervisor {
	if config.LookupEnv(env, "NOTIFY_SOCKET") == "" {
		return nil
	}
	s := &supervisor{
		parts: d.parts, config: d.reloads.status, log: d.log, every: beatEvery,
		notify: func(state string) error { _, err := sdnotify.SdNotify(false, state); return err },
	}
	within, err := sdnotify.SdWatchdogEnabled(false)
	if err != nil {
		d.log.Warn("cannot notify the watchdog", "err", err)
	}
	if within > 0 {
		s.watchdog, s.every = true, min(beatEvery, within/3)
	}
	return s
}

// start sends beats until ended is called, which waits for the last one.
func (s *supervisor) start() (ended func()) {
	if s == nil {
		return func() {}
	}
	return background(context.Background(), s.run)
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

// beat reports that the daemon is alive. It is if it can list its parts: that takes the
// locks of the journal and of every store, so if one of them is never released the beats
// stop. It waits neither for MongoDB nor for the disk, since a restart would fix neither;
// but a file system that hangs when asked for its free space holds the journal's lock.
func (s *supervisor) beat() {
	states := []string{s.status()}
	if s.watchdog {
		states = append(states, sdnotify.SdNotifyWatchdog)
	}
	s.order.Lock() // only now: listing the parts may hang
	defer s.order.Unlock()
	if !s.ready.Load() && !s.stopping.Load() {
		states = append(states, longer(startsLonger))
	}
	s.send(states...)
}

// acceptsReadings reports that the daemon is ready.
func (s *supervisor) acceptsReadings() {
	if s == nil || s.ready.Load() {
		return
	}
	status := s.status()
	s.order.Lock()
	defer s.order.Unlock()
	s.ready.Store(true)
	s.send(sdnotify.SdNotifyReady, status)
}

// reloads reports that the daemon reloads its configuration; done reports the end. A
// daemon that was not ready before does not become ready by it.
func (s *supervisor) reloads() (done func()) {
	if s == nil || !s.ready.Load() || s.stopping.Load() {
		return func() {}
	}
	s.send(sdnotify.SdNotifyReloading, strings.TrimSpace(sdnotify.SdNotifyMonotonicUsec()))
	return func() { s.send(sdnotify.SdNotifyReady, s.status()) }
}

// stops reports that the daemon stops, and that it may take this long and a little more.
func (s *supervisor) stops(within time.Duration) {
	if s == nil {
		return
	}
	s.stopping.Store(true)
	s.send(sdnotify.SdNotifyStopping, longer(within+stopsLonger), s.status())
}

// longer requests more time than the supervisor allows by default.
func longer(d time.Duration) string { return fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", d.Microseconds()) }

// status is the line for people.
func (s *supervisor) status() string {
	text := inWords(s.parts())
	if c := s.config(); c.Outcome == reloadRefused {
		text += "; the reloaded configuration is invalid, the previous one stays in force"
	}
	return "STATUS=" + strings.ReplaceAll(text, "\n", " ")
}

// inWords is what /readyz answers, in one line.
func inWords(parts []console.Part) string {
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
		return "accepts no readings; " + strings.Join(wrong, "; ")
	case len(waits) > 0:
		return "accepts readings; not ready behind the journal: " + strings.Join(waits, "; ")
	default:
		return "accepts readings and stores them"
	}
}

// send sends several states at once. A failure is no reason to end: the supervisor ends
// the daemon itself if it misses the beats.
func (s *supervisor) send(states ...string) {
	err := s.notify(strings.Join(states, "\n"))
	if err != nil && !s.deaf.Swap(true) {
		s.log.Warn("cannot notify the service manager", "err", err)
	}
}
