package bucket

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A rollup keeps statistics of a sensor's readings after they have expired: one document per UTC
// day, with the statistics of each step.
//
//	{_id: {s: "s-1", d: 2026-11-21}, day: 2026-11-21, every: 3600, steps: {
//	   "36000": {n: 720, first, last, fields: {t: {n, min, max, sum, first, last}},
//	             src: {"36000.300.0": 60, …}, at, r: 1}, …}}
//
// A step is computed once it has ended and its parts are sealed:
//
//	read the rollup ─▶ read the parts ─▶ write the step, if its r is still the same ─▶ mark the parts: sealed.rolled
//
// Only marked parts expire. An update that appends readings removes the mark. src has the number
// of readings of each part that the step counts. A step is recomputed only if all these parts
// exist and were not written again after it was computed. They may have fewer readings, if sealing
// dropped duplicates. Otherwise some of them have expired, and the remaining readings, or those that
// a replay wrote again, must not replace the step: only parts that it does not count are added.
//
// A sensor's deletion is counted in {_id: {s, d: null}, deletions}. A day stores the number of
// deletions when it was computed, so a rollup that was read before a deletion and written after it
// has no effect.

const (
	dayMillis = int64(24 * time.Hour / time.Millisecond)

	stepsKey     = "steps"
	deletionsKey = "deletions"
	// countedKey is true in a part whose readings are all counted.
	countedKey = "sealed.rolled"
)

// countedOnly matches the parts that may expire.
var countedOnly = bson.D{{Key: countedKey, Value: true}}

// rollups returns the collection with the stream's rollups.
func (s *Store) rollups() *mongo.Collection {
	return s.Database.Collection(store.RollupName(s.Stream))
}

// ensureRollups creates that collection.
func (s *Store) ensureRollups(ctx context.Context, now *store.Live) error {
	c := store.Collection{Database: s.Database, Name: store.RollupName(s.Stream), Compressor: s.Compressor}
	if _, err := c.Ensure(ctx, options.CreateCollection()); err != nil {
		return err
	}
	var other struct {
		Every int64 `bson:"every"`
	}
	want := int64(s.Rollup / time.Second)
	err := s.rollups().FindOne(ctx, bson.D{{Key: "every", Value: bson.D{{Key: "$gt", Value: 0}}}}).Decode(&other)
	switch {
	case errors.Is(err, mongo.ErrNoDocuments):
	case err != nil:
		return fmt.Errorf("look up the steps of collection %q: %w", c.Name, err)
	case other.Every != want:
		have := time.Duration(other.Every) * time.Second
		return &store.MismatchError{
			Collection: c.Name, What: "steps of", Have: have.String(), Want: s.Rollup.String(),
			Hint: fmt.Sprintf("start with --rollup %ds, or rename or drop that collection to begin again: only readings that have not expired will be in the new one", other.Every),
		}
	}
	after := now.RollupRetention
	if after > 0 {
		after += 24 * time.Hour // it counts from the start of the day
	}
	return c.EnsureExpiry(ctx, "day", after)
}

// UnmarkWithoutRollups removes the marks of all parts if there are no rollups, because the collection
// was dropped to start over: otherwise these parts would expire uncounted.
func (s *Store) UnmarkWithoutRollups(ctx context.Context) error {
	err := s.rollups().FindOne(ctx, bson.D{{Key: stepsKey, Value: bson.D{{Key: "$exists", Value: true}}}}, options.FindOne().SetProjection(bson.D{{Key: "_id", Value: 1}})).Err()
	if errors.Is(err, mongo.ErrNoDocuments) {
		_, err = s.Majority.UpdateMany(ctx, countedOnly, bson.D{{Key: "$unset", Value: bson.D{{Key: countedKey, Value: ""}}}})
	}
	if err != nil {
		return fmt.Errorf("look for buckets that former rollups counted: %w", err)
	}
	return nil
}

// rollupStep is a step of a rollup.
type rollupStep struct {
	start       int64 // milliseconds since the epoch
	count       int64
	first, last int64 // times of its readings
	fields      []telemetry.FieldSummary
	sources     map[string]int64 // readings by part, see source.key
	at          int64            // when it was computed; not before any of its parts was sealed
	revision    int32
}

