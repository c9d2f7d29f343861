package ingest

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/brim-telemetry/brim/pkg/telemetrypb"
)

// maxInFlight is how many requests of one stream are worked on at once. More of
// them wait in the client, by the flow control of HTTP/2.
const maxInFlight = 16

// A writeStream is one call of WriteStream. Its receiver hands requests to the
// goroutine that serves the call, which starts a worker for each and sends the
// answers in the order of the requests.
type writeStream struct {
	door     *Door
	stream   grpc.ServerStream
	arrivals chan arrival
	workers  sync.WaitGroup
	patience *time.Timer                       // of who waits for an answer to be sent; nil before the first
	answers  []chan *telemetrypb.WriteResponse // of the requests in flight, oldest first
}

// An arrival is a request, or the reason why there will be no more.
type arrival struct {
	message rawMessage
	at      time.Time
	err     error
}

// serveWriteStream serves WriteStream.
func (d *Door) serveWriteStream(_ any, stream grpc.ServerStream) error {
	w := &writeStream{door: d, stream: stream, arrivals: make(chan arrival)}
	// The receiver ends when this call does, because that ends its stream; so
	// it cannot be waited for here, and Door.Wait does.
	d.readers.Go(w.receive)
	defer w.workers.Wait()
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel() // first of all, when answers cannot be sent: then nobody waits for the workers' work
	return w.serve(ctx)
}

// receive passes on the requests until there are no more.
func (w *writeStream) receive() {
	for {
		a := arrival{message: rawMessage{oneOfMany: true}}
		a.err = w.stream.RecvMsg(&a.message)
		a.at = time.Now()
		if a.err != nil {
			w.door.countUnread(a.err, a.at)
		}
		select {
		case w.arrivals <- a:
		case <-w.stream.Context().Done():
			a.message.free()
			return
		}
		if a.err != nil {
			return
		}
	}
}

// serve works until there are no more requests and all are answered.
func (w *writeStream) serve(ctx context.Context) error {
	var last error // that ends the stream, once all is answered
	stopped := w.door.stopped
	for open := true; open || len(w.answers) > 0; {
		var arrivals chan arrival
		if open && len(w.answers) < maxInFlight {
			arrivals = w.arrivals
		}
		var answers chan *telemetrypb.WriteResponse
		if len(w.answers) > 0 {
			answers = w.answers[0]
		}
		select {
		case a := <-arrivals:
			if last = w.begin(ctx, a); last == nil {
				continue
			}
			open = false
			if errors.Is(last, io.EOF) {
				last = nil
			}
		case response := <-answers:
			w.answers = w.answers[1:]
			if err := w.send(response); err != nil {
				return err
			}
		case <-ctx.Done(): // nobody reads answers any more; the receiver may have seen it first
			return status.FromContextError(ctx.Err()).Err()
		case <-stopped:
			open, stopped = false, nil
			last = status.Error(codes.Unavailable, errStopping().Message)
		}
	}
	return last
}

// answerTime is how long a client may leave its answers unread. gRPC takes some
// of them for it, 64 KiB, before a stream waits.
const answerTime = time.Minute

// send sends an answer, or ends the connection of a client that does not read
// them.
func (w *writeStream) send(response *telemetrypb.WriteResponse) error {
	conn := connOf(w.stream.Context())
	if conn == nil {
		return w.stream.SendMsg(response)
	}
	if w.patience == nil {
		w.patience = time.AfterFunc(w.door.answerTime, func() { conn.end(endUnread) })
	} else {
		w.patience.Reset(w.door.answerTime)
	}
	defer w.patience.Stop()
	return w.stream.SendMsg(response)
}

// begin starts the work on an arrival; an error says why it is the last one.
func (w *writeStream) begin(ctx context.Context, a arrival) error {
	if a.err != nil {
		return a.err
	}
	if err := w.door.stillMay(ctx); err != nil {
		a.message.free()
		known := w.door.knownError(protoGRPC, err)
		r := resultOf(known.Kind)
		w.door.metrics.answered(protoGRPC, r, time.Since(a.at), &answer{})
		w.door.config.Guard.Hold(ctx, known)
		return statusError(r, known)
	}
	w.start(ctx, a)
	return nil
}

// start makes a worker answer one request.
func (w *writeStream) start(ctx context.Context, a arrival) {
	answer := make(chan *telemetrypb.WriteResponse, 1) // so that a worker never waits
	w.answers = append(w.answers, answer)
	w.workers.Go(func() {
		taken := w.door.takeMessage(ctx, &a.message, a.at)
		if taken.err != nil {
			taken.response.Error = requestError(taken.result, taken.err)
		} else if taken.result == nothingTaken || taken.result == noneAllowed {
			taken.response.Error = &telemetrypb.RequestError{
				Status: int32(statuses[taken.result].grpc), Code: codeNothingTaken, Message: allRefused(taken.response),
			}
		}
		answer <- taken.response
	})
}
