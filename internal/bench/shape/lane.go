package shape

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"golang.org/x/sync/errgroup"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/machine"
	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A command of a lane is limited in updates and rows, as in the daemon.
const (
	mostShares = 1000
	mostRows   = 20_000
)

// PerCommand returns how many updates of this many readings fit one command.
func PerCommand(readings int) int { return max(1, min(mostShares, mostRows/max(readings, 1))) }

// A lane writes readings straight into a store, like a lane of the queue that has merged
// several per bucket. It bypasses ingest and journal, and every number is set exactly. A lane
// belongs to one goroutine, and a bucket to one lane.
type lane struct {
	store       shareStore
	stream      string
	granularity time.Duration
	readings    Readings

	session  string
	next     uint64 // next sequence number
	writes   uint64 // commands so far
	interner *batch.Interner
	sensors  map[int]*sensor
	fields   []telemetry.Field
	// The shares of the command being written, their sensors, and the open share of each
	// portion. Their memory is reused.
	shares []*batch.Pending
	of     []*sensor
	open   []openShare
}

// A shareStore is what a lane writes to.
type shareStore interface {
	Write(ctx context.Context, shares []*batch.Pending)
}

func newLane(to shareStore, stream string, granularity time.Duration, r Readings) *lane {
	return &lane{
		store: to, stream: stream, granularity: granularity, readings: r,
		session: batch.NewSession(), next: 1, interner: batch.NewInterner(0), sensors: make(map[int]*sensor),
	}
}

// A sensor is what a lane knows about one sensor.
type sensor struct {
	series *batch.Series // nil before the first reading
	start  int64         // of the bucket that state belongs to
	state  any           // the store's knowledge about that bucket
	write  uint64        // the last command that contained the sensor
}

type openShare struct {
	share *batch.Pending
	of    *sensor
}

// A Portion is consecutive readings of a sensor.
type Portion struct {
	Sensor int
	First  uint64 // number of the first reading
	Count  int
}

// Portions returns the same range of readings for each sensor.
func Portions(sensors, first, count int) []Portion {
	out := make([]Portion, sensors)
	for i := range out {
		out[i] = Portion{Sensor: i, First: uint64(first), Count: count} //nolint:gosec // counts from 0
	}
	return out
}

// Write merges the portions by bucket, returns once all are stored, and reports how many
// updates that took. A portion that crosses a window boundary takes several.
func (l *lane) Write(ctx context.Context, portions []Portion) (updates int) {
	for len(portions) > 0 {
		n := l.together(portions)
		l.fill(portions[:n])
		updates += l.drain(ctx, slices.Clone(l.shares))
		for i, share := range l.shares {
			l.of[i].start, l.of[i].state = share.Start, share.State
		}
		clear(l.shares) // frees their readings
		portions = portions[n:]
	}
	return updates
}

// together returns how many of the portions fit one command. It contains a sensor only once, so
// that a bucket has one update in flight.
func (l *lane) together(portions []Portion) int {
	l.writes++
	rows := 0
	for n, p := range portions {
		s := l.sensor(p.Sensor)
		if s.write == l.writes || n == mostShares || n > 0 && rows+p.Count > mostRows {
			return n
		}
		s.write = l.writes
		rows += p.Count
	}
	return len(portions)
}

func (l *lane) sensor(number int) *sensor {
	s := l.sensors[number]
	if s == nil {
		s = &sensor{}
		l.sensors[number] = s
	}
	return s
}

const (
	mostWaits = 5 // of a command before it fails
	waitPause = 100 * time.Millisecond
)

var errStuck = errors.New("MongoDB does not accept the readings")

// drain writes shares until all readings are stored, and returns the number of updates. It
// modifies the slice.
func (l *lane) drain(ctx context.Context, left []*batch.Pending) (updates int) {
	for waits := 0; len(left) > 0; {
		updates += len(left)
		l.store.Write(ctx, left)
		bench.Check(context.Cause(ctx))
		left = slices.DeleteFunc(left, func(share *batch.Pending) bool { return len(share.Rows) == 0 })
		for _, share := range left {
			if share.Verdict == batch.Poison || waits == mostWaits {
				bench.Check(errors.Join(errStuck, share.Err))
			}
		}
		if len(left) > 0 && left[0].Verdict != batch.Again {
			waits++
			bench.Check(machine.Pause(ctx, waitPause))
		}
	}
	return updates
}

