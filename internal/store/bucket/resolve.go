package bucket

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/fault"
	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// reply is what came back for one bulk.
type reply struct {
	err  error
	took time.Duration
}

// answered reports whether MongoDB said what became of the operations.
func (r reply) answered() bool {
	var bulk mongo.BulkWriteException
	return r.err == nil || errors.As(r.err, &bulk)
}

// duplicateKey is how an upsert says that the part exists and did not match.
const duplicateKey = 11000

// errConflict says that a part refused an update and a look did not show why:
// another daemon was creating it, or the majority lags behind the primary.
var errConflict = errors.New("the part exists and refused the update")

// lookWhereUnsure reads the parts of shares whose part is not to be relied on:
// readings that may have been sent by an earlier process rest perhaps in a part
// that the guard of the next update would not see.
func (s *Store) lookWhereUnsure(ctx context.Context, shares []*batch.Share) {
	var unsure []*batch.Share
	for _, share := range shares {
		share.Verdict, share.Err = batch.Again, nil
		// Rows that an earlier process sent may come in several rounds; the part at
		// hand need not be the one that they rest in.
		if p := partOf(share); p.applied > 0 && !s.cfg.Faults.Off(fault.Look) {
			s.dropStored(share, int64(p.applied))
		}
		if partOf(share).mustLook {
			unsure = append(unsure, share)
		}
	}
	s.look(ctx, unsure)
}

// prepare makes the share's next operation, closing its part first if that has
// no room. It returns false, with the verdict set, when there is nothing to send.
func (s *Store) prepare(ctx context.Context, share *batch.Share) (operation, bool) {
	if share.Verdict == batch.Wait {
		return operation{}, false
	}
	p := partOf(share)
	if op, ok := s.cut(share, p); ok {
		return op, true
	}
	if len(share.Rows) > 0 && !s.closePart(ctx, share, p) {
		return operation{}, false
	}
	if len(share.Rows) == 0 {
		share.Verdict = batch.Stored
		return operation{}, false
	}
	return s.cut(share, p)
}

// settle gives every operation its outcome, and returns an error where that of
// all is unknown.
func (s *Store) settle(ctx context.Context, ops []operation, r reply) error {
	conflicts, err := s.outcomes(ctx, ops, r)
	s.resolve(ctx, conflicts)
	return err
}

// outcomes is settle without the shares whose parts refused their updates, which it
// returns.
func (s *Store) outcomes(ctx context.Context, ops []operation, r reply) (conflicts []*batch.Share, err error) {
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
			conflicts = append(conflicts, op.share)
		case store.TooLarge(e.Code) && op.part.count > 0:
			s.closePart(ctx, op.share, op.part)
		case store.TooLarge(e.Code) || store.ContentError(e.Code):
			s.isolate(ctx, op, e)
		default:
			s.unknown(op, e)
		}
	}
	return conflicts, nil
}

// unknown leaves an operation to be sent again: if it was applied, the guard
// will say so.
func (s *Store) unknown(op *operation, err error) {
	s.metrics.Unknown.Inc()
	op.share.Verdict, op.share.Err = batch.Wait, err
}

func (s *Store) applied(op *operation, took time.Duration) {
	n, p := len(op.rows), op.part
	if op.own > 0 {
		s.metrics.OwnTags.Add(float64(op.own))
	}
	p.count, p.bytes, p.tags = p.count+int64(n), p.bytes+op.bytes, op.tags
	ratio := max(float64(p.count)/float64(op.maxReadings), float64(p.bytes)/float64(op.maxBytes))
	s.metrics.Wrote(took, n, store.Fill(op.newest, op.share.Start, op.share.Granularity, ratio))
	if op.fills {
		p.next()
	}
	if p.limit *= 2; int64(p.limit) >= op.maxReadings {
		p.limit = 0
	}
	op.share.Drop(n)
	settleRest(op.share)
}

// settleRest gives the verdict of a share of which something was stored.
func settleRest(share *batch.Share) {
	share.Verdict, share.Err = batch.Again, nil
	if len(share.Rows) == 0 {
		share.Verdict = batch.Stored
	}
}

