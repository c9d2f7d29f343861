package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// BatcherConfig configures NewBatcher. All values have defaults.
type BatcherConfig struct {
	Stream string        // empty: that of the client
	Ack    telemetry.Ack // empty: that of the client
	// A request is sent when it has MaxReadings (0: 1,000; a daemon accepts 10,000), or
	// about MaxBytes (0: 512 KiB; a daemon accepts 8 MiB), or when its oldest reading
	// has waited for MaxAge (0: 1 s).
	MaxReadings int
	MaxBytes    int
	MaxAge      time.Duration
	// MaxBuffered bytes of readings may wait in memory, about 100 for a reading of three
	// numbers; 0: 64 MiB.
	MaxBuffered int
	// InFlight requests are sent at once; 0: 4. Those of a sensor are sent one after the
	// other, so that its readings arrive in the order of Add.
	InFlight int
	// OnRefused gets readings that broke a rule, and OnLost those that were given up,
	// with the reason: an *Error, whose Unknown says that they may have been stored.
	// They are called from several goroutines, and must not wait for the Batcher.
	OnRefused func(telemetry.Reading, Refused)
	OnLost    func([]telemetry.Reading, error)
}

const (
	defaultMaxReadings = 1000
	defaultMaxBytes    = 512 << 10
	defaultMaxAge      = time.Second
	defaultMaxBuffered = 64 << 20
	defaultInFlight    = 4

	greatestReadings = 10_000
	greatestBytes    = 6 << 20 // by estimate, so that it stays below a daemon's limit
	greatestInFlight = 256
)

// A Batcher collects readings and sends them in few requests. It repeats a request
// until a daemon accepts it, or until Close: meanwhile readings wait in memory, and Add
// waits when the memory is full. It gives up only requests that are refused
// permanently (an invalid token, an unknown stream, a size that is too large, a
// redirect), those that a daemon fails to process by a defect of its own (500,
// internal), and those whose outcome was unknown for Config.KeyLife (see
// Config.AtLeastOnce).
type Batcher struct {
	client *Client
	config BatcherConfig
	lanes  []*lane
	seed   maphash.Seed
	buffer *buffer
	stats  batcherStats

	lostMu  sync.Mutex
	lostWhy error // the latest reason

	ctx    context.Context // of the requests; ends when Close gives up
	cancel context.CancelFunc
	run    sync.WaitGroup
}

// Stats count what a Batcher has done, in readings unless noted. Every added reading is
// delivered, refused, lost, or buffered.
type Stats struct {
	Added     int64
	Delivered int64 // accepted by a daemon
	Refused   int64 // broke a rule
	Lost      int64 // given up
	Unknown   int64 // of those lost, the ones that may have been stored
	Buffered  int64 // waiting, or in a request that is being sent
	Bytes     int64 // of those buffered, estimated
	Requests  int64 // requests
	Repeated  int64 // attempts beyond the first of each request
}

type batcherStats struct {
	added, delivered, refused, lost, unknown, requests, repeated atomic.Int64
}

// ErrFull is returned by TryAdd when the buffer is full.
var ErrFull = errors.New("the batcher is full")

// An UndeliveredError says how many readings a closed Batcher could not deliver.
type UndeliveredError struct {
	Readings int64 // in all
	Unknown  int64 // of these, the ones that may have been stored
	Err      error // of the latest
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
	config.MaxReadings = cmp.Or(config.MaxReadings, defaultMaxReadings)
	config.MaxBytes = cmp.Or(config.MaxBytes, defaultMaxBytes)
	config.MaxAge = cmp.Or(config.MaxAge, defaultMaxAge)
	config.MaxBuffered = cmp.Or(config.MaxBuffered, max(defaultMaxBuffered, config.MaxBytes))
	config.InFlight = cmp.Or(config.InFlight, defaultInFlight)
	if err := config.check(); err != nil {
		return nil, err
	}
	b := &Batcher{client: c, config: config, seed: maphash.MakeSeed(), buffer: &buffer{size: int64(config.MaxBuffered)}}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	for range config.InFlight {
		l := &lane{batcher: b, wake: make(chan struct{}, 1), finishedOne: make(chan struct{})}
		b.lanes = append(b.lanes, l)
		b.run.Go(l.run)
	}
	return b, nil
}

