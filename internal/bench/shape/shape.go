// Package shape is the ways in which readings can rest in MongoDB, side by side:
// how each is made, loaded, sized and read. What Brim has is the store of
// production; the other two are what one would write without it.
//
//	Documents   a document per reading, a unique index on sensor and time, insertMany   naive
//	Buckets     internal/store/bucket, written by a lane                                Brim's
//	Series      a time-series collection with nothing but a timeField, insertMany       naive
//	TimeSeries  internal/store/timeseries, written by a lane                            Brim's
package shape

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/bench/lane"
	"github.com/brim-telemetry/brim/internal/config"
	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/internal/store/bucket"
	"github.com/brim-telemetry/brim/internal/store/timeseries"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A Kind is a way in which readings can rest.
type Kind string

// The kinds.
const (
	Documents  Kind = "documents"
	Buckets    Kind = "buckets"
	Series     Kind = "series"
	TimeSeries Kind = "timeseries"
)

// A Shape is a kind with what can be chosen of it.
type Shape struct {
	Kind Kind `json:"kind"`
	// Granularity is the length of a window of Buckets. Of the other kinds it is
	// none: a server before 6.3 lets a time-series bucket span an hour, whatever the
	// stream says.
	Granularity time.Duration `json:"granularity_ns,omitempty"`
}

// String names the shape as tables show it.
func (s Shape) String() string {
	switch s.Kind {
	case Documents:
		return "a document per reading"
	case Buckets:
		return "Brim's buckets, " + config.FormatDuration(s.Granularity)
	case Series:
		return "time series, no metaField"
	case TimeSeries:
		return "time series, metaField"
	}
	return string(s.Kind)
}

// naive reports whether the shape is written without Brim.
func (s Shape) naive() bool { return s.Kind == Documents || s.Kind == Series }

var (
	errManySensors = errors.New("a time-series collection without a metaField cannot tell sensors apart: it takes one")
	errNoReadings  = errors.New("there must be at least one sensor and one reading, at an interval of 1 ms or more")
)

// check refuses what cannot be loaded.
func (s Shape) check(r Readings) error {
	if r.Sensors < 1 || r.Count < 1 || r.Interval < time.Millisecond {
		return errNoReadings
	}
	switch s.Kind {
	case Documents, TimeSeries:
		return nil
	case Series:
		if r.Sensors > 1 {
			return errManySensors
		}
		return nil
	case Buckets:
		return store.CheckGranularity(s.Granularity)
	}
	return fmt.Errorf("shape %q is none of %s, %s, %s, %s", s.Kind, Documents, Buckets, Series, TimeSeries)
}

// Begin is when readings of experiments begin: at the boundary of every window,
// and the same in all runs.
func Begin() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }

// Readings are what is loaded: the same for every shape.
type Readings struct {
	Source   lane.Source
	Sensors  int           // of the source that report
	Count    int           // readings of each sensor
	Begin    time.Time     // of reading 0
	Interval time.Duration // between two readings of a sensor
	// Phase is how long after Begin a sensor of Brim's shapes begins, less than
	// Interval. nil: all begin at once.
	Phase func(sensor int) time.Duration
	Late  Late
}

// Late says which readings arrive late.
type Late struct {
	Share    float64       // of the readings, 0 to 1
	From, To time.Duration // by so much
	Seed     uint64
}

// Total is how many readings there are.
func (r Readings) Total() int { return r.Sensors * r.Count }

// Time returns that of reading k.
func (r Readings) Time(k uint64) time.Time {
	return r.Begin.Add(time.Duration(k) * r.Interval) //nolint:gosec // readings of years
}

// commands yields the portions of each command, in the order in which they
// arrive: perUpdate readings of each sensor, then the next, at most size readings
// in a command. A portion of late readings is a command of its own: they come
// when they come.
func (r Readings) commands(perUpdate, size int) iter.Seq[[]lane.Portion] {
	if r.Late.Share > 0 {
		return r.lateCommands(perUpdate)
	}
	return func(yield func([]lane.Portion) bool) {
		var portions []lane.Portion
		rows := 0
		for first := 0; first < r.Count; first += perUpdate {
			n := min(perUpdate, r.Count-first)
			for sensor := range r.Sensors {
				if rows > 0 && rows+n > size {
					if !yield(portions) {
						return
					}
					portions, rows = portions[:0], 0
				}
				portions = append(portions, lane.Portion{Sensor: sensor, First: uint64(first), Count: n}) //nolint:gosec // counts from 0
				rows += n
			}
		}
		if rows > 0 {
			yield(portions)
		}
	}
}