// rollupDay is a document with rollups.
type rollupDay struct {
	start     int64
	stored    bool  // it exists
	deletions int64 // number of deletions when it was computed
	steps     map[int64]*rollupStep
}

func dayKey(sensor string, day int64) bson.D {
	return bson.D{{Key: "s", Value: sensor}, {Key: "d", Value: bson.DateTime(day)}}
}

// deletionKey sorts before the keys of all days of a sensor.
func deletionKey(sensor string) bson.D {
	return bson.D{{Key: "s", Value: sensor}, {Key: "d", Value: nil}}
}

// rollupDays returns the days of a sensor that overlap [from, to), in order, and the number of its
// deletions. Days from before the last deletion have no steps.
func (s *Store) rollupDays(ctx context.Context, sensor string, from, to int64) (days []*rollupDay, deletions int64, err error) {
	filter := bson.D{{Key: "$or", Value: bson.A{
		bson.D{{Key: "_id", Value: deletionKey(sensor)}},
		bson.D{{Key: "_id", Value: bson.D{{Key: "$gt", Value: dayKey(sensor, from-dayMillis)}, {Key: "$lt", Value: dayKey(sensor, to)}}}},
	}}}
	for doc, err := range store.FindEach(ctx, s.rollups(), filter, options.Find().SetSort(bson.D{{Key: "_id", Value: 1}})) {
		if err != nil {
			return nil, 0, fmt.Errorf("read rollups of sensor %q: %w", sensor, err)
		}
		if err := telemetry.Spend(ctx, len(doc)); err != nil {
			return nil, 0, err
		}
		made, _ := doc.Lookup(deletionsKey).AsInt64OK()
		start, ok := doc.Lookup("_id", "d").DateTimeOK()
		if !ok {
			deletions = made
			continue
		}
		day := &rollupDay{start: start, stored: true, deletions: made, steps: make(map[int64]*rollupStep)}
		if made == deletions {
			err = day.read(doc)
		}
		if err != nil {
			return nil, 0, fmt.Errorf("read the rollup %v: %w", doc.Lookup("_id"), err)
		}
		days = append(days, day)
	}
	return days, deletions, nil
}

func (d *rollupDay) read(doc bson.Raw) error {
	steps, ok := doc.Lookup(stepsKey).DocumentOK()
	if !ok {
		return errors.New("it has no steps")
	}
	return store.EachElement(steps, func(_ int, e bsoncore.Element) error {
		offset, err := strconv.ParseInt(e.Key(), 10, 64)
		of, ok := e.Value().DocumentOK()
		if err != nil || !ok {
			return fmt.Errorf("its step %q is not valid", e.Key())
		}
		step := &rollupStep{start: d.start + 1000*offset, sources: make(map[string]int64)}
		if err := step.read(of); err != nil {
			return fmt.Errorf("its step %q is not valid: %w", e.Key(), err)
		}
		d.steps[step.start] = step
		return nil
	})
}

func (r *rollupStep) read(doc bsoncore.Document) error {
	var all [5]bool
	r.count, all[0] = doc.Lookup("n").AsInt64OK()
	r.first, all[1] = doc.Lookup("first").DateTimeOK()
	r.last, all[2] = doc.Lookup("last").DateTimeOK()
	r.at, all[3] = doc.Lookup("at").DateTimeOK()
	r.revision, all[4] = doc.Lookup("r").AsInt32OK()
	fields, hasFields := doc.Lookup("fields").DocumentOK()
	sources, hasSources := doc.Lookup("src").DocumentOK()
	if all != [5]bool{true, true, true, true, true} || !hasFields || !hasSources {
		return errors.New("something is missing in it")
	}
	err := store.EachElement(bson.Raw(sources), func(_ int, e bsoncore.Element) error {
		n, ok := e.Value().AsInt64OK()
		r.sources[e.Key()] = n
		if !ok {
			return fmt.Errorf("src.%s is no number", e.Key())
		}
		return nil
	})
	if err != nil {
		return err
	}
	return store.EachElement(bson.Raw(fields), func(_ int, e bsoncore.Element) error {
		f := telemetry.FieldSummary{Name: e.Key()}
		var all [6]bool
		of, _ := e.Value().DocumentOK()
		f.N, all[0] = of.Lookup("n").AsInt64OK()
		f.Sum, all[1] = of.Lookup("sum").AsFloat64OK()
		f.Min, all[2] = store.NumberOf(of.Lookup("min"))
		f.Max, all[3] = store.NumberOf(of.Lookup("max"))
		f.First, all[4] = store.NumberOf(of.Lookup("first"))
		f.Last, all[5] = store.NumberOf(of.Lookup("last"))
		if all != [6]bool{true, true, true, true, true, true} {
			return fmt.Errorf("something is missing in fields.%s", e.Key())
		}
		r.fields = append(r.fields, f)
		return nil
	})
}

