// Package lane writes readings straight into a store, as a lane of the queue
// does that has merged so many of each bucket: neither ingest nor journal is in
// the way, and every number is set exactly. The store is the one of production.
package lane

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A write of a lane ends when its shares or their rows reach these numbers, as
// in the daemon.
const (
	mostShares = 1000
	mostRows   = 20_000
)

// Together is how many portions of so many readings one write takes.
func Together(count int) int { return max(1, min(mostShares, mostRows/max(count, 1))) }

// A Store is where shares are written to: those of internal/store.
type Store interface {
	Write(ctx context.Context, shares []*batch.Share)
}

// A Source makes the readings of sensors, numbered from 0; *load.Sensors is one.
// Several lanes may ask at a time.
type Source interface {
	ID(sensor int) string
	Tags(sensor int) []telemetry.Tag
	AppendFields(dst []telemetry.Field, sensor int, k uint64, at time.Time) []telemetry.Field
}

// Config says what a lane writes.
type Config struct {
	Store       Store
	Source      Source
	Stream      string
	Granularity time.Duration
	Begin       time.Time     // of reading 0 of each sensor
	Interval    time.Duration // between two readings of a sensor
	// Phase is how long after Begin a sensor begins, less than Interval. nil: all
	// begin at once, so that their readings have the same times.
	Phase func(sensor int) time.Duration
}

// A Lane writes. Only one goroutine may use it, and of one bucket only one lane
// may write.
type Lane struct {
	cfg      Config
	session  string
	next     uint64 // sequence
	writes   uint64 // so far
	interner *batch.Interner
	sensors  map[int]*sensor
	fields   []telemetry.Field
	sending  sending
}

// A sensor is what the lane knows of one.
type sensor struct {
	series *batch.Series // nil before its first reading
	start  int64         // of the bucket that state is of
	state  any           // what the store knows of that bucket
	write  uint64        // the last one that it is in
}

// sending is what a write sends. Its memory is reused.
type sending struct {
	shares []*batch.Share
	of     []*sensor // of each share
	left   []*batch.Share
	open   []openShare
}

// New returns a lane that takes readings under a session of its own.
func New(cfg Config) *Lane {
	return &Lane{
		cfg: cfg, session: batch.NewSession(), next: 1, interner: batch.NewInterner(0),
		sensors: make(map[int]*sensor),
	}
}

// A Portion is readings of a sensor that follow each other.
type Portion struct {
	Sensor int
	First  uint64 // number of the first reading
	Count  int
}

// Portions are as many readings of each of so many sensors, from one on.
func Portions(sensors, first, count int) []Portion {
	out := make([]Portion, sensors)
	for i := range out {
		out[i] = Portion{Sensor: i, First: uint64(first), Count: count} //nolint:gosec // counts from 0
	}
	return out
}

// Time returns that of reading k of a sensor without a phase.
func (l *Lane) Time(k uint64) time.Time {
	return l.cfg.Begin.Add(time.Duration(k) * l.cfg.Interval) //nolint:gosec // readings of years
}

// Write merges the portions by bucket and writes them, and returns when all is
// stored: in how many updates, of which those of a window boundary are several.
func (l *Lane) Write(ctx context.Context, portions []Portion) (updates int, err error) {
	for len(portions) > 0 {
		n := l.together(portions)
		done, err := l.write(ctx, portions[:n])
		updates += done
		if err != nil {
			return updates, err
		}
		portions = portions[n:]
	}
	return updates, nil
}