// fill makes the shares of a command. As in the daemon, each reading of a share comes from a
// different request, and a request has one reading from each sensor.
func (l *lane) fill(portions []Portion) {
	l.shares, l.of, l.open = l.shares[:0], l.of[:0], l.open[:0]
	most := 0
	for _, p := range portions {
		l.open = append(l.open, openShare{of: l.sensor(p.Sensor)})
		most = max(most, p.Count)
	}
	for step := range most {
		b := l.request(portions, step)
		index := uint32(0)
		for i, p := range portions {
			if step >= p.Count {
				continue
			}
			start, open := l.windowStart(p.Sensor, p.First+uint64(step)), &l.open[i] //nolint:gosec // counts from 0
			if open.share == nil || open.share.Start != start {
				open.share = &batch.Pending{
					Stream: l.stream, Sensor: l.readings.Source.ID(p.Sensor), Start: start, Granularity: l.granularity, Session: l.session,
				}
				if open.of.start == start {
					open.share.State = open.of.state
				}
				l.shares, l.of = append(l.shares, open.share), append(l.of, open.of)
			}
			open.share.Rows = append(open.share.Rows, batch.Ref{Batch: b, Index: index})
			index++
		}
	}
}

func (l *lane) windowStart(sensor int, k uint64) int64 {
	return store.WindowStart(l.readings.timeOf(sensor, k).UnixMilli(), l.granularity)
}

// request makes a batch of reading number step from each portion that has it, as ingest passes
// batches on and the journal numbers them.
func (l *lane) request(portions []Portion, step int) *batch.Batch {
	b, source := l.interner.Builder(time.Now()), l.readings.Source
	index := 0
	for i, p := range portions {
		if step >= p.Count {
			continue
		}
		b.Begin(l.stream, index, telemetry.TimeRange{Newest: math.MaxInt64})
		of := l.open[i].of
		if of.series != nil {
			b.SameSeries(of.series)
		} else {
			b.Sensor([]byte(source.ID(p.Sensor)))
			for _, tag := range source.Tags(p.Sensor) {
				b.Tag([]byte(tag.Name), []byte(tag.Value))
			}
		}
		k := p.First + uint64(step) //nolint:gosec // counts from 0
		at := l.readings.timeOf(p.Sensor, k)
		b.Time(at.UnixMilli())
		l.fields = source.AppendFields(l.fields[:0], p.Sensor, k, at)
		for _, f := range l.fields {
			b.Add(f)
		}
		if refusal := b.End(); refusal != nil {
			bench.Checkf(refusal, "make a reading")
		}
		of.series = b.LastSeries()
		index++
	}
	made := b.Batch()
	made.Session, made.FirstSeq = l.session, l.next
	l.next += uint64(index) //nolint:gosec // counts from 0
	return made
}

// model stores a portion, which must fit one bucket, and returns its document after deleting it
// from the collection.
func (l *lane) model(ctx context.Context, coll *mongo.Collection, p Portion) (document bson.Raw) {
	l.Write(ctx, []Portion{p})
	filter := bson.D{{Key: "_id", Value: l.bucketID(p.Sensor, p.First)}}
	bench.Checkf(coll.FindOneAndDelete(ctx, filter).Decode(&document), "read the first bucket")
	l.sensor(p.Sensor).state = nil // the bucket is gone
	if n, ok := document.Lookup("count").AsInt64OK(); !ok || n != int64(p.Count) {
		bench.Check(fmt.Errorf("make a bucket of %d readings: it has %d; they are not all of one window and part", p.Count, n))
	}
	return document
}

func (l *lane) bucketID(sensor int, k uint64) bson.D {
	return bson.D{
		{Key: "s", Value: l.readings.Source.ID(sensor)}, {Key: "b", Value: bson.DateTime(l.windowStart(sensor, k))},
		{Key: "g", Value: int32(l.granularity / time.Second)}, {Key: "p", Value: int32(0)},
	}
}

const (
	copiesAtOnce = 1000
	bytesAtOnce  = 8 << 20
)