// document returns the step as it is stored.
func (r *rollupStep) document() bson.D {
	fields, sources := make(bson.D, 0, len(r.fields)), make(bson.D, 0, len(r.sources))
	for _, f := range r.fields {
		fields = append(fields, bson.E{Key: f.Name, Value: bson.D{
			{Key: "n", Value: int32(f.N)}, {Key: "min", Value: f.Min.Any()}, {Key: "max", Value: f.Max.Any()}, {Key: "sum", Value: f.Sum},
			{Key: "first", Value: f.First.Any()}, {Key: "last", Value: f.Last.Any()},
		}})
	}
	for _, key := range slices.Sorted(maps.Keys(r.sources)) {
		sources = append(sources, bson.E{Key: key, Value: int32(r.sources[key])})
	}
	return bson.D{
		{Key: "n", Value: int32(r.count)}, {Key: "first", Value: bson.DateTime(r.first)}, {Key: "last", Value: bson.DateTime(r.last)},
		{Key: "fields", Value: fields}, {Key: "src", Value: sources}, {Key: "at", Value: bson.DateTime(r.at)}, {Key: "r", Value: r.revision},
	}
}

// add counts a reading, which must not be older than the previous ones.
func (r *rollupStep) add(reading *telemetry.Reading) {
	at := reading.Time.UnixMilli()
	if r.count == 0 {
		r.first = at
	}
	r.last = at
	r.count++
	for _, f := range reading.Fields {
		if f.Value.Kind().Numeric() {
			r.merge(store.SummaryOf(f.Name, f.Value), false, true)
		}
	}
}

// merge adds the statistics of other readings, which may include the oldest or the newest.
func (r *rollupStep) merge(f telemetry.FieldSummary, oldest, newest bool) {
	at := slices.IndexFunc(r.fields, func(have telemetry.FieldSummary) bool { return have.Name == f.Name })
	if at < 0 {
		r.fields = append(r.fields, f)
		return
	}
	have := &r.fields[at]
	store.MergeField(have, f)
	if oldest {
		have.First = f.First
	}
	if newest {
		have.Last = f.Last
	}
}

// with returns the step merged with the readings of other parts.
func (r *rollupStep) with(more *rollupStep) *rollupStep {
	out := *r
	out.fields, out.sources = slices.Clone(r.fields), maps.Clone(r.sources)
	for _, f := range more.fields {
		out.merge(f, more.first < r.first, more.last >= r.last)
	}
	out.count += more.count
	out.first, out.last = min(r.first, more.first), max(r.last, more.last)
	out.at = max(r.at, more.at)
	maps.Copy(out.sources, more.sources)
	return &out
}

// same reports whether two steps are equal, apart from their time and revision.
func (r *rollupStep) same(other *rollupStep) bool {
	a, b := *r, *other
	a.at, a.revision, b.at, b.revision = 0, 0, 0, 0
	one, err := bson.Marshal(a.document())
	two, also := bson.Marshal(b.document())
	return err == nil && also == nil && bytes.Equal(one, two)
}

// A source is a part that steps may have readings from.
type source struct {
	key         string // unique within a day: start of the window, granularity, part number
	filter      bson.D // matches it unless it was modified
	since       int64  // when it was sealed for the first time
	first, last int64
	counted     bool // marked
	stale       bool // readings were appended after it was sealed

	counts map[int64]int64 // readings by step; with store.LastWins, those with the same time count as one
}

