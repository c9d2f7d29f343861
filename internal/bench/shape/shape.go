// Package shape has the ways to store readings in MongoDB, side by side: how each is created,
// written, sized and read. Brim's are the production stores; the others are what one would
// write without it.
//
//	Documents   a document per reading, a unique index on sensor and time, insertMany
//	Plain       the same without the index
//	Buckets     internal/store/bucket, written by lanes (Brim)
//	Series      a time-series collection with nothing but a timeField, insertMany
//	TimeSeries  internal/store/timeseries, written by lanes (Brim)
//	Native      a time-series collection with sensor and tags in its metaField, insertMany
//
// Experiments write through here: all at once with Collection.Load, or by the workers of a
// Fleet, unthrottled or on a schedule.
package shape

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/config"
	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/internal/store/bucket"
	"github.com/brim-telemetry/brim/internal/store/timeseries"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A Kind is a way to store readings.
type Kind string

// The kinds.
const (
	Documents  Kind = "documents"
	Plain      Kind = "plain"
	Buckets    Kind = "buckets"
	Series     Kind = "series"
	TimeSeries Kind = "timeseries"
	Native     Kind = "native"
)

// A Shape is a kind and, for Buckets, the window length and how readings are held. Before 6.3,
// a server's time-series buckets span an hour regardless of the stream.
type Shape struct {
	Kind        Kind
	Granularity time.Duration
	Format      store.Format // of Buckets; empty: store.Documents
	Sealed      bool         // Buckets: Load seals them
}

// Packed reports whether buckets hold blocks, which MongoDB cannot query.
func (s Shape) Packed() bool { return s.Format == store.Columns || s.Sealed }

// String names the shape for tables.
func (s Shape) String() string {
	switch s.Kind {
	case Documents:
		return "a document per reading"
	case Buckets:
		name := "Brim's buckets, " + config.FormatDuration(s.Granularity)
		if s.Sealed {
			return name + ", sealed"
		}
		if s.Format == store.Columns {
			return name + ", columns"
		}
		return name
	case Series:
		return "time series, no metaField"
	case TimeSeries:
		return "time series, metaField"
	case Native:
		return "time series, insertMany"
	}
	return string(s.Kind)
}

func (s Shape) naive() bool { return s.Kind == Documents || s.Kind == Plain || s.native() }

// native reports whether it is a time-series collection without Brim.
func (s Shape) native() bool { return s.Kind == Series || s.Kind == Native }

// Begin is when experiments' readings begin: on a boundary of every window, and the same in all
// runs.
func Begin() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }

// A Source makes the readings of sensors, numbered from 0; *load.Sensors is one. It must be
// safe for concurrent use by lanes.
type Source interface {
	ID(sensor int) string
	Tags(sensor int) []telemetry.Tag
	AppendFields(dst []telemetry.Field, sensor int, k uint64, at time.Time) []telemetry.Field
}

// Readings are what to write, the same for every shape.
type Readings struct {
	Source   Source
	Sensors  int           // how many of the source's sensors report
	Count    int           // readings per sensor
	Begin    time.Time     // time of reading 0
	Interval time.Duration // between a sensor's readings
	// At returns the time of a sensor's reading, if not given by Interval.
	At   func(sensor int, k uint64) time.Time
	Late Late
}

// Late defines which readings arrive late.
type Late struct {
	Part     float64       // share of late readings, 0 to 1
	From, To time.Duration // range of the delay
	Seed     uint64
}

// Time returns the time of reading k at regular intervals.
func (r Readings) Time(k uint64) time.Time {
	return r.Begin.Add(time.Duration(k) * r.Interval) //nolint:gosec // readings of years
}

// timeOf returns the time of a sensor's reading k.
func (r Readings) timeOf(sensor int, k uint64) time.Time {
	if r.At != nil {
		return r.At(sensor, k)
	}
	return r.Time(k)
}

// commands yields the portions of each command in order of arrival: perUpdate readings of each
// sensor in turn, at most size readings per command. If some are late, each portion is a
// command of its own.
func (r Readings) commands(perUpdate, size int) iter.Seq[[]Portion] {
	if r.Late.Part > 0 {
		return r.lateCommands(perUpdate)
	}
	return func(yield func([]Portion) bool) {
		var portions []Portion
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
				portions = append(portions, Portion{Sensor: sensor, First: uint64(first), Count: n}) //nolint:gosec // counts from 0
				rows += n
			}
		}
		if rows > 0 {
			yield(portions)
		}
	}
}

