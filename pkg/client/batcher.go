package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"sync"
	"time"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// BatcherConfig configures NewBatcher. All values have defaults.
type BatcherConfig struct {
	Stream string        // empty: the client's
	Ack    telemetry.Ack // empty: the client's
	// A request is sent when it has MaxReadings (0: 1,000; a daemon accepts 10,000), or
	// about MaxBytes (0: 512 KiB; a daemon accepts 8 MiB), or when its oldest reading
	// has waited for MaxAge (0: 1 s).
	MaxReadings int
	MaxBytes    int
	MaxAge      time.Duration
	// MaxBuffered bytes of readings may wait in memory, about 100 for a reading of three
	// numbers; 0: 64 MiB.
	MaxBuffered int
	// InFlight is the number of concurrent requests; 0: 4. Requests for one sensor are
	// sent one at a time, so that its readings arrive in the order of Add.
	InFlight int
	// OnRefused gets readings that broke a rule, and OnLost those that were given up,
	// with the reason: an *Error, whose Unknown says that they may have been stored.
	// They are called from several goroutines, and must not wait for the Batcher.
	OnRefused func(telemetry.Reading, Refused)
	OnLost    func([]telemetry.Reading, error)
}

const (
	greatestReadings = 10_000
	greatestBytes    = 6 << 20 // estimated, so that it stays below a daemon's limit
	greatestInFlight = 256
)

// A Batcher collects readings and sends them in few requests. It repeats a request until
// a daemon accepts it, or until Close: meanwhile readings wait in memory, and Add waits
// when the memory is full. It gives up only requests that are refused permanently (an
// invalid token, an unknown stream, a reading that is too large, a redirect), those that
// a daemon fails to process because of a defect (500, internal), and those whose outcome
// was unknown for Config.KeyLife (see Config.AtLeastOnce).
//
//	Add ─▶ lane of the sensor ─▶ parcels ─▶ one request at a time, of the oldest parcel
type Batcher struct {
	client *Client
	config BatcherConfig
	seed   maphash.Seed

	ctx    context.Context // of the requests; ends when Close gives up
	cancel context.CancelFunc
	run    sync.WaitGroup

	mu      sync.Mutex // guards everything below, and in the lanes
	lanes   []*lane
	stats   Stats
	lostWhy error         // the latest reason
	changed chan struct{} // closed and replaced when a request has ended
	closed  bool
}

// A lane has the readings of some sensors. Its goroutine sends one request at a time,
// and ends when the Batcher is closed and the lane is empty.
type lane struct {
	wake     chan struct{} // of capacity 1
	parcels  []parcel      // waiting, oldest first; the last one may grow
	added    int64         // readings so far
	begun    int64         // of these, in requests or finished
	finished int64         // of these, no longer buffered
	urgent   int64         // this many do not wait for MaxAge
}

// A parcel is the content of one request.
type parcel struct {
	readings []telemetry.Reading
	bytes    int64
	since    time.Time // when the first was added
}

// Stats count what a Batcher has done, in readings unless noted. Every added reading is
// delivered, refused, lost, or buffered.
type Stats struct {
	Added     int64
	Delivered int64 // accepted by a daemon
	Refused   int64 // broke a rule
	Lost      int64 // given up
	Unknown   int64 // of those lost, the ones that may have been stored
	Buffered  int64 // waiting, or in a request being sent
	Bytes     int64 // estimated, of those buffered
	Requests  int64 // requests
	Repeated  int64 // attempts beyond the first of each request
}

// ErrFull is returned by TryAdd when the buffer is full.
var ErrFull = errors.New("the batcher is full")

// An UndeliveredError says how many readings a closed Batcher could not deliver.
type UndeliveredError struct {
	Readings int64 // in all
	Unknown  int64 // of these, the ones that may have been stored
	Err      error // the latest reason
}

// Error implements error.
func (e *UndeliveredError) Error() string {
	return fmt.Sprintf("%d readings were not delivered, of which %d may have been stored: %v", e.Readings, e.Unknown, e.Err)
}

// Unwrap returns Err.
func (e *UndeliveredError) Unwrap() error { return e.Err }