// sourceKey returns the key of a part.
func sourceKey(doc bson.Raw) string {
	start, _ := doc.Lookup("_id", "b").DateTimeOK()
	g, _ := doc.Lookup("_id", "g").AsInt64OK()
	p, _ := doc.Lookup("_id", "p").AsInt64OK()
	return fmt.Sprintf("%d.%d.%d", (start-store.WindowStart(start, 24*time.Hour))/1000, g, p)
}

// A RollupUpdate updates rollups of a sensor and day. Store.RollupUpdates creates it.
type RollupUpdate struct {
	sensor         string
	day            int64
	filter, update bson.D   // update is nil if no step changes
	marks          []bson.D // filters of the parts that are counted after it

	Steps    int // that it writes
	Readings int64
	// Refused is the number of readings that a step should count but cannot, because another part
	// that it counts has expired.
	Refused int64
	// Replayed is the number of readings that are counted already, in parts that expired and were
	// written again.
	Replayed int64
}

// rollupPageSize is the maximum number of uncounted parts that are looked up at a time.
const rollupPageSize = 5000

// RollupUpdates yields the updates for the rollups of a sensor: for parts that are sealed and not counted,
// whose windows start at or after from, and whose steps have ended. There is at least one update
// for each day. It ends with an error if one occurs.
func (s *Store) RollupUpdates(ctx context.Context, sensor string, from, ended int64) iter.Seq2[RollupUpdate, error] {
	return func(yield func(RollupUpdate, error) bool) {
		for {
			days, more, err := s.findUncounted(ctx, sensor, from, ended)
			if err != nil {
				yield(RollupUpdate{}, fmt.Errorf("find what to count of sensor %q: %w", sensor, err))
				return
			}
			starts := slices.Sorted(maps.Keys(days))
			for _, day := range starts {
				for _, steps := range s.runs(days[day]) {
					update, err := s.planRollup(ctx, sensor, day, steps)
					if err != nil {
						err = fmt.Errorf("count the readings of sensor %q on %s: %w", sensor, time.UnixMilli(day).UTC().Format(time.DateOnly), err)
					}
					if !yield(update, err) || err != nil {
						return
					}
				}
			}
			if !more {
				return
			}
			from = starts[len(starts)-1] + dayMillis
		}
	}
}

// rollupTimeout bounds the time to look up a page of uncounted parts, and to read the readings of a
// run of steps.
const rollupTimeout = time.Minute

// uncountedDay has the steps of a day with uncounted readings.
type uncountedDay struct {
	steps map[int64]bool
	whole bool // its parts have such long windows that it cannot be divided into runs
}

// runLength is the length of a run: a multiple of a step, and of MaxGranularity.
func (s *Store) runLength() int64 {
	length := s.Rollup
	for length%store.MaxGranularity != 0 {
		length += s.Rollup
	}
	return length.Milliseconds()
}

// runs divides the steps of a day, in order, to limit the readings in memory.
func (s *Store) runs(day *uncountedDay) (out [][]int64) {
	last, length := int64(0), s.runLength()
	for i, step := range slices.Sorted(maps.Keys(day.steps)) {
		run := step / length
		if i == 0 || run != last && !day.whole {
			out = append(out, nil)
		}
		last = run
		out[len(out)-1] = append(out[len(out)-1], step)
	}
	return out
}

