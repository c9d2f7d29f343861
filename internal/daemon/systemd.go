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

// A supervisor notifies the service manager that started the daemon, as systemd expects of a
// unit with Type=notify:
//
//	start ─▶ EXTEND_TIMEOUT_USEC … ─▶ accepts readings: READY=1 ─▶ WATCHDOG=1 … ─▶ stop: STOPPING=1
//	                                      SIGHUP: RELOADING=1 ─▶ READY=1
//
// Each beat includes a STATUS, the line that `systemctl status` shows. The methods of a nil
// supervisor do nothing.
type supervisor struct {
	parts    func() []console.Part // as /readyz shows them
	config   func() ConfigStatus
	notify   func(state string) error
	log      *slog.Logger
	every    time.Duration // between two beats
	watchdog bool          // the daemon is killed if its beats stop

	order        sync.Mutex  // no beat of the start is sent after READY
	ready        atomic.Bool // READY was sent
	stopping     atomic.Bool
	notifyFailed atomic.Bool // sending failed, which is logged once
}

const (
	// beatEvery is the maximum age of a status.
	beatEvery = 5 * time.Second
	// startExtension is the timeout that each beat of a start requests. It is longer than
	// beatEvery, because beats may be late on a busy machine.
	startExtension = 6 * beatEvery
	// stopExtension is the time after --stop-timeout until the service manager kills the
	// process.
	stopExtension = 10 * time.Second
)

// newSupervisor returns a supervisor for the service manager in the environment; nil if there is
// none.
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

// start sends beats until end is called, which waits for the last one.
func (s *supervisor) start() (end func()) {
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

// beat reports that the daemon is alive. Listing the parts takes the locks of the journal and
// of every store, so beats stop if one of them is never released. It waits neither for
// MongoDB nor for the disk, since a restart would fix neither, with one exception: a file
// system that hangs when it is asked for its free space blocks the journal's lock.
func (s *supervisor) beat() {
	states := []string{s.status()}
	if s.watchdog {
		states = append(states, sdnotify.SdNotifyWatchdog)
	}
	s.order.Lock() // not before, since listing the parts may hang
	defer s.order.Unlock()
	if !s.ready.Load() && !s.stopping.Load() {
		states = append(states, extendTimeout(startExtension))
	}
	s.send(states...)
}

// reportReady reports that the daemon is ready.
func (s *supervisor) reportReady() {
	if s == nil || s.ready.Load() {
		return
	}
	status := s.status()
	s.order.Lock()
	defer s.order.Unlock()
	s.ready.Store(true)
	s.send(sdnotify.SdNotifyReady, status)
}

// reportReloading reports that the daemon reloads its configuration, and done that it has. It
// reports nothing if the daemon is not ready.
func (s *supervisor) reportReloading() (done func()) {
	if s == nil || !s.ready.Load() || s.stopping.Load() {
		return func() {}
	}
	s.send(sdnotify.SdNotifyReloading, strings.TrimSpace(sdnotify.SdNotifyMonotonicUsec()))
	return func() { s.send(sdnotify.SdNotifyReady, s.status()) }
}

// reportStopping reports that the daemon is stopping, and how long that may take.
func (s *supervisor) reportStopping(within time.Duration) {
	if s == nil {
		return
	}
	s.stopping.Store(true)
	s.send(sdnotify.SdNotifyStopping, extendTimeout(within+stopExtension), s.status())
}

// extendTimeout returns a request for more time than the service manager's default.
func extendTimeout(d time.Duration) string {
	return fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", d.Microseconds())
}

// status returns the STATUS line.
func (s *supervisor) status() string {
	text := summary(s.parts())
	if c := s.config(); c.Outcome == reloadRefused {
		text += "; the reloaded configuration is invalid, the previous one stays in force"
	}
	return "STATUS=" + strings.ReplaceAll(text, "\n", " ")
}

// summary returns the answer of /readyz as one line.
func summary(parts []console.Part) string {
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

// send sends several states at once. An error is only logged: if beats are missing, the service
// manager ends the daemon.
func (s *supervisor) send(states ...string) {
	err := s.notify(strings.Join(states, "\n"))
	if err != nil && !s.notifyFailed.Swap(true) {
		s.log.Warn("cannot notify the service manager", "err", err)
	}
}
