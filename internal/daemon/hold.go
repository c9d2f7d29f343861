package daemon

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/daemon/console"
	"github.com/brim-telemetry/brim/internal/journal"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// An inlet stands before the journal, so that ingest can answer before it is open, and
// refuses readings of streams that are held.
type inlet struct {
	holds   *holds
	journal *atomic.Pointer[journal.Journal] // the daemon's
}

// Append implements ingest.Journal.
func (i *inlet) Append(ctx context.Context, b *batch.Batch, r batch.Request) (batch.Receipt, error) {
	j := i.journal.Load()
	if j == nil {
		return batch.Receipt{}, errStarting()
	}
	inside, err := i.holds.enter(b)
	if err != nil {
		if r.Key != "" { // a request that was accepted before the hold gets the same answer again
			if receipt, repeated := j.Repeat(ctx, r); repeated != nil || receipt.Repeated {
				return receipt, repeated
			}
		}
		return batch.Receipt{}, err
	}
	defer inside.leave()
	return j.Append(ctx, b, r)
}

// Repeat implements ingest.Journal.
func (i *inlet) Repeat(ctx context.Context, r batch.Request) (batch.Receipt, error) {
	j := i.journal.Load()
	if j == nil {
		return batch.Receipt{}, errStarting()
	}
	return j.Repeat(ctx, r)
}

func errStarting() error {
	e := telemetry.Errorf(telemetry.Unavailable, "starting", "the daemon is starting; nothing was accepted, send the request again")
	e.RetryAfter = time.Second
	return e
}

// holds are the streams whose readings are refused while a command changes their
// collections, and the requests that arrived before they were held:
//
//	enter ─▶ inFlight ─▶ journal ─▶ leave       one group before the hold, which ends with
//	  └▶ refused while the stream is held       its last request; the next group ends no sooner
type holds struct {
	mu     sync.RWMutex
	held   map[string]*held // by stream
	inside *inFlight
}

// A held is one hold.
type held struct {
	since   time.Time
	until   time.Time // zero: until the process ends
	drained bool      // what was accepted before is stored
}

// lives reports whether the hold has not expired. One that drains does not expire.
func (h *held) lives(now time.Time) bool {
	return h != nil && (!h.drained || h.until.IsZero() || now.Before(h.until))
}

// An inFlight counts requests on their way into the journal.
type inFlight struct {
	n     atomic.Int64 // plus one while more may enter, and one for an earlier group
	empty chan struct{}
	next  *inFlight // which counts this one; set before it can be empty
}

func newInFlight() *inFlight {
	c := &inFlight{empty: make(chan struct{})}
	c.n.Store(1)
	return c
}

// follow returns the group after c, which is not empty before c is.
func (c *inFlight) follow() *inFlight {
	c.next = newInFlight()
	c.next.n.Add(1)
	return c.next
}

func (c *inFlight) leave() {
	for ; c != nil && c.n.Add(-1) == 0; c = c.next {
		close(c.empty)
	}
}

func newHolds() *holds { return &holds{held: make(map[string]*held), inside: newInFlight()} }

// enter admits a batch, which must leave the group, or returns an error if one of its
// streams is held.
func (h *holds) enter(b *batch.Batch) (*inFlight, error) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if len(h.held) > 0 {
		now := time.Now()
		for i := range b.SeriesLen() {
			if one := h.held[b.SeriesAt(i).Stream]; one.lives(now) {
				return nil, errHeld(b.SeriesAt(i).Stream, one, now)
			}
		}
	}
	h.inside.n.Add(1)
	return h.inside, nil
}

// longestRetry bounds Retry-After: the hold may end sooner than its lease.
const longestRetry = 5 * time.Second

func errHeld(stream string, h *held, now time.Time) error {
	e := telemetry.Errorf(telemetry.Unavailable, "held",
		"stream %s accepts no readings for a moment, because its storage is being changed; nothing was accepted, send the request again", stream)
	e.RetryAfter = longestRetry
	if h.drained && !h.until.IsZero() {
		e.RetryAfter = max(time.Second, min(longestRetry, h.until.Sub(now)))
	}
	return e
}

// begin holds a stream. The group that it returns ends with the last request that
// arrived before; it is nil if all of them are stored already.
func (h *holds) begin(stream string) (*held, *inFlight) {
	now := time.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	one := h.held[stream]
	if !one.lives(now) {
		one = &held{since: now}
		h.held[stream] = one
	}
	if one.drained {
		return one, nil
	}
	before := h.inside
	h.inside = before.follow()
	before.leave() // no request enters any more
	return one, before
}