// lateCommands yields runs of up to size readings that follow each other and arrive one
// behind the other, sensor by sensor.
func (r Readings) lateCommands(size int) iter.Seq[[]lane.Portion] {
	return func(yield func([]lane.Portion) bool) {
		for sensor := range r.Sensors {
			order := r.arrivals(sensor)
			for at := 0; at < len(order); {
				n := 1
				for at+n < len(order) && order[at+n] == order[at]+uint64(n) && n < size { //nolint:gosec // counts from 1
					n++
				}
				if !yield([]lane.Portion{{Sensor: sensor, First: order[at], Count: n}}) {
					return
				}
				at += n
			}
		}
	}
}

// arrivals returns the numbers of a sensor's readings in the order in which they
// arrive.
func (r Readings) arrivals(sensor int) []uint64 {
	type arrival struct {
		k  uint64
		at time.Duration // since reading 0
	}
	random := rand.New(rand.NewPCG(r.Late.Seed, uint64(sensor))) //nolint:gosec // no secret, and counts from 0
	all := make([]arrival, r.Count)
	for i := range all {
		all[i] = arrival{uint64(i), time.Duration(i) * r.Interval} //nolint:gosec // counts from 0
		if random.Float64() < r.Late.Share {
			all[i].at += r.Late.From + time.Duration(random.Int64N(int64(r.Late.To-r.Late.From)+1))
		}
	}
	slices.SortStableFunc(all, func(a, b arrival) int { return cmp.Compare(a.at, b.at) })
	order := make([]uint64, len(all))
	for i, a := range all {
		order[i] = a.k
	}
	return order
}

// Untagged is a source whose sensors have no tags, so that a document per
// reading says all that a bucket says.
type Untagged struct{ lane.Source }

// Tags returns none.
func (Untagged) Tags(int) []telemetry.Tag { return nil }

// Doubles makes readings with numbers in which nothing repeats: no compressor
// finds anything in their mantissas. It is a lane.Source.
type Doubles struct {
	Names []string // of the fields
	Seed  uint64
}

// ID is that of a sensor.
func (Doubles) ID(sensor int) string { return sensorID(sensor) }

// Tags returns none.
func (Doubles) Tags(int) []telemetry.Tag { return nil }

// AppendFields appends numbers from 0 to 1.
func (d Doubles) AppendFields(dst []telemetry.Field, sensor int, k uint64, _ time.Time) []telemetry.Field {
	random := rand.NewPCG(d.Seed^uint64(sensor)<<40, k) //nolint:gosec // no secret, and counts from 0
	for _, name := range d.Names {
		dst = append(dst, telemetry.Field{Name: name, Value: telemetry.FloatValue(float64(random.Uint64()>>11) / (1 << 53))})
	}
	return dst
}

// Ratings makes the readings of the published comparison: a rating from 0.5 to
// 5.0 in steps of a half. It is a lane.Source.
type Ratings struct{ Seed uint64 }

// RatingField is the name of the only field of Ratings.
const RatingField = "rating"

// ID is that of a sensor.
func (Ratings) ID(sensor int) string { return sensorID(sensor) }

// Tags returns none.
func (Ratings) Tags(int) []telemetry.Tag { return nil }

// AppendFields appends the rating.
func (s Ratings) AppendFields(dst []telemetry.Field, sensor int, k uint64, _ time.Time) []telemetry.Field {
	random := rand.NewPCG(s.Seed^uint64(sensor)<<40, k) //nolint:gosec // no secret, and counts from 0
	return append(dst, telemetry.Field{Name: RatingField, Value: telemetry.FloatValue(float64(random.Uint64()%10+1) / 2)})
}

func sensorID(sensor int) string { return "s-" + strconv.Itoa(sensor+1) }

