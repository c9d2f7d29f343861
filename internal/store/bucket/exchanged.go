package bucket

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A migration exchanges the stream's collection by name for one whose readings
// lie in other documents. A walk that has read one window in the old collection and
// another in the new one would leave readings out, or give them twice:
//
//	old   10:00 ■■■  10:01 ■■■  10:02 ■■   ← the cursor, which left 10:02 out
//	new   10:00 ■■■■■■■■        10:02 †    ← 10:02 by itself: its readings are in 10:00 now
//
// A cursor of the old one the server ends by itself. A window read by itself
// then shows what the migration made, and only there is the server asked whether the
// name still stands for the same collection.
var errExchanged = errors.New("the collection was exchanged during a read")

const (
	// exchangeAttempts is how often a read is begun that met an exchange.
	exchangeAttempts = 3
	// identityAge is how old the identity that a read begins with may be. A read
	// that begins so soon after an exchange is taken for one that met it.
	identityAge = 10 * time.Second
	// queryPlanKilled is what ends the cursor of a renamed or dropped collection.
	queryPlanKilled = 175
	// migratedMark stands in tombstones, and in w of parts that hold what was moved.
	migratedMark = "migrated"
)

// An identity is which collection the stream's name stood for, and when.
type identity struct {
	mu   sync.Mutex
	uuid string // empty: none
	at   time.Time
}

// collectionID returns the UUID of the collection that has the stream's name now, or had
// it up to maxAge ago; empty where there is none.
func (s *Store) collectionID(ctx context.Context, maxAge time.Duration) (string, error) {
	s.identity.mu.Lock()
	uuid, at := s.identity.uuid, s.identity.at
	s.identity.mu.Unlock()
	asked := time.Now()
	if !at.IsZero() && asked.Sub(at) < maxAge {
		return uuid, nil
	}
	found, err := s.cfg.Database.ListCollectionSpecifications(ctx, bson.D{{Key: "name", Value: s.cfg.Stream}})
	if err != nil {
		return "", fmt.Errorf("look which collection has the name %q: %w", s.cfg.Stream, err)
	}
	uuid = ""
	if len(found) > 0 && found[0].UUID != nil {
		uuid = string(found[0].UUID.Data)
	}
	s.identity.mu.Lock()
	defer s.identity.mu.Unlock()
	if asked.After(s.identity.at) {
		s.identity.uuid, s.identity.at = uuid, asked
	}
	return uuid, nil
}

// exchanged makes the error of a read that met an exchange, and has given
// something already, or met it too often.
func (s *Store) exchanged(err error) error {
	return &telemetry.Error{
		Kind: telemetry.Unavailable, Code: "stream_moved", RetryAfter: time.Second, Err: err,
		Message: fmt.Sprintf("stream %q was migrated while it was read, so the answer would not be whole; ask again", s.cfg.Stream),
	}
}

// meetsExchange reports whether an error says that the collection was exchanged.
func meetsExchange(err error) bool {
	return errors.Is(err, errExchanged) || store.HasCode(err, queryPlanKilled)
}

// sameCollection returns errExchanged if one of the documents, of a window that
// was read by itself, was made by a migration that came after the walk began.
func (w *walk) sameCollection(docs []bson.Raw) error {
	for _, doc := range docs {
		if !wasMigrated(doc) {
			continue
		}
		now, err := w.store.collectionID(w.ctx, 0)
		if err == nil && now != w.collection {
			err = errExchanged
		}
		return err
	}
	return nil
}

func wasMigrated(doc bson.Raw) bool {
	_, top := doc.LookupErr(migratedMark)
	_, part := doc.LookupErr("w", migratedMark)
	return top == nil || part == nil
}
