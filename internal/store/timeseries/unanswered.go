package timeseries

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/fault"
	"github.com/brim-telemetry/brim/internal/store"
)

// An insert that was never answered may still be in one of the server's sockets,
// and be executed after a lookup has missed its readings. So each Write inserts on
// a logical session of its own, with retryable writes, and a lookup follows
// another write on the same session:
//
//	session S   insert, number 7 ──────── delayed ───────▶ refused: 7 is older than 8
//	            no-op,  number 8 ──▶ carried out ──▶ lookup ──▶ insert what is missing
//
// The server executes one command of a session at a time. If the insert comes
// first, the no-op waits until it has ended, and the lookup sees what it stored.

// unanswered are the sessions of this process whose last command has no known
// outcome, by the shares that it carried. It does not rely on Share.State, which a
// lane may drop.
type unanswered struct {
	mu sync.Mutex
	of map[shareKey]*session
}

type shareKey struct {
	session, sensor string
	start           int64
	granularity     time.Duration
}

func keyOf(share *batch.Share) shareKey {
	return shareKey{share.Session, share.Sensor, share.Start, share.Granularity}
}

// A session is a logical one with a command that may still be on its way.
type session struct {
	mu      sync.Mutex // its commands are sent one at a time
	logical *mongo.Session
	barred  bool // that command can no longer be executed
}

// startSession returns a new logical session. An error says that the client is
// disconnected.
func (s *Store) startSession() (*mongo.Session, error) {
	logical, err := s.cfg.Database.Client().StartSession(options.Session().SetCausalConsistency(false))
	if err != nil {
		return nil, fmt.Errorf("start a session: %w", err)
	}
	return logical, nil
}

// add remembers that a command with these readings, the last on its session, has
// no known outcome.
func (u *unanswered) add(logical *mongo.Session, readings []reading) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.of == nil {
		u.of = make(map[shareKey]*session)
	}
	one := &session{logical: logical}
	for _, r := range readings {
		u.of[keyOf(r.share)] = one
	}
}

// session returns the session with a command that may still store rows of the
// share, nil if there is none.
func (u *unanswered) session(share *batch.Share) *session {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.of[keyOf(share)]
}

// forget drops a session whose command can no longer be executed.
func (u *unanswered) forget(one *session) {
	u.mu.Lock()
	defer u.mu.Unlock()
	maps.DeleteFunc(u.of, func(_ shareKey, of *session) bool { return of == one })
}

// fence returns when the session's command has ended or can never begin, and what
// it stored is confirmed by a majority. On a standalone, and with
// retryWrites=false in the URI, commands have no numbers and may overtake each
// other.
func (s *Store) fence(ctx context.Context, one *session) error {
	one.mu.Lock()
	defer one.mu.Unlock()
	if one.barred {
		return nil
	}
	on := ctx
	if !s.cfg.Faults.Off(fault.SeriesOrder) {
		on = mongo.NewSessionContext(ctx, one.logical)
	}
	if err := (store.WriteConcern{}).Fence(on, s.cfg.Database); err != nil {
		return err
	}
	one.barred = true
	one.logical.EndSession(ctx)
	s.unanswered.forget(one)
	return nil
}
