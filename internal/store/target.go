package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/xoptions"
)

// ErrNotPrepared says that a stream currently has no prepared collection. Nothing
// is written until it has one.
var ErrNotPrepared = errors.New("its collection is not prepared")

// A Target is the collection that a stream is written to: the one that was
// prepared, and no other that has, or gets, its name. An insert into a name
// without a collection would make an ordinary one, without the stream's options
// and indexes. So each write carries the UUID of the collection that it is meant
// for, and MongoDB refuses it elsewhere:
//
//	            Use                    a write is refused, or Stands finds another UUID
//	unprepared ─────▶ Prepared(UUID) ──────────────────────────────────────────────────▶ unprepared
type Target struct {
	lost func() // called when the collection is found to be gone
	now  atomic.Pointer[Prepared]
	sets atomic.Int64
}

// NewTarget returns a target that is unprepared. The function lost must not
// block.
func NewTarget(lost func()) *Target {
	if lost == nil {
		lost = func() {}
	}
	return &Target{lost: lost}
}

// Prepared is a collection that may be written to.
type Prepared struct {
	// Generation differs for each collection: what is remembered of an earlier one
	// says nothing about this one.
	Generation int64
	Bulk       *options.BulkWriteOptionsBuilder  // unordered, to this collection alone
	Insert     *options.InsertManyOptionsBuilder // likewise

	uuid bson.Binary
}

// Now returns the collection to write to, nil while there is none.
func (t *Target) Now() *Prepared { return t.now.Load() }

// Use makes the collection that was prepared the target, and logs if it is not the
// one before. If named is set, writes carry its UUID; otherwise any collection of
// its name accepts them.
func (t *Target) Use(info *Info, named bool, metrics *Metrics, log *slog.Logger) error {
	if now := t.now.Load(); now != nil && now.uuid.Equal(info.UUID) {
		return nil
	}
	p := &Prepared{uuid: info.UUID, Bulk: options.BulkWrite().SetOrdered(false), Insert: options.InsertMany().SetOrdered(false)}
	if named {
		fields := bson.D{{Key: uuidField, Value: info.UUID}}
		err := errors.Join(
			xoptions.SetInternalBulkWriteOptions(p.Bulk, "addCommandFields", fields),
			xoptions.SetInternalInsertManyOptions(p.Insert, "addCommandFields", fields),
		)
		if err != nil {
			return fmt.Errorf("name the collection in writes: %w", err)
		}
	} else {
		log.Warn("this MongoDB does not accept the UUID of a collection in writes (6.0 and later do): if the collection is dropped while the daemon runs, "+
			"writes create an ordinary one of its name until that is noticed", "stream", metrics.Stream)
	}
	if p.Generation = t.sets.Add(1); p.Generation > 1 {
		t.tellAgain(info, metrics, log)
	}
	t.now.Store(p)
	return nil
}

// tellAgain reports a collection that is prepared in place of another.
func (t *Target) tellAgain(info *Info, metrics *Metrics, log *slog.Logger) {
	if info.Created {
		metrics.Recreated.Inc()
		log.Warn("the stream's collection was dropped, or MongoDB was replaced: it was created again, with the stream's settings. "+
			"What it held is gone; what is not stored yet goes to the new one", "stream", metrics.Stream)
		return
	}
	metrics.Replaced.Inc()
	log.Warn("the stream's collection was replaced by another one, as a move does: the new one now has the stream's settings, and writes go to it", "stream", metrics.Stream)
}

// Tolerate lets a collection have another compressor than its stream once the
// daemon is running: a move, or a restored dump, has made it, and it works as
// well.
func (t *Target) Tolerate(mismatch error, log *slog.Logger) error {
	if mismatch == nil || t.sets.Load() == 0 {
		return mismatch
	}
	log.Warn("the stream's collection is used as it is; the next start requires the same compressor in the settings", "mismatch", mismatch)
	return nil
}

// Wrote notes how a write to p ended.
func (t *Target) Wrote(p *Prepared, err error) {
	if err != nil && HasCode(err, collectionUUIDMismatch) {
		t.lose(p)
	}
}

// lose ends the use of p.
func (t *Target) lose(p *Prepared) {
	if t.now.CompareAndSwap(p, nil) {
		t.lost()
	}
}

// Stands checks whether c is still the collection that was prepared. If not, the
// stream is unprepared from now on.
func (t *Target) Stands(ctx context.Context, c Collection) error {
	p := t.now.Load()
	if p == nil {
		return ErrNotPrepared
	}
	info, err := c.Look(ctx)
	switch {
	case err != nil:
		return err
	case info == nil || !info.UUID.Equal(p.uuid):
		t.lose(p)
		return ErrNotPrepared
	}
	return nil
}

// uuidField is how commands name the collection that they are meant for.
const uuidField = "collectionUUID"

// Codes of MongoDB.
const (
	collectionUUIDMismatch = 361
	// Replies to a command with a field that the server does not know: those of
	// MongoDB before 6.0, and those of other servers that speak its protocol.
	unknownField, failedToParse, notImplemented = 40415, 9, 238
)

// TakesUUID checks whether the server accepts the UUID of the collection in a
// write. The write must change nothing, or be refused for its content.
func (c Collection) TakesUUID(ctx context.Context, info *Info, write bson.D) (bool, error) {
	if len(info.UUID.Data) == 0 {
		return false, nil
	}
	err := c.Database.RunCommand(ctx, append(write,
		bson.E{Key: uuidField, Value: info.UUID}, bson.E{Key: "writeConcern", Value: bson.D{{Key: "w", Value: 1}}},
	)).Err()
	var server mongo.ServerError
	switch {
	case err == nil:
		return true, nil
	case !errors.As(err, &server) || Transient(err):
		return false, fmt.Errorf("try a write that names collection %q by its UUID: %w", c.Name, err)
	case HasCode(err, unknownField, failedToParse, notImplemented):
		return false, nil
	case !HasCode(err, collectionUUIDMismatch):
		return true, nil // refused for its content
	}
	// It is gone already, or this server takes no UUID of a collection of its kind.
	now, err := c.Look(ctx)
	if err == nil && (now == nil || !now.UUID.Equal(info.UUID)) {
		err = fmt.Errorf("collection %q was replaced while it was prepared", c.Name)
	}
	return false, err
}