// NewBatcher returns a Batcher that sends with this client. It must be closed before
// the client.
func (c *Client) NewBatcher(config BatcherConfig) (*Batcher, error) {
	config.MaxReadings = cmp.Or(config.MaxReadings, 1000)
	config.MaxBytes = cmp.Or(config.MaxBytes, 512<<10)
	config.MaxAge = cmp.Or(config.MaxAge, time.Second)
	config.MaxBuffered = cmp.Or(config.MaxBuffered, max(64<<20, config.MaxBytes))
	config.InFlight = cmp.Or(config.InFlight, 4)
	if err := config.check(); err != nil {
		return nil, err
	}
	b := &Batcher{client: c, config: config, seed: maphash.MakeSeed(), changed: make(chan struct{})}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	for range config.InFlight {
		l := &lane{wake: make(chan struct{}, 1)}
		b.lanes = append(b.lanes, l)
		b.run.Go(func() { b.send(l) })
	}
	return b, nil
}

func (c *BatcherConfig) check() error {
	switch {
	case c.MaxReadings < 1 || c.MaxReadings > greatestReadings:
		return fmt.Errorf("MaxReadings %d is out of range; allowed: 1 to %d", c.MaxReadings, greatestReadings)
	case c.MaxBytes < 1 || c.MaxBytes > greatestBytes:
		return fmt.Errorf("MaxBytes %d is out of range; allowed: 1 to %d", c.MaxBytes, greatestBytes)
	case c.MaxAge < time.Millisecond:
		return fmt.Errorf("MaxAge %s is out of range; it is 1ms or more", c.MaxAge)
	case c.MaxBuffered < c.MaxBytes:
		return fmt.Errorf("MaxBuffered %d is less than MaxBytes %d", c.MaxBuffered, c.MaxBytes)
	case c.InFlight < 1 || c.InFlight > greatestInFlight:
		return fmt.Errorf("InFlight %d is out of range; allowed: 1 to %d", c.InFlight, greatestInFlight)
	}
	return checkAck(c.Ack)
}

// Add adds a reading, and waits while the buffer is full. The reading must not change
// afterwards. Without a Time, it gets the current time, since it may wait here.
func (b *Batcher) Add(ctx context.Context, r telemetry.Reading) error {
	stamp(&r)
	for {
		changed, err := b.put(r)
		if !errors.Is(err, ErrFull) {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("add reading: %w", ctx.Err())
		}
	}
}

// TryAdd is Add that returns ErrFull instead of waiting.
func (b *Batcher) TryAdd(r telemetry.Reading) error {
	stamp(&r)
	_, err := b.put(r)
	return err
}

func stamp(r *telemetry.Reading) {
	if r.Time.IsZero() {
		r.Time = time.Now()
	}
}

// put adds a reading to its lane. With ErrFull it returns a channel that is closed when
// there may be room. A reading larger than the buffer fits when the buffer is empty.
func (b *Batcher) put(r telemetry.Reading) (changed <-chan struct{}, err error) {
	size := sizeOf(&r)
	l := b.lanes[maphash.String(b.seed, r.Sensor)%uint64(len(b.lanes))]
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.closed:
		return nil, ErrClosed
	case b.stats.Bytes > 0 && b.stats.Bytes+size > int64(b.config.MaxBuffered):
		return b.changed, ErrFull
	}
	n := len(l.parcels)
	if n == 0 || b.full(&l.parcels[n-1]) || l.parcels[n-1].bytes+size > int64(b.config.MaxBytes) {
		l.parcels = append(l.parcels, parcel{since: time.Now()})
		n++
		l.rouse()
	}
	last := &l.parcels[n-1]
	last.readings = append(last.readings, r)
	last.bytes += size
	l.added++
	b.stats.Added++
	b.stats.Bytes += size
	if b.full(last) {
		l.rouse()
	}
	return nil, nil
}

// full reports whether the parcel is large enough to be sent.
func (b *Batcher) full(p *parcel) bool {
	return len(p.readings) >= b.config.MaxReadings || p.bytes >= int64(b.config.MaxBytes)
}

func (l *lane) rouse() {
	select {
	case l.wake <- struct{}{}:
	default: // it is awake
	}
}

// sizeOf estimates the bytes of a reading, on the wire or in memory.
func sizeOf(r *telemetry.Reading) int64 {
	n := 64 + len(r.Sensor)
	for i := range r.Fields {
		n += 16 + len(r.Fields[i].Name) + len(r.Fields[i].Value.Text())
	}
	for i := range r.Tags {
		n += 8 + len(r.Tags[i].Name) + len(r.Tags[i].Value)
	}
	return int64(n)
}