// lateCommands yields, sensor by sensor, runs of up to size consecutive readings that also
// arrive consecutively.
func (r Readings) lateCommands(size int) iter.Seq[[]Portion] {
	return func(yield func([]Portion) bool) {
		for sensor := range r.Sensors {
			order := r.arrivals(sensor)
			for i := 0; i < len(order); {
				n := 1
				for i+n < len(order) && order[i+n] == order[i]+uint64(n) && n < size { //nolint:gosec // counts from 1
					n++
				}
				if !yield([]Portion{{Sensor: sensor, First: order[i], Count: n}}) {
					return
				}
				i += n
			}
		}
	}
}

// arrivals returns the numbers of a sensor's readings in order of arrival.
func (r Readings) arrivals(sensor int) []uint64 {
	random := rand.New(rand.NewPCG(r.Late.Seed, uint64(sensor)))         //nolint:gosec // no secret, and counts from 0
	order, at := make([]uint64, r.Count), make([]time.Duration, r.Count) // since reading 0
	for i := range at {
		order[i], at[i] = uint64(i), time.Duration(i)*r.Interval //nolint:gosec // counts from 0
		if random.Float64() < r.Late.Part {
			at[i] += r.Late.From + time.Duration(random.Int64N(int64(r.Late.To-r.Late.From)+1))
		}
	}
	slices.SortStableFunc(order, func(a, b uint64) int { return cmp.Compare(at[a], at[b]) })
	return order
}

// Untagged drops the tags of a source, so that a document per reading contains all that a
// bucket does.
type Untagged struct{ Source }

// Tags returns nil.
func (Untagged) Tags(int) []telemetry.Tag { return nil }

// Numbers makes readings of independent random numbers, without tags. It is a Source.
type Numbers struct {
	Names  []string // field names
	Number func(random uint64) float64
	Seed   uint64
}

// Doubles makes numbers from 0 to 1 with random bits only: their mantissas do not compress.
func Doubles(seed uint64, names ...string) Numbers {
	return Numbers{names, func(random uint64) float64 { return float64(random>>11) / (1 << 53) }, seed}
}

// RatingField is the only field of Ratings.
const RatingField = "rating"

// Ratings makes the readings of the published comparison: 0.5 to 5.0 in steps of 0.5.
func Ratings(seed uint64) Numbers {
	return Numbers{[]string{RatingField}, func(random uint64) float64 { return float64(random%10+1) / 2 }, seed}
}

// ID returns a sensor's ID.
func (Numbers) ID(sensor int) string { return "s-" + strconv.Itoa(sensor+1) }

// Tags returns nil.
func (Numbers) Tags(int) []telemetry.Tag { return nil }

// AppendFields appends the numbers of a reading.
func (n Numbers) AppendFields(dst []telemetry.Field, sensor int, k uint64, _ time.Time) []telemetry.Field {
	random := rand.NewPCG(n.Seed^uint64(sensor)<<40, k) //nolint:gosec // no secret, and counts from 0
	for _, name := range n.Names {
		dst = append(dst, telemetry.Field{Name: name, Value: telemetry.FloatValue(n.Number(random.Uint64()))})
	}
	return dst
}

// Config describes a collection.
type Config struct {
	Name  string
	Shape Shape
	// Compressor of the collection; empty: the server's default for its kind.
	Compressor store.Compressor
	Readings   Readings
	// PerUpdate is how many readings of a sensor arrive together; 0: 1.
	PerUpdate int
	// MaxReadings and MaxBytes cap a part; 0: as in a daemon.
	MaxReadings, MaxBytes int
	Retention             time.Duration // for Buckets, adds an index; 0: forever
	// Relaxed writes are acknowledged from the primary's memory, as in the published figures,
	// so that their time excludes disk syncs.
	Relaxed bool
	// Unordered insertMany continues after a rejected document.
	Unordered bool
}

const (
	// CommandReadings caps the readings in a command of Load.
	CommandReadings = 1000

	defaultGranularity = 5 * time.Minute // of a daemon's stream
)

// A Writer stores portions and returns the number of updates or documents.
type Writer interface {
	Write(ctx context.Context, portions []Portion) int
}

// A Collection holds readings in one shape.
type Collection struct {
	Config

	coll   *mongo.Collection
	writer Writer     // used by Load and Write
	store  production // nil: naive

	mu   sync.Mutex
	took bench.Samples
}

// A production is a production store.
type production interface {
	Write(ctx context.Context, shares []*batch.Pending)
	Prepare(ctx context.Context) error
	Readings(ctx context.Context, q telemetry.Query) iter.Seq2[telemetry.Reading, error]
	Summary(ctx context.Context, q telemetry.SummaryQuery) iter.Seq2[telemetry.Summary, error]
}

