package main

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"
	"golang.org/x/sync/errgroup"

	"github.com/brim-telemetry/brim/internal/machine"
)

const (
	linesOf       = 1000                   // readings of a request
	answerTimeout = time.Minute            // of one request
	fullPause     = 100 * time.Millisecond // before a request is repeated that the daemon had no room for
)

// A sender sends a fleet's readings, step by step, and returns how many the
// daemon has taken.
type sender interface {
	send(ctx context.Context, r *rig, s *stretch) (readings int64, err error)
}

// A stretch is a time in which requests are sent. All connections together go
// through event time in order.
type stretch struct {
	begin time.Time    // of event time
	end   time.Time    // by the clock
	next  atomic.Int64 // number of the next request
}

func newStretch(begin time.Time, duration time.Duration) *stretch {
	return &stretch{begin: begin, end: time.Now().Add(duration)}
}

// stepTime is the event time of all readings of a step.
func (s *stretch) stepTime(step int64) time.Time {
	return s.begin.Add(time.Duration(step) * interval)
}

// take gives out the number of the next request, until the time is over.
func (s *stretch) take(ctx context.Context) (number int64, ok bool) {
	if ctx.Err() != nil || !time.Now().Before(s.end) {
		return 0, false
	}
	return s.next.Add(1) - 1, true
}

// given is how many were given out.
func (s *stretch) given() int64 { return s.next.Load() }

// A deck is the requests of one connection: a fleet's step needs one for each
// thousand hosts, and there are variants of it.
type deck struct {
	bodies [][]*body // of a variant, of a part of the hosts
}

// An encoder makes the request of a step of these hosts, with the values of a
// variant.
type encoder func(hosts []host, variant int) (*body, error)

func newDeck(hosts []host, encode encoder) (*deck, error) {
	d := &deck{bodies: make([][]*body, variants)}
	for v := range d.bodies {
		for first := 0; first < len(hosts); first += linesOf {
			b, err := encode(hosts[first:min(first+linesOf, len(hosts))], v)
			if err != nil {
				return nil, err
			}
			d.bodies[v] = append(d.bodies[v], b)
		}
	}
	return d, nil
}

// request returns that of a number, with its time.
func (d *deck) request(s *stretch, number int64) *body {
	parts := int64(len(d.bodies[0]))
	step := number / parts
	b := d.bodies[step%int64(len(d.bodies))][number%parts]
	b.moveTo(s.stepTime(step))
	return b
}

// A poster sends over HTTP.
type poster struct {
	path, contentType string
	decks             []*deck // one for each connection
}

// newDecks makes as many.
func newDecks(n int, hosts []host, encode encoder) (decks []*deck, err error) {
	decks = make([]*deck, n)
	for i := range decks {
		if decks[i], err = newDeck(hosts, encode); err != nil {
			return nil, err
		}
	}
	return decks, nil
}

// newLinePoster posts line protocol.
func newLinePoster(connections int, f *fleet) (*poster, error) {
	decks, err := newDecks(connections, f.hosts, lineBody)
	return &poster{"/write?ack=journaled", "text/plain", decks}, err
}

// newNDJSONPoster posts objects in lines.
func newNDJSONPoster(connections int, f *fleet) (*poster, error) {
	decks, err := newDecks(connections, f.hosts, ndjsonBody)
	return &poster{"/v1/readings?ack=journaled", "application/x-ndjson", decks}, err
}

// send implements sender.
func (p *poster) send(ctx context.Context, r *rig, s *stretch) (int64, error) {
	connections, under := errgroup.WithContext(ctx)
	for _, d := range p.decks {
		connections.Go(func() error { return p.post(under, r, s, d) })
	}
	if err := connections.Wait(); err != nil {
		return 0, fmt.Errorf("post to %s: %w", p.path, err)
	}
	return s.given() * linesOf, context.Cause(ctx)
}

// post sends on one connection, each request when the one before is answered:
// with the messages of fasthttp, but not its client, whose goroutines nobody
// waits for.
func (p *poster) post(ctx context.Context, r *rig, s *stretch, d *deck) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", r.HTTP)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer func() { _ = conn.Close() }()                         // everything is answered, or lost
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })() // whatever is under way
	in, out := bufio.NewReader(conn), bufio.NewWriter(conn)
	request, response := &fasthttp.Request{}, &fasthttp.Response{}
	request.Header.SetMethod(http.MethodPost)
	request.Header.SetContentType(p.contentType)
	request.SetRequestURI("http://" + r.HTTP + p.path)
	for {
		number, ok := s.take(ctx)
		if !ok {
			return nil
		}
		request.SetBodyRaw(d.request(s, number).text)
		for taken := false; !taken; {
			if err := exchange(conn, in, out, request, response); err != nil {
				return err
			}
			switch code := response.StatusCode(); code {
			case http.StatusOK, http.StatusNoContent:
				taken = true
			case http.StatusServiceUnavailable: // nothing was taken
				if err := machine.Pause(ctx, fullPause); err != nil {
					return err
				}
			default:
				return fmt.Errorf("answer %d %s", code, response.Body())
			}
		}
	}
}

// exchange sends a request and reads the response.
func exchange(conn net.Conn, in *bufio.Reader, out *bufio.Writer, request *fasthttp.Request, response *fasthttp.Response) error {
	if err := conn.SetDeadline(time.Now().Add(answerTimeout)); err != nil {
		return err
	}
	if err := request.Write(out); err != nil {
		return fmt.Errorf("send: %w", err)
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("send: %w", err)
	}
	if err := response.Read(in); err != nil {
		return fmt.Errorf("wait for the answer: %w", err)
	}
	return nil
}
