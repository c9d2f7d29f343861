package promapi

import (
	"context"
	"slices"
	"sync"

	"github.com/brim-telemetry/brim/internal/read"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A record has the samples of a sensor, by tags and field.
type record struct {
	sets  []*recordSet
	fresh int // samples not reported to grow yet
}

// A recordSet has the readings with the same tags.
type recordSet struct {
	tags    []telemetry.Tag
	columns []*column
	places  map[string]int
}

// A column has the samples of one field, in time order.
type column struct {
	name   string
	times  []int64
	values []float64
}

// spareColumns has columns for the next records.
var spareColumns = sync.Pool{New: func() any { return &column{} }} //nolint:gochecknoglobals // shared by all records

// maxSpare is the largest capacity of a spare column, in samples: a reading per second for a day.
const maxSpare = 100_000

// free lets other records use the memory of the samples.
func (h *record) free() {
	for _, set := range h.sets {
		for _, col := range set.columns {
			if cap(col.times) <= maxSpare {
				col.times, col.values = col.times[:0], col.values[:0]
				spareColumns.Put(col)
			}
		}
	}
}

// between returns the samples with from <= time < to, with their capacity limited, so that
// appending copies.
func (c *column) between(from, to int64) ([]int64, []float64) {
	first, _ := slices.BinarySearch(c.times, from)
	last, _ := slices.BinarySearch(c.times, to)
	last = max(first, last)
	return c.times[first:last:last], c.values[first:last:last]
}

// growInterval is the number of samples between calls of grow.
const growInterval = 10_000

// read adds the result of a query. It calls grow with the number of new samples from time to time
// and at the end, and returns its error.
func (h *record) read(ctx context.Context, session *read.Session, q telemetry.Query, grow func(n int) error) error {
	for r, err := range session.Readings(ctx, q) {
		if err != nil {
			return err
		}
		if h.add(&r); h.fresh >= growInterval {
			if err := grow(h.fresh); err != nil {
				return err
			}
			h.fresh = 0
		}
	}
	return grow(h.fresh)
}

// add adds a reading.
func (h *record) add(r *telemetry.Reading) {
	set := h.setOf(r.Tags)
	at := r.Time.UnixMilli()
	for i := range r.Fields {
		f := &r.Fields[i]
		v, ok := sampleOf(f.Value)
		if !ok {
			continue
		}
		col := set.column(i, f.Name)
		if n := len(col.times); n > 0 && col.times[n-1] == at { // the later one of two is kept
			col.values[n-1] = v
			continue
		}
		col.times, col.values = append(col.times, at), append(col.values, v)
		h.fresh++
	}
}

// sampleOf returns a value as a number, false for a string.
func sampleOf(v telemetry.Value) (float64, bool) {
	switch v.Kind() {
	case telemetry.Float:
		return v.Float(), true
	case telemetry.Int:
		return float64(v.Int()), true
	case telemetry.Bool:
		if v.Bool() {
			return 1, true
		}
		return 0, true
	default:
		return 0, false
	}
}

// setOf returns the set of readings with these tags, usually the last one.
func (h *record) setOf(tags []telemetry.Tag) *recordSet {
	for _, set := range slices.Backward(h.sets) {
		if sameTags(set.tags, tags) {
			return set
		}
	}
	set := &recordSet{tags: tags, places: make(map[string]int)}
	h.sets = append(h.sets, set)
	return set
}

func sameTags(a, b []telemetry.Tag) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0] || slices.Equal(a, b))
}

// column returns the column of a field, which usually has the same index in each reading.
func (s *recordSet) column(guess int, name string) *column {
	if guess < len(s.columns) && s.columns[guess].name == name {
		return s.columns[guess]
	}
	i, ok := s.places[name]
	if !ok {
		i = len(s.columns)
		s.places[name] = i
		col, _ := spareColumns.Get().(*column)
		col.name = name
		s.columns = append(s.columns, col)
	}
	return s.columns[i]
}