// timed records the write times of a collection's store.
type timed struct{ *Collection }

func (t timed) Write(ctx context.Context, shares []*batch.Pending) {
	began := time.Now()
	t.store.Write(ctx, shares)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.took = append(t.took, time.Since(began).Seconds())
}

// Took returns the seconds that each command of Brim's store took since the last call.
func (c *Collection) Took() bench.Samples {
	c.mu.Lock()
	defer c.mu.Unlock()
	took := c.took
	c.took = nil
	return took
}

// New makes an empty collection, replacing any of the same name.
func New(ctx context.Context, m *bench.MongoDB, c Config) *Collection {
	bench.Checkf(m.Database().Collection(c.Name).Drop(ctx), "drop collection %q", c.Name)
	return Open(ctx, m, c)
}

// Open uses the collection of that name, or creates it.
func Open(ctx context.Context, m *bench.MongoDB, c Config) *Collection {
	c.PerUpdate = cmp.Or(c.PerUpdate, 1)
	if c.Shape.Format == store.Columns {
		c.MaxReadings, c.MaxBytes = cmp.Or(c.MaxReadings, 20_000), cmp.Or(c.MaxBytes, 2<<20)
	} else {
		c.MaxReadings, c.MaxBytes = cmp.Or(c.MaxReadings, 1000), cmp.Or(c.MaxBytes, 256<<10)
	}
	s := &Collection{Config: c}
	s.Attach(ctx, m)
	return s
}

// Attach resumes with the collection after its mongod was restarted.
func (c *Collection) Attach(ctx context.Context, m *bench.MongoDB) {
	db := m.Database()
	if c.Relaxed {
		journaled := false
		db = m.Client().Database(m.Name, options.Database().SetWriteConcern(&writeconcern.WriteConcern{W: 1, Journal: &journaled}))
	}
	c.coll = db.Collection(c.Name)
	switch c.Shape.Kind {
	case Buckets:
		c.store = bench.Must(bucket.New(bucket.Config{
			Database: db, Stream: c.Name, Granularity: c.window(), Compressor: c.Compressor, Registerer: prometheus.NewRegistry(),
			MaxReadings: c.MaxReadings, MaxBytes: c.MaxBytes, Retention: c.Retention, Format: cmp.Or(c.Shape.Format, store.Documents),
		}))
	case TimeSeries:
		c.store = bench.Must(timeseries.New(timeseries.Config{
			Database: db, Stream: c.Name, Granularity: c.window(), Compressor: c.Compressor, Registerer: prometheus.NewRegistry(),
		}))
	default:
		c.createNaive(ctx)
	}
	c.writer = c.newWriter()
	if c.store != nil {
		bench.Check(c.store.Prepare(ctx))
	}
}

func (c *Collection) newWriter() Writer {
	if c.Shape.naive() {
		return &naive{collection: c, known: make(map[int]elements)}
	}
	return newLane(timed{c}, c.Name, c.window(), c.Readings)
}

// window is the stream's granularity.
func (c *Collection) window() time.Duration { return cmp.Or(c.Shape.Granularity, defaultGranularity) }

// Load writes all readings with one writer, command after command, seals them if the shape says
// so, and returns how long that took.
func (c *Collection) Load(ctx context.Context) time.Duration {
	began := time.Now()
	for portions := range c.Readings.commands(c.PerUpdate, CommandReadings) {
		c.Write(ctx, portions)
	}
	if c.Shape.Sealed {
		c.Seal(ctx)
	}
	return time.Since(began)
}

const sealsAtOnce = 100 // as in a daemon

// Seal seals all buckets, without the daemon's pauses.
func (c *Collection) Seal(ctx context.Context) {
	s, ok := c.store.(*bucket.Store)
	if !ok {
		bench.Check(fmt.Errorf("seal %s: it has no buckets", c.Shape))
	}
	sealer := s.NewSealer()
	for sensor := bench.Must(s.NextSensor(ctx, "")); sensor != ""; sensor = bench.Must(s.NextSensor(ctx, sensor)) {
		for more := true; more; {
			var seals []bucket.Seal
			for doc, err := range s.Unsealed(ctx, sensor, 0, math.MaxInt64, sealsAtOnce) {
				bench.Check(err)
				seals = append(seals, bench.Must(sealer.Seal(slices.Clone(doc), time.Now())))
			}
			if more = len(seals) == sealsAtOnce; len(seals) == 0 {
				break
			}
			if n := bench.Must(s.ApplySeals(ctx, seals)); n < len(seals) {
				bench.Check(fmt.Errorf("seal %s: %d of %d buckets matched", c.Shape, n, len(seals)))
			}
		}
	}
}

