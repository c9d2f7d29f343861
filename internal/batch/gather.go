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

// Append copies a reading of another batch of the session to a batch that Empty
// returned. It has no effect and returns false if the reading's sequence is lower than
// the first one's or more than 2^32 higher.
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

// Frozen returns the batch as it is; Append does not change it.
func (b *Batch) Frozen() *Batch {
	frozen := b.View(nil)
	frozen.text.chunks = slices.Clone(b.text.chunks)
	return &frozen
}

const placeBytes = 4

// place returns where the list has a value, mostly at its end, and appends it if it has
// not.
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
