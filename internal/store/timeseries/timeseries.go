// Package timeseries stores a stream's readings in a native time-series collection. Such a
// collection has no unique index, so the database cannot reject a duplicate. After an unknown
// outcome, this store looks up which readings were stored, and sends only the others, see
// session.
package timeseries

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/brim-telemetry/brim/internal/store"
)

const (
	timeField = store.TimeKey
	metaField = store.SensorKey
	idField   = metaField + ".id"
)

// Config describes a time-series stream. The granularity is the span of the server's
// buckets where it can be chosen.
type Config = store.Config

// Settings are what can change while the stream is in use.
type Settings = store.Settings

// Store writes and reads one time-series stream. Its methods may be called by
// several goroutines, each with its own writes.
type Store struct {
	*store.Base
	inserts  inserts
	sessions sessions
}

// New checks cfg; it does no I/O.
func New(cfg Config) (*Store, error) {
	base, err := store.NewBase(cfg, store.TimeSeries)
	if err != nil {
		return nil, err
	}
	s := &Store{Base: base}
	s.Change(cfg.Settings())
	return s, nil
}

// Change puts settings in force, from the next insert on. The collection
// follows at the next Prepare.
func (s *Store) Change(c Settings) { s.Use(c) }

// Prepare creates the collection, or checks that the existing one can take the
// stream, and applies the retention of the settings. From MongoDB 6.3 on,
// the server's buckets span what the granularity says; before, they are the
// server's finest, of one hour. A *store.MismatchError or *store.ConcernError is
// final; other errors may pass.
func (s *Store) Prepare(ctx context.Context) error {
	custom, err := s.customSpans(ctx)
	if err != nil {
		return err
	}
	// Otherwise a missing privilege for it would be noticed only when the outcome of an insert is
	// unknown.
	if err := (store.WriteConcern{}).Fence(ctx, s.Database); err != nil {
		return err
	}
	ts := options.TimeSeries().SetTimeField(timeField).SetMetaField(metaField)
	if custom {
		ts.SetBucketMaxSpan(s.Granularity).SetBucketRounding(s.Granularity)
	} else {
		ts.SetGranularity("seconds")
	}
	create := options.CreateCollection().SetTimeSeriesOptions(ts)
	if retention := s.Live.Load().Retention; retention > 0 {
		create.SetExpireAfterSeconds(int64(retention / time.Second))
	}
	// Every time-series collection refuses a document without a time.
	withoutTime := bson.D{{Key: "insert", Value: s.Name}, {Key: "documents", Value: bson.A{bson.D{{Key: "_id", Value: bson.NewObjectID()}}}}}
	return s.Base.Prepare(ctx, store.Preparation{
		Type: "timeseries", Create: create, Probe: withoutTime,
		Check: func(ctx context.Context, c store.Collection, info *store.Info, now *store.Live) error {
			if err := s.checkFields(info.Options); err != nil {
				return err
			}
			if err := s.span(ctx, info.Options, custom); err != nil {
				return err
			}
			if err := s.expire(ctx, info.Options, now.Retention); err != nil {
				return err
			}
			// This index finds a sensor by its id. The server's own index, if it creates one, is
			// on the whole metaField and cannot.
			if err := c.CreateIndex(ctx, "brim_sensor_time", bson.D{{Key: idField, Value: 1}, {Key: timeField, Value: 1}}); err != nil {
				return fmt.Errorf("create index of collection %q: %w", s.Name, err)
			}
			// A view of the stream's former buckets would be empty.
			return store.View{Database: s.Database, Stream: s.Name}.Remove(ctx)
		},
	})
}

// checkFields checks the options that can never be changed.
func (s *Store) checkFields(have bson.Raw) error {
	for _, field := range []struct{ what, want string }{{"timeField", timeField}, {"metaField", metaField}} {
		if name, _ := have.Lookup("timeseries", field.what).StringValueOK(); name != field.want {
			return &store.MismatchError{
				Collection: s.Name, What: field.what, Have: strconv.Quote(name), Want: strconv.Quote(field.want),
				Hint: "choose another stream name or database",
			}
		}
	}
	return nil
}

// span widens the server's buckets to the granularity if possible. They cannot be made narrower.
// Wider ones are also correct, but reading short time ranges is slower.
func (s *Store) span(ctx context.Context, have bson.Raw, custom bool) error {
	want := int64(s.Granularity / time.Second)
	is, chosen := number(have, "timeseries", "bucketMaxSpanSeconds"), number(have, "timeseries", "bucketRoundingSeconds") > 0
	switch {
	case !custom || is == want && chosen:
		return nil
	case !chosen || is > want:
		s.Logger.Info("the time-series collection keeps the span of its buckets, which cannot be made shorter; all stored readings stay readable",
			"stream", s.Stream, "seconds", is, "granularity", s.Granularity)
		return nil
	}
	return s.modify(ctx, "widen the buckets", bson.E{Key: "timeseries", Value: bson.D{
		{Key: "bucketMaxSpanSeconds", Value: want}, {Key: "bucketRoundingSeconds", Value: want},
	}})
}

// expire sets the age at which MongoDB removes readings.
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
	if err := s.Database.RunCommand(ctx, bson.D{{Key: "collMod", Value: s.Name}, change}).Err(); err != nil {
		return fmt.Errorf("%s of collection %q: %w", what, s.Name, err)
	}
	return nil
}

// number returns an integer from the options; 0 if there is none.
func number(options bson.Raw, keys ...string) int64 {
	n, _ := options.Lookup(keys...).AsInt64OK()
	return n
}

// customSpans reports whether the server lets the span of its buckets be set.
func (s *Store) customSpans(ctx context.Context) (bool, error) {
	var info struct {
		Version []int `bson:"versionArray"`
	}
	err := s.Database.RunCommand(ctx, bson.D{{Key: "buildInfo", Value: 1}}).Decode(&info)
	if err != nil {
		return false, fmt.Errorf("ask for MongoDB's version: %w", err)
	}
	if len(info.Version) < 2 {
		return false, errors.New("ask for MongoDB's version: the answer names none")
	}
	major, minor := info.Version[0], info.Version[1]
	return major > 6 || major == 6 && minor >= 3, nil
}