// Write stores portions of the collection's readings.
func (c *Collection) Write(ctx context.Context, portions []Portion) { c.writer.Write(ctx, portions) }

// Index adds an index.
func (c *Collection) Index(ctx context.Context, keys bson.D, options *options.IndexOptionsBuilder) {
	_, err := c.coll.Indexes().CreateOne(ctx, mongo.IndexModel{Keys: keys, Options: options})
	bench.Checkf(err, "create an index of collection %q", c.Name)
}

// Drop removes the collection.
func (c *Collection) Drop(ctx context.Context) {
	bench.Checkf(c.coll.Drop(ctx), "drop collection %q", c.Name)
}

// sensorKey is the sensor's key in a document per reading.
const sensorKey = "sensor"

// named reports whether documents per reading name their sensor.
func (c *Collection) named() bool { return c.Shape.Kind != Series && c.Readings.Sensors > 1 }

// createNaive creates the collection with a unique index, which catches duplicates, or as a
// time series, which can have none.
func (c *Collection) createNaive(ctx context.Context) {
	create := options.CreateCollection()
	if c.Shape.native() {
		series := options.TimeSeries().SetTimeField(store.TimeKey).SetGranularity("seconds")
		if c.Shape.Kind == Native {
			series.SetMetaField(sensorKey)
		}
		create.SetTimeSeriesOptions(series)
	}
	bench.Must(store.Collection{Database: c.coll.Database(), Name: c.Name, Compressor: c.Compressor}.Ensure(ctx, create))
	switch c.Shape.Kind {
	case Documents:
		keys := bson.D{{Key: store.TimeKey, Value: 1}}
		if c.named() {
			keys = append(bson.D{{Key: sensorKey, Value: 1}}, keys...)
		}
		c.Index(ctx, keys, options.Index().SetUnique(true))
	case Native:
		c.Index(ctx, bson.D{{Key: sensorKey + ".id", Value: 1}, {Key: store.TimeKey, Value: 1}}, nil) // later servers add it themselves
	}
}

// A naive writer inserts a document per reading with insertMany and the driver's _id. It reuses
// memory to use little CPU time compared with the driver.
type naive struct {
	collection *Collection
	known      map[int]elements // by sensor
	fields     []telemetry.Field
	made       []bson.D
	docs       []any
}

// Elements identify the sensor in a document, before and after its fields.
type elements struct{ before, behind bson.D }

// Write inserts the portions with one insertMany.
func (n *naive) Write(ctx context.Context, portions []Portion) (documents int) {
	n.docs = n.docs[:0]
	for _, p := range portions {
		of, ok := n.known[p.Sensor]
		if !ok {
			of = n.elements(p.Sensor)
			n.known[p.Sensor] = of
		}
		for i := range p.Count {
			at := len(n.docs)
			if at == len(n.made) {
				n.made = append(n.made, nil)
			}
			n.made[at] = n.document(n.made[at][:0], of, p.Sensor, p.First+uint64(i)) //nolint:gosec // counts from 0
			n.docs = append(n.docs, n.made[at])
		}
	}
	_, err := n.collection.coll.InsertMany(ctx, n.docs, options.InsertMany().SetOrdered(!n.collection.Unordered))
	bench.Checkf(err, "insert %d documents", len(n.docs))
	return len(n.docs)
}

func (n *naive) elements(sensor int) (e elements) {
	source := n.collection.Readings.Source
	var tags bson.D
	for _, t := range source.Tags(sensor) {
		tags = append(tags, bson.E{Key: t.Name, Value: t.Value})
	}
	switch {
	case n.collection.Shape.Kind == Native:
		e.before = bson.D{{Key: sensorKey, Value: bson.D{{Key: "id", Value: source.ID(sensor)}, {Key: "tags", Value: tags}}}}
		return e
	case n.collection.named():
		e.before = bson.D{{Key: sensorKey, Value: source.ID(sensor)}}
	}
	if len(tags) > 0 {
		e.behind = bson.D{{Key: "tags", Value: tags}}
	}
	return e
}

// document appends a reading's document to an empty one.
func (n *naive) document(doc bson.D, of elements, sensor int, k uint64) bson.D {
	r := &n.collection.Readings
	at := r.timeOf(sensor, k)
	n.fields = r.Source.AppendFields(n.fields[:0], sensor, k, at)
	doc = append(append(doc, of.before...), bson.E{Key: store.TimeKey, Value: bson.NewDateTimeFromTime(at)})
	for _, f := range n.fields {
		doc = append(doc, bson.E{Key: f.Name, Value: f.Value.Any()})
	}
	return append(doc, of.behind...)
}
