// Package bucket stores a stream's readings in bucket documents: one document for each sensor,
// window and part, to which readings are appended by a guarded upsert. The guard and the data
// change in one update of one document, so an update can be repeated without storing a reading
// twice:
//
//	pending ─▶ cut ─▶ guarded update ─▶ bulkWrite ─┬─ applied ───▶ drop the rows
//	             ▲                                 ├─ E11000 ────▶ look up all parts ─┬─ stored already ─▶ drop
//	             │                                 │                                  ├─ part full ──────▶ close it, next part
//	             │                                 │                                  └─ neither ────────▶ wait
//	             │                                 ├─ unknown ───▶ wait
//	             └─ smaller, or the next part ◀────┴─ content ───▶ halve, until one reading stands alone
//
// This file prepares the collection. write.go implements the diagram, hang.go handles locked
// documents, update.go encodes updates, read.go reads readings.
package bucket

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/store"
)

// Config describes a bucket stream.
type Config = store.Config

// Settings are what can change while the stream is in use.
type Settings = store.Settings

// Store writes and reads one bucket stream. Its methods may be called by
// several goroutines, each with its own writes.
type Store struct {
	*store.Base
	bulks      bulks
	late       late
	viewWarned atomic.Bool  // logged that the view does not show blocks
	dayWarned  atomic.Bool  // logged that a rollup is too large
	sharded    atomic.Bool  // the collection is sharded; known once it is prepared
	slowest    atomic.Int64 // of the recent commands, in ns; see patience
}

// New checks cfg; it does no I/O.
func New(cfg Config) (*Store, error) {
	if err := check(cfg.Settings()); err != nil {
		return nil, err
	}
	base, err := store.NewBase(cfg, store.Bucket)
	if err != nil {
		return nil, err
	}
	base.Use(cfg.Settings())
	return &Store{Base: base}, nil
}

// maxPartBytes keeps an update under MongoDB's limit of 16 MiB, even if every field of every
// reading has a different name: the statistics then take up to five times the bytes of the
// readings.
const maxPartBytes = 2 << 20

func check(c Settings) error {
	switch {
	case c.MaxReadings < 1 || c.MaxReadings > 1_000_000:
		return fmt.Errorf("bucket-max-readings %d is out of range; allowed: 1 to 1000000", c.MaxReadings)
	case c.MaxBytes < 1<<10 || c.MaxBytes > maxPartBytes:
		return fmt.Errorf("bucket-max-bytes %d is out of range; allowed: 1KiB to 2MiB", c.MaxBytes)
	case c.MaxReadingsPerUpdate < 0:
		return fmt.Errorf("max-readings-per-update %d is negative; 0 means no limit", c.MaxReadingsPerUpdate)
	}
	return nil
}

// Change puts settings in force, from the next update on. The collection
// follows at the next Prepare.
func (s *Store) Change(c Settings) error {
	err := check(c)
	if err == nil {
		err = store.CheckGranularity(s.Granularity, c.Format)
	}
	if err != nil {
		return err
	}
	s.Use(c)
	return nil
}

// Prepare creates the collection, or checks that the existing one can take the
// stream, and applies the retention and the view of the settings. A
// *store.MismatchError or *store.ConcernError is final; other errors may pass.
func (s *Store) Prepare(ctx context.Context) error {
	noMatch := bson.D{{Key: "update", Value: s.Name}, {Key: "updates", Value: bson.A{bson.D{
		{Key: "q", Value: bson.D{{Key: "_id", Value: bson.D{}}}}, {Key: "u", Value: changeNothing}, {Key: "multi", Value: true}, // no _id is empty
	}}}}
	return s.Base.Prepare(ctx, store.Preparation{Type: "collection", Create: options.CreateCollection(), Probe: noMatch, Check: s.check})
}

// changeNothing is an update for filters that match no document.
var changeNothing = bson.D{{Key: "$set", Value: bson.D{{Key: "never", Value: true}}}}

func (s *Store) check(ctx context.Context, c store.Collection, info *store.Info, now *store.Live) error {
	if err := c.CheckShape(info); err != nil {
		return err
	}
	sharded, err := c.Sharded(ctx)
	if err != nil {
		return err
	}
	s.sharded.Store(sharded)
	if s.Rollup > 0 {
		if err := s.ensureRollups(ctx, now); err != nil {
			return err
		}
		c.Expiring = countedOnly
	}
	if err := s.expire(ctx, c, now.Retention); err != nil {
		return err
	}
	if info.HasValidator() {
		s.Logger.Warn("the stream's collection has a validator: readings that it refuses wait in the journal", "stream", s.Stream)
	}
	return s.ensureView(ctx, now.View)
}