// resolve finds out why parts refused their updates.
func (s *Store) resolve(ctx context.Context, shares []*batch.Share) {
	type view struct {
		rows int
		part part
	}
	before := make([]view, len(shares))
	for i, share := range shares {
		before[i] = view{len(share.Rows), *partOf(share)}
		share.Verdict = batch.Again
	}
	s.look(ctx, shares)
	for i, share := range shares {
		if share.Verdict == batch.Wait {
			continue
		}
		settleRest(share)
		if before[i] == (view{len(share.Rows), *partOf(share)}) {
			share.Verdict, share.Err = batch.Wait, errConflict
		}
	}
}

// isolate narrows a content error down to one reading that stands alone on a
// fresh part.
func (s *Store) isolate(ctx context.Context, op *operation, e mongo.WriteError) {
	share, p := op.share, op.part
	if s.cfg.Faults.Off(fault.Isolate) {
		share.Verdict, share.Err = batch.Poison, e
		return
	}
	if n := len(op.rows); n > 1 {
		p.limit = n / 2
		share.Verdict, share.Err = batch.Again, e
		return
	}
	p.limit = 1
	share.Verdict = batch.Again
	s.look(ctx, []*batch.Share{share})
	switch {
	case share.Verdict == batch.Wait:
	case len(share.Rows) == 0:
		share.Verdict = batch.Stored
	case p.count > 0:
		s.closePart(ctx, share, p)
	default:
		share.Verdict, share.Err = batch.Poison, e
	}
}

// closePart fences the share's part, so that no delayed request can slip into
// it any more, and moves on to the next. It reports whether that was done;
// otherwise the share waits.
func (s *Store) closePart(ctx context.Context, share *batch.Share, p *part) bool {
	if s.cfg.Faults.Off(fault.Fence) {
		p.next()
		settleRest(share)
		return true
	}
	at, filter := int32(0), []byte{0, 0, 0, 0}
	filter = end(appendID(filter, share, p.number), at)
	var closed stored
	s.cfg.Faults.At(fault.BeforeClosePart)
	err := s.unlessItHangs(ctx, []operation{{share: share}}, func(ctx context.Context) error {
		return s.coll.FindOneAndUpdate(ctx, bson.Raw(filter),
			bson.D{{Key: "$set", Value: bson.D{{Key: "full", Value: true}}}},
			options.FindOneAndUpdate().SetReturnDocument(options.After).SetProjection(partFields),
		).Decode(&closed)
	})
	s.cfg.Faults.At(fault.AfterClosePart)
	switch {
	case errors.Is(err, errHangs):
		share.Verdict, share.Err = batch.Hangs, err
		return false
	case errors.Is(err, mongo.ErrNoDocuments):
		// Removed by the retention or by hand: the number is free again.
		p.count, p.bytes, p.tags = 0, 0, nil
	case err != nil:
		share.Verdict, share.Err = batch.Wait, fmt.Errorf("close part: %w", err)
		return false
	default:
		last := closed.Writes[share.Session]
		if len(share.Rows) > 0 && last > 0 && share.Rows[0].Seq() <= uint64(last) {
			if err := s.confirm(ctx, []*batch.Share{share}); err != nil {
				share.Verdict, share.Err = batch.Wait, err
				return false
			}
		}
		s.dropStored(share, last)
		p.next()
	}
	settleRest(share)
	return true
}

func (s *Store) dropStored(share *batch.Share, last int64) {
	if last > 0 {
		n := share.DropStored(uint64(last))
		share.Found += n
		s.metrics.Duplicates.Add(float64(n))
	}
}

// partFields leaves the measurements, and all else that may be large, out.
var partFields = bson.D{{Key: "count", Value: 1}, {Key: "bytes", Value: 1}, {Key: "full", Value: 1}, {Key: "tags", Value: 1}, {Key: "w", Value: 1}}

// lookAtOnce is how many buckets one query asks for.
const lookAtOnce = 100

