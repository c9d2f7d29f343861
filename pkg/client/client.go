// Package client sends readings to Brim daemons over HTTP or gRPC.
//
// A Client repeats a request that a daemon could not process, or did not answer, with
// the same Idempotency-Key, so that its readings are stored once. A Batcher collects
// readings and sends them in few requests. Both may be used from many goroutines.
package client

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/brim-telemetry/brim/pkg/client/wire"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A Client sends readings to one of several daemons, and to the next one if that does
// not accept them. New creates one; Close ends it.
type Client struct {
	config    Config
	addresses []wire.Address
	transport transport
	current   atomic.Int64 // the address in use

	ctx     context.Context // of all requests
	cancel  context.CancelFunc
	mu      sync.Mutex // between running and Close
	running sync.WaitGroup
	closed  bool
}

// A transport sends requests to daemons.
type transport interface {
	// try sends a request once. It returns when ctx ends, and retains nothing of w.
	try(ctx context.Context, to int, w *write) attempt
	close() error
}

// ErrClosed is returned after Close.
var ErrClosed = errors.New("the client is closed")

// New checks the configuration and returns a client. It does not connect yet.
func New(c Config) (*Client, error) {
	c.setDefaults()
	addresses, err := c.check()
	if err != nil {
		return nil, err
	}
	client := &Client{config: c, addresses: addresses}
	client.ctx, client.cancel = context.WithCancel(context.Background())
	if addresses[0].GRPC {
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

// Close ends all requests, and closes the connections. Batchers must be closed first.
func (c *Client) Close() error {
	c.mu.Lock()
	closed := c.closed
	c.closed = true
	c.mu.Unlock()
	if closed {
		return nil
	}
	c.cancel()
	c.running.Wait()
	if err := c.transport.close(); err != nil {
		return fmt.Errorf("close connections: %w", err)
	}
	return nil
}

// begin returns a context that ends with ctx or with the client. The caller calls end
// when it is done.
func (c *Client) begin(ctx context.Context) (joined context.Context, end func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, nil, ErrClosed
	}
	c.running.Add(1)
	joined, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(c.ctx, func() { cancel(ErrClosed) })
	return joined, func() { stop(); cancel(nil); c.running.Done() }, nil
}

// A Request is the argument of Send.
type Request struct {
	Readings []telemetry.Reading
	Stream   string        // empty: the Config's
	Ack      telemetry.Ack // empty: the Config's
	// Key makes repetitions harmless, even by other processes: 1 to 128 printable
	// characters. A process that repeats the request after a crash must have stored
	// it. Empty: a random key.
	Key string
}

// Write sends readings in one request, at most 10,000 and 8 MiB unless the daemon is
// configured otherwise. It returns when they are journaled, or stored if Config.Ack
// says so. A reading without a Time gets the time at which the daemon receives it.
//
// The error is a *RefusedError if readings broke a rule. That is final: the others were
// accepted, and writing again would store them twice. It is an *Error if the whole
// request failed; unless its Unknown is set, nothing was stored.
func (c *Client) Write(ctx context.Context, readings ...telemetry.Reading) (Result, error) {
	return c.Send(ctx, Request{Readings: readings})
}

// Send is Write with more options.
func (c *Client) Send(ctx context.Context, r Request) (Result, error) {
	return c.send(ctx, r, c.config.RetryFor, nil)
}

// send is Send that retries for retryFor, and calls repeating before each repetition.
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

// A write is a request that is being sent.
type write struct {
	all      []telemetry.Reading
	readings []telemetry.Reading // those of all that can be sent
	places   []int               // their indexes among all; nil: they are all
	refused  []Refused           // the others
	stream   string
	ack      telemetry.Ack
	key      string
	body     []byte // HTTP only
	gzipped  bool
}

// newWrite checks what the daemon cannot: which readings can be sent at all.
func (c *Client) newWrite(r Request) (*write, error) {
	w := &write{
		all: r.Readings, readings: r.Readings, key: r.Key,
		stream: cmp.Or(r.Stream, c.config.Stream), ack: cmp.Or(r.Ack, c.config.Ack),
	}
	if err := checkAck(w.ack); err != nil {
		return nil, err
	}
	if w.key == "" {
		w.key = rand.Text() // 128 random bits
	} else if err := checkKey(w.key); err != nil {
		return nil, err
	}
	if len(w.all) == 0 {
		return nil, errors.New("send readings: there are none")
	}
	for i := range w.all {
		if refusal := unsendable(&w.all[i]); refusal != nil {
			w.refused = append(w.refused, Refused{Index: i, Sensor: w.all[i].Sensor, Code: refusal.Code, Message: refusal.Message})
		}
	}
	if len(w.refused) == 0 {
		return w, nil
	}
	w.readings = nil
	for i, left := 0, w.refused; i < len(w.all); i++ {
		if len(left) > 0 && left[0].Index == i {
			left = left[1:]
			continue
		}
		w.readings, w.places = append(w.readings, w.all[i]), append(w.places, i)
	}
	return w, nil
}

// unsendable returns why a reading cannot be expressed in JSON or protobuf, or nil. All
// other rules are left to the daemon, since some depend on its settings.
func unsendable(r *telemetry.Reading) *telemetry.Refusal {
	if !utf8.ValidString(r.Sensor) {
		return telemetry.CheckSensor([]byte(r.Sensor))
	}
	for i := range r.Fields {
		f := &r.Fields[i]
		switch kind := f.Value.Kind(); {
		case !utf8.ValidString(f.Name):
			return telemetry.CheckFieldName([]byte(f.Name))
		case kind == 0:
			return telemetry.Refuse(telemetry.ValueType, "field %s has no value; it must be a number, a boolean or a string", telemetry.Quote([]byte(f.Name)))
		case kind == telemetry.Text && !utf8.ValidString(f.Value.Text()):
			return telemetry.CheckFieldText([]byte(f.Name), []byte(f.Value.Text()))
		case kind == telemetry.Float:
			if refusal := telemetry.CheckFloat([]byte(f.Name), f.Value.Float()); refusal != nil {
				return refusal
			}
		}
	}
	for i := range r.Tags {
		t := &r.Tags[i]
		switch {
		case !utf8.ValidString(t.Name):
			return telemetry.CheckTagName([]byte(t.Name))
		case !utf8.ValidString(t.Value):
			return telemetry.CheckTagText([]byte(t.Name), []byte(t.Value))
		}
	}
	return nil
}

// A Result is the outcome of a request.
type Result struct {
	Accepted int
	Rejected int
	// Ack is the level that was reached: journaled where stored was requested but
	// MongoDB did not answer in time. Empty if nothing was accepted.
	Ack      telemetry.Ack
	Refused  []Refused // the readings that were rejected; of those rejected by the daemon, the first 100
	Attempts int       // 0 if no reading could be sent
	Replayed bool      // the daemon had processed the request before
	Address  string    // of the daemon that accepted them
}

// Refused is a reading that broke a rule.
type Refused struct {
	Index   int // in the request
	Sensor  string
	Code    telemetry.Code
	Message string // what was wrong and what is allowed
}

// A RefusedError says that readings were refused. The others were accepted.
type RefusedError struct{ Result Result }

// Error implements error.
func (e *RefusedError) Error() string {
	text := fmt.Sprintf("%d of %d readings were refused", e.Result.Rejected, e.Result.Rejected+e.Result.Accepted)
	if len(e.Result.Refused) > 0 {
		first := e.Result.Refused[0]
		text += fmt.Sprintf("; reading %d, of sensor %s: %s: %s", first.Index, telemetry.Quote([]byte(first.Sensor)), first.Code, first.Message)
	}
	return text
}

// An Error says that a request failed. Err says why: a *telemetry.Error if the daemon
// answered, otherwise an error of the network or the context.
type Error struct {
	// Unknown says that the readings may have been stored. Repeating them is harmless
	// with the same key at the same address as long as that daemon remembers keys: 15
	// minutes, unless a million others came in between.
	Unknown  bool
	Key      string // of the request
	Address  string // of the last attempt
	Attempts int
	Err      error
}

// Error implements error.
func (e *Error) Error() string {
	text := "send readings to " + e.Address
	if e.Attempts > 1 {
		text += fmt.Sprintf(", %d times", e.Attempts)
	}
	text += ": " + e.Err.Error()
	if e.Unknown {
		text += "; they may have been stored"
	}
	return text
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// finish adds the readings that were not sent to the result.
func (w *write) finish(r Result) (Result, error) {
	for i := range r.Refused { // numbers among those sent
		place := r.Refused[i].Index
		if w.places != nil {
			place = w.places[place]
		}
		r.Refused[i].Index, r.Refused[i].Sensor = place, w.all[place].Sensor
	}
	r.Rejected += len(w.refused)
	r.Refused = append(r.Refused, w.refused...)
	if r.Rejected > 0 {
		return r, &RefusedError{Result: r}
	}
	return r, nil
}