// expiryMargin is how much longer parts are kept if the stream has rollups. A late reading, at
// most as old as the retention allows, must be stored, sealed and counted while all other parts of
// its step still exist.
const expiryMargin = 2 * time.Hour

// expire makes MongoDB remove buckets once even their newest possible reading is older than the
// retention. MongoDB counts from a bucket's start.
func (s *Store) expire(ctx context.Context, c store.Collection, retention time.Duration) error {
	if retention == 0 {
		return c.EnsureExpiry(ctx, "bucketStart", 0)
	}
	if s.Rollup > 0 {
		retention += s.Rollup + expiryMargin
	}
	have, _, err := c.Expiry(ctx)
	if err != nil {
		return err
	}
	window := s.Granularity
	if have != retention+window { // else the last lookup found no longer windows
		if window, err = c.LongestWindow(ctx, window); err != nil {
			return err
		}
	}
	if window > s.Granularity {
		s.Logger.Info("there may be buckets of a longer granularity; until a start finds that the last one is gone, all buckets stay that much longer",
			"stream", s.Stream, "longer", window)
	}
	return c.EnsureExpiry(ctx, "bucketStart", retention+window)
}

// ensureView creates or removes the view. A stream works without it, so a permanent error is only
// logged.
func (s *Store) ensureView(ctx context.Context, want bool) error {
	view := store.View{Database: s.Database, Stream: s.Name}
	if !want {
		return s.tolerate(view.Remove(ctx))
	}
	var err error
	if view.Blocks, err = view.RunsJavaScript(ctx); err != nil {
		return err
	}
	if !view.Blocks && !s.viewWarned.Swap(true) {
		s.Logger.Warn("MongoDB does not run JavaScript (security.javascriptEnabled), so the stream's view does not show readings in blocks: those of --bucket-format columns, and those that were sealed",
			"stream", s.Stream, "view", store.ViewName(s.Name))
	}
	foreign, err := view.Ensure(ctx)
	if foreign {
		s.Logger.Warn("something that Brim did not make has the name of the stream's view, and is left alone; view: off ends this message",
			"stream", s.Stream, "name", store.ViewName(s.Name))
	}
	return s.tolerate(err)
}

func (s *Store) tolerate(err error) error {
	const unauthorized = 13
	if !store.HasCode(err, unauthorized) {
		return err
	}
	s.Logger.Warn("MongoDB does not let the daemon maintain the stream's view; view: off ends this message", "stream", s.Stream, "err", err)
	return nil
}

// ofSensor returns a filter for documents of one sensor that a router can target to the shards
// that have them. A router derives the shard key from an exact _id. From a range of _ids it
// cannot, and queries all shards, unless the filter also names the sensor:
//
//	{_id: {s, b, g, p}}                             one shard: updates, fences
//	{_id: {$gte: …, $lt: …}}                        all shards
//	{"_id.s": s, _id: {$gte: …, $lt: …}}            one shard: queries for a sensor
func (s *Store) ofSensor(sensor string, filter bson.D) bson.D {
	if !s.sharded.Load() {
		return filter
	}
	return append(bson.D{{Key: "_id.s", Value: sensor}}, filter...)
}

// confirm waits until readings that a lookup has just found are confirmed like an acknowledged
// write. On a sharded collection, it sends updates that match nothing to the shards that were
// queried, because a write to another shard would not wait for them.
func (s *Store) confirm(ctx context.Context, writes []*batch.Pending) error {
	now := s.Live.Load()
	if !s.sharded.Load() || now.WriteConcern.Members <= 1 {
		return now.WriteConcern.Confirm(ctx, s.Database)
	}
	fences := make([]mongo.WriteModel, len(writes))
	for i, pending := range writes {
		at, filter := int32(0), []byte{0, 0, 0, 0}
		filter = appendID(filter, pending, 0)
		// With a predicate that can never be true, the optimizer would drop the rest of the
		// filter, and the router could not derive the shard.
		filter = end(bsoncore.AppendStringElement(filter, "full", "never"), at)
		fences[i] = mongo.NewUpdateOneModel().SetFilter(bson.Raw(filter)).SetUpdate(changeNothing)
	}
	if _, err := now.Into.BulkWrite(ctx, fences, options.BulkWrite().SetOrdered(false)); err != nil {
		return fmt.Errorf("wait for the write concern %s: %w", now.WriteConcern, err)
	}
	return nil
}