// look reads all parts of the shares' buckets, drops what is stored already,
// and points each share at its first open part. Where that fails, the share is
// told to wait.
func (s *Store) look(ctx context.Context, shares []*batch.Share) {
	for chunk := range slices.Chunk(shares, lookAtOnce) {
		parts, err := s.findParts(ctx, chunk)
		if err == nil && len(parts) > 0 {
			err = s.confirm(ctx, chunk)
		}
		for _, share := range chunk {
			if err != nil {
				share.Verdict, share.Err = batch.Wait, err
				continue
			}
			s.learn(share, parts[keyOf(share)])
		}
	}
}

// learn applies what is stored of the share's bucket. A bucket's stored rows
// of one session are always a prefix, so its largest sequence says it all.
func (s *Store) learn(share *batch.Share, parts []stored) {
	var last int64
	for _, d := range parts {
		last = max(last, d.Writes[share.Session])
	}
	p := partOf(share)
	if !p.mustLook || !s.cfg.Faults.Off(fault.Look) {
		s.dropStored(share, last)
	}
	p.mustLook, p.applied = false, max(p.applied, uint64(last))
	closed := 0
	for closed < len(parts) && parts[closed].Full {
		closed++
	}
	seen := part{}
	switch {
	case closed < len(parts):
		seen = parts[closed].seen(p.tags)
	case closed > 0:
		seen.number = parts[closed-1].ID.Part + 1
	}
	// A lagging majority may show a part open that is known to be closed.
	if seen.number >= p.number {
		p.number, p.count, p.bytes, p.tags = seen.number, seen.count, seen.bytes, seen.tags
	}
}

// seen returns the part as a lookup shows it. Its tags are the given ones if these
// are equal, so that resolve can tell whether anything was learned.
func (d *stored) seen(tags *[]telemetry.Tag) part {
	p := part{number: d.ID.Part, count: d.Count, bytes: d.Bytes, tags: tags}
	have := store.TagsOf(d.Tags)
	if tags == nil || !store.SameTags(*tags, have) {
		p.tags = &have
	}
	if ours := d.Tags.IsZero() || len(have) > 0 && bytes.HasSuffix(store.AppendTags(nil, have), d.Tags.Value); !ours {
		p.count = math.MaxInt32 // changed by hand, so that no filter would match: as if the part had no room
	}
	return p
}

// bucketKey names a bucket within the stream.
type bucketKey struct {
	sensor string
	start  int64
	grain  int32
}

func keyOf(share *batch.Share) bucketKey {
	return bucketKey{share.Sensor, share.Start, int32(share.Granularity.Seconds())}
}

func (s *Store) findParts(ctx context.Context, shares []*batch.Share) (map[bucketKey][]stored, error) {
	either := make(bson.A, len(shares))
	for i, share := range shares {
		from := end(appendKey([]byte{0, 0, 0, 0}, share, 0), 0)
		to := end(appendKey([]byte{0, 0, 0, 0}, share, math.MaxInt32), 0)
		either[i] = s.ofSensor(share.Sensor, bson.D{{Key: "_id", Value: bson.D{{Key: "$gte", Value: bson.Raw(from)}, {Key: "$lte", Value: bson.Raw(to)}}}})
	}
	cursor, err := s.coll.Find(ctx, bson.D{{Key: "$or", Value: either}}, options.Find().SetProjection(partFields))
	if err != nil {
		return nil, fmt.Errorf("look at parts: %w", err)
	}
	var all []stored
	if err := cursor.All(ctx, &all); err != nil {
		return nil, fmt.Errorf("look at parts: %w", err)
	}
	parts := make(map[bucketKey][]stored, len(shares))
	for _, d := range all {
		k := bucketKey{d.ID.Sensor, int64(d.ID.Start), d.ID.Grain}
		parts[k] = append(parts[k], d)
	}
	for _, of := range parts {
		slices.SortFunc(of, func(a, b stored) int { return cmp.Compare(a.ID.Part, b.ID.Part) })
	}
	return parts, nil
}
