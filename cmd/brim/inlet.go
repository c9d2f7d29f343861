package main

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/queue"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// An inlet stands where the queue and the reader will be, so that the door can
// be open, and refuse, before there is a MongoDB to store in.
type inlet struct {
	queue  atomic.Pointer[queue.Queue]
	reader atomic.Pointer[http.Handler]
}

// open lets readings through.
func (i *inlet) open(q *queue.Queue, reader http.Handler) {
	i.queue.Store(q)
	i.reader.Store(&reader)
}

// Append is the door's way to the queue, see ingest.Journal.
func (i *inlet) Append(ctx context.Context, b *batch.Batch, want telemetry.Ack) (batch.Receipt, error) {
	q := i.queue.Load()
	if q == nil {
		return batch.Receipt{}, errStarting()
	}
	return q.Append(ctx, b, want)
}

// read answers a request for readings; problem writes what went wrong.
func (i *inlet) read(problem func(http.ResponseWriter, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		reader := i.reader.Load()
		if reader == nil {
			problem(w, errStarting())
			return
		}
		(*reader).ServeHTTP(w, r)
	}
}

func errStarting() error {
	e := telemetry.Errorf(telemetry.Unavailable, "starting", "the daemon is starting; nothing was taken, send the request again")
	e.RetryAfter = time.Second
	return e
}
