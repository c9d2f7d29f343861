package batch

import (
	"math"
	"slices"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// Empty returns a batch of the same session without readings, for Append.
func (b *Batch) Empty(t Tracker) Batch {
	return Batch{
		Received: b.Received, Session: b.Session, Tracker: t, Recovered: b.Recovered, granularity: b.granularity,
		memory: batchBytes,
	}
}

// Append copies a reading from another batch of the same session to a batch that Empty
// returned. It does nothing and returns false if the reading's sequence is lower than
// that of the first one, or 2^32 or more above it.
func (b *Batch) Append(r Ref) bool {
	seq := r.Seq()
	if len(b.rows) == 0 {
		b.FirstSeq = seq
	}
	if seq < b.FirstSeq || seq-b.FirstSeq > math.MaxUint32 {
		return false
	}
	from := r.Batch
	row := *r.Row()
	series, shape := from.series[row.series], from.shapes[row.shape]
	row.series = place(&b.series, series)
	row.shape = place(&b.shapes, shape)
	words := from.values[row.offset:][:len(shape.Fields)]
	row.offset = uint32(len(b.values))
	b.values = append(b.values, words...)
	for i, f := range shape.Fields {
		if f.Kind != telemetry.Text {
			continue
		}
		text := from.Text(words[i])
		b.values[int(row.offset)+i] = uint64(b.text.add(text))<<32 | uint64(len(text))
		b.memory += int64(len(text))
	}
	b.rows = append(b.rows, row)
	b.places = append(b.places, uint32(seq-b.FirstSeq))
	b.memory += rowBytes + placeBytes + int64(len(words))*valueSize
	return true
}

// Frozen returns a snapshot of the batch that Append does not change.
func (b *Batch) Frozen() *Batch {
	frozen := b.View(nil)
	frozen.text.chunks = slices.Clone(b.text.chunks)
	return &frozen
}

const placeBytes = 4

// place returns the index of a value in the list, usually the last, and appends the value
// if it is missing.
func place[T comparable](list *[]T, value T) uint32 {
	if n := len(*list); n > 0 && (*list)[n-1] == value {
		return uint32(n - 1)
	}
	i := slices.Index(*list, value)
	if i < 0 {
		i = len(*list)
		*list = append(*list, value)
	}
	return uint32(i)
}
