package maintain

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/brim-telemetry/brim/internal/machine"
	"github.com/brim-telemetry/brim/internal/store"
)

const (
	// retryEvery is the pause before something is tried again.
	retryEvery = 500 * time.Millisecond
	// retryFor is how long MongoDB may be away: longer than an election, or than
	// a daemon with an embedded mongod takes to be restarted.
	retryFor = 2 * time.Minute
)

// transient reports whether err may go away by itself: the server could not be
// reached, or another one becomes the primary.
func transient(err error) bool {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, errHistoryLost) {
		return false
	}
	const cursorNotFound, writeConcernFailed, writeConflict, exceededTimeLimit = 43, 64, 112, 262
	var labeled mongo.LabeledError
	return store.Away(err) || store.HasCode(err, cursorNotFound, writeConcernFailed, writeConflict, exceededTimeLimit) ||
		errors.As(err, &labeled) && (labeled.HasErrorLabel("RetryableWriteError") || labeled.HasErrorLabel("TransientTransactionError") || labeled.HasErrorLabel("ResumableChangeStreamError"))
}

// again carries something out that may be carried out twice, until it has an
// outcome that is known.
func (m *move) again(ctx context.Context, what func() error) error {
	began := time.Now()
	for {
		if err := m.job.check(); err != nil {
			return err
		}
		err := what()
		if !transient(err) || ctx.Err() != nil {
			return err
		}
		if time.Since(began) > retryFor {
			return fmt.Errorf("MongoDB does not come back; run the same command again when it has: %w", err)
		}
		m.tell("MongoDB is away, trying again")
		m.cfg.Logger.Warn("trying again", "err", err)
		if err := machine.Pause(ctx, retryEvery); err != nil {
			return err
		}
	}
}

// againUnsure does so with what writes to the copy. A write of which nothing was
// heard may be carried out behind its own repetition, and behind a comparison.
func (m *move) againUnsure(ctx context.Context, what func() error) error {
	return m.again(ctx, func() error {
		err := what()
		m.job.state.Unsure = m.job.state.Unsure || transient(err)
		return err
	})
}

// save notes how far the move is.
func (m *move) save() error {
	return m.again(m.ctx, m.job.save)
}

// sync returns when all has been seen that was written before it was called.
func (m *move) sync(ctx context.Context) error {
	return m.again(ctx, func() error { return m.follower.sync(ctx) })
}
