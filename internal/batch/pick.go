package batch

import "github.com/brim-telemetry/brim/pkg/telemetry"

// Pick returns a batch of its own with the rows of the wanted series, numbered
// as in SeriesNumber; nil if there are none. They keep their sequences. Who
// holds few rows of many batches need not hold the rest of each.
func (b *Batch) Pick(wanted []bool) *Batch {
	rows, values := 0, 0
	for i := range b.rows {
		if r := &b.rows[i]; wanted[r.series] {
			rows++
			values += len(b.shapes[r.shape].Fields)
		}
	}
	if rows == 0 {
		return nil
	}
	p := &Batch{
		Received: b.Received, Session: b.Session, FirstSeq: b.FirstSeq, Tracker: b.Tracker, Recovered: b.Recovered,
		shapes: b.shapes, granularity: b.granularity,
		rows: make([]Row, 0, rows), values: make([]uint64, 0, values), taken: make([]uint32, 0, rows),
	}
	number := make([]uint32, len(b.series)) // of the wanted ones in p, from 1
	for i := range b.rows {
		r := b.rows[i]
		if !wanted[r.series] {
			continue
		}
		at := &number[r.series]
		if *at == 0 {
			p.series = append(p.series, b.series[r.series])
			*at = uint32(len(p.series))
		}
		words := b.Values(&r)
		r.series, r.offset = *at-1, uint32(len(p.values))
		p.values = append(p.values, words...)
		p.copyTexts(b, &r)
		p.rows, p.taken = append(p.rows, r), append(p.taken, b.place(i))
	}
	p.memory = p.countMemory(4 * rows)
	return p
}

// place returns where row i was when the batch was taken in.
func (b *Batch) place(i int) uint32 {
	if b.taken != nil {
		return b.taken[i]
	}
	return uint32(i)
}

// copyTexts copies the strings that the words of a row refer to in another
// batch.
func (b *Batch) copyTexts(from *Batch, r *Row) {
	if len(from.text.chunks) == 0 {
		return
	}
	words := b.values[r.offset:]
	for i, f := range b.shapes[r.shape].Fields {
		if f.Kind == telemetry.Text {
			text := from.Text(words[i])
			words[i] = uint64(b.text.add(text))<<32 | uint64(len(text))
		}
	}
}
