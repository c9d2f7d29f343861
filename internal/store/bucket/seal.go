package bucket

import (
	"context"
	"fmt"
	"iter"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/block"
	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// Sealing packs all readings of a part into one block, in time order and with statistics, and
// drops duplicates if the stream's rule on duplicates says so:
//
//	{count: 37, measurements: […], blocks: […], w}  ──▶  {count: 37, blocks: [one], stats, sealed: {n: 37}, w}
//
// The update matches only if count and w are unchanged since they were read, so nothing that was
// appended meanwhile is lost. w and full are kept, so that the guard still rejects a repeated
// update. A late reading is appended as usual. Then count differs from sealed.n, stats is not
// used, and the part can be sealed again. A part is complete at any time, so a crash does no harm,
// and if two daemons seal it, the second only repeats the work.

// sealedVersion is sealed.v.
const sealedVersion = 1

// late has the sensors to which readings were appended in windows that had already ended, and may
// be sealed.
type late struct {
	ended atomic.Int64 // windows that ended by then count, in milliseconds since 1970

	mu       sync.Mutex
	sensors  map[string]int64 // the start of the first such window
	overflow int64            // the same for all sensors that did not fit; math.MaxInt64: none
}

// maxLate bounds the sensors of late, some 100 bytes each.
const maxLate = 100_000

func (l *late) note(pending *batch.Pending) {
	if pending.Start+pending.Granularity.Milliseconds() <= l.ended.Load() {
		l.add(pending.Sensor, pending.Start)
	}
}

func (l *late) add(sensor string, start int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sensors == nil {
		l.sensors, l.overflow = make(map[string]int64), math.MaxInt64
	}
	first, known := l.sensors[sensor]
	switch {
	case known:
		l.sensors[sensor] = min(first, start)
	case len(l.sensors) == maxLate:
		l.overflow = min(l.overflow, start)
	default:
		l.sensors[sensor] = start
	}
}

// TakeLate returns and clears the sensors to which this Store appended readings in windows that
// had ended by the time given in the last call, each with the start of the first such window. If
// there were too many sensors, the windows of the others start at overflow or later.
func (s *Store) TakeLate(ended int64) (sensors map[string]int64, overflow int64) {
	l := &s.late
	l.mu.Lock()
	defer l.mu.Unlock()
	sensors, overflow = l.sensors, math.MaxInt64
	if sensors != nil {
		overflow = l.overflow
	}
	l.sensors = nil
	l.ended.Store(ended)
	return sensors, overflow
}

// NextSensor returns the first sensor after an id that has a document; "" if there is none.
func (s *Store) NextSensor(ctx context.Context, after string) (string, error) {
	id, err := s.nextSensor(ctx, after, after != "")
	if err != nil {
		return "", fmt.Errorf("find the sensor after %q: %w", after, err)
	}
	return id, nil
}

// Unsealed yields the documents of a sensor that have unsealed readings, up to a limit. Their
// windows start at or after from and have ended by ended, both in milliseconds since 1970. A
// document is valid until the next one. It ends with an error if one occurs.
func (s *Store) Unsealed(ctx context.Context, sensor string, from, ended int64, limit int) iter.Seq2[bson.Raw, error] {
	filter := bson.D{
		startingIn(sensor, from, ended),
		{Key: "count", Value: bson.D{{Key: "$gt", Value: 0}}}, // tombstones have none
		{Key: "$expr", Value: op("$and",
			op("$ne", "$count", "$sealed.n"),
			op("$lte", op("$add", "$_id.b", op("$multiply", "$_id.g", 1000)), bson.DateTime(ended)),
		)},
	}
	return func(yield func(bson.Raw, error) bool) {
		for doc, err := range store.FindEach(ctx, s.Majority, s.ofSensor(sensor, filter), options.Find().SetSort(bson.D{{Key: "_id", Value: 1}}).SetLimit(int64(limit))) {
			if err != nil {
				err = fmt.Errorf("find what to seal of sensor %q: %w", sensor, err)
			}
			if !yield(doc, err) {
				return
			}
		}
	}
}

// A Seal is the update that seals a part. A Sealer creates it.
type Seal struct {
	filter, update bson.D
	sensor         string
	start          int64

	Readings      int
	Before, After int // bytes of the document; After is an estimate
}

// A Sealer creates Seals. It is not safe for concurrent use.
type Sealer struct {
	store   *Store
	decoder emitter
	builder block.Builder
}

// NewSealer returns a Sealer of the store's parts.
func (s *Store) NewSealer() *Sealer { return &Sealer{store: s} }

// Seal creates the update for a complete document. An error means that a Store has not written the
// document like this; it is left unchanged.
func (r *Sealer) Seal(doc bson.Raw, now time.Time) (Seal, error) {
	seal, err := r.seal(doc, now)
	if err != nil {
		return Seal{}, fmt.Errorf("seal the bucket %v: %w", doc.Lookup("_id"), err)
	}
	return seal, nil
}

func (r *Sealer) seal(doc bson.Raw, now time.Time) (Seal, error) {
	count, ok := doc.Lookup("count").AsInt64OK()
	if !ok || count < 1 || count > block.MaxReadings {
		return Seal{}, fmt.Errorf("its count is %v", doc.Lookup("count"))
	}
	sensor, _ := doc.Lookup("_id", "s").StringValueOK()
	start, err := startOf(doc)
	if err != nil {
		return Seal{}, err
	}
	all, err := r.gather(doc, sensor, int(count))
	if err != nil {
		return Seal{}, err
	}
	if n := int64(len(all)); n != count {
		return Seal{}, fmt.Errorf("it has %d readings, and its count is %d", n, count)
	}
	live := r.store.Live.Load()
	switch live.Duplicates {
	case store.DropIdentical:
		var distinct store.Deduplicator
		all = slices.DeleteFunc(all, func(one orderedReading) bool { return distinct.IsDuplicate(&one.Reading) })
	case store.LastWins:
		all = dropOverwritten(all)
	}
	data, stats, err := r.pack(all, store.TagsOf(doc.Lookup("tags")), !live.View)
	if err != nil {
		return Seal{}, err
	}
	kept := int64(len(all))
	sealed := bson.D{{Key: "at", Value: bson.NewDateTimeFromTime(now)}, {Key: "v", Value: int32(sealedVersion)}, {Key: "n", Value: kept}}
	if !doc.Lookup("sealed").IsZero() {
		sealed = append(sealed, bson.E{Key: "since", Value: bson.DateTime(firstSealed(doc))})
	}
	set := bson.D{
		{Key: blocksKey, Value: bson.A{bson.Binary{Data: data}}},
		{Key: "first", Value: bson.DateTime(stats.First)}, {Key: "last", Value: bson.DateTime(stats.Last)},
		{Key: "sealed", Value: sealed},
	}
	unset := bson.D{{Key: "measurements", Value: ""}}
	if fields := statisticsDocument(stats.Fields); len(fields) > 0 {
		set = append(set, bson.E{Key: "stats", Value: fields})
	} else {
		unset = append(unset, bson.E{Key: "stats", Value: ""})
	}
	if kept < count {
		set = append(set, bson.E{Key: "count", Value: kept})
	}
	return Seal{
		filter: bson.D{{Key: "_id", Value: doc.Lookup("_id")}, {Key: "count", Value: count}, guardOf(doc)},
		update: bson.D{{Key: "$set", Value: set}, {Key: "$unset", Value: unset}},
		sensor: sensor, start: start,
		Readings: int(count), Before: len(doc), After: sizeAfter(doc, set),
	}, nil
}

// gather returns all readings of the document, in the order of their times.
func (r *Sealer) gather(doc bson.Raw, sensor string, count int) ([]orderedReading, error) {
	d := &r.decoder
	d.query = telemetry.Query{Sensor: sensor, From: math.MinInt64, To: math.MaxInt64, LastWins: true} // all, with their keys
	d.decoder.Sensor, d.open, d.most = sensor, d.open[:0], count
	d.decoder.Reuse()
	d.blocks.Reuse()
	err := d.unpack(context.Background(), heldDocument{doc: doc})
	return d.open, err
}

// dropOverwritten removes field values that a later reading with the same time replaces, and
// readings that have no fields left, see mergeLastWins. The others keep their keys, so the result stays
// correct if a reading that arrived in between is stored later.
func dropOverwritten(all []orderedReading) []orderedReading {
	left := all[:0]
	for len(all) > 0 {
		same := sameTime(all)
		all = all[len(same):]
		if len(same) > 1 {
			same = slices.DeleteFunc(dropOverwrittenFields(same), func(one orderedReading) bool { return len(one.Fields) == 0 })
		}
		left = append(left, same...)
	}
	return left
}

// pack packs readings of a document with these tags into a block.
func (r *Sealer) pack(all []orderedReading, tags []telemetry.Tag, compress bool) (data []byte, stats block.Statistics, err error) {
	r.builder.Reset()
	for _, one := range all {
		r.builder.AddReading(one.Reading)
		if !store.SameTags(one.Tags, tags) {
			r.builder.Own(one.Tags)
		}
		if one.key != (block.Key{}) {
			r.builder.Key(one.key)
		}
	}
	if data, err = r.builder.Append(nil, block.Options{Statistics: true, Compress: compress}); err != nil {
		return nil, stats, err
	}
	packed, err := block.Open(data)
	if err == nil {
		stats, _, err = packed.Statistics()
	}
	return data, stats, err
}

// statisticsDocument returns the field stats of a document.
func statisticsDocument(fields []telemetry.FieldSummary) (out bson.D) {
	for _, f := range fields {
		if f.N > 0 {
			out = append(out, bson.E{Key: f.Name, Value: bson.D{
				{Key: "min", Value: f.Min.Any()}, {Key: "max", Value: f.Max.Any()}, {Key: "sum", Value: f.Sum}, {Key: "n", Value: f.N},
			}})
		}
	}
	return out
}

// sizeAfter estimates the size of the document after these elements are set.
func sizeAfter(doc bson.Raw, set bson.D) int {
	raw, err := bson.Marshal(set)
	if err != nil {
		return 0
	}
	n := len(doc) + len(raw)
	for _, key := range []string{"measurements", blocksKey, "stats", "sealed", "first", "last"} {
		n -= len(doc.Lookup(key).Value)
	}
	return n
}

// ApplySeals sends seals, and returns how many matched. The parts of the others were changed after
// they were read; TakeLate returns their sensors. After an error, any of them may have been
// applied.
func (s *Store) ApplySeals(ctx context.Context, seals []Seal) (applied int, err error) {
	to := s.Target(nil)
	if to == nil {
		return 0, store.ErrNotPrepared
	}
	models := make([]mongo.WriteModel, len(seals))
	for i, seal := range seals {
		models[i] = mongo.NewUpdateOneModel().SetFilter(seal.filter).SetUpdate(seal.update)
	}
	ctx, cancel := context.WithTimeout(ctx, s.WriteTimeout)
	defer cancel()
	r, err := s.Majority.BulkWrite(ctx, models, to.Bulk)
	s.Wrote(to, err)
	if err != nil {
		return 0, fmt.Errorf("seal %d buckets: %w", len(seals), err)
	}
	if applied = int(r.MatchedCount); applied < len(seals) {
		for _, seal := range seals { // MongoDB does not say which
			s.late.add(seal.sensor, seal.start)
		}
	}
	return applied, nil
}
