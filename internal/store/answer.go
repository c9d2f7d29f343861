package store

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// Code that all stores share for queries and deletions: the steps of a summary, the list of
// sensors, readings that are not stored yet, and deleting a sensor.

// Steps aggregates readings, and statistics of readings, into summaries, one per step. The
// caller closes a step once it is complete. Steps is not safe for concurrent use.
type Steps struct {
	query telemetry.SummaryQuery
	open  map[int64]*Sums // by start of the step

	last      *Sums // added to most recently
	lastStart int64
}

// NewSteps returns empty steps. If q.Every is 0 there is one, which starts at
// q.From.
func NewSteps(q telemetry.SummaryQuery) *Steps {
	return &Steps{query: q, open: make(map[int64]*Sums)}
}

// Start returns the start of the step that ms lies in.
func (s *Steps) Start(ms int64) int64 {
	every := s.query.Every
	if every <= 0 {
		return s.query.From
	}
	return ms - ((ms-s.query.Offset)%every+every)%every
}

// Contains reports whether a reading of that time belongs to the answer.
func (s *Steps) Contains(ms int64) bool { return ms >= s.query.From && ms < s.query.To }

// Whole reports whether all readings from first to last, both included, belong
// to the answer and to one step.
func (s *Steps) Whole(first, last int64) bool {
	return first <= last && s.Contains(first) && s.Contains(last) && s.Start(first) == s.Start(last)
}

// at returns the sums of the step that ms lies in.
func (s *Steps) at(ms int64) *Sums {
	start := s.Start(ms)
	if s.last != nil && s.lastStart == start {
		return s.last
	}
	of := s.open[start]
	if of == nil {
		of = &Sums{}
		s.open[start] = of
	}
	s.last, s.lastStart = of, start
	return of
}

// Add adds a reading, unless it lies outside of the span.
func (s *Steps) Add(r telemetry.Reading) {
	ms := r.Time.UnixMilli()
	if !s.Contains(ms) {
		return
	}
	s.at(ms).AddReading(&r)
}

// AddDocument adds a stored reading {ts, fields…}, unless it lies outside of the
// span.
func (s *Steps) AddDocument(doc bson.Raw) error {
	at, ok := doc.Lookup(TimeKey).DateTimeOK()
	if !ok || !s.Contains(at) {
		return nil
	}
	return s.at(at).AddDocument(doc)
}

// EachElement calls do for the elements of a document or an array, in order, with their indexes.
// An element is valid for as long as the document is.
func EachElement(doc bson.Raw, do func(i int, e bsoncore.Element) error) error {
	if len(doc) < 5 {
		return fmt.Errorf("read stored document: %d bytes are too short for one", len(doc))
	}
	rest := []byte(doc[4:])
	for i := 0; len(rest) > 1; i++ {
		e, after, ok := bsoncore.ReadElement(rest)
		if !ok {
			return errors.New("read stored document: it is cut off")
		}
		if err := do(i, e); err != nil {
			return err
		}
		rest = after
	}
	return nil
}

// AddStatistics adds the statistics of readings, all of the step that ms lies in.
func (s *Steps) AddStatistics(ms int64, stats Sums) {
	of := s.at(ms)
	of.Count += stats.Count
	for i, f := range stats.Fields {
		MergeField(of.field(i, []byte(f.Name)), f)
	}
}

// MergeSummaries adds the readings of other, a summary of the same step, to one. It keeps
// fields in the order of their names.
func MergeSummaries(one, other telemetry.Summary) telemetry.Summary {
	sums := Sums{Count: one.Count + other.Count}
	for _, from := range [][]telemetry.FieldSummary{one.Fields, other.Fields} {
		for i, f := range from {
			MergeField(sums.field(i, []byte(f.Name)), f)
		}
	}
	slices.SortFunc(sums.Fields, func(a, b telemetry.FieldSummary) int { return strings.Compare(a.Name, b.Name) })
	return telemetry.Summary{Start: one.Start, Count: sums.Count, Fields: sums.Fields}
}