// findUncounted finds the steps that have uncounted readings, by day.
func (s *Store) findUncounted(ctx context.Context, sensor string, from, ended int64) (days map[int64]*uncountedDay, more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, rollupTimeout)
	defer cancel()
	every := s.Rollup.Milliseconds()
	// The end of the step in which the window ends.
	last := op("$add", bson.D{{Key: "$toLong", Value: "$_id.b"}}, op("$multiply", "$_id.g", 1000), every-1)
	docs, err := store.FindAll[bson.Raw](ctx, s.Majority, s.ofSensor(sensor, bson.D{
		startingIn(sensor, from, ended),
		{Key: "count", Value: bson.D{{Key: "$gt", Value: 0}}},
		{Key: countedKey, Value: bson.D{{Key: "$ne", Value: true}}},
		{Key: "$expr", Value: op("$and", op("$eq", "$count", "$sealed.n"), op("$lte", op("$subtract", last, op("$mod", last, every)), ended))},
	}), options.Find().SetSort(bson.D{{Key: "_id", Value: 1}}).SetLimit(rollupPageSize).SetProjection(bson.D{{Key: "first", Value: 1}, {Key: "last", Value: 1}}))
	if err != nil {
		return nil, false, err
	}
	days = make(map[int64]*uncountedDay)
	newest := int64(0)
	for _, doc := range docs {
		start, _ := doc.Lookup("_id", "b").DateTimeOK()
		day := store.WindowStart(start, 24*time.Hour)
		newest = day
		if days[day] == nil {
			days[day] = &uncountedDay{steps: make(map[int64]bool)}
		}
		first, _ := doc.Lookup("first").DateTimeOK()
		last, _ := doc.Lookup("last").DateTimeOK()
		days[day].whole = days[day].whole || first/s.runLength() != last/s.runLength()
		for step := store.WindowStart(first, s.Rollup); step <= last; step += every {
			days[day].steps[step] = true
		}
	}
	if more = len(docs) == rollupPageSize; more && len(days) > 1 {
		delete(days, newest) // it may be incomplete
	}
	return days, more, nil
}

// planRollup computes steps of a day, which must be in order. It reads the rollup before the parts: if
// another daemon writes the rollup in between, this update does not match.
func (s *Store) planRollup(ctx context.Context, sensor string, start int64, wanted []int64) (RollupUpdate, error) {
	ctx, cancel := context.WithTimeout(ctx, rollupTimeout)
	defer cancel()
	days, deletions, err := s.rollupDays(ctx, sensor, start, start+1)
	if err != nil {
		return RollupUpdate{}, err
	}
	day := &rollupDay{start: start, deletions: deletions}
	for _, d := range days {
		if d.start == start {
			day = d
		}
	}
	r := rollupBuilder{store: s, sensor: sensor, rule: s.Live.Load().Duplicates, now: time.Now().UnixMilli()}
	end := wanted[len(wanted)-1] + s.Rollup.Milliseconds()
	if err := r.gather(ctx, wanted[0], end); err != nil {
		return RollupUpdate{}, err
	}
	out := RollupUpdate{sensor: sensor, day: start}
	settled := make(map[int64]map[*source]bool)
	size := 0
	for _, have := range day.steps {
		size += have.size()
	}
	set, guards := bson.D{}, bson.D{{Key: "_id", Value: dayKey(sensor, start)}, unchanged(deletionsKey, day.deletions, day.deletions > 0)}
	for _, at := range wanted {
		before := day.steps[at]
		step, done := r.step(at, before, &out)
		settled[at] = done
		if step == nil || before != nil && step.same(before) {
			continue
		}
		if size += step.size(); before != nil {
			size -= before.size()
		}
		path := stepsKey + "." + strconv.FormatInt((at-start)/1000, 10)
		if step.revision = 1; before != nil {
			step.revision = before.revision + 1
			guards = append(guards, unchanged(path+".r", before.revision, true))
		} else if day.deletions == deletions {
			guards = append(guards, unchanged(path, nil, false))
		}
		set = append(set, bson.E{Key: path, Value: step.document()})
		out.Steps, out.Readings = out.Steps+1, out.Readings+step.count
	}
	if size > maxDayBytes {
		s.refuseDay(&out)
		return out, nil
	}
	if len(set) > 0 {
		out.filter, out.update = guards, s.rollupUpdateDocument(day, deletions, set)
	}
	for _, one := range r.sources {
		if one.first >= wanted[0] && one.last < end && one.settledIn(settled) {
			out.marks = append(out.marks, one.filter)
		}
	}
	return out, nil
}

// maxDayBytes keeps a day under MongoDB's limit of 16 MiB.
const maxDayBytes = 16_000_000

// size is about how many bytes the step takes.
func (r *rollupStep) size() (n int) {
	n = 100
	for _, f := range r.fields {
		n += len(f.Name) + 82
	}
	for key := range r.sources {
		n += len(key) + 6
	}
	return n
}

