package daemon

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/ingest"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// An inlet stands where the journal will be, so that the door
// can be open, and refuse, before there is a place to put readings.
type inlet struct {
	holds   *holds
	journal atomic.Pointer[ingest.Journal]
}

// letIn opens the way to the journal.
func (i *inlet) letIn(j ingest.Journal) { i.journal.Store(&j) }

// Append is the door's way to the journal, see ingest.Journal.
func (i *inlet) Append(ctx context.Context, b *batch.Batch, r batch.Request) (batch.Receipt, error) {
	j := i.journal.Load()
	if j == nil {
		return batch.Receipt{}, errStarting()
	}
	inside, err := i.holds.enter(b)
	if err != nil {
		if r.Key != "" { // a request that was accepted before the stream was held is answered as it was then
			if receipt, repeated := (*j).Repeat(ctx, r); repeated != nil || receipt.Repeated {
				return receipt, repeated
			}
		}
		return batch.Receipt{}, err
	}
	defer inside.leave()
	return (*j).Append(ctx, b, r)
}

// Repeat implements ingest.Journal.
func (i *inlet) Repeat(ctx context.Context, r batch.Request) (batch.Receipt, error) {
	j := i.journal.Load()
	if j == nil {
		return batch.Receipt{}, errStarting()
	}
	return (*j).Repeat(ctx, r)
}

func errStarting() error {
	e := telemetry.Errorf(telemetry.Unavailable, "starting", "the daemon is starting; nothing was taken, send the request again")
	e.RetryAfter = time.Second
	return e
}
