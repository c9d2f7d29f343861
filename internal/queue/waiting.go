package queue

import (
	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A Snapshot is the readings of a sensor that were not stored at one moment.
type Snapshot struct {
	// Rows are the readings in memory, of any bucket and session, in no particular order. They
	// never change.
	Rows []batch.Ref
	// From is the journal position after which there may be others. Readings after it may also
	// be in Rows, or stored.
	From uint64
}

// Waiting returns the readings of a sensor that are not stored. It does not wait for
// writes.
func (q *Queue) Waiting(stream, sensor string) Snapshot {
	hash := batch.SeriesHash(stream, sensor)
	if l := q.laneOf(stream, hash); l != nil {
		return l.waitingOf(sensor, hash)
	}
	return Snapshot{From: q.Status().Rest}
}

func (l *lane) waitingOf(sensor string, hash uint64) Snapshot {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := Snapshot{From: l.cursor.Position()}
	for b := l.sensors[hash]; b != nil; b = b.older {
		switch {
		case b.key.sensor != sensor:
		case b.state.lacks():
			s.From = min(s.From, b.lacks)
		default:
			s.Rows = b.appendRows(s.Rows)
		}
	}
	s.From = max(s.From, l.applied.Load()) // what a bucket lacked before is stored by now
	return s
}

// appendRows appends the rows of the bucket, including those that are in flight.
func (b *bucket) appendRows(to []batch.Ref) []batch.Ref {
	add := func(c *chunk) {
		if c.Len() == 0 {
			return
		}
		rows := b.unpackedRows(c)
		to = appendAll(to, &rows)
	}
	add(&b.packed)
	for i := range b.more {
		add(&b.more[i])
	}
	return append(to, b.rows...)
}

// WaitingNewest returns the time of a sensor's newest unstored reading in memory, in
// milliseconds since the epoch; false if there is none.
func (q *Queue) WaitingNewest(stream, sensor string) (newest int64, found bool) {
	hash := batch.SeriesHash(stream, sensor)
	l := q.laneOf(stream, hash)
	if l == nil {
		return 0, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for b := l.sensors[hash]; b != nil; b = b.older {
		if b.key.sensor == sensor && b.state != idle && (!found || b.newest > newest) {
			newest, found = b.newest, true
		}
	}
	return newest, found
}

// WaitingSensors calls visit, unless it is nil, for each sensor of a stream with unstored
// readings, once for each of its buckets: newest is the time of the newest reading in the
// bucket, and tags returns the sets of tags of those in memory. The results are journal
// positions after which there may be more readings: from for all sensors, unread for one
// sensor by its batch.SeriesHash.
func (q *Queue) WaitingSensors(stream string, visit func(sensor string, newest int64, tags func() [][]telemetry.Tag)) (from uint64, unread func(hash uint64) uint64) {
	from = q.cfg.Journal.End()
	positions := make([]uint64, len(q.lanes))
	for i, l := range q.lanes {
		if l.stream != stream {
			continue
		}
		positions[i] = l.eachWaiting(visit)
		from = min(from, positions[i])
	}
	return from, func(hash uint64) uint64 {
		for i, l := range q.lanes {
			if l.stream == stream && l.part.Has(hash) {
				return positions[i]
			}
		}
		return 0
	}
}

// eachWaiting returns the position from which the lane has read nothing.
func (l *lane) eachWaiting(visit func(sensor string, newest int64, tags func() [][]telemetry.Tag)) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if visit == nil {
		return l.cursor.Position()
	}
	var b *bucket
	tags := func() [][]telemetry.Tag { return b.tags() }
	for _, b = range l.sensors {
		for ; b != nil; b = b.older {
			if b.state != idle {
				visit(b.key.sensor, b.newest, tags)
			}
		}
	}
	return l.cursor.Position()
}

// tags returns the sets of tags of the bucket's rows; one may be listed twice.
func (b *bucket) tags() (sets [][]telemetry.Tag) {
	sets = b.packed.AppendTags(sets)
	for i := range b.more {
		sets = b.more[i].AppendTags(sets)
	}
	var last *batch.Series
	for _, r := range b.rows {
		if series := r.Batch.Series(r.Row()); series != last {
			sets, last = append(sets, series.Tags), series
		}
	}
	return sets
}
