package timeseries

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/brim-telemetry/brim/internal/fault"
	"github.com/brim-telemetry/brim/internal/store"
)

// Settings are what may change while a stream is written.
type Settings struct {
	Retention    time.Duration // 0: for ever
	WriteConcern store.WriteConcern
}

// live is what the settings in force come to.
type live struct {
	Settings
	into *mongo.Collection // the stream's, to insert
	from *mongo.Collection // the stream's, as answers are read from it
}

// answers returns the collection as answers are read from it.
func (s *Store) answers() *mongo.Collection { return s.live.Load().from }

// Change puts settings in force, from the next insert on. The collection
// follows at the next Prepare.
func (s *Store) Change(c Settings) {
	concern := c.WriteConcern
	if s.cfg.Faults.Off(fault.Majority) {
		concern = store.WriteConcern{}
	}
	s.live.Store(&live{
		Settings: c, into: concern.Writes(s.cfg.Database, s.cfg.Stream, options.Collection().SetRegistry(withoutIDs())),
		from: concern.Reads(s.cfg.Database, s.cfg.Stream),
	})
}

// Prepare creates the collection, or checks that the one that is there can take
// the stream, and brings its retention to what the settings say. From then on,
// inserts go to that collection. From MongoDB 6.3 on, the server's buckets span
// what the granularity says; before, they are the server's finest, of one hour. A
// *store.MismatchError or *store.ConcernError is final; other errors may pass.
func (s *Store) Prepare(ctx context.Context) error {
	s.preparing.Lock()
	defer s.preparing.Unlock()
	now := s.live.Load()
	custom, err := s.customSpans(ctx)
	if err != nil {
		return err
	}
	ts := options.TimeSeries().SetTimeField(timeField).SetMetaField(metaField)
	if custom {
		ts.SetBucketMaxSpan(s.cfg.Granularity).SetBucketRounding(s.cfg.Granularity)
	} else {
		ts.SetGranularity("seconds")
	}
	create := options.CreateCollection().SetTimeSeriesOptions(ts)
	if now.Retention > 0 {
		create.SetExpireAfterSeconds(int64(now.Retention / time.Second))
	}
	c := s.collection()
	info, err := c.Ensure(ctx, create)
	if err != nil {
		return err
	}
	if err := c.CheckType(info, "timeseries"); err != nil {
		return err
	}
	named, err := c.TakesUUID(ctx, info, withoutTime(s.cfg.Stream))
	if err != nil {
		return err
	}
	if named {
		c.Only = info.UUID
	}
	for _, step := range []func() error{
		func() error { return s.checkFields(info.Options) },
		func() error { return s.target.Tolerate(c.CheckCompressor(info), s.cfg.Logger) },
		func() error { return s.tellSharding(ctx, c) },
		func() error { return now.WriteConcern.Check(ctx, s.cfg.Database, s.cfg.Stream, s.cfg.Logger) },
		func() error { return s.span(ctx, info.Options, custom) },
		func() error { return s.expire(ctx, info.Options, now.Retention) },
		func() error { return s.index(ctx, c) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	// One of the buckets that it had shows nothing any more.
	if err := (store.View{Database: s.cfg.Database, Stream: s.cfg.Stream}).Remove(ctx); err != nil {
		return err
	}
	return s.target.Use(info, named && !s.cfg.Faults.Off(fault.Target), s.metrics, s.cfg.Logger)
}

// Stands returns nil while the collection that was prepared still has the stream's
// name, and store.ErrNotPrepared if it does not, or if none was prepared.
func (s *Store) Stands(ctx context.Context) error { return s.target.Stands(ctx, s.collection()) }

func (s *Store) collection() store.Collection {
	return store.Collection{Database: s.cfg.Database, Name: s.cfg.Stream, Compressor: s.cfg.Compressor, Exchanging: s.cfg.Exchanging}
}

// withoutTime returns an insert of a document that every time-series collection
// refuses.
func withoutTime(collection string) bson.D {
	return bson.D{{Key: "insert", Value: collection}, {Key: "documents", Value: bson.A{bson.D{{Key: "_id", Value: bson.NewObjectID()}}}}}
}

// index makes the index by which a sensor is found. The server's own, where it
// makes one, is on the whole metaField and cannot find a sensor by its id.
func (s *Store) index(ctx context.Context, c store.Collection) error {
	err := c.CreateIndex(ctx, "brim_sensor_time", bson.D{{Key: metaField + ".id", Value: 1}, {Key: timeField, Value: 1}})
	if err != nil {
		return fmt.Errorf("create index of collection %q: %w", s.cfg.Stream, err)
	}
	return nil
}

// checkFields compares what an existing collection can never change.
func (s *Store) checkFields(have bson.Raw) error {
	for _, field := range []struct{ what, want string }{{"timeField", timeField}, {"metaField", metaField}} {
		if name, _ := have.Lookup("timeseries", field.what).StringValueOK(); name != field.want {
			return &store.MismatchError{
				Collection: s.cfg.Stream, What: field.what, Have: strconv.Quote(name), Want: strconv.Quote(field.want),
				Hint: "choose another stream name or database",
			}
		}
	}
	return nil
}

// span widens the server's buckets to the granularity where both can be. They
// cannot be made narrower; wider ones are as right, and only cost more to read
// a short time of.
func (s *Store) span(ctx context.Context, have bson.Raw, custom bool) error {
	want := int64(s.cfg.Granularity / time.Second)
	is, chosen := number(have, "timeseries", "bucketMaxSpanSeconds"), number(have, "timeseries", "bucketRoundingSeconds") > 0
	switch {
	case !custom || is == want && chosen:
		return nil
	case !chosen || is > want:
		s.cfg.Logger.Info("the time-series collection keeps the span of its buckets, which cannot be made shorter; all that is stored stays readable",
			"stream", s.cfg.Stream, "seconds", is, "granularity", s.cfg.Granularity)
		return nil
	}
	return s.modify(ctx, "widen the buckets", bson.E{Key: "timeseries", Value: bson.D{
		{Key: "bucketMaxSpanSeconds", Value: want}, {Key: "bucketRoundingSeconds", Value: want},
	}})
}

// expire brings the age at which readings are removed to the retention.
func (s *Store) expire(ctx context.Context, have bson.Raw, retention time.Duration) error {
	want := int64(retention / time.Second)
	if number(have, "expireAfterSeconds") == want {
		return nil
	}
	var to any = want
	if want == 0 {
		to = "off"
	}
	return s.modify(ctx, "set retention", bson.E{Key: "expireAfterSeconds", Value: to})
}

func (s *Store) modify(ctx context.Context, what string, change bson.E) error {
	if err := s.cfg.Database.RunCommand(ctx, bson.D{{Key: "collMod", Value: s.cfg.Stream}, change}).Err(); err != nil {
		return fmt.Errorf("%s of collection %q: %w", what, s.cfg.Stream, err)
	}
	return nil
}

// number returns a whole number of the options, 0 if there is none.
func number(options bson.Raw, keys ...string) int64 {
	n, _ := options.Lookup(keys...).AsInt64OK()
	return n
}

// customSpans reports whether the server lets the span of its buckets be set.
func (s *Store) customSpans(ctx context.Context) (bool, error) {
	var info struct {
		Version []int `bson:"versionArray"`
	}
	err := s.cfg.Database.RunCommand(ctx, bson.D{{Key: "buildInfo", Value: 1}}).Decode(&info)
	if err != nil {
		return false, fmt.Errorf("ask for MongoDB's version: %w", err)
	}
	if len(info.Version) < 2 {
		return false, errors.New("ask for MongoDB's version: the answer names none")
	}
	major, minor := info.Version[0], info.Version[1]
	return major > 6 || major == 6 && minor >= 3, nil
}
