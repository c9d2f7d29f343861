// Package send takes the load generator's requests to a daemon, over HTTP or
// gRPC. A Pool knows the daemon and how to speak to it; each of its Senders has
// one request under way at a time and never tries again, so that what a run
// counts is what the daemon was asked.
package send

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/brim-telemetry/brim/internal/load"
	"github.com/brim-telemetry/brim/pkg/client/encode"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// Form is how readings are laid out in a gRPC message. HTTP has one form.
type Form = encode.Form

// The forms of gRPC messages.
const (
	Plain   = encode.Plain
	Compact = encode.Compact
)

// ParseForm returns the form that s names.
func ParseForm(s string) (Form, error) { return encode.ParseForm(s) }

// Config is what New needs.
type Config struct {
	// Target is http://host:port, https://host:port, grpc://host:port or
	// grpcs://host:port. Without a port, http has 80 and https 443.
	Target string
	Stream string        // empty: the daemon's default stream
	Ack    telemetry.Ack // empty: the daemon's default
	// Connections is how many Senders there will be at most. Each has its own
	// connection over HTTP; over gRPC sixteen share one.
	Connections int
	Timeout     time.Duration // of one request, and of a dial; 0: 30 s
	Form        Form          // gRPC only; empty: plain
	TLS         *tls.Config   // https and grpcs; nil: the system's certificates
	// Token is shown with every request; empty: none. Whether it may travel in
	// clear to the target is the caller's to say.
	Token string
}

const (
	defaultTimeout      = 30 * time.Second
	maxConnections      = 100_000
	sendersOfConnection = 16 // that share one gRPC connection; a daemon allows 256 calls on one
)

// Reasons why a request was not taken, beside the numbers of HTTP statuses and
// the names of gRPC codes.
const (
	FailureTimeout    = "timeout"    // the answer did not come in time; the readings may have been taken
	FailureConnection = "connection" // it could not be made, or broke
	FailureCanceled   = "canceled"   // the run ended first
	FailureAnswer     = "answer"     // it was not one that a daemon gives
)

// A Pool makes Senders to one daemon.
type Pool struct {
	config Config
	target target

	mu      sync.Mutex
	senders int
	conns   []*grpc.ClientConn // gRPC only, dialed as senders need them
}

// New checks the configuration; it does not yet speak to the daemon.
func New(c Config) (*Pool, error) {
	if c.Timeout == 0 {
		c.Timeout = defaultTimeout
	}
	if c.Form == "" {
		c.Form = Plain
	}
	t, err := parseTarget(c.Target)
	if err != nil {
		return nil, err
	}
	if _, err := ParseForm(string(c.Form)); err != nil {
		return nil, err
	}
	if c.Ack != "" {
		if _, err := telemetry.ParseAck(string(c.Ack)); err != nil {
			return nil, err
		}
	}
	switch {
	case c.Connections < 1 || c.Connections > maxConnections:
		return nil, fmt.Errorf("connections %d is out of range; allowed are 1 to %d", c.Connections, maxConnections)
	case c.Timeout < 0:
		return nil, fmt.Errorf("timeout %s is negative", c.Timeout)
	}
	return &Pool{config: c, target: t}, nil
}

// Protocol is http or grpc.
func (p *Pool) Protocol() string { return p.target.protocol() }

// Check reports whether the daemon can be reached: over HTTP that it takes
// connections, over gRPC that it answers.
func (p *Pool) Check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, p.config.Timeout)
	defer cancel()
	if p.target.grpc {
		return p.checkGRPC(ctx)
	}
	conn, err := p.dialHTTP(ctx)
	if err != nil {
		return fmt.Errorf("reach %s: %w", p.target, err)
	}
	return conn.Close()
}

// Sender returns one more Sender, which is connected when its first request
// does not fail. Over HTTP its connection is made here, so that no request's
// time holds it, and ends with ctx; what is sent does not.
func (p *Pool) Sender(ctx context.Context) (load.Sender, error) {
	p.mu.Lock()
	n := p.senders
	if n == p.config.Connections {
		p.mu.Unlock()
		return nil, fmt.Errorf("there are %d senders already, as many as connections were asked for", n)
	}
	p.senders++
	p.mu.Unlock()
	if p.target.grpc {
		return p.newGRPCSender(n)
	}
	return p.newHTTPSender(ctx)
}

// Close closes what Senders share. They are closed by their owners, before it.
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
