package maintain

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/brim-telemetry/brim/internal/machine"
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
	if mongo.IsNetworkError(err) || mongo.IsTimeout(err) {
		return true
	}
	var server mongo.ServerError
	if errors.As(err, &server) {
		for _, label := range []string{"RetryableWriteError", "TransientTransactionError", "ResumableChangeStreamError"} {
			if server.HasErrorLabel(label) {
				return true
			}
		}
		for _, code := range transientCodes() {
			if server.HasErrorCode(code) {
				return true
			}
		}
	}
	return false
}

// transientCodes are those of a server that starts, stops, or is no primary.
func transientCodes() []int {
	return []int{
		6,     // HostUnreachable
		7,     // HostNotFound
		43,    // CursorNotFound
		64,    // WriteConcernFailed
		89,    // NetworkTimeout
		91,    // ShutdownInProgress
		112,   // WriteConflict
		133,   // FailedToSatisfyReadPreference
		134,   // ReadConcernMajorityNotAvailableYet
		189,   // PrimarySteppedDown
		262,   // ExceededTimeLimit
		9001,  // SocketException
		10107, // NotWritablePrimary
		11600, // InterruptedAtShutdown
		11602, // InterruptedDueToReplStateChange
		13435, // NotPrimaryNoSecondaryOk
		13436, // NotPrimaryOrSecondary
	}
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
