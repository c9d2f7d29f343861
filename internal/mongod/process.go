package mongod

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// process is a running child. A goroutine of its own waits for its end; it
// ends with the child.
type process struct {
	pid    int
	handle *os.Process
	ended  chan struct{} // closed when it has ended
	state  string        // how it ended: "exit status 14", "signal: killed"; read after ended
}

// spawn starts a child whose standard output and error go to the file out.
func spawn(bin string, args []string, out string, dieWithParent bool) (*process, error) {
	// A file and not a pipe: the child may outlive this process, and must
	// still be able to write.
	file, err := os.OpenFile(out, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open mongod's output: %w", err)
	}
	defer func() { _ = file.Close() }()
	// Not ended by a context: mongod is asked first.
	cmd := exec.CommandContext(context.Background(), bin, args...)
	cmd.Stdout, cmd.Stderr = file, file
	cmd.SysProcAttr = attributes(dieWithParent)

	p := &process{ended: make(chan struct{})}
	started := make(chan error)
	go func() {
		// The signal at the parent's death is sent when the thread ends that
		// started the child, so that thread is kept for as long.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		if err == nil {
			p.pid, p.handle = cmd.Process.Pid, cmd.Process
		}
		started <- err
		if err != nil {
			return
		}
		defer close(p.ended)
		p.state = "exit status 0"
		if err := cmd.Wait(); err != nil {
			p.state = err.Error()
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", bin, err)
	}
	return p, nil
}

// alive reports whether the process has not ended.
func (p *process) alive() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// stop asks the process to end and waits for it. When ctx or timeout is over
// it is killed, which is the error.
func (p *process) stop(ctx context.Context, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := p.handle.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("end mongod %d: %w", p.pid, err)
	}
	select {
	case <-p.ended:
		return nil
	case <-ctx.Done():
	}
	if err := p.kill(); err != nil {
		return err
	}
	<-p.ended
	return fmt.Errorf("end mongod %d: killed, since it did not end in time: %w", p.pid, ctx.Err())
}

// kill ends the process at once and does not wait.
func (p *process) kill() error {
	if err := p.handle.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill mongod %d: %w", p.pid, err)
	}
	return nil
}
