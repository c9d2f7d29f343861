package daemon

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/journal"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A lazyJournal passes requests to the journal, and refuses them until it is open.
type lazyJournal struct {
	journal *atomic.Pointer[journal.Journal] // the daemon's
}

// Append implements ingest.Journal.
func (l *lazyJournal) Append(ctx context.Context, b *batch.Batch, r batch.Request) (batch.Receipt, error) {
	j := l.journal.Load()
	if j == nil {
		return batch.Receipt{}, errStarting()
	}
	return j.Append(ctx, b, r)
}

// Repeat implements ingest.Journal.
func (l *lazyJournal) Repeat(ctx context.Context, r batch.Request) (batch.Receipt, error) {
	j := l.journal.Load()
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