// Close yields the steps that end at or before the time, in their order, and
// forgets them. It reports whether the reader wants more.
func (s *Steps) Close(before int64, yield func(telemetry.Summary, error) bool) bool {
	if len(s.open) == 0 || s.query.Every <= 0 && before < math.MaxInt64 {
		return true
	}
	for _, start := range slices.Sorted(maps.Keys(s.open)) {
		if before < math.MaxInt64 && start+s.query.Every > before {
			break
		}
		of := s.open[start]
		delete(s.open, start)
		slices.SortFunc(of.Fields, func(a, b telemetry.FieldSummary) int { return strings.Compare(a.Name, b.Name) })
		if !yield(telemetry.Summary{Start: start, Count: of.Count, Fields: of.Fields}, nil) {
			return false
		}
	}
	s.last = nil
	return true
}

// CloseAll closes all open steps.
func (s *Steps) CloseAll(yield func(telemetry.Summary, error) bool) bool {
	return s.Close(math.MaxInt64, yield)
}

// Sums has the number of some readings and the statistics of their numeric fields. The zero value
// is empty.
type Sums struct {
	Count  int64
	Fields []telemetry.FieldSummary

	places map[string]int // index in Fields, by name
}

// AddReading adds a reading.
func (s *Sums) AddReading(r *telemetry.Reading) {
	s.Count++
	for i := range r.Fields {
		if f := &r.Fields[i]; f.Value.Kind().Numeric() {
			s.add(i, []byte(f.Name), f.Value)
		}
	}
}

// AddDocument adds a stored reading {ts, fields…}.
func (s *Sums) AddDocument(doc bson.Raw) error {
	s.Count++
	return EachElement(doc, func(i int, e bsoncore.Element) error {
		if v, ok := NumberOf(e.Value()); ok {
			s.add(i-1, e.KeyBytes(), v) // the time comes first
		}
		return nil
	})
}

func (s *Sums) add(guess int, name []byte, v telemetry.Value) {
	MergeField(s.field(guess, name), SummaryOf("", v))
}

// field returns the statistics of a field. Most readings have the same fields, so it
// first tries the field's index in its reading.
func (s *Sums) field(guess int, name []byte) *telemetry.FieldSummary {
	if guess >= 0 && guess < len(s.Fields) && s.Fields[guess].Name == string(name) {
		return &s.Fields[guess]
	}
	i, ok := s.places[string(name)]
	if !ok {
		if s.places == nil {
			s.places = make(map[string]int)
		}
		i = len(s.Fields)
		s.Fields = append(s.Fields, telemetry.FieldSummary{Name: string(name)})
		s.places[s.Fields[i].Name] = i
	}
	return &s.Fields[i]
}

// SummaryOf returns the statistics of one number.
func SummaryOf(name string, v telemetry.Value) telemetry.FieldSummary {
	sum := v.Float()
	if v.Kind() == telemetry.Int {
		sum = float64(v.Int())
	}
	return telemetry.FieldSummary{Name: name, N: 1, Min: v, Max: v, Sum: sum, First: v, Last: v}
}

// MergeField adds the numbers of f, but leaves the first and the last one as they are.
func MergeField(into *telemetry.FieldSummary, f telemetry.FieldSummary) {
	if into.N == 0 || telemetry.CompareNumbers(f.Min, into.Min) < 0 {
		into.Min = f.Min
	}
	if into.N == 0 || telemetry.CompareNumbers(f.Max, into.Max) > 0 {
		into.Max = f.Max
	}
	into.N += f.N
	into.Sum += f.Sum
}

// NumberOf returns a stored number; false if the value is not a number.
func NumberOf(v bsoncore.Value) (telemetry.Value, bool) {
	switch v.Type {
	case bsoncore.TypeDouble:
		return telemetry.FloatValue(v.Double()), true
	case bsoncore.TypeInt64:
		return telemetry.IntValue(v.Int64()), true
	case bsoncore.TypeInt32:
		return telemetry.IntValue(int64(v.Int32())), true
	default:
		return telemetry.Value{}, false
	}
}