// refuseDay empties an update that MongoDB refuses because the day is too large: nothing is
// marked, so the readings stay, and other sensors are not held up.
func (s *Store) refuseDay(of *RollupUpdate) {
	of.update, of.marks, of.Steps, of.Readings = nil, nil, 0, 0
	if !s.dayWarned.Swap(true) {
		s.Logger.Error("a sensor has too many fields for the rollup of a day, which would exceed MongoDB's limit of 16 MB: its readings do not expire; logged once",
			"stream", s.Stream, "sensor", of.sensor, "day", time.UnixMilli(of.day).UTC().Format(time.DateOnly))
	}
}

// unchanged matches a document in which a value is unchanged or, if there is false, absent. It
// does not use an equality match, because an upsert would store that.
func unchanged(path string, value any, there bool) bson.E {
	if !there {
		return bson.E{Key: path, Value: bson.D{{Key: "$exists", Value: false}}}
	}
	return bson.E{Key: path, Value: bson.D{{Key: "$not", Value: bson.D{{Key: "$ne", Value: value}}}}}
}

// rollupUpdateDocument is the update that stores steps.
func (s *Store) rollupUpdateDocument(day *rollupDay, deletions int64, steps bson.D) bson.D {
	head := bson.D{{Key: "day", Value: bson.DateTime(day.start)}, {Key: "every", Value: int32(s.Rollup / time.Second)}}
	if deletions > 0 {
		head = append(head, bson.E{Key: deletionsKey, Value: deletions})
	}
	if !day.stored || day.deletions == deletions {
		return bson.D{{Key: "$set", Value: steps}, {Key: "$setOnInsert", Value: head}}
	}
	of := bson.D{} // it is from before the last deletion, so it is replaced as a whole
	for _, step := range steps {
		of = append(of, bson.E{Key: strings.TrimPrefix(step.Key, stepsKey+"."), Value: step.Value})
	}
	return bson.D{{Key: "$set", Value: append(head, bson.E{Key: stepsKey, Value: of})}}
}

// A rollupBuilder computes steps from the stored readings.
type rollupBuilder struct {
	store   *Store
	sensor  string
	rule    store.Duplicates
	now     int64
	sources []*source
	all     []orderedReading // the readings of the sources; order is the index of the source
}

// gather reads the parts that have readings in [from, to), except those that were never sealed.
func (r *rollupBuilder) gather(ctx context.Context, from, to int64) error {
	s := r.store
	w := walk{store: s, ctx: ctx, query: telemetry.Query{Sensor: r.sensor, From: from, To: to, LastWins: r.rule == store.LastWins}}
	e := emitter{query: w.query, decoder: store.Decoder{Sensor: r.sensor}}
	for doc, err := range store.FindEach(ctx, s.Majority, w.filter(), options.Find().SetSort(bson.D{{Key: "_id", Value: 1}})) {
		if err != nil {
			return err
		}
		count, _ := doc.Lookup("count").AsInt64OK()
		n, sealed := doc.Lookup("sealed", "n").AsInt64OK()
		if !sealed || count == 0 {
			continue
		}
		id := doc.Lookup("_id")
		one := &source{key: sourceKey(doc), stale: n != count, counts: make(map[int64]int64)}
		one.filter = bson.D{
			{Key: "_id", Value: bson.RawValue{Type: id.Type, Value: slices.Clone(id.Value)}}, {Key: "count", Value: count}, {Key: "sealed.n", Value: count}, guardOf(doc),
		}
		one.since = firstSealed(doc)
		one.first, _ = doc.Lookup("first").DateTimeOK()
		one.last, _ = doc.Lookup("last").DateTimeOK()
		one.counted, _ = doc.Lookup("sealed", "rolled").BooleanOK()
		r.sources = append(r.sources, one)
		if one.stale {
			continue
		}
		e.yielded = len(e.open) // all is sorted at the end
		if err := e.unpack(ctx, heldDocument{order: len(r.sources) - 1, doc: slices.Clone(doc)}); err != nil {
			return err
		}
	}
	e.yielded = 0
	e.sort()
	r.all = e.open
	for i, one := range r.all {
		if of := r.sources[one.order]; r.rule != store.LastWins || !r.repeatsTime(i) {
			of.counts[store.WindowStart(one.Time.UnixMilli(), s.Rollup)]++
		}
	}
	return nil
}