// copies inserts the model for each sensor of a worker, which is far quicker than store
// updates. It stops at a time, unless that is zero, and returns how many sensors have a bucket.
// The buckets carry the lane's session, so the lane considers them its own.
func (l *lane) copies(ctx context.Context, coll *mongo.Collection, model bson.Raw, w *Worker, until time.Time) (created int) {
	elements, err := model.Elements()
	bench.Checkf(err, "copy a bucket")
	atOnce := max(1, min(copiesAtOnce, bytesAtOnce/len(model)))
	for sensors := range slices.Chunk(w.Sensors, atOnce) {
		if !until.IsZero() && !time.Now().Before(until) {
			break
		}
		var documents []any
		for _, number := range sensors {
			document := make(bson.D, len(elements))
			for i, e := range elements {
				document[i] = bson.E{Key: e.Key(), Value: e.Value()}
				switch e.Key() {
				case "_id":
					document[i].Value = l.bucketID(number, w.Next[0])
				case "sensorId":
					document[i].Value = l.readings.Source.ID(number)
				}
			}
			documents = append(documents, document)
		}
		_, err := coll.InsertMany(ctx, documents, options.InsertMany().SetOrdered(false))
		bench.Checkf(err, "create buckets")
		created += len(documents)
	}
	return created
}

// A Fleet is several writers. As with the daemon's lanes, each has its own sensors and writes
// them in turn.
type Fleet struct {
	Workers       []*Worker
	PerUpdate     int // readings per update
	PerCommand    int // updates per command
	DocumentBytes int // per bucket made by Fill, before compression

	collection *Collection
}

// A Worker is one writer of a Fleet.
type Worker struct {
	Writer
	Sensors []int
	Next    []uint64 // the next reading of each sensor

	fleet    *Fleet
	cursor   int
	portions []Portion
}

// NewFleet deals out the sensors to the writers in the given order.
func NewFleet(order []int, writers []Writer, perUpdate, perCommand int) *Fleet {
	f := &Fleet{PerUpdate: perUpdate, PerCommand: perCommand}
	for i, writer := range writers {
		w := &Worker{fleet: f, Writer: writer}
		for k := i; k < len(order); k += len(writers) {
			w.Sensors = append(w.Sensors, order[k])
		}
		w.Next = make([]uint64, len(w.Sensors))
		f.Workers = append(f.Workers, w)
	}
	return f
}

// Fleet returns a fleet of lanes for the collection. Without an order, sensors are taken by
// number.
func (c *Collection) Fleet(lanes, perCommand int, order []int) *Fleet {
	if order == nil {
		order = Order(c.Readings.Sensors)
	}
	writers := make([]Writer, lanes)
	for i := range writers {
		writers[i] = c.newWriter()
	}
	f := NewFleet(order, writers, c.PerUpdate, perCommand)
	f.collection = c
	return f
}

// Attach resumes after the collection's mongod was restarted.
func (f *Fleet) Attach(ctx context.Context, m *bench.MongoDB) {
	f.collection.Attach(ctx, m)
	for _, w := range f.Workers {
		w.Writer, w.cursor = f.collection.newWriter(), 0
	}
}

// Order returns the sensors by number.
func Order(sensors int) []int {
	order := make([]int, sensors)
	for i := range order {
		order[i] = i
	}
	return order
}

// Run lets each worker take turns while more, which receives the number of sensors the
// worker has written so far, returns true. It returns the numbers of sensors written and
// updates sent by all workers.
func (f *Fleet) Run(ctx context.Context, more func(w *Worker, written int) bool) (sensors, updates int) {
	var mu sync.Mutex
	bench.Together(ctx, len(f.Workers), func(ctx context.Context, i int) {
		written, sent := 0, 0
		for w := f.Workers[i]; more(w, written); {
			n, done := w.Turn(ctx)
			written, sent = written+n, sent+done
		}
		mu.Lock()
		defer mu.Unlock()
		sensors, updates = sensors+written, updates+sent
	})
	return sensors, updates
}

// Fill gives every sensor a bucket of readings, which must fit one window: one written by the
// store, and copies of it. Sensors without a bucket by the given time, unless it is zero, leave
// the fleet.
func (f *Fleet) Fill(ctx context.Context, readings int, until time.Time) {
	coll := f.collection.coll
	bench.Together(ctx, len(f.Workers), func(ctx context.Context, i int) {
		w := f.Workers[i]
		if len(w.Sensors) == 0 {
			return
		}
		l, ok := w.Writer.(*lane)
		if !ok {
			bench.Check(fmt.Errorf("fill %s: it has no buckets", f.collection.Shape))
		}
		model := l.model(ctx, coll, Portion{Sensor: w.Sensors[0], First: w.Next[0], Count: readings})
		if i == 0 {
			f.DocumentBytes = len(model)
		}
		created := l.copies(ctx, coll, model, w, until)
		w.Sensors, w.Next = w.Sensors[:created], w.Next[:created]
		for i := range w.Next {
			w.Next[i] += uint64(readings) //nolint:gosec // of a window
		}
	})
}