// together returns how many of the portions one write takes. A sensor is in it
// once, so that a bucket has one update in flight.
func (l *Lane) together(portions []Portion) int {
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

func (l *Lane) sensor(number int) *sensor {
	s := l.sensors[number]
	if s == nil {
		s = &sensor{}
		l.sensors[number] = s
	}
	return s
}

func (l *Lane) write(ctx context.Context, portions []Portion) (updates int, err error) {
	if err := l.fill(portions); err != nil {
		return 0, err
	}
	s := &l.sending
	s.left = append(s.left[:0], s.shares...)
	updates, err = l.drain(ctx, s.left)
	for i, share := range s.shares {
		s.of[i].start, s.of[i].state = share.Start, share.State
	}
	clear(s.shares) // they hold readings
	return updates, err
}

// share begins that of a window of a sensor.
func (l *Lane) share(number int, of *sensor, start int64) *batch.Share {
	share := &batch.Share{
		Stream: l.cfg.Stream, Sensor: l.cfg.Source.ID(number), Start: start,
		Granularity: l.cfg.Granularity, Session: l.session,
	}
	if of.start == start {
		share.State = of.state
	}
	l.sending.shares, l.sending.of = append(l.sending.shares, share), append(l.sending.of, of)
	return share
}

func (l *Lane) windowStart(sensor int, k uint64) int64 {
	return store.WindowStart(l.timeOf(sensor, k).UnixMilli(), l.cfg.Granularity)
}

// timeOf returns the time of a sensor's reading k.
func (l *Lane) timeOf(sensor int, k uint64) time.Time {
	if l.cfg.Phase == nil {
		return l.Time(k)
	}
	return l.Time(k).Add(l.cfg.Phase(sensor))
}

const (
	mostWaits = 5 // of a write, before it counts as failed
	waitPause = 100 * time.Millisecond
)

var errStuck = errors.New("MongoDB does not take the readings")

// drain writes shares until nothing is left of them, and returns in how many
// updates. It makes use of the slice.
func (l *Lane) drain(ctx context.Context, left []*batch.Share) (updates int, err error) {
	for waits := 0; len(left) > 0; {
		updates += len(left)
		l.cfg.Store.Write(ctx, left)
		if ctx.Err() != nil {
			return updates, context.Cause(ctx)
		}
		rest := left[:0]
		for _, share := range left {
			if len(share.Rows) == 0 {
				continue
			}
			if share.Verdict == batch.Poison || waits == mostWaits {
				return updates, errors.Join(errStuck, share.Err)
			}
			rest = append(rest, share)
		}
		if left = rest; len(left) > 0 && left[0].Verdict != batch.Again {
			waits++
			timer := time.NewTimer(waitPause)
			select {
			case <-timer.C:
			case <-ctx.Done():
				timer.Stop()
				return updates, context.Cause(ctx)
			}
		}
	}
	return updates, nil
}

// An openShare is the share that a portion's next reading goes into.
type openShare struct {
	share *batch.Share
	of    *sensor
}

// fill makes the shares of a write. As in the daemon, the readings of a share
// come from as many requests, each of which has the next one of all sensors.
func (l *Lane) fill(portions []Portion) error {
	s := &l.sending
	s.shares, s.of, s.open = s.shares[:0], s.of[:0], s.open[:0]
	most := 0
	for _, p := range portions {
		s.open = append(s.open, openShare{of: l.sensor(p.Sensor)})
		most = max(most, p.Count)
	}
	for step := range most {
		b, err := l.request(portions, step)
		if err != nil {
			return err
		}
		index := uint32(0)
		for i, p := range portions {
			if step >= p.Count {
				continue
			}
			start, open := l.windowStart(p.Sensor, p.First+uint64(step)), &s.open[i] //nolint:gosec // counts from 0
			if open.share == nil || open.share.Start != start {
				open.share = l.share(p.Sensor, open.of, start)
			}
			open.share.Rows = append(open.share.Rows, batch.Ref{Batch: b, Index: index})
			index++
		}
	}
	return nil
}

// request is reading number step of each portion that has so many, as ingest
// hands them on and the journal numbers them.
func (l *Lane) request(portions []Portion, step int) (*batch.Batch, error) {
	b := l.interner.Builder(time.Now())
	index := 0
	for i, p := range portions {
		if step >= p.Count {
			continue
		}
		b.Begin(l.cfg.Stream, index, telemetry.TimeRange{Newest: math.MaxInt64})
		of := l.sending.open[i].of
		if of.series != nil {
			b.SameSeries(of.series)
		} else {
			b.Sensor([]byte(l.cfg.Source.ID(p.Sensor)))
			for _, tag := range l.cfg.Source.Tags(p.Sensor) {
				b.Tag([]byte(tag.Name), []byte(tag.Value))
			}
		}
		k := p.First + uint64(step) //nolint:gosec // counts from 0
		at := l.timeOf(p.Sensor, k)
		b.Time(at.UnixMilli())
		l.fields = l.cfg.Source.AppendFields(l.fields[:0], p.Sensor, k, at)
		for _, f := range l.fields {
			b.Add(f)
		}
		if refusal := b.End(); refusal != nil {
			b.Release()
			return nil, fmt.Errorf("make a reading: %w", refusal)
		}
		of.series = b.LastSeries()
		index++
	}
	made := b.Batch()
	made.Session, made.FirstSeq = l.session, l.next
	l.next += uint64(index) //nolint:gosec // counts from 0
	return made, nil
}

// A Model is a bucket that the store wrote, from which others are made.
type Model struct {
	coll     *mongo.Collection
	document bson.Raw
}

// Model stores a portion, which is of one bucket, and returns the document that
// it made. The document is taken out of the collection again.
func (l *Lane) Model(ctx context.Context, coll *mongo.Collection, p Portion) (*Model, error) {
	if _, err := l.Write(ctx, []Portion{p}); err != nil {
		return nil, err
	}
	m := &Model{coll: coll}
	id := bson.D{
		{Key: "s", Value: l.cfg.Source.ID(p.Sensor)}, {Key: "b", Value: bson.DateTime(l.windowStart(p.Sensor, p.First))},
		{Key: "g", Value: int32(l.cfg.Granularity / time.Second)}, {Key: "p", Value: int32(0)},
	}
	if err := coll.FindOneAndDelete(ctx, bson.D{{Key: "_id", Value: id}}).Decode(&m.document); err != nil {
		return nil, fmt.Errorf("read the first bucket: %w", err)
	}
	l.sensor(p.Sensor).state = nil // it is gone
	if n, ok := m.document.Lookup("count").AsInt64OK(); !ok || n != int64(p.Count) {
		return nil, fmt.Errorf("make a bucket of %d readings: it has %d; they are not all of one window and part", p.Count, n)
	}
	return m, nil
}

// Bytes are those of the document, before compression.
func (m *Model) Bytes() int { return len(m.document) }

const (
	copiesAtOnce = 1000
	bytesAtOnce  = 8 << 20
)

// Copy inserts the model's bucket for each of the sensors: many updates of the
// store would take longer than what is measured after it. Those that do not get
// theirs until a time, unless it is zero, are left out; it returns how many got
// one. To the lane they are buckets that it wrote: they have its session, though
// the store looks at nothing before the next append.
func (l *Lane) Copy(ctx context.Context, m *Model, sensors []int, until time.Time) (created int, err error) {
	atOnce := max(1, min(copiesAtOnce, bytesAtOnce/m.Bytes()))
	var documents []any
	for created < len(sensors) && (until.IsZero() || time.Now().Before(until)) {
		documents = documents[:0]
		for _, number := range sensors[created:min(created+atOnce, len(sensors))] {
			made, err := m.of(l.cfg.Source.ID(number))
			if err != nil {
				return created, err
			}
			documents = append(documents, made)
		}
		if _, err := m.coll.InsertMany(ctx, documents, options.InsertMany().SetOrdered(false)); err != nil {
			return created, fmt.Errorf("create buckets: %w", err)
		}
		created += len(documents)
	}
	return created, nil
}

// of is the document as that of another sensor.
func (m *Model) of(sensor string) (bson.Raw, error) {
	elements, err := m.document.Elements()
	if err != nil {
		return nil, fmt.Errorf("copy a bucket: %w", err)
	}
	at, dst := bsoncore.AppendDocumentStart(make([]byte, 0, len(m.document)+2*len(sensor)))
	for _, e := range elements {
		switch e.Key() {
		case "_id": // {s, b, g, p}
			if dst, err = appendID(dst, e.Value().Document(), sensor); err != nil {
				return nil, err
			}
		case "sensorId":
			dst = bsoncore.AppendStringElement(dst, "sensorId", sensor)
		default:
			dst = append(dst, e...)
		}
	}
	return bsoncore.AppendDocumentEnd(dst, at)
}

func appendID(dst []byte, id bson.Raw, sensor string) ([]byte, error) {
	elements, err := id.Elements()
	if err != nil {
		return nil, fmt.Errorf("copy a bucket: %w", err)
	}
	at, dst := bsoncore.AppendDocumentElementStart(dst, "_id")
	for _, e := range elements {
		if e.Key() == "s" {
			dst = bsoncore.AppendStringElement(dst, "s", sensor)
			continue
		}
		dst = append(dst, e...)
	}
	return bsoncore.AppendDocumentEnd(dst, at)
}

// A Pace makes calls when they are due, whatever became of those before: one
// that is late is made as soon as the one before it has ended, so that a stall
// shows in all that had to wait for it.
type Pace struct {
	Began time.Time
	// Due tells when call n is due, counted from 0 and from Began, no earlier than
	// the one before; false: there are no more.
	Due func(n int) (at time.Duration, ok bool)
	// First and Every choose the calls, where several share them: First, First +
	// Every, and so on. Every is at least 1.
	First, Every int
	Stop         <-chan struct{} // closed: no further call is made; nil: never
}

// Run makes the calls. It returns nil when there are no more, and else what
// ended it: an error of a call, or the cause of ctx.
func (p Pace) Run(ctx context.Context, call func(n int, due time.Duration) error) error {
	timer := time.NewTimer(math.MaxInt64)
	defer timer.Stop()
	for n := p.First; ; n += p.Every {
		due, ok := p.Due(n)
		if !ok {
			return nil
		}
		timer.Reset(due - time.Since(p.Began))
		select {
		case <-timer.C:
		case <-p.Stop:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err := call(n, due); err != nil {
			return err
		}
	}
}
