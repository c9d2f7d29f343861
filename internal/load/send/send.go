// Package send sends the load generator's requests to a daemon, over HTTP or gRPC. Each
// Sender of a Pool sends one request at a time and never retries, so that a run counts
// exactly what the daemon received.
package send

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/brim-telemetry/brim/internal/load"
	"github.com/brim-telemetry/brim/pkg/client/encode"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// Form is the layout of readings in a gRPC message. HTTP has one form.
type Form = encode.Form

// The forms of gRPC messages.
const (
	Plain   = encode.Plain
	Compact = encode.Compact
)

// ParseForm returns the form of that name.
func ParseForm(s string) (Form, error) { return encode.ParseForm(s) }

// Config of a Pool.
type Config struct {
	// Target is http://host:port, https://host:port, grpc://host:port or
	// grpcs://host:port. Without a port, http has 80 and https 443.
	Target string
	Stream string        // empty: the daemon's default stream
	Ack    telemetry.Ack // empty: the daemon's default
	// Connections is the maximum number of Senders. Over HTTP each has its own
	// connection; over gRPC sixteen share one.
	Connections int
	Timeout     time.Duration // of one request, and of a dial; 0: 30 s
	Form        Form          // gRPC only; empty: plain
	TLS         *tls.Config   // https and grpcs; nil: the system's certificates
	// Token is sent with every request; empty: none. The caller decides whether it may
	// be sent unencrypted.
	Token string
}

const (
	defaultTimeout      = 30 * time.Second
	maxConnections      = 100_000
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
	target target

	mu      sync.Mutex
	senders int
	conns   []*grpc.ClientConn // gRPC only, dialed as senders need them
}

// New checks the configuration. It does not connect yet.
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

// Check checks that the daemon can be reached: over HTTP that it accepts connections,
// over gRPC that it answers.
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

// Sender returns one more Sender. Over HTTP it is connected here, so that no request's
// time includes that; ctx bounds the connecting only.
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

// A target is the address of a daemon.
type target struct {
	grpc, tls bool
	host      string // without brackets and port, for TLS
	address   string // host:port
	written   string // as the user wrote it
}

const targetsAllowed = "allowed are http://host:port, https://host:port, grpc://host:port and grpcs://host:port"

func parseTarget(s string) (target, error) {
	u, err := url.Parse(s)
	if err != nil {
		// The text of the error contains s, which may contain a password.
		return target{}, fmt.Errorf("the target is not a URL; %s", targetsAllowed)
	}
	t := target{host: u.Hostname(), written: u.Redacted()}
	port := u.Port()
	switch u.Scheme {
	case "http":
		port = portOr(port, "80")
	case "https":
		t.tls, port = true, portOr(port, "443")
	case "grpc":
		t.grpc = true
	case "grpcs":
		t.grpc, t.tls = true, true
	default:
		return target{}, fmt.Errorf("target %q has an unknown scheme; %s", t.written, targetsAllowed)
	}
	switch number, err := strconv.ParseUint(port, 10, 16); {
	case t.host == "":
		return target{}, fmt.Errorf("target %q has no host; %s", t.written, targetsAllowed)
	case err != nil || number == 0:
		return target{}, fmt.Errorf("target %q needs a port of 1 to 65535; %s", t.written, targetsAllowed)
	case u.User != nil, u.Path != "" && u.Path != "/", u.RawQuery != "", u.Fragment != "", u.Opaque != "":
		return target{}, fmt.Errorf("target %q has more than a host and a port; %s", t.written, targetsAllowed)
	}
	t.address = net.JoinHostPort(t.host, port)
	return t, nil
}

func portOr(port, usual string) string {
	if port == "" {
		return usual
	}
	return port
}

func (t target) protocol() string {
	if t.grpc {
		return "grpc"
	}
	return "http"
}

// String is the target as it was given.
func (t target) String() string { return t.written }

// A canceler ends what a Sender waits for when its context ends. All requests of a run
// have the same context, so it is set once and costs a request nothing.
type canceler struct {
	ctx  context.Context
	stop func() bool
}

