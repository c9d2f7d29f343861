package timeseries

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
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// state is kept for a bucket between writes.
type state struct {
	uncertain bool // some rows may be stored already
}

// idOf returns a reading's _id, an ObjectID like those that drivers generate.
func idOf(pending *batch.Pending, r batch.Ref) bson.ObjectID {
	return bson.ObjectID(batch.ReadingID(pending.Session, r.Seq()))
}

func stateOf(pending *batch.Pending) *state {
	if st, ok := pending.State.(*state); ok {
		return st
	}
	st := &state{uncertain: pending.Recovered}
	pending.State = st
	return st
}

// Write inserts the rows of all writes, unordered and in few commands, after looking up rows that
// an earlier attempt may have stored. Rows left in a write are not stored, or not known to be; its
// verdict says what to do.
func (s *Store) Write(ctx context.Context, writes []*batch.Pending) {
	to := s.Target(writes)
	if to == nil {
		return
	}
	in := s.inserts.get()
	defer s.inserts.put(in)
	s.resolveUncertain(ctx, writes)
	for _, pending := range writes {
		if pending.Verdict != batch.Wait && len(pending.Rows) > 0 {
			in.left = append(in.left, pending)
		}
	}
	if len(in.left) > 0 {
		s.insert(ctx, in, to)
	}
}

// insert sends what is left of in, all on one logical session.
func (s *Store) insert(ctx context.Context, in *insert, to *store.Prepared) {
	one, err := s.sessions.get(s.Database)
	if err != nil {
		unsent(in.left, err)
		return
	}
	for len(in.left) > 0 {
		if err := store.Permitted(ctx); err != nil {
			unsent(in.left, err)
			break
		}
		in.encodeCommand(s.Name, s.Live.Load().WriteConcern, to)
		if err := s.command(ctx, in, one, to); err != nil {
			s.sessions.leave(one, in.parts)
			// The next command would fail in the same way, after another wait.
			unsent(in.left[len(in.parts):], err)
			return
		}
		// Only the last one may have rows that were not sent.
		in.left = in.left[len(in.parts)-1:]
		if last := in.left[0]; last.Verdict != batch.Stored || len(last.Rows) == 0 {
			in.left = in.left[1:]
		}
	}
	s.sessions.put(one)
}

func unsent(writes []*batch.Pending, err error) {
	for _, pending := range writes {
		pending.Verdict, pending.Err = batch.Unsent, err
	}
}

// command sends the command of in and sets the outcome of its writes. An error means that the
// outcome of all is unknown.
func (s *Store) command(ctx context.Context, in *insert, one *session, to *store.Prepared) error {
	ctx, cancel := context.WithTimeout(ctx, s.WriteTimeout)
	defer cancel()
	sent := time.Now()
	err := one.run(ctx, in.command.doc)
	s.Wrote(to, err)
	return s.settle(in.parts, err, time.Since(sent))
}

// resolveUncertain removes the rows that an earlier attempt stored. If they cannot be determined
// for a write, the write waits.
func (s *Store) resolveUncertain(ctx context.Context, writes []*batch.Pending) {
	ctx, cancel := context.WithTimeout(ctx, s.WriteTimeout)
	defer cancel()
	waited := false
	for _, pending := range writes {
		pending.Verdict, pending.Err = batch.Stored, nil
		// Rows that an earlier process sent may come in several rounds.
		if !stateOf(pending).uncertain && !pending.Recovered {
			continue
		}
		// Fence, so that a majority read misses nothing that was applied or may still be.
		var err error
		if one := s.sessions.of(pending); one != nil {
			err = s.fence(ctx, one)
			waited = err == nil
		} else if !waited {
			err = store.WriteConcern{}.Fence(ctx, s.Database)
			waited = err == nil
		}
		if err == nil {
			err = s.dropStored(ctx, pending)
		}
		if err != nil {
			pending.Verdict, pending.Err = batch.Wait, err
		}
	}
}

// settle sets the outcome of every write, and returns an error if all outcomes are unknown.
func (s *Store) settle(parts []part, err error, took time.Duration) error {
	var answer mongo.WriteException
	if err != nil && (!errors.As(err, &answer) || answer.WriteConcernError != nil) {
		for _, p := range parts {
			s.Metrics.Unknown.Inc()
			stateOf(p.pending).uncertain = true
			p.pending.Verdict, p.pending.Err = batch.Wait, err
		}
		return err
	}
	refused := make(map[int]mongo.WriteError, len(answer.WriteErrors))
	for _, e := range answer.WriteErrors {
		refused[e.Index] = e
	}
	at := 0
	for _, p := range parts {
		s.settlePart(p, refused, at, took)
		at += p.rows
	}
	return nil
}