func (c *BatcherConfig) check() error {
	switch {
	case c.MaxReadings < 1 || c.MaxReadings > greatestReadings:
		return fmt.Errorf("MaxReadings %d is out of range; allowed are 1 to %d", c.MaxReadings, greatestReadings)
	case c.MaxBytes < 1 || c.MaxBytes > greatestBytes:
		return fmt.Errorf("MaxBytes %d is out of range; allowed are 1 to %d", c.MaxBytes, greatestBytes)
	case c.MaxAge < time.Millisecond:
		return fmt.Errorf("MaxAge %s is out of range; it is 1ms or more", c.MaxAge)
	case c.MaxBuffered < c.MaxBytes:
		return fmt.Errorf("MaxBuffered %d is less than MaxBytes %d", c.MaxBuffered, c.MaxBytes)
	case c.InFlight < 1 || c.InFlight > greatestInFlight:
		return fmt.Errorf("InFlight %d is out of range; allowed are 1 to %d", c.InFlight, greatestInFlight)
	}
	return checkAck(c.Ack)
}

// Add adds a reading, and waits while the buffer is full. The reading must not change
// afterwards. One without a Time gets the present time, because it may wait here.
func (b *Batcher) Add(ctx context.Context, r telemetry.Reading) error {
	stamp(&r)
	size := sizeOf(&r)
	if err := b.buffer.take(ctx, size); err != nil {
		return fmt.Errorf("add reading: %w", err)
	}
	return b.put(r, size)
}

// TryAdd is Add that returns ErrFull instead of waiting.
func (b *Batcher) TryAdd(r telemetry.Reading) error {
	stamp(&r)
	size := sizeOf(&r)
	if !b.buffer.tryTake(size) {
		return ErrFull
	}
	return b.put(r, size)
}

func stamp(r *telemetry.Reading) {
	if r.Time.IsZero() {
		r.Time = time.Now()
	}
}

func (b *Batcher) put(r telemetry.Reading, size int64) error {
	l := b.lanes[maphash.String(b.seed, r.Sensor)%uint64(len(b.lanes))]
	if !l.add(r, size) {
		b.buffer.give(size)
		return ErrClosed
	}
	b.stats.added.Add(1)
	return nil
}

// Flush sends what was added before, without waiting for MaxAge, and returns when none
// of it is buffered any more.
func (b *Batcher) Flush(ctx context.Context) error {
	marks := make([]int64, len(b.lanes))
	for i, l := range b.lanes {
		marks[i] = l.hurry()
	}
	for i, l := range b.lanes {
		if err := l.await(ctx, marks[i]); err != nil {
			return fmt.Errorf("flush readings: %w", err)
		}
	}
	return nil
}

// Close sends what is buffered, and returns when that is done or when ctx ends. The
// error is an *UndeliveredError if readings were lost meanwhile; OnLost got them.
// Nothing can be added any more.
func (b *Batcher) Close(ctx context.Context) error {
	for _, l := range b.lanes {
		l.close()
	}
	lost, unknown := b.stats.lost.Load(), b.stats.unknown.Load()
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.run.Wait()
	}()
	select {
	case <-done:
	case <-ctx.Done():
		b.cancel()
		<-done
	}
	b.cancel()
	if left := b.stats.lost.Load() - lost; left > 0 {
		b.lostMu.Lock()
		defer b.lostMu.Unlock()
		return &UndeliveredError{Readings: left, Unknown: b.stats.unknown.Load() - unknown, Err: b.lostWhy}
	}
	return nil
}

// Stats returns the present counts.
func (b *Batcher) Stats() Stats {
	s := Stats{
		Delivered: b.stats.delivered.Load(), Refused: b.stats.refused.Load(), Lost: b.stats.lost.Load(), Unknown: b.stats.unknown.Load(),
		Requests: b.stats.requests.Load(), Repeated: b.stats.repeated.Load(), Bytes: b.buffer.used(),
	}
	s.Added = b.stats.added.Load() // last, so that nothing is delivered before it was added
	s.Buffered = s.Added - s.Delivered - s.Refused - s.Lost
	return s
}