// set makes ctx call end when it ends, in place of an earlier context.
func (l *canceler) set(ctx context.Context, end func()) {
	if l.stop != nil && l.ctx == ctx {
		return
	}
	l.release()
	l.ctx, l.stop = ctx, context.AfterFunc(ctx, end)
}

// release removes it.
func (l *canceler) release() {
	if l.stop != nil {
		l.stop()
	}
	l.ctx, l.stop = nil, nil
}

// discoverTimeout of the request for the streams.
const discoverTimeout = 10 * time.Second

// Errors of an address where something else than expected listens.
var (
	ErrNoStreams = errors.New("it does not know /v1/streams")
	ErrNotHTTP   = errors.New("it does not speak HTTP")
	ErrNotGRPC   = errors.New("it does not speak gRPC")
)

// ErrUnauthorized is the error of a daemon that requires authentication.
var ErrUnauthorized = errors.New("it requires authentication")

// Discover asks the daemon with the HTTP address base (http://host:port) about a stream;
// an empty name is the default stream. It closes its connection.
func Discover(ctx context.Context, client *http.Client, base, stream string) (load.Stream, error) {
	t, err := parseTarget(base)
	if err != nil {
		return load.Stream{}, err
	}
	if t.grpc {
		return load.Stream{}, fmt.Errorf("ask %s about its streams: that is answered over http and https only", t)
	}
	ctx, cancel := context.WithTimeout(ctx, discoverTimeout)
	defer cancel()
	about, err := getStreams(ctx, client, strings.TrimSuffix(base, "/")+"/v1/streams")
	if errors.Is(err, context.DeadlineExceeded) {
		return load.Stream{}, fmt.Errorf("ask %s about its streams: no answer came within %s", t, discoverTimeout)
	}
	if err != nil {
		return load.Stream{}, fmt.Errorf("ask %s about its streams: %w", t, err)
	}
	if stream == "" {
		stream = about.Default
	}
	var names []string
	for _, s := range about.Streams {
		if s.Name == stream {
			return load.Stream{Name: s.Name, Storage: s.Storage, GranularitySeconds: s.GranularitySeconds}, nil
		}
		names = append(names, s.Name)
	}
	return load.Stream{}, fmt.Errorf("the daemon at %s has no stream %q; it has: %s", t, stream, strings.Join(names, ", "))
}

// streams of a daemon, as far as they matter here.
type streams struct {
	Default string `json:"default"`
	Streams []struct {
		Name               string `json:"name"`
		Storage            string `json:"storage"`
		GranularitySeconds int    `json:"granularity_seconds"`
	} `json:"streams"`
}

// SpeaksNoHTTP reports whether an HTTP client's error means that the server is not one
// for HTTP: its answer is not HTTP, or it sent something before the request, as gRPC
// does. Neither error has a type.
func SpeaksNoHTTP(err error) bool {
	return err != nil && (strings.Contains(err.Error(), "malformed HTTP") || strings.Contains(err.Error(), "readLoopPeekFail"))
}

func getStreams(ctx context.Context, client *http.Client, url string) (*streams, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	req.Close = true // there is only one request
	resp, err := client.Do(req)
	if SpeaksNoHTTP(err) {
		return nil, fmt.Errorf("%w: %w", ErrNotHTTP, err)
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }() // only read
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, err
	}
	if resp.StatusCode == http.StatusNotFound {
		return nil, fmt.Errorf("%w: the answer is 404: %s", ErrNoStreams, problemOf(resp.StatusCode, body))
	}
	if resp.StatusCode == http.StatusUnauthorized {
		return nil, fmt.Errorf("%w: the answer is 401: %s", ErrUnauthorized, problemOf(resp.StatusCode, body))
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the answer is %d: %s", resp.StatusCode, problemOf(resp.StatusCode, body))
	}
	var about streams
	if err := json.Unmarshal(body, &about); err != nil {
		return nil, fmt.Errorf("the answer is not a Brim daemon's: %w", err)
	}
	if about.Default == "" || len(about.Streams) == 0 {
		return nil, errors.New("the answer is not a Brim daemon's: it has no streams")
	}
	return &about, nil
}