// Config says what a collection is to be.
type Config struct {
	Name  string
	Shape Shape
	// Compressor of the collection; empty: the server's default for its kind.
	Compressor store.Compressor
	Readings   Readings
	// PerUpdate is how many readings of a sensor arrive together; 0: 1.
	PerUpdate int
	// MaxReadings and MaxBytes are the caps of a part; 0: as in a daemon.
	MaxReadings, MaxBytes int
}

const (
	// CommandReadings is how many readings a command carries at most, of every
	// shape.
	CommandReadings = 1000

	// The caps and the span of a time-series stream are a daemon's defaults.
	defaultMaxReadings = 1000
	defaultMaxBytes    = 256 << 10
	defaultGranularity = 5 * time.Minute
)

// A writer is a lane or a naive one.
type writer interface {
	// Write returns when the portions are stored: in how many updates or
	// documents.
	Write(ctx context.Context, portions []lane.Portion) (int, error)
}

// A production is a store of production.
type production interface {
	lane.Store
	Prepare(ctx context.Context) error
	Readings(ctx context.Context, q telemetry.Query) iter.Seq2[telemetry.Reading, error]
}

// A Collection holds readings in one shape.
type Collection struct {
	Config

	db     *mongo.Database
	coll   *mongo.Collection
	store  production // nil: naive
	naive  *naive     // nil: Brim's
	writer writer
}

// New makes an empty collection in a MongoDB, in the place of one that had its
// name.
func New(ctx context.Context, m *bench.MongoDB, c Config) (*Collection, error) {
	if err := c.Shape.check(c.Readings); err != nil {
		return nil, fmt.Errorf("make collection %q: %w", c.Name, err)
	}
	if c.PerUpdate == 0 {
		c.PerUpdate = 1
	}
	if c.MaxReadings == 0 {
		c.MaxReadings = defaultMaxReadings
	}
	if c.MaxBytes == 0 {
		c.MaxBytes = defaultMaxBytes
	}
	s := &Collection{Config: c, db: m.Database(), coll: m.Database().Collection(c.Name)}
	if err := s.coll.Drop(ctx); err != nil {
		return nil, fmt.Errorf("drop collection %q: %w", c.Name, err)
	}
	if c.Shape.naive() {
		s.naive = &naive{readings: c.Readings, coll: s.coll, named: c.Readings.Sensors > 1}
		s.writer = s.naive
		return s, s.naive.create(ctx, c.Shape, store.Collection{Database: s.db, Name: c.Name, Compressor: c.Compressor})
	}
	var err error
	if s.store, err = s.newStore(); err != nil {
		return nil, err
	}
	s.writer = lane.New(lane.Config{
		Store: s.store, Source: c.Readings.Source, Stream: c.Name, Granularity: s.window(),
		Begin: c.Readings.Begin, Interval: c.Readings.Interval, Phase: c.Readings.Phase,
	})
	return s, s.store.Prepare(ctx)
}

// Attach goes on with the collection after its mongod was restarted, to read it.
func (c *Collection) Attach(m *bench.MongoDB) (err error) {
	c.db, c.coll = m.Database(), m.Database().Collection(c.Name)
	if c.naive != nil {
		c.naive.coll = c.coll
		return nil
	}
	c.store, err = c.newStore()
	return err
}

func (c *Collection) newStore() (production, error) {
	if c.Shape.Kind == TimeSeries {
		return timeseries.New(timeseries.Config{
			Database: c.db, Stream: c.Name, Granularity: c.window(), Compressor: c.Compressor, Registerer: prometheus.NewRegistry(),
		})
	}
	return bucket.New(bucket.Config{
		Database: c.db, Stream: c.Name, Granularity: c.window(), Compressor: c.Compressor, Registerer: prometheus.NewRegistry(),
		MaxReadings: c.MaxReadings, MaxBytes: c.MaxBytes,
	})
}

// window is that of the stream.
func (c *Collection) window() time.Duration {
	if c.Shape.Granularity == 0 {
		return defaultGranularity
	}
	return c.Shape.Granularity
}

// Loaded is what a load took.
type Loaded struct {
	Took    time.Duration
	Updates int // or documents, where each reading is one
}

