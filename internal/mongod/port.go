package mongod

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"syscall"
	"time"
)

const (
	// Ports are drawn from below the range from which systems take the local
	// ports of outgoing connections (from 32768 on Linux, 49152 elsewhere).
	// Otherwise, while mongod is down, a client that tries to connect again
	// can be given mongod's own port as its local one: it then talks to
	// itself and mongod cannot come back.
	firstPort, lastPort = 20_000, 32_767
	portAttempts        = 100
	// portPatience is how long a taken port is waited for.
	portPatience = 2 * time.Second
)

// portFree reports whether mongod could listen there now.
func portFree(ctx context.Context, port int) (bool, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", net.JoinHostPort(loopback, strconv.Itoa(port)))
	if errors.Is(err, syscall.EADDRINUSE) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("listen on port %d: %w", port, err)
	}
	return true, listener.Close()
}

// awaitPort returns whether the port is free, after waiting for it a little: a
// mongod that is ending closes its files before its sockets.
func awaitPort(ctx context.Context, port int) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, portPatience)
	defer cancel()
	tick := time.NewTicker(lookInterval)
	defer tick.Stop()
	for {
		free, err := portFree(context.WithoutCancel(ctx), port)
		if free || err != nil {
			return free, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return false, nil
		}
	}
}

// drawPort returns a port that is free now.
func drawPort(ctx context.Context) (int, error) {
	for range portAttempts {
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		free, err := portFree(ctx, port)
		if err != nil {
			return 0, err
		}
		if free {
			return port, nil
		}
	}
	return 0, fmt.Errorf("find a free port: %d drawn from %d to %d are all taken", portAttempts, firstPort, lastPort)
}
