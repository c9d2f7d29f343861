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
	// Target is http://host:port, https://host:port, grpc://host:port or grpcs://host:port. The
	// default port is 80 for http and 443 for https.
	Target  string
	Stream  string        // empty: the daemon's default stream
	Ack     telemetry.Ack // empty: the daemon's default
	Timeout time.Duration // for a request, and for dialing; 0: 30 s
	Form    wire.Form     // gRPC only; empty: plain
	TLS     *tls.Config   // https and grpcs; nil: the system's certificates
	// Token is sent with every request; empty: none. The caller decides whether it may be sent
	// unencrypted.
	Token string
}

const (
	defaultTimeout      = 30 * time.Second
	userAgent           = "brim-load"
	sendersOfConnection = 16 // senders sharing a gRPC connection; a daemon allows 256 calls on one
)

// Reasons for a failed request, in addition to HTTP status numbers and gRPC code names.
const (
	FailureTimeout    = "timeout"    // no answer came in time; the readings may have been stored
	failureConnection = "connection" // could not be made, or broke
	failureCanceled   = "canceled"   // the run ended first
	failureAnswer     = "answer"     // not a daemon's
)

// A Pool makes Senders to one daemon.
type Pool struct {
	config Config
	target wire.Address

	mu      sync.Mutex
	senders int                // gRPC only
	conns   []*grpc.ClientConn // likewise, dialed on demand
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

// Protocol returns http or grpc.
func (p *Pool) Protocol() string {
	if p.target.GRPC {
		return "grpc"
	}
	return "http"
}

// Check checks that the daemon is reachable: over HTTP that it accepts connections, over gRPC
// that it answers.
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

// Sender returns another Sender. Over HTTP it opens its own connection here, so that no
// request's time includes that; ctx only bounds connecting. Over gRPC sixteen share one.
func (p *Pool) Sender(ctx context.Context) (load.Sender, error) {
	if p.target.GRPC {
		return p.newGRPCSender()
	}
	return p.newHTTPSender(ctx)
}

// Close closes what Senders share. Close the Senders first.
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

// ErrNotGRPC means that something else listens at the address.
var ErrNotGRPC = errors.New("it does not speak gRPC")