// deliver sends a batch.
func (b *Batcher) deliver(batch []telemetry.Reading) {
	b.stats.requests.Add(1)
	r, err := b.client.send(b.ctx, Request{Readings: batch, Stream: b.config.Stream, Ack: b.config.Ack}, Forever, func() { b.stats.repeated.Add(1) })
	var refused *RefusedError
	if err != nil && !errors.As(err, &refused) {
		b.lose(batch, err)
		return
	}
	b.stats.delivered.Add(int64(r.Accepted))
	b.stats.refused.Add(int64(r.Rejected))
	if b.config.OnRefused != nil {
		for _, one := range r.Refused {
			b.config.OnRefused(batch[one.Index], one)
		}
	}
}

func (b *Batcher) lose(batch []telemetry.Reading, err error) {
	var failed *Error
	if errors.As(err, &failed) && failed.Unknown {
		b.stats.unknown.Add(int64(len(batch)))
	}
	b.stats.lost.Add(int64(len(batch)))
	b.lostMu.Lock()
	b.lostWhy = err
	b.lostMu.Unlock()
	if b.config.OnLost != nil {
		b.config.OnLost(batch, err)
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

// A lane has the readings of some sensors, and sends one request at a time. Its
// goroutine ends when it is closed and empty, or when the Batcher's context ends.
type lane struct {
	batcher *Batcher
	wake    chan struct{} // of capacity 1

	mu          sync.Mutex
	parcels     []parcel      // waiting, oldest first; the last one may grow
	added       int64         // readings so far
	begun       int64         // of these, in requests or finished
	finished    int64         // of these, no longer buffered
	urgent      int64         // so many do not wait for MaxAge
	finishedOne chan struct{} // closed and replaced when more are finished
	closed      bool
}

// A parcel is the content of one request.
type parcel struct {
	readings []telemetry.Reading
	bytes    int64
	since    time.Time // when the first was added
}

// add adds a reading, unless the lane is closed.
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

// full reports whether the parcel is to be sent.
func (l *lane) full(p *parcel) bool {
	return len(p.readings) >= l.batcher.config.MaxReadings || p.bytes >= int64(l.batcher.config.MaxBytes)
}

func (l *lane) rouse() {
	select {
	case l.wake <- struct{}{}:
	default: // it is awake
	}
}

// hurry makes all readings so far be sent at once, and returns their number.
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

// run sends parcels until the lane is closed and empty.
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

// idle is how long a lane without readings waits; it is woken earlier.
const idle = time.Hour

// next returns the parcel to send, or how long to wait for one; a negative wait means
// that none will come.
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
	l.parcels[0] = parcel{} // release its memory
	l.parcels = l.parcels[1:]
	l.begun += int64(len(p.readings))
	return p, 0
}

func (l *lane) finish(p parcel) {
	l.batcher.buffer.give(p.bytes)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.finished += int64(len(p.readings))
	close(l.finishedOne)
	l.finishedOne = make(chan struct{})
}

// A buffer bounds bytes. A reading larger than the buffer fits when it is empty.
type buffer struct {
	size int64

	mu    sync.Mutex
	taken int64
	freed chan struct{} // closed when bytes are given back; nil: no one waits
}

func (r *buffer) used() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.taken
}

func (r *buffer) tryTake(n int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.takeLocked(n)
}

func (r *buffer) takeLocked(n int64) bool {
	if r.taken > 0 && r.taken+n > r.size {
		return false
	}
	r.taken += n
	return true
}

// take waits until the bytes fit.
func (r *buffer) take(ctx context.Context, n int64) error {
	for {
		r.mu.Lock()
		if r.takeLocked(n) {
			r.mu.Unlock()
			return nil
		}
		if r.freed == nil {
			r.freed = make(chan struct{})
		}
		freed := r.freed
		r.mu.Unlock()
		select {
		case <-freed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (r *buffer) give(n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.taken -= n
	if r.freed != nil {
		close(r.freed)
		r.freed = nil
	}
}
