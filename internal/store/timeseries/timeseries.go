// Package timeseries keeps a stream's readings in a native time-series
// collection. Such a collection has no unique index, so the database cannot
// refuse a reading that it has already: after an unknown outcome this store
// looks which readings arrived, and sends only the others. A request that
// reaches the server after that look can still store a reading twice.
package timeseries

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/brim-telemetry/brim/internal/fault"
	"github.com/brim-telemetry/brim/internal/store"
)

const (
	timeField = store.TimeKey
	metaField = "sensor"
)

// Config describes a time-series stream.
type Config struct {
	Database     *mongo.Database // with the concerns of store.Connection.Database
	Stream       string          // also the name of the collection
	Granularity  time.Duration   // span of the server's buckets where it can be chosen, see Prepare
	Compressor   store.Compressor
	Retention    time.Duration // 0: for ever
	WriteTimeout time.Duration // of one command; 0: 10 s
	Registerer   prometheus.Registerer
	Faults       *fault.Injector // nil outside tests
}

// Store writes and reads one time-series stream. Its methods may be called by
// several goroutines, each with its own shares.
type Store struct {
	cfg     Config
	coll    *mongo.Collection
	into    *mongo.Collection // the same, to insert
	metrics *store.Metrics
	inserts inserts
}

// New checks cfg; it does no I/O.
func New(cfg Config) (*Store, error) {
	if err := store.CheckGranularity(cfg.Granularity); err != nil {
		return nil, err
	}
	if cfg.WriteTimeout == 0 {
		cfg.WriteTimeout = 10 * time.Second
	}
	metrics, err := store.NewMetrics(cfg.Registerer, cfg.Stream, store.TimeSeries, cfg.Granularity)
	if err != nil {
		return nil, fmt.Errorf("register metrics of stream %q: %w", cfg.Stream, err)
	}
	return &Store{
		cfg: cfg, metrics: metrics,
		coll: cfg.Database.Collection(cfg.Stream),
		into: cfg.Database.Collection(cfg.Stream, options.Collection().SetRegistry(withoutIDs())),
	}, nil
}

// Prepare creates the collection, or checks that the one that is there can
// take the stream. From MongoDB 6.3 on, the server's buckets span what the
// granularity says; before, they are the server's finest, of one hour. A
// *store.MismatchError is final; other errors may pass.
func (s *Store) Prepare(ctx context.Context) error {
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
	if s.cfg.Retention > 0 {
		create.SetExpireAfterSeconds(int64(s.cfg.Retention / time.Second))
	}
	c := store.Collection{Database: s.cfg.Database, Name: s.cfg.Stream, Compressor: s.cfg.Compressor}
	info, err := c.Ensure(ctx, create)
	if err != nil {
		return err
	}
	if err := c.CheckType(info, "timeseries"); err != nil {
		return err
	}
	if err := s.checkOptions(info.Options, custom); err != nil {
		return err
	}
	if err := c.CheckCompressor(info); err != nil {
		return err
	}
	// The server's own index, where it makes one, is on the whole metaField and
	// cannot find a sensor by its id.
	_, err = s.coll.Indexes().CreateOne(ctx, mongo.IndexModel{
		Keys:    bson.D{{Key: metaField + ".id", Value: 1}, {Key: timeField, Value: 1}},
		Options: options.Index().SetName("brim_sensor_time"),
	})
	if err != nil {
		return fmt.Errorf("create index of collection %q: %w", s.cfg.Stream, err)
	}
	return nil
}

// checkOptions compares the options of an existing collection.
func (s *Store) checkOptions(have bson.Raw, custom bool) error {
	type option struct{ what, have, want string }
	number := func(keys ...string) string {
		v, err := have.LookupErr(keys...)
		if err != nil {
			return "0"
		}
		return strconv.FormatInt(v.AsInt64(), 10)
	}
	text := func(key string) string {
		v, _ := have.Lookup("timeseries", key).StringValueOK()
		return v
	}
	seconds := func(d time.Duration) string { return strconv.FormatInt(int64(d/time.Second), 10) }
	checks := []option{
		{"timeField", text("timeField"), timeField},
		{"metaField", text("metaField"), metaField},
		{"expireAfterSeconds (retention)", number("expireAfterSeconds"), seconds(s.cfg.Retention)},
	}
	if custom {
		for _, key := range []string{"bucketMaxSpanSeconds", "bucketRoundingSeconds"} {
			checks = append(checks, option{key + " (granularity)", number("timeseries", key), seconds(s.cfg.Granularity)})
		}
	} else {
		checks = append(checks, option{"granularity", text("granularity"), "seconds"})
	}
	for _, c := range checks {
		if c.have != c.want {
			return &store.MismatchError{
				Collection: s.cfg.Stream, What: c.what, Have: strconv.Quote(c.have), Want: strconv.Quote(c.want),
				Hint: "choose another stream name or database, or configure the stream as the collection is",
			}
		}
	}
	return nil
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

// collectionID is how a reading's own name is stored: as long as, and of the
// type of, the names that drivers give.
func collectionID(id [12]byte) bson.ObjectID { return bson.ObjectID(id) }