// keep makes a hold last for the lease from now on, and returns a copy of it; false if it
// was released or has expired. A lease does not shorten a hold until the restart.
func (h *holds) keep(stream string, one *held, lease time.Duration) (held, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.held[stream] != one, !one.lives(time.Now()): // requests since then were admitted
		return held{}, false
	case lease == 0:
		one.until = time.Time{}
	case !one.drained || !one.until.IsZero():
		one.until = time.Now().Add(lease)
	}
	one.drained = true
	return *one, true
}

// lift ends a hold that failed to drain.
func (h *holds) lift(stream string, one *held) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.held[stream] == one && !one.drained {
		delete(h.held, stream)
	}
}

// release ends any hold of the stream, and reports whether there was one.
func (h *holds) release(stream string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	one := h.held[stream]
	delete(h.held, stream)
	return one.lives(time.Now())
}

// of returns a copy of the stream's hold, nil if there is none.
func (h *holds) of(stream string) *held {
	h.mu.RLock()
	defer h.mu.RUnlock()
	one := h.held[stream]
	if !one.lives(time.Now()) {
		return nil
	}
	kept := *one
	return &kept
}

// String says until when, for people.
func (h *held) String() string {
	switch {
	case !h.drained:
		return "its readings are stored and the hold is released"
	case h.until.IsZero():
		return "the daemon is restarted"
	default:
		return h.until.UTC().Format(time.RFC3339)
	}
}

// hold implements adminPages.hold.
//
// Only one position in the journal tells up to where everything is stored. So this waits
// for all readings accepted before, those of other streams too; the other streams
// continue to accept more.
func (d *daemon) hold(ctx context.Context, stream string, lease time.Duration) (Held, error) {
	if !d.cfg.hasStream(stream) {
		return Held{}, unknownStream(stream)
	}
	one, before := d.inlet.holds.begin(stream)
	if before != nil {
		if err := d.settle(ctx, before); err != nil {
			d.inlet.holds.lift(stream, one)
			return Held{}, err
		}
	}
	now, live := d.inlet.holds.keep(stream, one, lease)
	if !live {
		return Held{}, fmt.Errorf("hold stream %s: the hold has ended meanwhile, request it again", stream)
	}
	d.log.Info("stream is held and accepts no readings", "stream", stream, "until", now.String())
	out := Held{Stream: stream, Since: now.since, Session: d.session}
	if !now.until.IsZero() {
		out.Until = &now.until
	}
	return out, nil
}

// settle waits until all requests that were admitted before are stored, and the
// journal's mark behind them is durable.
func (d *daemon) settle(ctx context.Context, before *inFlight) error {
	select {
	case <-before.empty:
	case <-ctx.Done():
		return fmt.Errorf("wait for requests in flight: %w", ctx.Err())
	}
	j := d.journal.Load()
	if j == nil {
		return errNotReady
	}
	if err := j.Reach(ctx); err != nil {
		return err
	}
	if err := d.flush(ctx); err != nil {
		return err
	}
	return j.Secure()
}

// release implements adminPages.release.
func (d *daemon) release(stream string) error {
	if !d.cfg.hasStream(stream) {
		return unknownStream(stream)
	}
	if d.inlet.holds.release(stream) {
		d.log.Info("stream accepts readings again", "stream", stream)
	}
	return nil
}

func unknownStream(stream string) error {
	return fmt.Errorf("%w: %q", errUnknownStream, stream)
}

func (c *Settings) hasStream(name string) bool {
	return slices.ContainsFunc(c.Streams, func(s Stream) bool { return s.Name == name })
}

// heldParts returns a part for each stream that is held. While other streams accept
// readings, the daemon is ready.
func (d *daemon) heldParts() []console.Part {
	var parts []console.Part
	for _, stream := range d.cfg.Streams {
		if h := d.inlet.holds.of(stream.Name); h != nil {
			parts = append(parts, console.Part{
				Name: "hold of stream " + stream.Name, Reason: "the stream accepts no readings until " + h.String(),
			})
		}
	}
	for i := range parts {
		parts[i].Optional = len(parts) < len(d.cfg.Streams)
	}
	return parts
}
