package daemon

import (
	"os"
	"os/signal"
	"syscall"
)

// hangups tells what a SIGHUP means to the daemon. With a configuration file
// it asks for that to be read again. Without one there is nothing to read, and
// it is what it is to most programs, the end; so it is when the terminal that the
// daemon was started on is gone: a daemon that nobody sees any more is not what
// somebody wanted who started it in a terminal. nohup is there for who does.
type hangups struct {
	asked    chan struct{} // a reload is asked for
	file     bool          // there is one
	ignored  bool          // since the start, as by nohup: it never ends the daemon
	terminal bool          // there was one at the start
	stopping bool          // a hangup has ended the daemon
}

func newHangups(from Sources) *hangups {
	return &hangups{
		asked: make(chan struct{}, 1), file: from.file() != "", ignored: signal.Ignored(syscall.SIGHUP), terminal: hasTerminal(),
	}
}

// wanted reports whether SIGHUP is to reach us.
func (h *hangups) wanted() bool { return h != nil && h.file || !signal.Ignored(syscall.SIGHUP) }

// takes reports whether a signal does not end the daemon. A terminal that goes
// often sends two, by the system and by the shell; they end it once.
func (h *hangups) takes(s os.Signal) bool {
	if h == nil || s != syscall.SIGHUP {
		return false
	}
	if h.why() == "" {
		select {
		case h.asked <- struct{}{}:
		default: // a reload that has not begun sees what there is now
		}
		return true
	}
	before := h.stopping
	h.stopping = true
	return before
}

// why says why a hangup ends the daemon, empty if it does not.
func (h *hangups) why() string {
	switch {
	case !h.file:
		return "there is no configuration file to read again (--config)"
	case h.terminal && !h.ignored && !hasTerminal():
		return "the terminal that the daemon was started on is gone"
	default:
		return ""
	}
}

// hasTerminal reports whether this process has a controlling terminal.
func hasTerminal() bool {
	f, err := os.OpenFile("/dev/tty", os.O_RDONLY|syscall.O_NOCTTY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	_ = f.Close() // nothing was written
	return true
}
