package store

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// Steps gathers readings, and statistics of readings, into summaries of the
// steps that they lie in. It holds the steps that are open; who knows that
// nothing more comes for one closes it. It is for one goroutine.
type Steps struct {
	query telemetry.SummaryQuery
	open  map[int64]*step // by start

	last      *step // that was added to last
	lastStart int64
}

// step is one that is open.
type step struct {
	count  int64
	fields []telemetry.FieldSummary
	places map[string]int // of fields, by name
}

// NewSteps returns one without readings. Where q.Every is 0, all is one step
// that starts at q.From.
func NewSteps(q telemetry.SummaryQuery) *Steps {
	return &Steps{query: q, open: make(map[int64]*step)}
}

// Start returns the start of the step that ms lies in.
func (s *Steps) Start(ms int64) int64 {
	every := s.query.Every
	if every <= 0 {
		return s.query.From
	}
	return ms - (ms%every+every)%every
}

// Wants reports whether a reading of that time belongs to the answer.
func (s *Steps) Wants(ms int64) bool { return ms >= s.query.From && ms < s.query.To }

// Whole reports whether all readings from first to last, both included, belong
// to the answer and to one step.
func (s *Steps) Whole(first, last int64) bool {
	return first <= last && s.Wants(first) && s.Wants(last) && s.Start(first) == s.Start(last)
}

// at returns the open step that ms lies in.
func (s *Steps) at(ms int64) *step {
	start := s.Start(ms)
	if s.last != nil && s.lastStart == start {
		return s.last
	}
	of := s.open[start]
	if of == nil {
		of = &step{places: make(map[string]int)}
		s.open[start] = of
	}
	s.last, s.lastStart = of, start
	return of
}

// Add takes in a reading, unless it lies outside of the span.
func (s *Steps) Add(r telemetry.Reading) {
	ms := r.Time.UnixMilli()
	if !s.Wants(ms) {
		return
	}
	of := s.at(ms)
	of.count++
	for i, f := range r.Fields {
		if f.Value.Kind().Numeric() {
			of.field(i, []byte(f.Name)).add(f.Value)
		}
	}
}

// AddDocument takes in a stored reading {ts, fields…}, unless it lies outside of
// the span. Keys in skip are not fields.
func (s *Steps) AddDocument(doc bson.Raw, skip ...string) error {
	at, ok := doc.Lookup(TimeKey).DateTimeOK()
	if !ok || !s.Wants(at) {
		return nil
	}
	of := s.at(at)
	of.count++
	return EachElement(doc, func(i int, e bsoncore.Element) error {
		v, ok := NumberOf(e.Value())
		if !ok {
			return nil
		}
		name := e.KeyBytes()
		for _, k := range skip {
			if string(name) == k {
				return nil
			}
		}
		of.field(i-1, name).add(v) // the time stands in front
		return nil
	})
}

// EachElement calls do for the elements of a document or an array, in their order,
// with their places. An element is valid for as long as the document.
func EachElement(doc bson.Raw, do func(i int, e bsoncore.Element) error) error {
	if len(doc) < 5 {
		return fmt.Errorf("read stored document: %d bytes are none", len(doc))
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

// Statistics are what a document says of its readings.
type Statistics struct {
	Count       int64
	First, Last int64 // times of the readings, in milliseconds since the epoch
	Fields      []telemetry.FieldSummary
}

// AddStatistics takes in readings of which Whole is true of the first and last.
func (s *Steps) AddStatistics(stats Statistics) {
	of := s.at(stats.First)
	of.count += stats.Count
	for i, f := range stats.Fields {
		of.field(i, []byte(f.Name)).merge(f)
	}
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
		slices.SortFunc(of.fields, func(a, b telemetry.FieldSummary) int { return strings.Compare(a.Name, b.Name) })
		if !yield(telemetry.Summary{Start: start, Count: of.count, Fields: of.fields}, nil) {
			return false
		}
	}
	s.last = nil
	return true
}

// CloseAll is Close of all that is open.
func (s *Steps) CloseAll(yield func(telemetry.Summary, error) bool) bool {
	return s.Close(math.MaxInt64, yield)
}

// field returns the statistics of a field; shapes mostly agree, so it first
// looks where the field stands in its reading.
func (s *step) field(guess int, name []byte) *fieldSummary {
	if guess >= 0 && guess < len(s.fields) && s.fields[guess].Name == string(name) {
		return (*fieldSummary)(&s.fields[guess])
	}
	i, ok := s.places[string(name)]
	if !ok {
		i = len(s.fields)
		s.fields = append(s.fields, telemetry.FieldSummary{Name: string(bytes.Clone(name))})
		s.places[s.fields[i].Name] = i
	}
	return (*fieldSummary)(&s.fields[i])
}

type fieldSummary telemetry.FieldSummary

func (f *fieldSummary) add(v telemetry.Value) {
	f.merge(telemetry.FieldSummary{N: 1, Min: v, Max: v, Sum: number(v)})
}

func (f *fieldSummary) merge(g telemetry.FieldSummary) {
	if f.N == 0 || CompareNumbers(g.Min, f.Min) < 0 {
		f.Min = g.Min
	}
	if f.N == 0 || CompareNumbers(g.Max, f.Max) > 0 {
		f.Max = g.Max
	}
	f.N += g.N
	f.Sum += g.Sum
}

func number(v telemetry.Value) float64 {
	if v.Kind() == telemetry.Int {
		return float64(v.Int())
	}
	return v.Float()
}

// CompareNumbers compares by value, whatever the kinds, and loses no bit of
// large integers: MongoDB's order of numbers.
func CompareNumbers(a, b telemetry.Value) int {
	switch aInt, bInt := a.Kind() == telemetry.Int, b.Kind() == telemetry.Int; {
	case aInt && bInt:
		return cmp.Compare(a.Int(), b.Int())
	case aInt:
		return compareMixed(a.Int(), b.Float())
	case bInt:
		return -compareMixed(b.Int(), a.Float())
	default:
		return cmp.Compare(a.Float(), b.Float())
	}
}

func compareMixed(i int64, f float64) int {
	const beyond = 1 << 63 // the least double that is above all integers
	switch {
	case f >= beyond:
		return -1
	case f < -beyond:
		return 1
	}
	whole := math.Trunc(f)
	return cmp.Or(cmp.Compare(i, int64(whole)), cmp.Compare(whole, f))
}

// NumberOf returns a stored number, false if it is none.
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
