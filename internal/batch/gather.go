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
	if row.series = findLast(b.series, func(s seriesRef) bool { return s.Series == series.Series || s.encoded == series.encoded }); int(row.series) == len(b.series) {
		b.series = append(b.series, series)
		b.memory += int64(series.memory())
	}
	if row.shape = findLast(b.shapes, func(s *Shape) bool { return s == shape || s.key == shape.key }); int(row.shape) == len(b.shapes) {
		b.shapes = append(b.shapes, shape)
		b.memory += int64(shape.memory())
	}
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
	b.memory += rowBytes + placeBytes + refBytes + int64(len(words))*valueSize
	return true
}

// Frozen returns a snapshot of the batch that Append does not change.
func (b *Batch) Frozen() *Batch {
	frozen := b.View(nil)
	frozen.text.chunks = slices.Clone(b.text.chunks)
	return &frozen
}

// Memory that a reading takes in addition to its row and values: its place, and a Ref.
const (
	placeBytes = 4
	refBytes   = 16
)

// findLast returns the index of a value if it is among the last few, else the list's length.
// So a value may be listed twice.
func findLast[T any](list []T, found func(T) bool) uint32 {
	const looked = 4
	for i := len(list) - 1; i >= max(0, len(list)-looked); i-- {
		if found(list[i]) {
			return uint32(i)
		}
	}
	return uint32(len(list))
}
