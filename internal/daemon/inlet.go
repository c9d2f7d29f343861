package daemon

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/journal"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// An inlet stands before the journal, so that ingest can answer before it is open.
type inlet struct {
	journal *atomic.Pointer[journal.Journal] // the daemon's
}

// Append implements ingest.Journal.
func (i *inlet) Append(ctx context.Context, b *batch.Batch, r batch.Request) (batch.Receipt, error) {
	j := i.journal.Load()
	if j == nil {
		return batch.Receipt{}, errStarting()
	}
	return j.Append(ctx, b, r)
}

// Repeat implements ingest.Journal.
func (i *inlet) Repeat(ctx context.Context, r batch.Request) (batch.Receipt, error) {
	j := i.journal.Load()
	if j == nil {
		return batch.Receipt{}, errStarting()
	}
	return j.Repeat(ctx, r)
}

func errStarting() error {
	e := telemetry.Errorf(telemetry.Unavailable, "starting", "the daemon is starting; nothing was accepted, send the request again")
	e.RetryAfter = time.Second
	return e
}