// repeatsTime reports whether an earlier reading of the same part has the same time.
func (r *rollupBuilder) repeatsTime(i int) bool {
	for j := i - 1; j >= 0 && r.all[j].Time.Equal(r.all[i].Time); j-- {
		if r.all[j].order == r.all[i].order {
			return true
		}
	}
	return false
}

// step computes a step, or returns nil if that is not possible yet. done are the parts whose
// readings in it need no more work.
func (r *rollupBuilder) step(at int64, before *rollupStep, out *RollupUpdate) (step *rollupStep, done map[*source]bool) {
	end := at + r.store.Rollup.Milliseconds()
	here, since := make(map[string]*source), make(map[string]int64)
	for _, one := range r.sources {
		if one.stale && one.first < end && one.last >= at {
			return nil, nil // it must be sealed again first
		}
		if one.counts[at] > 0 {
			here[one.key], since[one.key] = one, one.since
		}
	}
	done = make(map[*source]bool)
	if before == nil || before.complete(since) {
		for _, one := range here {
			done[one] = true
		}
		return r.sum(at, here), done
	}
	fresh := make(map[string]*source)
	for key, one := range here {
		n, counted := before.sources[key]
		switch {
		case !counted && !one.counted:
			fresh[key] = one
			done[one] = true
		case !counted || one.since > before.at: // moved, or written again
			out.Replayed += one.counts[at]
			done[one] = true
		case n == one.counts[at]:
			done[one] = true
		default: // with fewer readings, sealing dropped duplicates, and the number of new ones is unknown
			out.Refused += max(1, one.counts[at]-n)
		}
	}
	if len(fresh) == 0 {
		return before, done
	}
	return before.with(r.sum(at, fresh)), done
}