// Flush sends what was added before, without waiting for MaxAge, and returns once none
// of it is buffered.
func (b *Batcher) Flush(ctx context.Context) error {
	marks := make([]int64, len(b.lanes))
	b.mu.Lock()
	for i, l := range b.lanes {
		marks[i], l.urgent = l.added, l.added
		l.rouse()
	}
	b.mu.Unlock()
	for i, l := range b.lanes {
		for {
			b.mu.Lock()
			done, changed := l.finished >= marks[i], b.changed
			b.mu.Unlock()
			if done {
				break
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return fmt.Errorf("flush readings: %w", ctx.Err())
			}
		}
	}
	return nil
}

// Close sends everything buffered, and returns when that is done or when ctx ends.
// The error is an *UndeliveredError if readings were lost in between; OnLost got
// them. Nothing can be added afterwards.
func (b *Batcher) Close(ctx context.Context) error {
	b.mu.Lock()
	b.closed = true
	for _, l := range b.lanes {
		l.rouse()
	}
	before := b.stats
	b.mu.Unlock()
	stop := context.AfterFunc(ctx, b.cancel)
	b.run.Wait()
	stop()
	b.cancel()
	b.mu.Lock()
	defer b.mu.Unlock()
	if lost := b.stats.Lost - before.Lost; lost > 0 {
		return &UndeliveredError{Readings: lost, Unknown: b.stats.Unknown - before.Unknown, Err: b.lostWhy}
	}
	return nil
}

// Stats returns the current counts.
func (b *Batcher) Stats() Stats {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.stats
	s.Buffered = s.Added - s.Delivered - s.Refused - s.Lost
	return s
}

// send sends the parcels of a lane.
func (b *Batcher) send(l *lane) {
	timer := time.NewTimer(idle)
	defer timer.Stop()
	for {
		p, wait := b.next(l)
		switch {
		case len(p.readings) > 0:
			b.deliver(l, p)
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

// idle is how long a lane without readings waits; it is woken earlier.
const idle = time.Hour

// next returns the parcel to send, or how long to wait for one; a negative wait means
// that none will come.
func (b *Batcher) next(l *lane) (p parcel, wait time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(l.parcels) == 0 {
		if b.closed {
			return parcel{}, -1
		}
		return parcel{}, idle
	}
	p = l.parcels[0]
	left := b.config.MaxAge - time.Since(p.since)
	if len(l.parcels) == 1 && !b.full(&p) && left > 0 && l.urgent <= l.begun && !b.closed {
		return parcel{}, left
	}
	l.parcels[0] = parcel{} // release its memory
	l.parcels = l.parcels[1:]
	l.begun += int64(len(p.readings))
	b.stats.Requests++
	return p, 0
}

// isTooLarge reports whether a request was refused because of its size, with nothing stored.
func isTooLarge(err error) bool {
	failed, ok := errors.AsType[*Error](err)
	return ok && !failed.Unknown && (telemetry.KindOf(err) == telemetry.TooLarge || errors.Is(err, errTooLarge))
}

// deliver sends a parcel, and accounts for its readings. Since sizes are only estimated, a parcel
// that is too large is halved.
func (b *Batcher) deliver(l *lane, p parcel) {
	repeating := func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.stats.Repeated++
	}
	r, err := b.client.send(b.ctx, Request{Readings: p.readings, Stream: b.config.Stream, Ack: b.config.Ack}, Forever, repeating)
	if n := len(p.readings); n > 1 && isTooLarge(err) {
		for _, half := range [][]telemetry.Reading{p.readings[:n/2], p.readings[n/2:]} {
			part := parcel{readings: half}
			for i := range half {
				part.bytes += sizeOf(&half[i])
			}
			b.mu.Lock()
			b.stats.Requests++
			b.mu.Unlock()
			b.deliver(l, part)
		}
		return
	}
	failed, ok := errors.AsType[*Error](err)
	unknown := ok && failed.Unknown
	_, some := errors.AsType[*RefusedError](err)
	lost := err != nil && !some
	switch {
	case lost && b.config.OnLost != nil:
		b.config.OnLost(p.readings, err)
	case !lost && b.config.OnRefused != nil:
		for _, one := range r.Refused {
			b.config.OnRefused(p.readings[one.Index], one)
		}
	}
	n := int64(len(p.readings))
	b.mu.Lock()
	defer b.mu.Unlock()
	if lost {
		b.lostWhy = err
		b.stats.Lost += n
	} else {
		b.stats.Delivered += int64(r.Accepted)
		b.stats.Refused += int64(r.Rejected)
	}
	if unknown {
		b.stats.Unknown += n
	}
	b.stats.Bytes -= p.bytes
	l.finished += n
	close(b.changed)
	b.changed = make(chan struct{})
}
