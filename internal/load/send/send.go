// Package send sends the load generator's requests to a daemon, over HTTP or gRPC. Each
// Sender of a Pool sends one request at a time and never retries, so that a run counts
// exactly what the daemon received.
package send

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/brim-telemetry/brim/internal/load"
	"github.com/brim-telemetry/brim/pkg/client/wire"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// Config of a Pool.
type Config struct {
	// Target is http://host:port, https://host:port, grpc://host:port or
	// grpcs://host:port. Without a port, http has 80 and https 443.
	Target  string
	Stream  string        // empty: the daemon's default stream
	Ack     telemetry.Ack // empty: the daemon's default
	Timeout time.Duration // of one request, and of a dial; 0: 30 s
	Form    wire.Form     // gRPC only; empty: plain
	TLS     *tls.Config   // https and grpcs; nil: the system's certificates
	// Token is sent with every request; empty: none. The caller decides whether it may
	// be sent unencrypted.
	Token string
}

const (
	defaultTimeout      = 30 * time.Second
	userAgent           = "brim-load"
	sendersOfConnection = 16 // that share one gRPC connection; a daemon allows 256 calls on one
)

// Reasons why a request failed, beside the numbers of HTTP statuses and the names of
// gRPC codes.
const (
	FailureTimeout    = "timeout"    // no answer came in time; the readings may have been stored
	FailureConnection = "connection" // it could not be made, or broke
	FailureCanceled   = "canceled"   // the run ended first
	FailureAnswer     = "answer"     // it was not a daemon's
)

// A Pool makes Senders to one daemon.
type Pool struct {
	config Config
	target wire.Address

	mu      sync.Mutex
	senders int                // gRPC only
	conns   []*grpc.ClientConn // likewise, dialed as senders need them
}

// New checks the target. It does not connect yet.
func New(c Config) (*Pool, error) {
	c.Timeout, c.Form = cmp.Or(c.Timeout, defaultTimeout), cmp.Or(c.Form, wire.Plain)
	t, err := wire.ParseAddress(c.Target)
	if err != nil {
		return nil, err
	}
	return &Pool{config: c, target: t}, nil
}

// Protocol is http or grpc.
func (p *Pool) Protocol() string {
	if p.target.GRPC {
		return "grpc"
	}
	return "http"
}

// Check checks that the daemon can be reached: over HTTP that it accepts connections,
// over gRPC that it answers.
func (p *Pool) Check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, p.config.Timeout)
	defer cancel()
	if p.target.GRPC {
		return p.checkGRPC(ctx)
	}
	conn, err := p.dialHTTP(ctx)
	if err != nil {
		return fmt.Errorf("reach %s: %w", p.target, err)
	}
	return conn.Close()
}

// Sender returns one more Sender. Over HTTP it has its own connection, which is made
// here, so that no request's time includes that; ctx bounds the connecting only. Over
// gRPC sixteen share one.
func (p *Pool) Sender(ctx context.Context) (load.Sender, error) {
	if p.target.GRPC {
		return p.newGRPCSender()
	}
	return p.newHTTPSender(ctx)
}

// Close closes what Senders share. They are closed before, by their owners.
func (p *Pool) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for _, conn := range p.conns {
		errs = append(errs, conn.Close())
	}
	p.conns = nil
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close connections to %s: %w", p.target, err)
	}
	return nil
}

// ErrNotGRPC is the error of an address where something else listens.
var ErrNotGRPC = errors.New("it does not speak gRPC")
