package queue

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/brim-telemetry/brim/internal/batch"
)

// StoredBefore returns a position of the journal before which all readings of the
// stream's sensors with this hash of batch.SeriesHash are stored. Only rows that
// these sensors lack themselves, and rows that their lane holds in memory, hold it
// back, not what was set aside for another sensor.
func (q *Queue) StoredBefore(stream string, hash uint64) uint64 {
	for _, l := range q.lanes {
		if l.stream == stream && l.part.Has(hash) {
			// In this order: what is set aside is in lacks before settled
			// advances.
			settled := l.settled.Load()
			return max(min(settled, l.lacks.from(hash)), l.rest.Load())
		}
	}
	return q.Status().Rest
}

// StreamStored returns two positions of the journal: before the first, all
// readings of a stream are stored; before the second, which may be far ahead, all
// but those of buckets that are set aside.
func (q *Queue) StreamStored(stream string) (all, most uint64) {
	found := false
	for _, l := range q.lanes {
		if l.stream != stream {
			continue
		}
		rest := l.rest.Load()
		settled := max(rest, l.settled.Load())
		if !found {
			all, most, found = rest, settled, true
		}
		all, most = min(all, rest), min(most, settled)
	}
	if !found {
		all = q.Status().Rest
		most = all
	}
	return all, most
}

// sensorsBehind holds the sensors with buckets that lack rows: very few, and
// mostly none. Queries read it, on other goroutines than the lane, which fills it.
type sensorsBehind struct {
	mu     sync.Mutex
	sensor map[uint64]behind // by hash
}

// behind is what is known of one sensor: how many of its buckets lack rows, and a
// position before which none of them ever did.
type behind struct {
	buckets int
	from    uint64
}

// from returns a position before which the sensor lacks nothing.
func (s *sensorsBehind) from(hash uint64) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if one, some := s.sensor[hash]; some {
		return one.from
	}
	return 1<<64 - 1
}

// add counts a bucket that lacks rows from a position on.
func (s *sensorsBehind) add(hash, from uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sensor == nil {
		s.sensor = make(map[uint64]behind)
	}
	one := s.sensor[hash]
	if one.buckets++; one.buckets == 1 || from < one.from {
		one.from = from
	}
	s.sensor[hash] = one
}

// remove stops counting a bucket.
func (s *sensorsBehind) remove(hash uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.sensor[hash]
	if one.buckets--; one.buckets == 0 {
		delete(s.sensor, hash)
		return
	}
	s.sensor[hash] = one
}

// beginsToLack notes that a bucket is set aside: its rows are in the journal from
// b.from on.
func (l *lane) beginsToLack(b *bucket) {
	l.lacking[b] = struct{}{}
	l.stuck.Add(1)
	l.lacks.add(batch.SeriesHash(l.stream, b.key.sensor), b.from)
}

// lacksNothing notes that all the rows of a bucket are stored again.
func (l *lane) lacksNothing(b *bucket) {
	delete(l.lacking, b)
	l.stuck.Add(-1)
	l.lacks.remove(batch.SeriesHash(l.stream, b.key.sensor))
}

// lastWrite is when a lane of a stream last wrote a bucket.
type lastWrite struct {
	began time.Time    // of the queue
	at    atomic.Int64 // ns since; 0: never
}

func (w *lastWrite) set(now time.Time)         { w.at.Store(int64(now.Sub(w.began))) }
func (w *lastWrite) after(then time.Time) bool { return w.at.Load() > int64(then.Sub(w.began)) }
