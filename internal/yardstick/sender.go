package main

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"
	"golang.org/x/sync/errgroup"
)

const (
	linesOf       = 1000                   // readings of a request
	answerTimeout = time.Minute            // of one request
	fullPause     = 100 * time.Millisecond // before a request is repeated that the daemon had no room for
)

// A sender sends a fleet's readings, step by step, and returns how many the
// daemon has taken.
type sender interface {
	send(ctx context.Context, r *rig, duration time.Duration) (readings int64, err error)
}

// A stretch is a time in which requests are sent. All connections together go
// through event time in order.
type stretch struct {
	end  time.Time
	next atomic.Int64 // number of the next request
}

func newStretch(duration time.Duration) *stretch { return &stretch{end: time.Now().Add(duration)} }

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

func newDeck(hosts []host, variants int, encode func(hosts []host, variant int) *body) *deck {
	d := &deck{bodies: make([][]*body, variants)}
	for v := range d.bodies {
		for first := 0; first < len(hosts); first += linesOf {
			d.bodies[v] = append(d.bodies[v], encode(hosts[first:min(first+linesOf, len(hosts))], v))
		}
	}
	return d
}

// request returns that of a number, with its time.
func (d *deck) request(number int64) *body {
	parts := int64(len(d.bodies[0]))
	step := number / parts
	b := d.bodies[step%int64(len(d.bodies))][number%parts]
	b.moveTo(stepTime(step))
	return b
}

// stepTime is the event time of all readings of a step.
func stepTime(step int64) time.Time { return began().Add(time.Duration(step) * interval) }

// A poster sends over HTTP.
type poster struct {
	path, contentType string
	decks             []*deck // one for each connection
}

func newPoster(path, contentType string, connections int, deck func() *deck) *poster {
	p := &poster{path: path, contentType: contentType}
	for range connections {
		p.decks = append(p.decks, deck())
	}
	return p
}

// send implements sender.
func (p *poster) send(ctx context.Context, r *rig, duration time.Duration) (int64, error) {
	s := newStretch(duration)
	connections, under := errgroup.WithContext(ctx)
	for _, d := range p.decks {
		connections.Go(func() error { return p.post(under, r, s, d) })
	}
	if err := connections.Wait(); err != nil {
		return 0, fmt.Errorf("post to %s: %w", p.path, err)
	}
	return s.given() * linesOf, context.Cause(ctx)
}

// post sends on one connection, each request when the one before is answered.
func (p *poster) post(ctx context.Context, r *rig, s *stretch, d *deck) error {
	client := &fasthttp.HostClient{Addr: r.HTTP, MaxConns: 1, ReadTimeout: answerTimeout, WriteTimeout: answerTimeout}
	defer client.CloseIdleConnections()
	request, response := &fasthttp.Request{}, &fasthttp.Response{}
	request.Header.SetMethod(http.MethodPost)
	request.Header.SetContentType(p.contentType)
	request.SetRequestURI("http://" + r.HTTP + p.path)
	for {
		number, ok := s.take(ctx)
		if !ok {
			return nil
		}
		request.SetBodyRaw(d.request(number).text)
		for {
			if err := client.Do(request, response); err != nil {
				return err
			}
			code := response.StatusCode()
			if code == http.StatusOK || code == http.StatusNoContent {
				break
			}
			if code != http.StatusServiceUnavailable {
				return fmt.Errorf("answer %d %s", code, response.Body())
			}
			if err := pause(ctx, fullPause); err != nil { // nothing was taken
				return err
			}
		}
	}
}

// pause waits, or returns why it does not.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