// settlePart handles rows whose documents begin at index at. It keeps the refused rows; those
// refused because of their content come first.
func (s *Store) settlePart(p part, refused map[int]mongo.WriteError, at int, took time.Duration) {
	pending := p.pending
	rest := pending.Rows[p.rows:]
	var poison, wait []batch.Ref
	newest := int64(math.MinInt64)
	for i, r := range pending.Rows[:p.rows] {
		switch e, bad := refused[at+i]; {
		case !bad:
			newest = max(newest, r.Row().Time)
		case store.ContentError(e.Code) || store.TooLarge(e.Code):
			poison = append(poison, r)
			pending.Err = e
		default:
			wait = append(wait, r)
			if len(poison) == 0 {
				pending.Err = e
			}
		}
	}
	place := at - 1
	n := pending.DropWhere(func(batch.Ref) bool {
		place++
		_, bad := refused[place]
		return !bad && place < at+p.rows
	})
	if n > 0 {
		s.Metrics.Wrote(took, n, store.Fill(newest, pending.Start, pending.Granularity, 0))
	}
	copy(pending.Rows, slices.Concat(poison, wait, rest))
	if len(wait) > 0 {
		pending.Verdict, stateOf(pending).uncertain = batch.Wait, true
	}
	if len(poison) > 0 {
		pending.Verdict = batch.Poison
	}
}

// dropStored removes the rows that are already in the collection.
func (s *Store) dropStored(ctx context.Context, pending *batch.Pending) error {
	oldest, newest := int64(math.MaxInt64), int64(math.MinInt64)
	ids := make([]bson.ObjectID, len(pending.Rows))
	for i, r := range pending.Rows {
		oldest, newest = min(oldest, r.Row().Time), max(newest, r.Row().Time)
		ids[i] = idOf(pending, r)
	}
	stored, err := s.storedIDs(ctx, telemetry.Query{Sensor: pending.Sensor, From: oldest, To: newest + 1}, ids)
	if err != nil {
		return fmt.Errorf("look up stored readings: %w", err)
	}
	if len(stored) > 0 {
		if err := s.Live.Load().WriteConcern.Confirm(ctx, s.Database); err != nil {
			return err
		}
	}
	n := pending.DropWhere(func(r batch.Ref) bool {
		return stored[idOf(pending, r)]
	})
	pending.Found += n
	s.Metrics.Found(n, pending.Recovered)
	stateOf(pending).uncertain = false
	return nil
}

// storedIDs returns those of the ids that readings in the query's time range have.
func (s *Store) storedIDs(ctx context.Context, q telemetry.Query, ids []bson.ObjectID) (map[bson.ObjectID]bool, error) {
	those := append(filter(q), bson.E{Key: "_id", Value: bson.D{{Key: "$in", Value: ids}}})
	stored := make(map[bson.ObjectID]bool)
	for doc, err := range store.FindEach(ctx, s.Majority, those, options.Find().SetProjection(bson.D{{Key: "_id", Value: 1}})) {
		if err != nil {
			return nil, err
		}
		stored[doc.Lookup("_id").ObjectID()] = true
	}
	return stored, nil
}

// part is the first rows of a write, which go into one command.
type part struct {
	pending *batch.Pending
	rows    int
}

// insert has the writes of one call of Write that are left, and their next command.
type insert struct {
	left    []*batch.Pending
	parts   []part // of the command
	command command

	templates *store.Shapes[store.Template]
	meta      []byte // the element with the sensor, of the series
	series    *batch.Series
}

// encodeCommand encodes the next command, with as many rows as fit.
func (in *insert) encodeCommand(collection string, concern store.WriteConcern, to *store.Prepared) {
	c := &in.command
	c.begin(collection, concern, to)
	in.parts = in.parts[:0]
	for _, pending := range in.left {
		rows := 0
		for rows < len(pending.Rows) && !c.full() {
			c.key()
			c.doc = in.appendDocument(c.doc, pending, pending.Rows[rows])
			rows++
		}
		if rows > 0 {
			in.parts = append(in.parts, part{pending, rows})
		}
		if rows < len(pending.Rows) {
			break
		}
	}
	c.end()
}

// appendDocument appends the document of one reading.
func (in *insert) appendDocument(dst []byte, pending *batch.Pending, r batch.Ref) []byte {
	row := r.Row()
	if s := r.Batch.Series(row); s != in.series {
		in.series = s
		at, meta := bsoncore.AppendDocumentElementStart(in.meta[:0], metaField)
		meta = bsoncore.AppendStringElement(meta, "id", pending.Sensor)
		in.meta, _ = bsoncore.AppendDocumentEnd(store.AppendTags(meta, s.Tags), at)
	}
	at, dst := bsoncore.AppendDocumentStart(dst)
	dst = bsoncore.AppendObjectIDElement(dst, "_id", idOf(pending, r))
	dst = bsoncore.AppendDateTimeElement(dst, timeField, row.Time)
	dst = append(dst, in.meta...)
	dst = in.templates.Of(r.Batch.Shape(row)).AppendFields(dst, r.Batch, row)
	dst, _ = bsoncore.AppendDocumentEnd(dst, at)
	return dst
}

// inserts is a pool of insert values.
type inserts struct{ pool sync.Pool }

func (p *inserts) get() *insert {
	if in, ok := p.pool.Get().(*insert); ok {
		return in
	}
	return &insert{templates: store.NewShapes(store.NewTemplate)}
}

func (p *inserts) put(in *insert) {
	clear(in.parts[:cap(in.parts)]) // they hold batches
	in.left, in.series = nil, nil
	p.pool.Put(in)
}
