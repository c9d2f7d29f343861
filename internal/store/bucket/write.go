package bucket

import (
	"bytes"
	"cmp"
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

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/block"
	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// Write sends each bucket's pending rows, or as many as fit into one update, in as few commands as
// possible, and determines why updates were refused. It leaves rows that are not stored yet in
// each write, and sets its verdict. If ctx ends, outcomes are unknown.
func (s *Store) Write(ctx context.Context, writes []*batch.Pending) {
	to := s.Target(writes)
	if to == nil {
		return
	}
	writes = s.sendable(writes)
	bulk := s.bulks.get()
	defer s.bulks.put(bulk)
	s.forget(writes, to)
	s.prepareAll(ctx, bulk, writes)
	for ops := bulk.ops; len(ops) > 0; {
		n := oneCommand(ops)
		if err := s.command(ctx, bulk, ops[:n], to); err != nil {
			// The next command would fail in the same way, after another wait.
			unsent(ops[n:], err)
			return
		}
		ops = ops[n:]
	}
}

// prepareAll creates the operations of all writes that have something to send. It first looks up
// the parts of buckets whose current part is uncertain: an earlier process may have stored their
// readings in another part, which the guard of the next update would not check.
func (s *Store) prepareAll(ctx context.Context, bulk *bulk, writes []*batch.Pending) {
	ctx, cancel := context.WithTimeout(ctx, s.WriteTimeout)
	defer cancel()
	var toLookUp []*batch.Pending
	for _, pending := range writes {
		pending.Verdict, pending.Err = batch.Again, nil
		p := partOf(pending)
		// Rows that an earlier process sent may arrive in several rounds, and may be stored in an
		// earlier part.
		if p.applied > 0 {
			s.dropStored(pending, int64(p.applied))
		}
		if p.uncertain {
			toLookUp = append(toLookUp, pending)
		}
	}
	s.lookUp(ctx, toLookUp)
	for _, pending := range writes {
		if op, ok := s.prepare(ctx, pending); ok {
			bulk.ops = append(bulk.ops, op)
		}
	}
}

// command sends some of the bulk's operations and handles the reply. An error means that the
// outcome of all is unknown. If the command hangs while MongoDB answers others, its operations are
// sent separately.
func (s *Store) command(outer context.Context, bulk *bulk, ops []operation, to *store.Prepared) error {
	if err := store.Permitted(outer); err != nil {
		unsent(ops, err)
		return err
	}
	ctx, cancel := context.WithTimeout(outer, s.WriteTimeout)
	defer cancel()
	r := s.exchange(ctx, bulk, ops, to)
	switch {
	case !errors.Is(r.err, errHangs):
		conflicts, err := s.settle(ctx, ops, r)
		s.resolve(ctx, conflicts)
		return err
	case len(ops) == 1:
		s.giveUpHung(&ops[0])
		return nil
	}
	return s.divide(outer, ops, to)
}

// exchange sends the operations and returns the reply. It does not change the
// writes, so that it may run on any goroutine.
func (s *Store) exchange(ctx context.Context, bulk *bulk, ops []operation, to *store.Prepared) (r reply) {
	err := s.withHangDetection(ctx, ops, func(ctx context.Context) error {
		r = bulk.send(ctx, s.Live.Load().Into, ops, to)
		return r.err
	})
	s.Wrote(to, r.err)
	if errors.Is(err, errHangs) {
		r.err = err
	}
	return r
}

func unsent(ops []operation, err error) {
	for i := range ops {
		ops[i].pending.Verdict, ops[i].pending.Err = batch.Unsent, err
	}
}

// part is what is known about the part that a bucket's next update goes to. It is kept in the
// State of the bucket's pending rows, from write to write. The database itself enforces the caps;
// if this information is inexact, an update may be too large and has to be divided again.
type part struct {
	number          int32
	count           int64 // readings known to be in it
	bytes           int64
	tags            *[]telemetry.Tag // of the part; nil while not known
	hasMeasurements bool             // it has measurements, so no block may be appended, see encoder.filter
	limit           int              // readings per update while a poison reading is searched for; 0: none
	uncertain       bool             // it must be looked up before the next update, because the last one was refused
	applied         uint64           // the session's largest stored sequence that a lookup found, perhaps in an earlier part
	generation      int64            // Prepared.Generation of the collection that this describes; 0: none yet
}

// partOf returns the part that the bucket's next update goes to.
func partOf(pending *batch.Pending) *part {
	if p, ok := pending.State.(*part); ok {
		return p
	}
	p := &part{uncertain: pending.Recovered}
	pending.State = p
	return p
}

// forget discards what is known about parts in an earlier collection: in the new one they may not
// exist or be different.
func (s *Store) forget(writes []*batch.Pending, to *store.Prepared) {
	for _, pending := range writes {
		p := partOf(pending)
		if p.generation == to.Generation {
			continue
		}
		if p.generation != 0 {
			*p = part{uncertain: true}
		}
		p.generation = to.Generation
	}
}

// next advances to the next part, because the current one is closed.
func (p *part) next() {
	p.number, p.count, p.bytes, p.tags, p.hasMeasurements = p.number+1, 0, 0, nil, false
}

// A reading in the array is an element with a type and a key of up to four digits. Its document
// has a length, ts and a terminator in addition to the fields.
const (
	element  = 1 + 5
	frame    = 4 + (1 + 3 + 8) + 1
	overhead = element + frame
)

// readingSize estimates the bytes of a reading in a part, without its own tags.
func readingSize(r batch.Ref) int64 { return int64(r.Row().Size) + overhead }

// tagsOf returns the tags that a reading was sent with.
func tagsOf(r batch.Ref) *[]telemetry.Tag { return &r.Batch.Series(r.Row()).Tags }

// readingBytes is the same for a reading that is stored as document, with its own tags if it has
// any.
func readingBytes(document bson.Raw) int64 { return int64(len(document)) + element }

// operation is one guarded update.
//
// A part's document has its tags once, and only readings that were sent with different tags, or
// with none, have their own next to their fields. So an operation expects a part with certain
// tags: those known from a lookup or a write, or else those of the first row. The latter is a
// guess, which is wrong if an earlier process created the part with other tags, or if another
// daemon is creating it. Even the former are wrong if the part was deleted and created again.
// Therefore the filter requires these tags, and an upsert that creates the part takes them from
// the filter. Readings 1 and 2 are of site north, 3 is of site south:
//
//	part    operation              result
//	none    north: 1, 2, 3 south   north: 1, 2, 3 south
//	north   north: 1, 2, 3 south   north: …, 1, 2, 3 south
//	south   north: 1, 2, 3 south   E11000, the lookup shows south, then:
//	south   south: 1 north, 2 north, 3
//
// So an operation is applied to a part with the tags that it expects or not at all, however late
// it arrives. No operation changes the tags of a part.
type operation struct {
	pending       *batch.Pending
	part          *part
	number        int32 // of the part, at the time of sending
	rows          []batch.Ref
	bytes         int64
	fills         bool // this update closes the part
	format        store.Format
	clearsCounted bool // the stream has rollups, which do not count these readings yet
	ordered       bool // its block stores the order of arrival, for store.LastWins

	tags *[]telemetry.Tag // that the part must have; nil if there are no rows
	own  int              // rows with other tags

	bulk   *bulk // that it is sent with
	newest int64 // time of its rows; known once it is encoded

	maxReadings, maxBytes int64
}

// ownTags returns the tags to store with a row; nil if the row has those of the part.
func (op *operation) ownTags(r batch.Ref) *[]telemetry.Tag {
	if tags := tagsOf(r); !store.SameTags(*tags, *op.tags) {
		return tags
	}
	return nil
}

// cut decides how many of the pending rows go into the bucket's current part: as many as fit, or
// false if not even the first one does. A reading that is larger than the cap gets a part of its
// own.
func (s *Store) cut(pending *batch.Pending, p *part) (operation, bool) {
	now := s.Live.Load()
	op := operation{
		pending: pending, part: p, number: p.number, format: s.format(), ordered: now.Duplicates == store.LastWins, clearsCounted: s.Rollup > 0,
		maxReadings: int64(now.MaxReadings), maxBytes: int64(now.MaxBytes),
		tags: p.tags,
	}
	if op.tags == nil && len(pending.Rows) > 0 {
		op.tags = tagsOf(pending.Rows[0])
	}
	if op.format == store.Columns && p.hasMeasurements {
		return op, false
	}
	most := op.maxReadings - p.count
	if n := int64(now.MaxReadingsPerUpdate); n > 0 {
		most = min(most, n)
	}
	if p.limit > 0 {
		most = min(most, int64(p.limit))
	}
	most = min(most, int64(len(pending.Rows)))
	var n, largest int64
	var fields columnCount
	for ; n < most; n++ {
		if op.format == store.Columns && !fields.add(pending.Rows[n]) {
			break
		}
		w, own := readingSize(pending.Rows[n]), 0
		if tags := op.ownTags(pending.Rows[n]); tags != nil {
			w, own = w+store.OwnTagsSize(*tags), 1
		}
		if op.bytes+w > op.maxBytes-p.bytes && (n > 0 || p.count > 0) {
			break
		}
		op.bytes, op.own = op.bytes+w, op.own+own
		largest = max(largest, w)
	}
	if n == 0 {
		return op, false
	}
	op.rows = pending.Rows[:n:n]
	// Closing the part together with its last update saves a command. Whether the next reading
	// would fit is a guess; closing too early is harmless.
	op.fills = p.count+n >= op.maxReadings || p.bytes+op.bytes+largest > op.maxBytes
	return op, true
}

// A columnCount bounds the fields of an update with a block, which has a column for each. It adds
// up the fields of all shapes, so it may overestimate, but never underestimates.
type columnCount struct {
	last *batch.Shape
	n    int
}

// add reports whether the row's fields still fit. Those of a single row always do.
func (c *columnCount) add(r batch.Ref) bool {
	if shape := r.Batch.Shape(r.Row()); shape != c.last {
		c.last = shape
		c.n += len(shape.Fields)
	}
	return c.n <= block.MaxColumns
}

// format returns the format of the next update.
func (s *Store) format() store.Format {
	if s.Live.Load().Format == store.Columns && s.CanWriteBlocks() {
		return store.Columns
	}
	return store.Documents
}

var errShortWindows = errors.New("windows longer than an hour are not written until all daemons are upgraded: a daemon of an earlier release, whose queries would not find them, uses this stream, " +
	"or did until a few seconds ago")

var errNoOrder = errors.New("it is not known yet that all daemons of the stream can read columns, and only columns keep the order that duplicates last-wins needs: nothing is written until then")

// sendable returns the writes that may be sent now, and marks the others as unsent: those into
// windows that not all daemons can find, see Config.CanReadLongWindows; and all writes if the
// stream needs the order of arrival, which only blocks keep, while blocks may not be written yet.
func (s *Store) sendable(writes []*batch.Pending) []*batch.Pending {
	if s.Live.Load().Duplicates == store.LastWins && !s.CanWriteBlocks() {
		for _, pending := range writes {
			pending.Verdict, pending.Err = batch.Unsent, errNoOrder
		}
		return nil
	}
	long := func(pending *batch.Pending) bool { return pending.Granularity > store.MaxGranularity }
	if s.CanReadLongWindows == nil || !slices.ContainsFunc(writes, long) || s.CanReadLongWindows() {
		return writes
	}
	var out []*batch.Pending
	for _, pending := range writes {
		if long(pending) {
			pending.Verdict, pending.Err = batch.Unsent, errShortWindows
			continue
		}
		out = append(out, pending)
	}
	return out
}

// CanWriteBlocks reports whether blocks may be written, see Config.CanReadColumns.
func (s *Store) CanWriteBlocks() bool { return s.CanReadColumns == nil || s.CanReadColumns() }

// stored is what the database holds of one part.
type stored struct {
	ID struct {
		Sensor string        `bson:"s"`
		Start  bson.DateTime `bson:"b"`
		Grain  int32         `bson:"g"`
		Part   int32         `bson:"p"`
	} `bson:"_id"`
	Count           int64            `bson:"count"`
	Bytes           int64            `bson:"bytes"`
	Full            bool             `bson:"full"`
	Tags            bson.RawValue    `bson:"tags"`
	Writes          map[string]int64 `bson:"w"`
	HasMeasurements bool             `bson:"mixes"` // computed by partFields
}

// bulk has the operations of one Write, and the buffers that they are encoded in. The driver is
// given operations instead of bytes, and calls their marshalers when it builds the command. It
// copies each result before it calls the next, so all of them are encoded in the same few
// kilobytes, and it retains none of our memory when it starts to send.
type bulk struct {
	encoder
	ops    []operation
	models []mongo.UpdateOneModel
	writes []mongo.WriteModel
	filter []byte // of the current operation
	update []byte
	left   int       // operations of the current command that are not encoded yet
	sent   time.Time // when all were encoded
}

// filterOf and updateOf are an operation's two documents; they implement bson.Marshaler.
type (
	filterOf operation
	updateOf operation
)

// MarshalBSON returns bytes that are valid until the next operation's are made.
func (f *filterOf) MarshalBSON() ([]byte, error) {
	b := f.bulk
	b.filter = b.encoder.filter(b.filter[:0], (*operation)(f))
	return b.filter, nil
}

// MarshalBSON returns bytes that are valid until the next operation's are made.
func (u *updateOf) MarshalBSON() ([]byte, error) {
	b := u.bulk
	var err error
	if b.update, err = b.encoder.update(b.update[:0], (*operation)(u)); err != nil {
		return nil, fmt.Errorf("encode readings of sensor %q: %w", u.pending.Sensor, err)
	}
	if b.left--; b.left == 0 {
		b.sent = time.Now()
	}
	return b.update, nil
}

// bulks is a pool of bulk values.
type bulks struct{ pool sync.Pool }

func (p *bulks) get() *bulk {
	b, ok := p.pool.Get().(*bulk)
	if !ok {
		b = &bulk{}
	}
	return b
}

// maxPooledBytes is the maximum size of an update's buffer for its bulk to be returned to the pool.
const maxPooledBytes = 1 << 20

func (p *bulks) put(b *bulk) {
	clear(b.ops) // they hold readings
	b.ops = b.ops[:0]
	if cap(b.update) <= maxPooledBytes {
		p.pool.Put(b)
	}
}

// commandBytes is roughly the maximum size of a command. The driver grows its message buffer from
// a kilobyte, copying it repeatedly, unless its pool has a large enough one, and it pools none of
// more than 16 MiB. With updates of 60 readings of ten fields, commands of 7 MiB cost this process
// about twice as much CPU per reading as commands of 1 MiB.
const commandBytes = 1 << 20

// oneCommand returns how many of the operations go into the next command.
func oneCommand(ops []operation) int {
	n, size := 0, int64(0)
	for n < len(ops) && (n == 0 || size < commandBytes) {
		size += ops[n].size()
		n++
	}
	return n
}

// size estimates the bytes of the update: the readings (a block takes less), and for documents
// also four statistics with longer names for each field.
func (op *operation) size() int64 {
	if op.format == store.Columns {
		return 512 + op.bytes
	}
	return 512 + op.bytes + 5*int64(op.rows[0].Row().Size)
}

// send sends some of the operations in one command. The reply's duration is the round
// trip, without the encoding.
func (b *bulk) send(ctx context.Context, coll *mongo.Collection, ops []operation, to *store.Prepared) reply {
	upsert := true
	b.models, b.writes = b.models[:0], b.writes[:0]
	for i := range ops {
		op := &ops[i]
		op.bulk = b
		b.models = append(b.models, mongo.UpdateOneModel{Filter: (*filterOf)(op), Update: (*updateOf)(op), Upsert: &upsert})
	}
	for i := range b.models {
		b.writes = append(b.writes, &b.models[i])
	}
	b.left, b.sent = len(ops), time.Now()
	_, err := coll.BulkWrite(ctx, b.writes, to.Bulk)
	return reply{err: err, took: time.Since(b.sent)}
}

// reply is the result of one command.
type reply struct {
	err  error
	took time.Duration
}

// answered reports whether MongoDB returned the results of the operations.
func (r reply) answered() bool {
	var bulk mongo.BulkWriteException
	return r.err == nil || errors.As(r.err, &bulk)
}

// duplicateKey is the error code of an upsert whose part exists and did not match.
const duplicateKey = 11000

// errConflict says that a part refused an update and a lookup did not reveal why: another daemon
// was just creating it, or the majority lags behind the primary.
var errConflict = errors.New("the part exists and refused the update")

// prepare creates the bucket's next operation, closing its part first if it has
// no room. It returns false, with the verdict set, when there is nothing to send.
func (s *Store) prepare(ctx context.Context, pending *batch.Pending) (operation, bool) {
	if pending.Verdict == batch.Wait {
		return operation{}, false
	}
	p := partOf(pending)
	if op, ok := s.cut(pending, p); ok {
		return op, true
	}
	if len(pending.Rows) > 0 && !s.closePart(ctx, pending, p) {
		return operation{}, false
	}
	if len(pending.Rows) == 0 {
		pending.Verdict = batch.Stored
		return operation{}, false
	}
	return s.cut(pending, p)
}

// settle sets the outcome of every operation, except for writes whose parts refused the update; it
// returns those. An error means that all outcomes are unknown.
func (s *Store) settle(ctx context.Context, ops []operation, r reply) (conflicts []*batch.Pending, err error) {
	var bulk mongo.BulkWriteException
	if r.err != nil && !errors.As(r.err, &bulk) {
		for i := range ops {
			s.unknown(&ops[i], r.err)
		}
		return nil, r.err
	}
	refused := make(map[int]mongo.WriteError, len(bulk.WriteErrors))
	for _, e := range bulk.WriteErrors {
		refused[e.Index] = e.WriteError
	}
	for i := range ops {
		op := &ops[i]
		e, bad := refused[i]
		switch {
		case !bad && bulk.WriteConcernError != nil:
			s.unknown(op, fmt.Errorf("write concern: %w", bulk.WriteConcernError))
		case !bad:
			s.applied(op, r.took)
		case e.Code == duplicateKey:
			conflicts = append(conflicts, op.pending)
		case store.TooLarge(e.Code) && op.part.count > 0:
			s.closePart(ctx, op.pending, op.part)
		case store.TooLarge(e.Code) || store.ContentError(e.Code):
			s.isolate(ctx, op, e)
		default:
			s.unknown(op, e)
		}
	}
	return conflicts, nil
}

// unknown leaves an operation to be sent again: if it was applied, the guard will reveal that.
func (s *Store) unknown(op *operation, err error) {
	s.Metrics.Unknown.Inc()
	op.pending.Verdict, op.pending.Err = batch.Wait, err
}

func (s *Store) applied(op *operation, took time.Duration) {
	n, p := len(op.rows), op.part
	if op.own > 0 {
		s.Metrics.OwnTags.Add(float64(op.own))
	}
	p.count, p.bytes, p.tags = p.count+int64(n), p.bytes+op.bytes, op.tags
	p.hasMeasurements = p.hasMeasurements || op.format == store.Documents
	ratio := max(float64(p.count)/float64(op.maxReadings), float64(p.bytes)/float64(op.maxBytes))
	s.Metrics.Wrote(took, n, store.Fill(op.newest, op.pending.Start, op.pending.Granularity, ratio))
	if op.fills {
		p.next()
	}
	if p.limit *= 2; int64(p.limit) >= op.maxReadings {
		p.limit = 0
	}
	s.late.note(op.pending)
	op.pending.Drop(n)
	settleRest(op.pending)
}

// settleRest sets the verdict of a write after some of its rows were stored.
func settleRest(pending *batch.Pending) {
	pending.Verdict, pending.Err = batch.Again, nil
	if len(pending.Rows) == 0 {
		pending.Verdict = batch.Stored
	}
}

// resolve determines why parts refused their updates. If the lookup reveals nothing new for a
// write, the write waits.
func (s *Store) resolve(ctx context.Context, writes []*batch.Pending) {
	type view struct {
		rows int
		part part
	}
	before := make([]view, len(writes))
	for i, pending := range writes {
		before[i] = view{len(pending.Rows), *partOf(pending)}
		pending.Verdict = batch.Again
	}
	s.lookUp(ctx, writes)
	for i, pending := range writes {
		if pending.Verdict == batch.Wait {
			continue
		}
		settleRest(pending)
		if before[i] == (view{len(pending.Rows), *partOf(pending)}) {
			pending.Verdict, pending.Err = batch.Wait, errConflict
		}
	}
}

// isolate narrows a content error down to a single reading, alone in a new part.
func (s *Store) isolate(ctx context.Context, op *operation, e mongo.WriteError) {
	pending, p := op.pending, op.part
	if n := len(op.rows); n > 1 {
		p.limit = n / 2
		pending.Verdict, pending.Err = batch.Again, e
		return
	}
	p.limit = 1
	pending.Verdict = batch.Again
	s.lookUp(ctx, []*batch.Pending{pending})
	switch {
	case pending.Verdict == batch.Wait:
	case len(pending.Rows) == 0:
		pending.Verdict = batch.Stored
	case p.count > 0:
		s.closePart(ctx, pending, p)
	default:
		pending.Verdict, pending.Err = batch.Poison, e
	}
}

// closePart closes the bucket's part, so that no delayed request can be applied to it any more,
// and advances to the next one. It reports whether it succeeded; otherwise the write waits.
func (s *Store) closePart(ctx context.Context, pending *batch.Pending, p *part) bool {
	at, filter := int32(0), []byte{0, 0, 0, 0}
	filter = end(appendID(filter, pending, p.number), at)
	var closed stored
	err := s.withHangDetection(ctx, []operation{{pending: pending}}, func(ctx context.Context) error {
		return s.Majority.FindOneAndUpdate(ctx, bson.Raw(filter),
			bson.D{{Key: "$set", Value: bson.D{{Key: "full", Value: true}}}},
			options.FindOneAndUpdate().SetReturnDocument(options.After).SetProjection(partFields),
		).Decode(&closed)
	})
	switch {
	case errors.Is(err, errHangs):
		pending.Verdict, pending.Err = batch.Hangs, err
		return false
	case errors.Is(err, mongo.ErrNoDocuments):
		// It was removed, by the retention or by hand, so its number is free again.
		p.count, p.bytes, p.tags, p.hasMeasurements = 0, 0, nil, false
	case err != nil:
		pending.Verdict, pending.Err = batch.Wait, fmt.Errorf("close part: %w", err)
		return false
	default:
		last := closed.Writes[pending.Session]
		if len(pending.Rows) > 0 && last > 0 && pending.Rows[0].Seq() <= uint64(last) {
			if err := s.confirm(ctx, []*batch.Pending{pending}); err != nil {
				pending.Verdict, pending.Err = batch.Wait, err
				return false
			}
		}
		s.dropStored(pending, last)
		p.next()
	}
	settleRest(pending)
	return true
}

func (s *Store) dropStored(pending *batch.Pending, last int64) {
	if last > 0 {
		n := pending.DropStored(uint64(last))
		pending.Found += n
		s.Metrics.Found(n, pending.Recovered)
		if n > 0 {
			s.late.note(pending) // it was not noted if the reply was lost
		}
	}
}

// partFields excludes the measurements, and everything else that may be large.
var partFields = bson.D{
	{Key: "count", Value: 1}, {Key: "bytes", Value: 1}, {Key: "full", Value: 1}, {Key: "tags", Value: 1}, {Key: "w", Value: 1},
	{Key: "mixes", Value: bson.D{{Key: "$gt", Value: bson.A{"$measurements", nil}}}},
}

// lookupBatch is the number of buckets per query.
const lookupBatch = 100

// lookUp reads all parts of the buckets, drops rows that are already stored, and directs each
// write to its bucket's first open part. If that fails, the write waits.
func (s *Store) lookUp(ctx context.Context, writes []*batch.Pending) {
	for chunk := range slices.Chunk(writes, lookupBatch) {
		parts, err := s.findParts(ctx, chunk)
		if err == nil && len(parts) > 0 {
			err = s.confirm(ctx, chunk)
		}
		for _, pending := range chunk {
			if err != nil {
				pending.Verdict, pending.Err = batch.Wait, err
				continue
			}
			s.learn(pending, parts[keyOf(pending)])
		}
	}
}

// learn updates the write from the bucket's stored parts. The stored rows of a session are always
// a prefix of those sent, so the largest sequence is enough.
func (s *Store) learn(pending *batch.Pending, parts []stored) {
	var last int64
	for _, d := range parts {
		last = max(last, d.Writes[pending.Session])
	}
	p := partOf(pending)
	s.dropStored(pending, last)
	p.uncertain, p.applied = false, max(p.applied, uint64(last))
	// Parts before the current one are closed. A lagging majority may show them as open, and after
	// a deletion another daemon may have created them again.
	open := slices.IndexFunc(parts, func(d stored) bool { return !d.Full && d.ID.Part >= p.number })
	seen := part{}
	switch {
	case open >= 0:
		seen = parts[open].seen(p.tags)
	case len(parts) > 0 && parts[len(parts)-1].Full:
		seen.number = parts[len(parts)-1].ID.Part + 1
	}
	if seen.number >= p.number {
		p.number, p.count, p.bytes, p.tags, p.hasMeasurements = seen.number, seen.count, seen.bytes, seen.tags, seen.hasMeasurements
	}
}

// seen returns the part as found by a lookup. If its tags equal the given ones, it keeps that
// pointer, so that resolve can detect whether anything changed.
func (d *stored) seen(tags *[]telemetry.Tag) part {
	p := part{number: d.ID.Part, count: d.Count, bytes: d.Bytes, tags: tags, hasMeasurements: d.HasMeasurements}
	have := store.TagsOf(d.Tags)
	if tags == nil || !store.SameTags(*tags, have) {
		p.tags = &have
	}
	if ours := d.Tags.IsZero() || len(have) > 0 && bytes.HasSuffix(store.AppendTags(nil, have), d.Tags.Value); !ours {
		p.count = math.MaxInt32 // modified by hand, so that no filter would match; treat the part as full
	}
	return p
}

// bucketKey identifies a bucket within the stream.
type bucketKey struct {
	sensor string
	start  int64
	grain  int32
}

func keyOf(pending *batch.Pending) bucketKey {
	return bucketKey{pending.Sensor, pending.Start, int32(pending.Granularity.Seconds())}
}

func (s *Store) findParts(ctx context.Context, writes []*batch.Pending) (map[bucketKey][]stored, error) {
	either := make(bson.A, len(writes))
	for i, pending := range writes {
		from := end(appendKey([]byte{0, 0, 0, 0}, pending, 0), 0)
		to := end(appendKey([]byte{0, 0, 0, 0}, pending, math.MaxInt32), 0)
		either[i] = s.ofSensor(pending.Sensor, bson.D{{Key: "_id", Value: bson.D{{Key: "$gte", Value: bson.Raw(from)}, {Key: "$lte", Value: bson.Raw(to)}}}})
	}
	all, err := store.FindAll[stored](ctx, s.Majority, bson.D{{Key: "$or", Value: either}}, options.Find().SetProjection(partFields))
	if err != nil {
		return nil, fmt.Errorf("look up parts: %w", err)
	}
	parts := make(map[bucketKey][]stored, len(writes))
	for _, d := range all {
		k := bucketKey{d.ID.Sensor, int64(d.ID.Start), d.ID.Grain}
		parts[k] = append(parts[k], d)
	}
	for _, of := range parts {
		slices.SortFunc(of, func(a, b stored) int { return cmp.Compare(a.ID.Part, b.ID.Part) })
	}
	return parts, nil
}