// Load writes all readings, command after command, by one writer.
func (c *Collection) Load(ctx context.Context) (l Loaded, err error) {
	began := time.Now()
	for portions := range c.Readings.commands(c.PerUpdate, CommandReadings) {
		n, err := c.writer.Write(ctx, portions)
		if err != nil {
			return l, fmt.Errorf("load %s: %w", c.Shape, err)
		}
		l.Updates += n
	}
	l.Took = time.Since(began)
	return l, nil
}

// Write writes portions of the collection's readings as one command.
func (c *Collection) Write(ctx context.Context, portions []lane.Portion) error {
	_, err := c.writer.Write(ctx, portions)
	return err
}

// Drop removes the collection.
func (c *Collection) Drop(ctx context.Context) error {
	if err := c.coll.Drop(ctx); err != nil {
		return fmt.Errorf("drop collection %q: %w", c.Name, err)
	}
	return nil
}

// sensorKey is the key of the sensor in a document per reading.
const sensorKey = "sensor"

// A naive writer inserts a document per reading, with the driver's _id, and
// relies on nothing but insertMany.
type naive struct {
	readings Readings
	coll     *mongo.Collection
	named    bool // documents tell the sensor
	fields   []telemetry.Field
	memory   []byte // of the documents of a command
	docs     []any
}

// create makes the collection: with a unique index, by which a reading that
// comes twice is found out, or as a time series, which can have none.
func (n *naive) create(ctx context.Context, s Shape, c store.Collection) error {
	create := options.CreateCollection()
	if s.Kind == Series {
		create.SetTimeSeriesOptions(options.TimeSeries().SetTimeField(store.TimeKey).SetGranularity("seconds"))
	}
	if _, err := c.Ensure(ctx, create); err != nil {
		return err
	}
	if s.Kind == Series {
		return nil
	}
	keys := bson.D{{Key: store.TimeKey, Value: 1}}
	if n.named {
		keys = bson.D{{Key: sensorKey, Value: 1}, {Key: store.TimeKey, Value: 1}}
	}
	_, err := n.coll.Indexes().CreateOne(ctx, mongo.IndexModel{Keys: keys, Options: options.Index().SetUnique(true)})
	if err != nil {
		return fmt.Errorf("create the index of collection %q: %w", c.Name, err)
	}
	return nil
}

// Write inserts the portions with one insertMany.
func (n *naive) Write(ctx context.Context, portions []lane.Portion) (documents int, err error) {
	n.memory, n.docs = n.memory[:0], n.docs[:0]
	for _, p := range portions {
		for i := range p.Count {
			n.docs = append(n.docs, n.document(p.Sensor, p.First+uint64(i))) //nolint:gosec // counts from 0
		}
	}
	if _, err := n.coll.InsertMany(ctx, n.docs); err != nil {
		return 0, fmt.Errorf("insert %d documents: %w", len(n.docs), err)
	}
	return len(n.docs), nil
}

// document makes that of a reading.
func (n *naive) document(sensor int, k uint64) bson.Raw {
	time := n.readings.Time(k)
	from := len(n.memory)
	at, doc := bsoncore.AppendDocumentStart(n.memory)
	if n.named {
		doc = bsoncore.AppendStringElement(doc, sensorKey, n.readings.Source.ID(sensor))
	}
	doc = bsoncore.AppendDateTimeElement(doc, store.TimeKey, time.UnixMilli())
	n.fields = n.readings.Source.AppendFields(n.fields[:0], sensor, k, time)
	for _, f := range n.fields {
		doc = appendField(doc, f)
	}
	doc = store.AppendTags(doc, n.readings.Source.Tags(sensor))
	// The document has all of the memory, so that its end is found; an offset that
	// AppendDocumentStart gave cannot fail.
	doc, _ = bsoncore.AppendDocumentEnd(doc, at)
	n.memory = doc
	return bson.Raw(doc[from:len(doc):len(doc)])
}

func appendField(dst []byte, f telemetry.Field) []byte {
	switch v := f.Value; v.Kind() {
	case telemetry.Int:
		return bsoncore.AppendInt64Element(dst, f.Name, v.Int())
	case telemetry.Bool:
		return bsoncore.AppendBooleanElement(dst, f.Name, v.Bool())
	case telemetry.Text:
		return bsoncore.AppendStringElement(dst, f.Name, v.Text())
	default:
		return bsoncore.AppendDoubleElement(dst, f.Name, v.Float())
	}
}