// A SensorIndex finds sensors in the order of their ids' bytes.
type SensorIndex struct {
	// Next returns the first sensor whose id is at least from, or greater than from if exclusive
	// is true; "" if there is none.
	Next func(ctx context.Context, from string, exclusive bool) (string, error)
	// Newest returns the time of a sensor's newest reading, in milliseconds since
	// 1970, and whether it has one: it may have been removed in between.
	Newest func(ctx context.Context, sensor string) (ms int64, found bool, err error)
}

// Sensors yields the sensors that a query asks for, in the order of their ids' bytes, each with
// the time of its newest reading. It skips from sensor to sensor, so the cost does not depend on
// the number of readings. It ends with an error if one occurs.
func (x SensorIndex) Sensors(ctx context.Context, q telemetry.SensorQuery) iter.Seq2[telemetry.SensorSeen, error] {
	return func(yield func(telemetry.SensorSeen, error) bool) {
		from, _, _ := strings.Cut(strings.ToValidUTF8(q.Prefix, "\xff"), "\xff") // it may end within a character
		exclusive := q.After != "" && q.After >= from
		if exclusive {
			from = q.After
		}
		for left := q.Limit; ; {
			id, err := x.Next(ctx, from, exclusive)
			wanted := strings.HasPrefix(id, q.Prefix)
			if err == nil && (id == "" || !wanted && id > q.Prefix) {
				return
			}
			from, exclusive = id, true
			var newest int64
			found := false
			if err == nil && wanted {
				if newest, found, err = x.Newest(ctx, id); err != nil {
					err = fmt.Errorf("find the newest reading of sensor %q: %w", id, err)
				}
			}
			if err != nil {
				yield(telemetry.SensorSeen{}, fmt.Errorf("list sensors: %w", err))
				return
			}
			if !found {
				continue
			}
			if !yield(telemetry.SensorSeen{Sensor: id, Newest: newest}, nil) {
				return
			}
			if left--; left == 0 {
				return
			}
		}
	}
}

// Latest returns the newest reading of a sensor, and whether there is one. It compares the
// unstored readings with the newest stored one, which find returns. Among readings with the same
// time, the last unstored one wins. A reading that was stored after unstored was collected cannot
// be newer than the result of find.
func Latest(sensor string, unstored []telemetry.Unstored, find func() (telemetry.Reading, bool, error)) (telemetry.Reading, bool, error) {
	r, found, err := find()
	if err != nil {
		return telemetry.Reading{}, false, fmt.Errorf("find the latest reading of sensor %q: %w", sensor, err)
	}
	for _, u := range unstored {
		if !found || !u.Reading.Time.Before(r.Time) {
			r, found = u.Reading, true
		}
	}
	return r, found, nil
}

// An overlay finds the readings in q.Unstored that are not among the stored ones. Stored readings
// are passed in time order, each with its batch.ReadingID.
type overlay struct {
	waiting []telemetry.Unstored // in time order
	stored  map[[12]byte]bool    // whether a waiting reading is stored, by its ID
}

// newOverlay returns an overlay of the readings in q.Unstored that lie in the query's time range.
func newOverlay(q telemetry.Query) *overlay {
	o := &overlay{stored: make(map[[12]byte]bool)}
	for _, u := range q.Unstored {
		if ms := u.Reading.Time.UnixMilli(); ms >= q.From && ms < q.To {
			o.waiting = append(o.waiting, u)
			o.stored[batch.ReadingID(u.Session, u.Sequence)] = false
		}
	}
	slices.SortStableFunc(o.waiting, func(a, b telemetry.Unstored) int { return a.Reading.Time.Compare(b.Reading.Time) })
	return o
}

