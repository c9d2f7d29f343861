package generation

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/gofrs/flock"

	"github.com/brim-telemetry/brim/internal/machine"
	"github.com/brim-telemetry/brim/internal/store/claim"
)

// A lease is the exclusive right to move a stream. It is a claim like those of sessions. With a
// lock file, it is known at once that an earlier process on this machine has ended; a process on
// another machine is considered ended when it has not renewed its claim for 20 s.
type lease struct {
	name   string
	claims *claim.Claims
	lock   *flock.Flock
	stop   context.CancelFunc
	done   sync.WaitGroup
}

// leaseRetry is the interval between attempts to get a lease.
const leaseRetry = 500 * time.Millisecond

// acquireLease waits until this process has the lease.
func (m *Mover) acquireLease(ctx context.Context) (*lease, error) {
	path := filepath.Join(os.TempDir(), fmt.Sprintf("brim-move-%d-%016x.lock", os.Getuid(), xxhash.Sum64String(m.cfg.Place+"/"+m.cfg.Database.Name()+"/"+m.cfg.Stream)))
	l := &lease{name: claim.Lease(m.cfg.Stream), lock: flock.New(path, flock.SetPermissions(0o600))}
	host, _ := os.Hostname() // empty if unknown
	holder := claim.Holder{Host: host, Pid: os.Getpid(), Boot: machine.BootID(), Since: time.Now(), Daemon: "brim move"}
	switch locked, err := l.lock.TryLock(); {
	case err != nil: // works without a lock, but takes longer
		l.lock = nil
	case !locked:
		return nil, fmt.Errorf("another `brim move` of stream %q runs on this machine", m.cfg.Stream)
	default:
		holder.Lock = machine.FileID(path)
	}
	l.claims = claim.New(claim.Config{
		Database: m.cfg.Claims, Holder: holder,
		Sessions: func() []string { return []string{l.name} }, OnLost: func(string) error { return nil },
	})
	for {
		err := l.claims.Ensure(ctx)
		var held *claim.HeldError
		switch {
		case err == nil:
			running, stop := context.WithCancel(context.WithoutCancel(ctx))
			l.stop = stop
			l.done.Go(func() { l.claims.Run(running) })
			return l, nil
		case errors.As(err, &held):
			return nil, errors.Join(fmt.Errorf("another `brim move` of stream %q runs: %s", m.cfg.Stream, &held.By), l.unlock())
		}
		m.report("", "", "waiting until no other `brim move` runs")
		if machine.Pause(ctx, leaseRetry) != nil {
			return nil, errors.Join(err, l.unlock())
		}
	}
}

// permit returns nil while this process has the lease.
func (l *lease) permit(ctx context.Context) error {
	err := l.claims.Ensure(ctx)
	var held *claim.HeldError
	if err == nil && errors.As(l.claims.Lost(l.name), &held) {
		err = fmt.Errorf("another process moves the stream now: %s", &held.By)
	}
	return err
}

// end releases the lease.
func (l *lease) end(ctx context.Context) error {
	l.stop()
	l.done.Wait()
	l.claims.Close(context.WithoutCancel(ctx))
	return l.unlock()
}

func (l *lease) unlock() error {
	if l.lock == nil {
		return nil
	}
	return l.lock.Unlock()
}