// Turn writes the next readings of the next sensors. A command never wraps around, which could
// update a bucket twice. It returns how many sensors got readings, in how many updates.
func (w *Worker) Turn(ctx context.Context) (sensors, updates int) {
	w.portions = w.portions[:0]
	for range min(w.fleet.PerCommand, len(w.Sensors)-w.cursor) {
		w.portions = append(w.portions, Portion{Sensor: w.Sensors[w.cursor], First: w.Next[w.cursor], Count: w.fleet.PerUpdate})
		w.Next[w.cursor] += uint64(w.fleet.PerUpdate) //nolint:gosec // counts from 1
		w.cursor++
	}
	if w.cursor == len(w.Sensors) {
		w.cursor = 0
	}
	return len(w.portions), w.Write(ctx, w.portions)
}

// An Operation is one write, timed from the start of its Traffic.
type Operation struct{ Due, Done time.Duration }

// Latency is in seconds from when the write was due, so it includes the wait for the previous
// write.
func (o Operation) Latency() float64 { return (o.Done - o.Due).Seconds() }

// Traffic is a fleet that writes on a schedule.
type Traffic struct {
	Began time.Time

	due  Schedule
	stop chan struct{}
	mu   sync.Mutex
	all  []Operation
}

// A Schedule returns when write n, counted from 0, is due after the start, in ascending order;
// false: there are no more.
type Schedule func(n int) (at time.Duration, ok bool)

// Steadily is an endless schedule of rate writes per second.
func Steadily(rate float64) Schedule {
	return func(n int) (time.Duration, bool) {
		return time.Duration(float64(n) / rate * float64(time.Second)), true
	}
}

// For limits the schedule to a length of time.
func (s Schedule) For(length time.Duration) Schedule {
	return func(n int) (time.Duration, bool) {
		at, ok := s(n)
		return at, ok && at < length
	}
}

// During sends writes when they are due: while do runs, or until the schedule ends if do is
// nil. A failing worker cancels do's context, and its error is the one reported.
func (f *Fleet) During(ctx context.Context, due Schedule, do func(ctx context.Context, t *Traffic)) *Traffic {
	t := &Traffic{Began: time.Now(), due: due, stop: make(chan struct{})}
	group, under := errgroup.WithContext(ctx)
	for i, w := range f.Workers {
		group.Go(func() error {
			return t.pace(under, i, len(f.Workers), func(_ int, due time.Duration) {
				w.Turn(under)
				done := t.Now()
				t.mu.Lock()
				defer t.mu.Unlock()
				t.all = append(t.all, Operation{due, done})
			})
		})
	}
	var failed error
	if do != nil {
		failed = bench.Try(func() { do(under, t) })
		close(t.stop)
	}
	bench.Check(group.Wait())
	bench.Check(failed)
	return t
}

// pace makes calls first, first + every and so on when they are due, regardless of earlier
// ones: a late call is made as soon as the one before it ends, so that a stall shows in every
// call that waited. It returns nil after the last call, or why it ended early.
func (t *Traffic) pace(ctx context.Context, first, every int, call func(n int, due time.Duration)) error {
	timer := time.NewTimer(math.MaxInt64)
	defer timer.Stop()
	for n := first; ; n += every {
		due, ok := t.due(n)
		if !ok {
			return nil
		}
		timer.Reset(due - t.Now())
		select {
		case <-timer.C:
		case <-t.stop:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err := bench.Try(func() { call(n, due) }); err != nil {
			return err
		}
	}
}

// Now returns the time since the traffic began.
func (t *Traffic) Now() time.Duration { return time.Since(t.Began) }

// Operations returns the writes so far, in no particular order.
func (t *Traffic) Operations() []Operation {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.all)
}

// Between returns the latencies, in seconds, of writes completed in a span of time.
func (t *Traffic) Between(from, to time.Duration) (s bench.Samples) {
	for _, o := range t.Operations() {
		if o.Done >= from && o.Done < to {
			s = append(s, o.Latency())
		}
	}
	return s
}