// markStored notes that the reading with this id is stored.
func (o *overlay) markStored(id [12]byte) {
	if _, ok := o.stored[id]; ok {
		o.stored[id] = true
	}
}

// before returns the unstored readings that are older than ms and were not
// returned yet. All stored ones that are older must have been seen.
func (o *overlay) before(ms int64) (out []telemetry.Reading) {
	for ; len(o.waiting) > 0 && o.waiting[0].Reading.Time.UnixMilli() < ms; o.waiting = o.waiting[1:] {
		if u := o.waiting[0]; !o.stored[batch.ReadingID(u.Session, u.Sequence)] {
			out = append(out, u.Reading)
		}
	}
	return out
}

// Stored is a stored reading with its batch.ReadingID.
type Stored struct {
	ID      [12]byte
	Reading telemetry.Reading
}

// ReadEach yields the readings of each query, one query after the other, or an error last.
func ReadEach(ctx context.Context, qs []telemetry.Query, readings func(context.Context, telemetry.Query) iter.Seq2[telemetry.Reading, error]) iter.Seq2[telemetry.Reading, error] {
	return func(yield func(telemetry.Reading, error) bool) {
		for _, q := range qs {
			for r, err := range readings(ctx, q) {
				if !yield(r, err) || err != nil {
					return
				}
			}
		}
	}
}

// Merge yields the stored readings of a query, which must be in time order, merged with the
// readings of q.Unstored that are not among them. Stored readings come first among those with the
// same time. It ends with the first error, and after q.Limit readings.
func Merge(q telemetry.Query, stored iter.Seq2[Stored, error]) iter.Seq2[telemetry.Reading, error] {
	return func(yield func(telemetry.Reading, error) bool) {
		waiting, left := newOverlay(q), q.Limit
		emit := func(readings ...telemetry.Reading) bool {
			for _, r := range readings {
				if left--; !yield(r, nil) || left == 0 {
					return false
				}
			}
			return true
		}
		for s, err := range stored {
			if err != nil {
				yield(telemetry.Reading{}, err)
				return
			}
			waiting.markStored(s.ID)
			if !emit(waiting.before(s.Reading.Time.UnixMilli())...) || !emit(s.Reading) {
				return
			}
		}
		emit(waiting.before(q.To)...)
	}
}

// Delete removes the documents of a sensor that match, and returns how many readings they held
// just before. each is the aggregation expression for the number of readings in one document.
// Readings that are not stored yet may be written afterwards, so the caller must have them stored
// first.
func (b *Base) Delete(ctx context.Context, sensor string, match bson.D, each any) (int64, error) {
	var counts []struct {
		Readings int64 `bson:"readings"`
	}
	cursor, err := b.Answers.Aggregate(ctx, mongo.Pipeline{
		{{Key: "$match", Value: match}},
		{{Key: "$group", Value: bson.D{{Key: "_id", Value: nil}, {Key: "readings", Value: bson.D{{Key: "$sum", Value: each}}}}}},
	})
	if err == nil {
		err = cursor.All(ctx, &counts)
	}
	if err != nil {
		return 0, &telemetry.Error{
			Kind: telemetry.Unavailable, Code: "not_deleted", RetryAfter: time.Second,
			Err:     fmt.Errorf("count readings of sensor %q: %w", sensor, err),
			Message: "the readings of the sensor could not be counted in MongoDB, so nothing was deleted; repeat the request",
		}
	}
	_, err = b.Majority.DeleteMany(ctx, match)
	const unauthorized = 13
	switch {
	case HasCode(err, unauthorized):
		return 0, &telemetry.Error{
			Kind: telemetry.Forbidden, Code: "delete_not_granted", Err: err,
			Message: "MongoDB does not let the daemon delete documents, so nothing was deleted; give the daemon's MongoDB user the action remove on the stream's collection",
		}
	case err != nil:
		return 0, fmt.Errorf("delete sensor %q: %w", sensor, err)
	case len(counts) == 0:
		return 0, nil
	}
	return counts[0].Readings, nil
}
