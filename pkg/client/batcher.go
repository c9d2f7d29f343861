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

// BatcherConfig is what NewBatcher needs; each value may be left out.
type BatcherConfig struct {
	Stream string        // empty: that of the client
	Ack    telemetry.Ack // empty: that of the client
	// A request is sent when it has MaxReadings (0: 1,000; a daemon takes 10,000), when
	// it has some MaxBytes (0: 512 KiB; a daemon takes 8 MiB), or when its oldest
	// reading has waited for MaxAge (0: 1 s).
	MaxReadings int
	MaxBytes    int
	MaxAge      time.Duration
	// MaxBuffered is how many bytes of readings may wait for a daemon, some 100 of
	// them for a reading of three numbers; 0: 64 MiB.
	MaxBuffered int
	// InFlight is how many requests may be under way at once; 0: 4. Each sensor's go
	// one after the other, so that its readings arrive in the order of Add. Over gRPC
	// a daemon works on sixteen of a client's at a time.
	InFlight int
	// OnRefused is told of readings that broke a rule, and OnLost of those that were
	// given up, with the reason: an *Error whose Unknown tells that they may have been
	// taken. Several goroutines may call them; they must not wait for the Batcher.
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

// A Batcher gathers readings and sends them with few requests. A request that no
// daemon takes is repeated until one does, or until Close: meanwhile readings wait
// in memory, and Add waits when there is no more room. Given up are only requests
// that are refused for good (a token that is not valid, a stream that does not
// exist, a size that is too large, a redirect), those that a daemon fails to take by
// a fault of its own (500, internal), and those of which it is not known for
// Config.KeyLife whether they were taken (see Config.AtLeastOnce).
type Batcher struct {
	client *Client
	config BatcherConfig
	lanes  []*lane
	seed   maphash.Seed
	room   *room
	stats  batcherStats

	lostMu  sync.Mutex
	lostWhy error // the last reason

	ctx    context.Context // of the requests; ends when Close has no more patience
	cancel context.CancelFunc
	run    sync.WaitGroup
}

// Stats are counts of a Batcher since it was made, in readings unless said
// otherwise. Every reading added is delivered, refused, lost, or buffered.
type Stats struct {
	Added     int64
	Delivered int64 // accepted by a daemon
	Refused   int64 // broke a rule
	Lost      int64 // given up
	Unknown   int64 // of those lost, the ones that may have been taken
	Buffered  int64 // not finished, in requests under way or waiting for one
	Bytes     int64 // that these take, by estimate
	Requests  int64 // requests that were begun
	Repeated  int64 // attempts beyond the first of each request
}

type batcherStats struct {
	added, delivered, refused, lost, unknown, requests, repeated atomic.Int64
}

// ErrFull is returned by TryAdd when there is no room.
var ErrFull = errors.New("the batcher is full")

// An UndeliveredError says how many readings a closed Batcher could not deliver.
type UndeliveredError struct {
	Readings int64 // in all
	Unknown  int64 // of these, the ones that may have been taken
	Err      error // why, of the last ones
}

// Error implements error.
func (e *UndeliveredError) Error() string {
	return fmt.Sprintf("%d readings are not delivered, of which %d may have been taken: %v", e.Readings, e.Unknown, e.Err)
}

// Unwrap returns Err.
func (e *UndeliveredError) Unwrap() error { return e.Err }

// NewBatcher returns a Batcher that sends by the client. It must be closed, before
// the client is.
func (c *Client) NewBatcher(config BatcherConfig) (*Batcher, error) {
	config.MaxReadings = cmp.Or(config.MaxReadings, defaultMaxReadings)
	config.MaxBytes = cmp.Or(config.MaxBytes, defaultMaxBytes)
	config.MaxAge = cmp.Or(config.MaxAge, defaultMaxAge)
	config.MaxBuffered = cmp.Or(config.MaxBuffered, max(defaultMaxBuffered, config.MaxBytes))
	config.InFlight = cmp.Or(config.InFlight, defaultInFlight)
	if err := config.check(); err != nil {
		return nil, err
	}
	b := &Batcher{client: c, config: config, seed: maphash.MakeSeed(), room: newRoom(int64(config.MaxBuffered))}
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

// Add takes a reading, and waits while there is no room. What it holds must not
// change afterwards. A reading without a Time gets that of the call, because it may
// wait here.
func (b *Batcher) Add(ctx context.Context, r telemetry.Reading) error {
	stamp(&r)
	size := sizeOf(&r)
	if err := b.room.take(ctx, size); err != nil {
		return fmt.Errorf("add reading: %w", err)
	}
	return b.put(r, size)
}

// TryAdd is Add that returns ErrFull instead of waiting.
func (b *Batcher) TryAdd(r telemetry.Reading) error {
	stamp(&r)
	size := sizeOf(&r)
	if !b.room.tryTake(size) {
		return ErrFull
	}
	return b.put(r, size)
}

// stamp gives a reading without a Time that of now.
func stamp(r *telemetry.Reading) {
	if r.Time.IsZero() {
		r.Time = time.Now()
	}
}

func (b *Batcher) put(r telemetry.Reading, size int64) error {
	l := b.lanes[maphash.String(b.seed, r.Sensor)%uint64(len(b.lanes))]
	if !l.add(r, size) {
		b.room.give(size)
		return ErrClosed
	}
	b.stats.added.Add(1)
	return nil
}

// Flush sends what was added before, without waiting for its MaxAge, and returns
// when nothing of it is buffered any more.
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

// Close sends what is buffered and returns when that is done, or when ctx ends.
// The error is an *UndeliveredError if readings were left, or were given up
// meanwhile; OnLost has been told which. Nothing can be added any more.
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

// Stats returns the counts of now.
func (b *Batcher) Stats() Stats {
	s := Stats{
		Delivered: b.stats.delivered.Load(), Refused: b.stats.refused.Load(), Lost: b.stats.lost.Load(), Unknown: b.stats.unknown.Load(),
		Requests: b.stats.requests.Load(), Repeated: b.stats.repeated.Load(), Bytes: b.room.used(),
	}
	s.Added = b.stats.added.Load() // last, so that nothing is finished that was not added
	s.Buffered = s.Added - s.Delivered - s.Refused - s.Lost
	return s
}

// deliver sends a batch and says what became of it.
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

// lose says that a batch was given up.
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

// sizeOf estimates what a reading takes, on the wire or in memory.
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
