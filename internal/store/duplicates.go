package store

import (
	"bytes"
	"context"
	"encoding/binary"
	"iter"
	"math"
	"slices"
	"strings"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// Duplicates says what happens to readings of a sensor that have the same time.
type Duplicates string

// The rules.
const (
	// Keep keeps all.
	Keep Duplicates = "keep"
	// DropIdentical keeps the first of those that have the same time, fields, values and
	// tags, whatever the order of the fields. An integer is never identical to a double.
	DropIdentical Duplicates = "drop-identical"
	// LastWins merges readings with the same time into one, with the last value of each field
	// and the tags of the last reading. The order is that of block.Key: arrival, session,
	// sequence.
	LastWins Duplicates = "last-wins"
)

// A Deduplicator recognizes identical readings of a sensor, which must be passed in time order. The
// zero value is ready to use. It is not safe for concurrent use.
type Deduplicator struct {
	ms    int64
	some  bool
	first []byte              // the key of the first reading of that time
	seen  map[string]struct{} // the keys of all readings of that time, if there are several
	key   []byte
	order []int
}

// IsDuplicate reports whether a reading is identical to an earlier one. It does not retain the
// reading.
func (d *Deduplicator) IsDuplicate(r *telemetry.Reading) bool {
	d.makeKey(r)
	if ms := r.Time.UnixMilli(); !d.some || ms != d.ms {
		d.ms, d.some = ms, true
		d.first, d.key = d.key, d.first
		clear(d.seen)
		return false
	}
	if bytes.Equal(d.key, d.first) {
		return true
	}
	if d.seen == nil {
		d.seen = make(map[string]struct{})
	}
	if _, seen := d.seen[string(d.key)]; seen {
		return true
	}
	d.seen[string(d.key)] = struct{}{}
	return false
}

// makeKey encodes everything in a reading except its time.
func (d *Deduplicator) makeKey(r *telemetry.Reading) {
	d.key = d.key[:0]
	text := func(s string) { d.key = append(binary.AppendUvarint(d.key, uint64(len(s))), s...) }
	d.sort(len(r.Fields), func(i int) string { return r.Fields[i].Name })
	for _, i := range d.order {
		f := &r.Fields[i]
		text(f.Name)
		d.key = append(d.key, byte(f.Value.Kind()))
		switch f.Value.Kind() {
		case telemetry.Float:
			d.key = binary.LittleEndian.AppendUint64(d.key, math.Float64bits(f.Value.Float()))
		case telemetry.Int:
			d.key = binary.AppendVarint(d.key, f.Value.Int())
		default:
			text(f.Value.String())
		}
	}
	d.key = append(d.key, 0xff)
	d.sort(len(r.Tags), func(i int) string { return r.Tags[i].Name })
	for _, i := range d.order {
		text(r.Tags[i].Name)
		text(r.Tags[i].Value)
	}
}

// sort sets order to the indexes of n names, sorted by name.
func (d *Deduplicator) sort(n int, name func(int) string) {
	d.order = d.order[:0]
	for i := range n {
		d.order = append(d.order, i)
	}
	slices.SortStableFunc(d.order, func(a, b int) int { return strings.Compare(name(a), name(b)) })
}

// DeduplicatedReadings yields the readings that all returns for a query, without identical ones. They
// have only the fields that the query names.
func DeduplicatedReadings(ctx context.Context, q telemetry.Query, all func(context.Context, telemetry.Query) iter.Seq2[telemetry.Reading, error]) iter.Seq2[telemetry.Reading, error] {
	wanted := q.Fields
	q.Expected, q.Limit, q.Fields = q.Limit, 0, nil // readings that differ in other fields are not identical
	return func(yield func(telemetry.Reading, error) bool) {
		var d Deduplicator
		for r, err := range all(ctx, q) {
			if err == nil && d.IsDuplicate(&r) {
				continue
			}
			r.Fields = fieldsOf(r.Fields, wanted)
			if !yield(r, err) || err != nil {
				return
			}
		}
	}
}

// fieldsOf returns the fields with the given names; nil: all. It does not change its argument,
// which an unstored reading may share.
func fieldsOf(all []telemetry.Field, names []string) (out []telemetry.Field) {
	if names == nil {
		return all
	}
	for i := range all {
		if slices.Contains(names, all[i].Name) {
			out = append(out, all[i])
		}
	}
	return out
}

// Summarize summarizes readings, which must be in time order. more, which may be nil, adds what
// else belongs to the steps that begin before a time.
func Summarize(q telemetry.SummaryQuery, readings iter.Seq2[telemetry.Reading, error], more func(steps *Steps, before int64)) iter.Seq2[telemetry.Summary, error] {
	return func(yield func(telemetry.Summary, error) bool) {
		if more == nil {
			more = func(*Steps, int64) {}
		}
		steps, last := NewSteps(q), int64(math.MinInt64)
		for r, err := range readings {
			if err != nil {
				yield(telemetry.Summary{}, err)
				return
			}
			if start := steps.Start(r.Time.UnixMilli()); start != last {
				last = start
				if more(steps, start); !steps.Close(start, yield) {
					return
				}
			}
			steps.Add(r)
		}
		more(steps, math.MaxInt64)
		steps.CloseAll(yield)
	}
}
