package client

import (
	"context"
	"sync"
	"time"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A lane has the readings of some sensors of a Batcher, and one request at a time.
// Its goroutine ends when it is closed and empty, or the Batcher's context ends.
type lane struct {
	batcher *Batcher
	wake    chan struct{} // of capacity 1: there may be something to do

	mu          sync.Mutex
	parcels     []parcel      // that wait, oldest first; the last one may grow
	added       int64         // readings so far
	begun       int64         // of these, how many are in requests or finished
	finished    int64         // of these, how many are not buffered any more
	urgent      int64         // up to which number none waits for its age
	finishedOne chan struct{} // closed, and made anew, when more are finished
	closed      bool
}

// A parcel is what one request takes.
type parcel struct {
	readings []telemetry.Reading
	bytes    int64
	since    time.Time // when the first came
}

// add takes a reading, unless the lane is closed.
func (l *lane) add(r telemetry.Reading, size int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	n := len(l.parcels)
	if n == 0 || l.full(&l.parcels[n-1]) || l.parcels[n-1].bytes+size > int64(l.batcher.config.MaxBytes) {
		l.parcels = append(l.parcels, parcel{since: time.Now()})
		n++
		l.rouse()
	}
	last := &l.parcels[n-1]
	last.readings = append(last.readings, r)
	last.bytes += size
	l.added++
	if l.full(last) {
		l.rouse()
	}
	return true
}

// full reports whether there is enough for a request.
func (l *lane) full(p *parcel) bool {
	return len(p.readings) >= l.batcher.config.MaxReadings || p.bytes >= int64(l.batcher.config.MaxBytes)
}

func (l *lane) rouse() {
	select {
	case l.wake <- struct{}{}:
	default: // it was told already
	}
}

// hurry makes all readings so far go at once, and returns how many those are.
func (l *lane) hurry() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.urgent = l.added
	l.rouse()
	return l.added
}

// await waits until so many readings are finished.
func (l *lane) await(ctx context.Context, mark int64) error {
	for {
		l.mu.Lock()
		done, more := l.finished >= mark, l.finishedOne
		l.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-more:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (l *lane) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.urgent = l.added
	l.rouse()
}

// run sends what is due until the lane is closed and empty.
func (l *lane) run() {
	timer := time.NewTimer(idle)
	defer timer.Stop()
	for {
		p, wait := l.next()
		switch {
		case len(p.readings) > 0:
			l.batcher.deliver(p.readings)
			l.finish(p)
		case wait < 0:
			return
		default:
			timer.Reset(wait)
			select {
			case <-l.wake:
			case <-timer.C:
			}
		}
	}
}

// idle is how long a lane waits when nothing is due; it is woken before.
const idle = time.Hour

// next returns the parcel that is due, or how long to wait for one; a negative wait
// where none will come.
func (l *lane) next() (p parcel, wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.parcels) == 0 {
		if l.closed {
			return parcel{}, -1
		}
		return parcel{}, idle
	}
	p = l.parcels[0]
	left := l.batcher.config.MaxAge - time.Since(p.since)
	if len(l.parcels) == 1 && !l.full(&p) && left > 0 && l.urgent <= l.begun {
		return parcel{}, left
	}
	l.parcels[0] = parcel{} // so that it is let go
	l.parcels = l.parcels[1:]
	l.begun += int64(len(p.readings))
	return p, 0
}

// finish says that the readings are not buffered any more.
func (l *lane) finish(p parcel) {
	l.batcher.room.give(p.bytes)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.finished += int64(len(p.readings))
	close(l.finishedOne)
	l.finishedOne = make(chan struct{})
}
