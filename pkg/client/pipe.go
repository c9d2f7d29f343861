package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/brim-telemetry/brim/pkg/telemetrypb"
)

// A pipe is a call of WriteStream that many requests share:
//
//	exchange ─ sending, one at a time ─▶ daemon ─▶ receive ─▶ the one that waits longest
//
// A daemon answers in the order of the requests. When the call breaks, each that
// waits is told so, and the next exchange opens another call.
type pipe struct {
	client   telemetrypb.IngestServiceClient
	head     func(context.Context) (context.Context, error) // adds the metadata of a call
	patience time.Duration                                  // that sending may take
	options  []grpc.CallOption
	alone    bool // it is for one request

	sending chan struct{} // of capacity 1: who has put something in may open and send
	mu      sync.Mutex
	open    *openCall // nil: none
	closed  bool
	under   sync.WaitGroup // receivers, and who sends
}

// An openCall is one call. Its receiver ends when the call does.
type openCall struct {
	stream  telemetrypb.IngestService_WriteStreamClient
	cancel  context.CancelFunc
	waiting []*waiter // oldest first
	err     error     // why it ended
	used    bool      // it gave an answer
}

// A waiter waits for the answer to a request.
type waiter struct {
	id       string
	done     chan struct{} // closed when there is an answer or the call has ended
	response *telemetrypb.WriteResponse
	err      error
	used     bool // the call had given answers
}

func newPipe(client telemetrypb.IngestServiceClient, patience time.Duration, head func(context.Context) (context.Context, error)) *pipe {
	return &pipe{client: client, head: head, patience: patience, sending: make(chan struct{}, 1)}
}

// exchange sends a request and returns the response; nil where there is none, and
// the attempt tells why.
func (p *pipe) exchange(ctx context.Context, request *telemetrypb.WriteRequest) (*telemetrypb.WriteResponse, attempt) {
	w := &waiter{id: request.GetRequestId(), done: make(chan struct{})}
	call, failed := p.send(ctx, w, request)
	if call == nil {
		return nil, failed
	}
	select {
	case <-w.done:
	case <-ctx.Done():
		if errors.Is(context.Cause(ctx), errNoAnswer) {
			call.cancel() // answers come in order, so that all behind it wait for nothing
		}
		return nil, attempt{err: fmt.Errorf("wait for the answer: %w", ctx.Err()), again: true, unknown: true}
	}
	if w.err == nil {
		return w.response, attempt{}
	}
	return nil, p.ended(w)
}

// ended tells what the end of the call means for a request that waited.
func (p *pipe) ended(w *waiter) attempt {
	unauthenticated := status.Code(w.err) == codes.Unauthenticated
	if e := told(w.err); e != nil { // a daemon answers before all that it took
		a := wayOf(e)
		a.again = a.again || unauthenticated && w.used // a token that was good may have been replaced
		return a
	}
	switch status.Code(w.err) {
	case codes.Unauthenticated, codes.PermissionDenied, codes.Unimplemented:
		a := broken(w.err, true)
		if w.used {
			a.again, a.unknown = true, true
		}
		return a
	}
	if p.alone {
		return broken(w.err, true)
	}
	// It may be about another request of the call, while this one is being taken.
	return attempt{err: w.err, again: true, unknown: true}
}

// send opens a call if there is none, and sends the request on it, for which it
// does not wait. Without a call nothing was sent, and the attempt tells why.
func (p *pipe) send(ctx context.Context, w *waiter, request *telemetrypb.WriteRequest) (*openCall, attempt) {
	select {
	case p.sending <- struct{}{}:
	case <-ctx.Done():
		return nil, attempt{err: ctx.Err(), again: true}
	}
	call, failed := p.get(ctx)
	if call == nil {
		<-p.sending
		return nil, failed
	}
	// Encoded here, for the request is the caller's again when he leaves.
	message := new(grpc.PreparedMsg)
	if err := message.Encode(call.stream, request); err != nil {
		<-p.sending
		return nil, broken(err, false)
	}
	p.mu.Lock()
	if call.err != nil { // it has just ended
		p.mu.Unlock()
		<-p.sending
		return nil, attempt{err: fmt.Errorf("the stream has ended: %w", call.err), again: true}
	}
	call.waiting = append(call.waiting, w)
	p.mu.Unlock()
	p.under.Go(func() {
		defer func() { <-p.sending }()
		// Flow control may make sending wait, and only ending the call ends that. So an
		// impatient caller leaves, and what he began is sent without him.
		late := time.AfterFunc(p.patience, call.cancel)
		defer late.Stop()
		// An error means that the call has ended, and its receiver tells the waiter why.
		_ = call.stream.SendMsg(message)
	})
	return call, attempt{}
}

// get returns the open call, or opens one; it is called by who is sending.
func (p *pipe) get(ctx context.Context) (*openCall, attempt) {
	p.mu.Lock()
	call, closed := p.open, p.closed
	p.mu.Unlock()
	if closed {
		return nil, attempt{err: ErrClosed}
	}
	if call != nil {
		return call, attempt{}
	}
	callCtx, cancel := context.WithCancel(context.Background()) // the call outlives this request
	stop := context.AfterFunc(ctx, cancel)
	headed, err := p.head(callCtx)
	if err != nil {
		stop()
		cancel()
		return nil, attempt{err: err, again: mayCome(err)}
	}
	stream, err := p.client.WriteStream(headed, p.options...)
	if !stop() { // ctx ended, and the call with it
		err = context.Cause(ctx)
	}
	if err != nil {
		cancel()
		return nil, broken(err, false)
	}
	call = &openCall{stream: stream, cancel: cancel}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		cancel()
		return nil, attempt{err: ErrClosed}
	}
	p.open = call
	p.under.Go(func() { p.receive(call) })
	return call, attempt{}
}

// receive hands out the answers of a call until it ends.
func (p *pipe) receive(call *openCall) {
	defer call.cancel()
	for {
		response, err := call.stream.Recv()
		if errors.Is(err, io.EOF) {
			err = status.Error(codes.Unavailable, "the daemon has ended the stream")
		}
		p.mu.Lock()
		if err == nil && !call.isNext(response) {
			err = status.Error(codes.Internal, "an answer came that belongs to no request")
		}
		if err != nil {
			p.end(call, err)
			p.mu.Unlock()
			return
		}
		w := call.waiting[0]
		call.waiting[0] = nil
		call.waiting = call.waiting[1:]
		call.used = true
		w.response = response
		close(w.done)
		p.mu.Unlock()
	}
}

// isNext reports whether a response is that to the oldest request. A message that
// inflates too far is answered without its id, which the daemon has not read.
func (c *openCall) isNext(response *telemetrypb.WriteResponse) bool {
	if len(c.waiting) == 0 {
		return false
	}
	id := response.GetRequestId()
	return id == c.waiting[0].id || id == "" && response.GetError() != nil
}

// end tells all that wait that the call has ended. The caller holds mu.
func (p *pipe) end(call *openCall, err error) {
	call.err = err
	if p.open == call {
		p.open = nil
	}
	for _, w := range call.waiting {
		w.err, w.used = err, call.used
		close(w.done)
	}
	call.waiting = nil
}

// close ends the call; nobody exchanges any more.
func (p *pipe) close() {
	p.mu.Lock()
	p.closed = true
	call := p.open
	p.mu.Unlock()
	if call != nil {
		call.cancel()
	}
	p.under.Wait()
}
