package journal

import (
	"sort"
	"sync"
	"time"

	"github.com/brim-telemetry/brim/internal/batch"
)

// published is what is durable and can be followed: how far it reaches, its
// newest batches, and when its parts arrived.
type published struct {
	mu        sync.Mutex
	end       uint64
	taken     uint64 // readings
	grown     chan struct{}
	tail      deque[tailed]
	tailBytes int64
	most      int64 // of tailBytes
	now       func() time.Time
	times     deque[arrival]
}

// tailed is a batch that is kept in memory for those who follow.
type tailed struct {
	record batch.Record
	size   int64
}

// arrival is when the record at a position arrived. One stands for all that
// arrived within arrivalStep, so that hours of readings that cannot be stored
// cost no memory worth mentioning.
type arrival struct {
	position uint64
	at       time.Time // by the monotonic clock
}

const arrivalStep = 250 * time.Millisecond

// add publishes the records of one commit and wakes those who wait.
func (p *published) add(entries []entry) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range entries {
		e := &entries[i]
		size := e.batch.MemorySize()
		p.tail.push(tailed{batch.Record{Batch: e.batch, Position: e.position, Next: e.next}, size})
		p.tailBytes += size
		p.taken += uint64(e.batch.Len())
		p.arrivedAt(e.position, e.batch.Received)
		p.end = e.next
	}
	// The newest one stays, whatever its size: all lanes are about to read it.
	for p.tailBytes > p.most && p.tail.len() > 1 {
		p.tailBytes -= p.tail.at(0).size
		p.tail.drop()
	}
	if p.grown != nil {
		close(p.grown)
		p.grown = nil
	}
}

// arrived notes when a record of an earlier process arrived, by the wall clock of
// that process, in ns.
func (p *published) arrived(position uint64, at int64) { p.arrivedAt(position, time.Unix(0, at)) }

// arrivedAt notes when the record at a position arrived. The wall clock only tells how
// long ago that was, at least 0 because clocks may be set back; from then on the
// age grows by the monotonic clock. Times rise with positions, or clocks that
// disagree would add an entry for every record.
func (p *published) arrivedAt(position uint64, received time.Time) {
	now := p.now()
	at := now.Add(-max(0, now.Sub(received)))
	if n := p.times.len(); n > 0 && at.Before(p.times.at(n-1).at.Add(arrivalStep)) {
		return
	}
	p.times.push(arrival{position, at})
}

// find returns the record at a position from memory. hint is the number that
// the tail had for it, as far as the caller knows; more says whether the journal
// reaches behind the position at all.
func (p *published) find(position, hint uint64) (r batch.Record, number uint64, found, more bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if position >= p.end {
		return batch.Record{}, 0, false, false
	}
	n := p.tail.len()
	if n == 0 || position < p.tail.at(0).record.Position {
		return batch.Record{}, 0, false, true
	}
	i := int(hint - p.tail.base)
	if hint < p.tail.base || i >= n || p.tail.at(i).record.Position != position {
		i = sort.Search(n, func(i int) bool { return p.tail.at(i).record.Position >= position })
		if i == n || p.tail.at(i).record.Position != position {
			return batch.Record{}, 0, false, true
		}
	}
	return p.tail.at(i).record, p.tail.base + uint64(i), true, true
}

// wait returns a channel that is closed once end is behind position.
func (p *published) wait(position uint64) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.end > position {
		done := make(chan struct{})
		close(done)
		return done
	}
	if p.grown == nil {
		p.grown = make(chan struct{})
	}
	return p.grown
}

// forget drops the times of what is before a position.
func (p *published) forget(position uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.times.len() > 1 && p.times.at(1).position <= position {
		p.times.drop()
	}
}

// age returns how long ago the record at a position arrived, 0 if there is none
// yet. What is before that is forgotten.
func (p *published) age(position uint64, now time.Time) time.Duration {
	p.forget(position)
	p.mu.Lock()
	defer p.mu.Unlock()
	if position >= p.end || p.times.len() == 0 {
		return 0
	}
	return max(0, now.Sub(p.times.at(0).at))
}

func (p *published) reach() (end, taken uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.end, p.taken
}
