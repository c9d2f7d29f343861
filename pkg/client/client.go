// Package client sends readings to Brim daemons, over HTTP or gRPC, and reads
// them back over HTTP.
//
// A Client repeats a request that a daemon could not take, or of which no answer
// came, under one Idempotency-Key, so that its readings are stored once. A Batcher
// gathers readings and sends them with few requests. Both may be used by many
// goroutines.
package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/brim-telemetry/brim/pkg/client/encode"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A Client sends readings to one daemon of several, and to the next when that one
// takes none. New makes one; Close ends it.
type Client struct {
	config    Config
	addresses []address
	transport transport
	current   atomic.Int64 // the address in use

	ctx    context.Context // of all that is under way
	cancel context.CancelFunc
	mu     sync.Mutex // of under, against Close
	under  sync.WaitGroup
	closed bool
}

// A transport takes requests to daemons.
type transport interface {
	// try sends a request once, and tells what is known then. It is done when ctx
	// is, and keeps nothing of w.
	try(ctx context.Context, to int, w *write) attempt
	close() error
}

// ErrClosed is returned by what was closed.
var ErrClosed = errors.New("the client is closed")

// New checks the configuration and returns a client. It does not yet speak to a
// daemon.
func New(c Config) (*Client, error) {
	c.setDefaults()
	addresses, err := c.check()
	if err != nil {
		return nil, err
	}
	client := &Client{config: c, addresses: addresses}
	client.ctx, client.cancel = context.WithCancel(context.Background())
	if addresses[0].grpc {
		client.transport, err = newGRPCTransport(c, addresses)
	} else {
		client.transport = newHTTPTransport(c, addresses)
	}
	if err != nil {
		client.cancel()
		return nil, err
	}
	return client, nil
}

// Close ends what is under way, and closes the connections. Batchers are closed
// before.
func (c *Client) Close() error {
	c.mu.Lock()
	closed := c.closed
	c.closed = true
	c.mu.Unlock()
	if closed {
		return nil
	}
	c.cancel()
	c.under.Wait()
	if err := c.transport.close(); err != nil {
		return fmt.Errorf("close connections: %w", err)
	}
	return nil
}

// begin returns a context that ends with ctx and with the client; end is called
// when the work is done.
func (c *Client) begin(ctx context.Context) (joined context.Context, end func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, nil, ErrClosed
	}
	c.under.Add(1)
	joined, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(c.ctx, func() { cancel(ErrClosed) })
	return joined, func() { stop(); cancel(nil); c.under.Done() }, nil
}

// A Request is what Send takes.
type Request struct {
	Readings []telemetry.Reading
	Stream   string        // empty: that of the Config
	Ack      telemetry.Ack // empty: that of the Config
	// Key makes repetitions harmless, also those of other processes: 1 to 128
	// printable characters, stored by whoever may have to repeat the request after a
	// crash. Empty: one is made.
	Key string
}

// Write sends readings with one request, at most 10,000 of them and 8 MiB unless
// the daemon is told otherwise. It returns when they are journaled, or stored if
// Config.Ack says so. A reading without a Time gets that at which the daemon
// takes it.
//
// The error is a *RefusedError where readings broke a rule, which is final: the
// others were taken, and writing again would store these twice. It is an *Error
// where the request failed as a whole; where its Unknown is false, nothing was
// taken.
func (c *Client) Write(ctx context.Context, readings ...telemetry.Reading) (Result, error) {
	return c.Send(ctx, Request{Readings: readings})
}

// Send is Write with more to say.
func (c *Client) Send(ctx context.Context, r Request) (Result, error) {
	return c.send(ctx, r, c.config.RetryFor, nil)
}

// send is Send that repeats for so long, and calls repeating before it does.
func (c *Client) send(ctx context.Context, r Request, retryFor time.Duration, repeating func()) (Result, error) {
	w, err := c.newWrite(r)
	if err != nil {
		return Result{}, err
	}
	if len(w.readings) == 0 {
		return w.finish(Result{})
	}
	ctx, end, err := c.begin(ctx)
	if err != nil {
		return Result{}, err
	}
	defer end()
	a := c.repeat(ctx, retryFor, task{key: w.key, repeating: repeating, try: func(ctx context.Context, to int) attempt { return c.transport.try(ctx, to, w) }})
	if a.err != nil {
		return Result{}, a.err
	}
	return w.finish(a.result)
}

// A write is a request on its way.
type write struct {
	readings []telemetry.Reading // that can be sent
	places   []int               // of these among all; nil: as they are
	refused  []Refused           // that cannot
	all      []telemetry.Reading
	stream   string
	ack      telemetry.Ack
	key      string
	ownKey   bool   // the key is not the caller's
	alone    bool   // gRPC only: it goes on a call of its own, because it may end that
	body     []byte // HTTP only, made once
	gzipped  bool
}

// newWrite checks what the daemon could not: which readings can be written down.
func (c *Client) newWrite(r Request) (*write, error) {
	w := &write{readings: r.Readings, all: r.Readings, stream: r.Stream, ack: r.Ack, key: r.Key}
	if w.stream == "" {
		w.stream = c.config.Stream
	}
	if w.ack == "" {
		w.ack = c.config.Ack
	}
	if err := checkAck(w.ack); err != nil {
		return nil, err
	}
	if w.key == "" {
		w.key, w.ownKey = newKey(), true
	} else if err := checkKey(w.key); err != nil {
		return nil, err
	}
	if len(r.Readings) == 0 {
		return nil, errors.New("send readings: there are none")
	}
	for i := range r.Readings {
		if refusal := encode.Check(&r.Readings[i]); refusal != nil {
			w.leaveOut(i, refusal)
		} else if w.places != nil {
			w.readings, w.places = append(w.readings, r.Readings[i]), append(w.places, i)
		}
	}
	return w, nil
}

// leaveOut makes the reading with number i one that is not sent.
func (w *write) leaveOut(i int, refusal *telemetry.Refusal) {
	if w.places == nil { // so far all were good
		w.readings = append([]telemetry.Reading(nil), w.all[:i]...)
		w.places = make([]int, i, len(w.all))
		for j := range w.places {
			w.places[j] = j
		}
	}
	w.refused = append(w.refused, Refused{Index: i, Sensor: w.all[i].Sensor, Code: refusal.Code, Message: refusal.Message})
}

// place returns which of all readings is number n of those that were sent.
func (w *write) place(n int) int {
	if w.places == nil {
		return n
	}
	return w.places[n]
}

// address is a daemon's.
type address struct {
	grpc, tls bool
	host      string // host:port
	name      string // without the port
	base      string // http://host:port
}

// local reports whether nobody else can hear what is sent there.
func (a address) local() bool {
	ip := net.ParseIP(a.name)
	return a.name == "localhost" || ip != nil && ip.IsLoopback()
}