// sum computes a step from the readings of some parts, with the stream's rule on duplicates.
func (r *rollupBuilder) sum(at int64, of map[string]*source) *rollupStep {
	out := &rollupStep{start: at, sources: make(map[string]int64), at: r.now}
	for key, one := range of {
		out.sources[key] = one.counts[at]
		out.at = max(out.at, one.since)
	}
	from, _ := slices.BinarySearchFunc(r.all, at, func(d orderedReading, at int64) int { return cmp.Compare(d.Time.UnixMilli(), at) })
	var distinct store.Deduplicator
	end := at + r.store.Rollup.Milliseconds()
	for rest := r.all[from:]; len(rest) > 0 && rest[0].Time.UnixMilli() < end; {
		same := sameTime(rest)
		rest = rest[len(same):]
		same = slices.DeleteFunc(slices.Clone(same), func(one orderedReading) bool {
			source := r.sources[one.order]
			return of[source.key] != source
		})
		if r.rule == store.LastWins && len(same) > 0 {
			merged := mergeLastWins(same)
			out.add(&merged)
			continue
		}
		for _, one := range same {
			if r.rule != store.DropIdentical || !distinct.IsDuplicate(&one.Reading) {
				out.add(&one.Reading)
			}
		}
	}
	slices.SortFunc(out.fields, func(a, b telemetry.FieldSummary) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// settledIn reports whether a part should be marked now: it is not marked yet, and all its
// readings were handled.
func (o *source) settledIn(steps map[int64]map[*source]bool) bool {
	if o.counted || o.stale || len(o.counts) == 0 {
		return false
	}
	for at := range o.counts {
		if !steps[at][o] {
			return false
		}
	}
	return true
}

// guardOf matches a document with the same w.
func guardOf(doc bson.Raw) bson.E {
	if have := doc.Lookup("w"); !have.IsZero() {
		return bson.E{Key: "w", Value: bson.RawValue{Type: have.Type, Value: slices.Clone(have.Value)}}
	}
	return bson.E{Key: "w", Value: bson.D{{Key: "$exists", Value: false}}}
}

// firstSealed returns when a document was sealed for the first time; math.MaxInt64: it never was.
func firstSealed(doc bson.Raw) int64 {
	if since, ok := doc.Lookup("sealed", "since").DateTimeOK(); ok {
		return since
	}
	at, ok := doc.Lookup("sealed", "at").DateTimeOK()
	if !ok {
		return math.MaxInt64
	}
	return at
}

// ApplyRollups sends updates. It returns how many could not be applied because another daemon
// changed the rollup meanwhile; TakeLate returns their sensors. After an error, any of them may
// have been applied, which is harmless.
func (s *Store) ApplyRollups(ctx context.Context, updates []RollupUpdate) (changed int, err error) {
	to := s.Target(nil)
	if to == nil {
		return 0, store.ErrNotPrepared
	}
	ctx, cancel := context.WithTimeout(ctx, s.WriteTimeout)
	defer cancel()
	conflicts, err := s.writeRollups(ctx, updates)
	if err != nil {
		return 0, fmt.Errorf("write rollups: %w", err)
	}
	var marks []mongo.WriteModel
	for i, one := range updates {
		if conflicts[i] {
			s.late.add(one.sensor, one.day)
			continue
		}
		for _, filter := range one.marks {
			marks = append(marks, mongo.NewUpdateOneModel().SetFilter(filter).SetUpdate(bson.D{{Key: "$set", Value: countedOnly}}))
		}
	}
	if len(marks) > 0 {
		_, err = s.Majority.BulkWrite(ctx, marks, to.Bulk)
		s.Wrote(to, err)
		if err != nil {
			return 0, fmt.Errorf("mark %d buckets as counted: %w", len(marks), err)
		}
	}
	return len(conflicts), nil
}

// writeRollups writes the steps, and returns the indexes of the updates whose rollup was changed
// since it was read. The upsert reveals that: it cannot insert a second document with the same
// _id. It empties those that are too large.
func (s *Store) writeRollups(ctx context.Context, updates []RollupUpdate) (conflicts map[int]bool, err error) {
	conflicts = make(map[int]bool)
	var models []mongo.WriteModel
	var places []int
	for i, one := range updates {
		if one.update != nil {
			models, places = append(models, mongo.NewUpdateOneModel().SetFilter(one.filter).SetUpdate(one.update).SetUpsert(true)), append(places, i)
		}
	}
	if len(models) == 0 {
		return conflicts, nil
	}
	_, err = s.rollups().BulkWrite(ctx, models, options.BulkWrite().SetOrdered(false))
	var failed mongo.BulkWriteException
	if !errors.As(err, &failed) || failed.WriteConcernError != nil {
		return conflicts, err
	}
	for _, e := range failed.WriteErrors {
		switch {
		case e.Code == duplicateKey:
			conflicts[places[e.Index]] = true
		case store.TooLarge(e.Code):
			s.refuseDay(&updates[places[e.Index]])
		default:
			return nil, err
		}
	}
	return conflicts, nil
}

// deleteRollups removes the rollups of a sensor whose readings were deleted. A step that was
// computed from the deleted readings and is written later belongs to an earlier deletion count, so
// it is ignored.
func (s *Store) deleteRollups(ctx context.Context, sensor string) error {
	_, err := s.rollups().UpdateOne(ctx, bson.D{{Key: "_id", Value: deletionKey(sensor)}}, bson.D{
		{Key: "$inc", Value: bson.D{{Key: deletionsKey, Value: int64(1)}}},
		{Key: "$unset", Value: bson.D{{Key: "day", Value: ""}}}, // rollups expire by this field, but this document must stay
	}, options.UpdateOne().SetUpsert(true))
	if err == nil {
		_, err = s.rollups().DeleteMany(ctx, bson.D{{Key: "_id", Value: bson.D{{Key: "$gt", Value: deletionKey(sensor)}, {Key: "$lt", Value: dayKey(sensor, math.MaxInt64)}}}})
	}
	if err == nil { // readings that arrived meanwhile are counted again
		_, err = s.Majority.UpdateMany(ctx, s.ofSensor(sensor, bson.D{{Key: "_id", Value: keysOf(sensor)}}), bson.D{{Key: "$unset", Value: bson.D{{Key: countedKey, Value: ""}}}})
	}
	if err != nil {
		return fmt.Errorf("delete the rollups of sensor %q: %w", sensor, err)
	}
	return nil
}
