package store

import (
	"errors"
	"log/slog"
	"sync/atomic"

	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver"
)

// ErrRefused says that MongoDB refuses the user that the URI names. What was to
// be written waits, as if MongoDB were away, until it lets the user in.
var ErrRefused = errors.New("MongoDB refuses the user of its URI: authentication failed; check the user, the password and authSource")

// admission knows whether new connections are let in. The monitors of the
// driver see a server also where the user is refused, and connections that
// were let in before go on, so neither tells.
type admission struct {
	refused atomic.Bool
	log     *slog.Logger
}

// The codes of a refused user: MongoDB's, and Atlas's.
const (
	authenticationFailed = 18
	atlasError           = 8000
)

// monitor logs the first of a row of refusals, and their end. It is called for
// each use of a connection.
func (a *admission) monitor(e *event.PoolEvent) {
	switch e.Type {
	case event.ConnectionCheckOutFailed:
		var answer driver.Error
		if !errors.As(e.Error, &answer) || answer.Code != authenticationFailed && answer.Code != atlasError {
			return
		}
		if !a.refused.Swap(true) {
			a.log.Error("MongoDB refuses the user: authentication failed; check the user, the password and authSource of the MongoDB URI; what is taken waits meanwhile",
				"server", e.Address, "code", answer.Code)
		}
	case event.ConnectionReady:
		if a.refused.Swap(false) {
			a.log.Info("MongoDB lets the user in", "server", e.Address)
		}
	}
}

// err is ErrRefused while the user is refused.
func (a *admission) err() error {
	if a.refused.Load() {
		return ErrRefused
	}
	return nil
}
