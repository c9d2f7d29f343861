package bucket

import (
	"context"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/brim-telemetry/brim/internal/fault"
	"github.com/brim-telemetry/brim/internal/store"
)

// Settings are what may change while a stream is written. Caps that are lowered
// close the parts that are over them; those that are raised leave closed parts
// closed.
type Settings struct {
	MaxReadings          int           // readings in a part, 1 to 1,000,000
	MaxBytes             int           // estimated BSON bytes of the readings in a part, 1 KiB to 2 MiB
	MaxReadingsPerUpdate int           // 0: no limit; 1: no merging
	Retention            time.Duration // 0: for ever
	WriteConcern         store.WriteConcern
	View                 bool // a store.View stands beside the collection
}

func (c Config) settings() Settings {
	return Settings{
		MaxReadings: c.MaxReadings, MaxBytes: c.MaxBytes, MaxReadingsPerUpdate: c.MaxReadingsPerUpdate,
		Retention: c.Retention, WriteConcern: c.WriteConcern, View: c.View,
	}
}

// maxPartBytes keeps an update under the 16 MiB that a document may have, even
// if every field of every reading has another name: the statistics then take
// up to five times the bytes of the readings.
const maxPartBytes = 2 << 20

func (c Settings) check() error {
	switch {
	case c.MaxReadings < 1 || c.MaxReadings > 1_000_000:
		return fmt.Errorf("bucket-max-readings %d is out of range; allowed are 1 to 1000000", c.MaxReadings)
	case c.MaxBytes < 1<<10 || c.MaxBytes > maxPartBytes:
		return fmt.Errorf("bucket-max-bytes %d is out of range; allowed are 1KiB to 2MiB", c.MaxBytes)
	case c.MaxReadingsPerUpdate < 0:
		return fmt.Errorf("max-readings-per-update %d is negative; 0 means no limit", c.MaxReadingsPerUpdate)
	}
	return nil
}

// live is what the settings in force come to.
type live struct {
	Settings
	into *mongo.Collection // the stream's, as readings are written to it
	from *mongo.Collection // the stream's, as answers are read from it
}

// answers returns the collection as answers are read from it.
func (s *Store) answers() *mongo.Collection { return s.live.Load().from }

// Change puts settings in force, from the next update on. The collection
// follows at the next Prepare.
func (s *Store) Change(c Settings) error {
	if err := c.check(); err != nil {
		return err
	}
	concern := c.WriteConcern
	if s.cfg.Faults.Off(fault.Majority) {
		concern = store.WriteConcern{} // that of the database, which has none then
	}
	s.live.Store(&live{Settings: c, into: concern.Writes(s.cfg.Database, s.cfg.Stream), from: concern.Reads(s.cfg.Database, s.cfg.Stream)})
	return nil
}

// Prepare creates the collection, or checks that the one that is there can take
// the stream, and brings its retention and its view to what the settings say. From
// then on, writes go to that collection. A *store.MismatchError or
// *store.ConcernError is final; other errors may pass.
func (s *Store) Prepare(ctx context.Context) error {
	s.preparing.Lock()
	defer s.preparing.Unlock()
	now, c := s.live.Load(), s.collection()
	info, err := c.Ensure(ctx, options.CreateCollection())
	if err != nil {
		return err
	}
	if err := c.CheckType(info, "collection"); err != nil {
		return err
	}
	named, err := c.TakesUUID(ctx, info, matchesNone(s.cfg.Stream))
	if err != nil {
		return err
	}
	if named {
		c.Only = info.UUID
	}
	for _, check := range []func() error{
		func() error { return s.target.Tolerate(c.CheckCompressor(info), s.cfg.Logger) },
		func() error { return c.CheckShape(info) },
		func() error { return s.checkSharding(ctx, c) },
		func() error { return now.WriteConcern.Check(ctx, s.cfg.Database, s.cfg.Stream, s.cfg.Logger) },
		func() error { return s.expire(ctx, c, now.Retention) },
	} {
		if err := check(); err != nil {
			return err
		}
	}
	if info.HasValidator() {
		s.cfg.Logger.Warn("the stream's collection has a validator: what it refuses waits in the journal; `brim doctor` knows one that a move left behind",
			"stream", s.cfg.Stream)
	}
	if err := s.show(ctx, now.View); err != nil {
		return err
	}
	return s.target.Use(info, named && !s.cfg.Faults.Off(fault.Target), s.metrics, s.cfg.Logger)
}

// Stands returns nil while the collection that was prepared still has the stream's
// name, and store.ErrNotPrepared if it does not, or if none was prepared.
func (s *Store) Stands(ctx context.Context) error { return s.target.Stands(ctx, s.collection()) }

func (s *Store) collection() store.Collection {
	return store.Collection{Database: s.cfg.Database, Name: s.cfg.Stream, Compressor: s.cfg.Compressor}
}

// matchesNone returns an update that matches no document, since no _id is empty.
func matchesNone(collection string) bson.D {
	return bson.D{{Key: "update", Value: collection}, {Key: "updates", Value: bson.A{bson.D{
		{Key: "q", Value: bson.D{{Key: "_id", Value: bson.D{}}}}, {Key: "u", Value: bson.D{{Key: "$set", Value: bson.D{{Key: "never", Value: true}}}}}, {Key: "multi", Value: true},
	}}}}
}

// expire makes MongoDB remove buckets when their youngest reading can be no
// younger than the retention: it counts from a bucket's start.
func (s *Store) expire(ctx context.Context, c store.Collection, retention time.Duration) error {
	if retention == 0 {
		return c.EnsureExpiry(ctx, "bucketStart", 0)
	}
	have, _, err := c.Expiry(ctx)
	if err != nil {
		return err
	}
	window := s.cfg.Granularity
	if have != retention+window { // else what was found then holds
		if window, err = c.LongestWindow(ctx, window); err != nil {
			return err
		}
	}
	if window > s.cfg.Granularity {
		s.cfg.Logger.Info("there are buckets of a longer granularity, or perhaps are; until the last is gone, and a start sees it, all buckets stay that much longer",
			"stream", s.cfg.Stream, "longer", window)
	}
	return c.EnsureExpiry(ctx, "bucketStart", retention+window)
}

// show makes the view, or takes it away. A stream does well without one, so
// what keeps a view from being made is only told, unless it may pass.
func (s *Store) show(ctx context.Context, want bool) error {
	view := store.View{Database: s.cfg.Database, Stream: s.cfg.Stream}
	var foreign bool
	var err error
	if want {
		foreign, err = view.Ensure(ctx)
	} else {
		err = view.Remove(ctx)
	}
	const unauthorized = 13
	switch {
	case foreign:
		s.cfg.Logger.Warn("the name of the stream's view is taken by something that Brim did not make, which is left alone; view: off ends this message",
			"stream", s.cfg.Stream, "name", store.ViewName(s.cfg.Stream))
	case store.HasCode(err, unauthorized):
		s.cfg.Logger.Warn("the stream's view cannot be kept up; view: off ends this message", "stream", s.cfg.Stream, "err", err)
		err = nil
	}
	return err
}
