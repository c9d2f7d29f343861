package timeseries

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
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
		if pending.Verdict == batch.Wait {
			continue
		}
		for _, r := range pending.Rows {
			in.readings = append(in.readings, reading{pending: pending, ref: r})
		}
	}
	if len(in.readings) > 0 {
		s.insert(ctx, in, to)
	}
}

// insert sends the readings of in, all on one logical session.
func (s *Store) insert(ctx context.Context, in *insert, to *store.Prepared) {
	session, err := s.startSession()
	if err != nil {
		unsent(in.readings, err)
		return
	}
	ctx = mongo.NewSessionContext(ctx, session)
	for readings := in.readings; len(readings) > 0; {
		if err := store.Permitted(ctx); err != nil {
			unsent(readings, err)
			break
		}
		n := oneCommand(readings)
		if err := s.command(ctx, in, readings[:n], to); err != nil {
			s.unanswered.add(session, readings[:n])
			// The next command would fail in the same way, after another wait.
			unsent(readings[n:], err)
			return
		}
		readings = readings[n:]
	}
	session.EndSession(ctx)
}

func unsent(readings []reading, err error) {
	for _, r := range readings {
		r.pending.Verdict, r.pending.Err = batch.Unsent, err
	}
}

// command sends some of the readings and sets the outcome of their writes. An error means that the
// outcome of all is unknown.
func (s *Store) command(ctx context.Context, in *insert, readings []reading, to *store.Prepared) error {
	ctx, cancel := context.WithTimeout(ctx, s.WriteTimeout)
	defer cancel()
	took, err := in.send(ctx, s.Live.Load().Into, readings, to)
	s.Wrote(to, err)
	return s.settle(readings, err, took)
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
		if session := s.unanswered.session(pending); session != nil {
			err = s.fence(ctx, session)
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

// settle sets the outcome of every write, and returns an error if all outcomes are unknown. A
// write's readings are contiguous, in the order of its rows.
func (s *Store) settle(readings []reading, err error, took time.Duration) error {
	var bulk mongo.BulkWriteException
	known := err == nil || errors.As(err, &bulk) && bulk.WriteConcernError == nil
	refused := make(map[int]mongo.WriteError, len(bulk.WriteErrors))
	for _, e := range bulk.WriteErrors {
		refused[e.Index] = e.WriteError
	}
	for at := 0; at < len(readings); {
		pending := readings[at].pending
		n := len(pending.Rows)
		if known {
			s.settlePending(pending, refused, at, took)
		} else {
			s.Metrics.Unknown.Inc()
			stateOf(pending).uncertain = true
			pending.Verdict, pending.Err = batch.Wait, err
		}
		at += n
	}
	if known {
		return nil
	}
	return err
}

// settlePending handles a write whose documents begin at index at. It keeps the refused rows;
// those refused because of their content come first.
func (s *Store) settlePending(pending *batch.Pending, refused map[int]mongo.WriteError, at int, took time.Duration) {
	var poison, wait []batch.Ref
	newest := int64(math.MinInt64)
	for i, r := range pending.Rows {
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
		return !bad
	})
	if n > 0 {
		s.Metrics.Wrote(took, n, store.Fill(newest, pending.Start, pending.Granularity, 0))
	}
	copy(pending.Rows, slices.Concat(poison, wait))
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

// insert has the readings of one Write, and the buffers that they are encoded in. The driver is
// given readings instead of bytes, and calls their marshalers when it builds the command. It
// copies each document before it calls the next, so all of them are encoded in the same small
// buffer, and it retains none of our memory when it starts to send.
type insert struct {
	readings []reading
	docs     []*reading // of the current command
	left     int        // of docs that are not encoded yet
	sent     time.Time  // when all were encoded

	templates *store.Shapes[store.Template]
	doc       []byte // of the current reading
	meta      []byte // the element with the sensor, of the series
	series    *batch.Series
}

// reading is one document; it implements bson.Marshaler.
type reading struct {
	insert  *insert
	pending *batch.Pending
	ref     batch.Ref
}

// MarshalBSON returns bytes that are valid until the next document's are made.
func (r *reading) MarshalBSON() ([]byte, error) {
	in := r.insert
	in.encode(r.pending, r.ref)
	if in.left--; in.left == 0 {
		in.sent = time.Now()
	}
	return in.doc, nil
}

// encode encodes the document of one reading.
func (in *insert) encode(pending *batch.Pending, r batch.Ref) {
	row := r.Row()
	if s := r.Batch.Series(row); s != in.series {
		in.series = s
		at, meta := bsoncore.AppendDocumentElementStart(in.meta[:0], metaField)
		meta = bsoncore.AppendStringElement(meta, "id", pending.Sensor)
		in.meta, _ = bsoncore.AppendDocumentEnd(store.AppendTags(meta, s.Tags), at)
	}
	at, doc := bsoncore.AppendDocumentStart(in.doc[:0])
	doc = bsoncore.AppendObjectIDElement(doc, "_id", idOf(pending, r))
	doc = bsoncore.AppendDateTimeElement(doc, timeField, row.Time)
	doc = append(doc, in.meta...)
	doc = in.templates.Of(r.Batch.Shape(row)).AppendFields(doc, r.Batch, row)
	in.doc, _ = bsoncore.AppendDocumentEnd(doc, at)
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
	clear(in.readings) // they hold batches
	in.readings, in.series = in.readings[:0], nil
	p.pool.Put(in)
}

// commandBytes is roughly the maximum size of a command, see package bucket.
const commandBytes = 1 << 20

// oneCommand returns how many of the readings go into the next command; those
// of a write stay together.
func oneCommand(readings []reading) int {
	n, size := 0, int64(0)
	for n < len(readings) && (size < commandBytes || readings[n].pending == readings[n-1].pending) {
		size += int64(readings[n].ref.Row().Size) + 100
		n++
	}
	return n
}

// withoutIDs returns a registry for a collection that is only inserted into. For the result of
// InsertMany, which is not used here, the driver decodes every document that it is about to send
// into a struct with just the _id, which is a third of the CPU time of an insert. The registry
// leaves this struct empty. If a driver version uses another struct, it decodes the ids as usual.
func withoutIDs() *bson.Registry {
	registry := bson.NewRegistry()
	registry.RegisterTypeDecoder(reflect.TypeFor[struct {
		ID any `bson:"_id"`
	}](), bson.ValueDecoderFunc(func(bson.DecodeContext, bson.ValueReader, reflect.Value) error { return nil }))
	return registry
}

// send inserts some of the readings with one command, and returns how long that took, without the
// encoding.
func (in *insert) send(ctx context.Context, coll *mongo.Collection, readings []reading, to *store.Prepared) (time.Duration, error) {
	in.docs = in.docs[:0]
	for i := range readings {
		readings[i].insert = in
		in.docs = append(in.docs, &readings[i])
	}
	in.left, in.sent = len(readings), time.Now()
	_, err := coll.InsertMany(ctx, in.docs, to.Insert)
	return time.Since(in.sent), err
}

// An insert that was never answered may still be in one of the server's sockets, and be executed
// after a lookup did not find its readings. So each Write inserts on a logical session of its own,
// with retryable writes, and before a lookup there is another write, the fence, on the same
// session:
//
//	session S   insert, number 7 ──────── delayed ───────▶ refused: 7 is older than 8
//	            fence,  number 8 ──▶ carried out ──▶ lookup ──▶ insert what is missing
//
// The server executes one command of a session at a time. If the insert comes
// first, the fence waits until it has ended, and the lookup sees what it stored.
// The number of the fence is in the oplog, see store.WriteConcern.Fence, so that
// a primary that is elected later refuses the insert, too.

// unanswered has the sessions of this process whose last command has an unknown outcome, by the
// writes in that command. It does not rely on Pending.State, which a lane may discard.
type unanswered struct {
	mu       sync.Mutex
	sessions map[pendingKey]*session
}

type pendingKey struct {
	session, sensor string
	start           int64
	granularity     time.Duration
}

func keyOf(pending *batch.Pending) pendingKey {
	return pendingKey{pending.Session, pending.Sensor, pending.Start, pending.Granularity}
}

// A session is a logical session with a command that may still be executed.
type session struct {
	sem     chan struct{} // semaphore, held while a command is sent
	logical *mongo.Session
	fenced  bool // the command can no longer be executed
}

// startSession returns a new logical session. An error says that the client is
// disconnected.
func (s *Store) startSession() (*mongo.Session, error) {
	logical, err := s.Database.Client().StartSession(options.Session().SetCausalConsistency(false))
	if err != nil {
		return nil, fmt.Errorf("start a session: %w", err)
	}
	return logical, nil
}

// add records that the last command of the session, which had these readings, has an unknown
// outcome.
func (u *unanswered) add(logical *mongo.Session, readings []reading) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.sessions == nil {
		u.sessions = make(map[pendingKey]*session)
	}
	one := &session{sem: make(chan struct{}, 1), logical: logical}
	for _, r := range readings {
		u.sessions[keyOf(r.pending)] = one
	}
}

// session returns the session with a command that may still store rows of the write; nil if there
// is none.
func (u *unanswered) session(pending *batch.Pending) *session {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.sessions[keyOf(pending)]
}

// forget drops a session whose command can no longer be executed.
func (u *unanswered) forget(one *session) {
	u.mu.Lock()
	defer u.mu.Unlock()
	maps.DeleteFunc(u.sessions, func(_ pendingKey, of *session) bool { return of == one })
}

// fence waits until the session's command has ended or can no longer be executed, and what it
// stored is confirmed by a majority. On a standalone server, or with retryWrites=false in the URI,
// commands have no transaction numbers and may be reordered.
func (s *Store) fence(ctx context.Context, one *session) error {
	select {
	case one.sem <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("wait for another command of the session: %w", ctx.Err())
	}
	defer func() { <-one.sem }()
	if one.fenced {
		return nil
	}
	if err := (store.WriteConcern{}).Fence(mongo.NewSessionContext(ctx, one.logical), s.Database); err != nil {
		return err
	}
	one.fenced = true
	one.logical.EndSession(ctx)
	s.unanswered.forget(one)
	return nil
}
