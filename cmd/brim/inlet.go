package main

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/ingest"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// An inlet stands where the journal and the reader will be, so that the door
// can be open, and refuse, before there is a place to put readings.
type inlet struct {
	journal atomic.Pointer[ingest.Journal]
	reader  atomic.Pointer[http.Handler]
}

// letIn opens the way to the journal.
func (i *inlet) letIn(j ingest.Journal) { i.journal.Store(&j) }

// letOut opens the way to what is stored.
func (i *inlet) letOut(reader http.Handler) { i.reader.Store(&reader) }

// Append is the door's way to the journal, see ingest.Journal.
func (i *inlet) Append(ctx context.Context, b *batch.Batch, r batch.Request) (batch.Receipt, error) {
	j := i.journal.Load()
	if j == nil {
		return batch.Receipt{}, errStarting()
	}
	return (*j).Append(ctx, b, r)
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
