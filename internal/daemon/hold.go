package daemon

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/brim-telemetry/brim/internal/admin"
	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/fault"
	"github.com/brim-telemetry/brim/internal/ingest"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// An inlet stands where the journal will be, so that the door
// can be open, and refuse, before there is a place to put readings.
type inlet struct {
	holds   *holds
	journal atomic.Pointer[ingest.Journal]
}

// letIn opens the way to the journal.
func (i *inlet) letIn(j ingest.Journal) { i.journal.Store(&j) }

// Append is the door's way to the journal, see ingest.Journal.
func (i *inlet) Append(ctx context.Context, b *batch.Batch, r batch.Request) (batch.Receipt, error) {
	j := i.journal.Load()
	if j == nil {
		return batch.Receipt{}, errStarting()
	}
	inside, err := i.holds.enter(b)
	if err != nil {
		if r.Key != "" { // a request that was accepted before the stream was held is answered as it was then
			if receipt, repeated := (*j).Repeat(ctx, r); repeated != nil || receipt.Repeated {
				return receipt, repeated
			}
		}
		return batch.Receipt{}, err
	}
	defer inside.leave()
	return (*j).Append(ctx, b, r)
}

// Repeat implements ingest.Journal.
func (i *inlet) Repeat(ctx context.Context, r batch.Request) (batch.Receipt, error) {
	j := i.journal.Load()
	if j == nil {
		return batch.Receipt{}, errStarting()
	}
	return (*j).Repeat(ctx, r)
}

func errStarting() error {
	e := telemetry.Errorf(telemetry.Unavailable, "starting", "the daemon is starting; nothing was taken, send the request again")
	e.RetryAfter = time.Second
	return e
}

// holds are the streams whose readings are refused while a command changes their
// collections, and the requests that came in before they were:
//
//	enter ─▶ inFlight ─▶ journal ─▶ leave       one group before the hold, which ends with
//	  └▶ refused while the stream is held       its last request, and the next one behind it,
//	                                            which ends no sooner
type holds struct {
	mu     sync.RWMutex
	held   map[string]*held // by stream
	inside *inFlight
}

// A held is one hold.
type held struct {
	since   time.Time
	until   time.Time // zero: until the process ends
	drained bool      // what was taken before is stored
}

// lives reports whether the hold has not run out. One that drains does not.
func (h *held) lives(now time.Time) bool {
	return h != nil && (!h.drained || h.until.IsZero() || now.Before(h.until))
}

// An inFlight counts requests that are on their way into the journal.
type inFlight struct {
	n     atomic.Int64 // and one while more may come, and one for an earlier group
	empty chan struct{}
	next  *inFlight // in which this one counts; set before it can be empty
}

func newInFlight() *inFlight {
	c := &inFlight{empty: make(chan struct{})}
	c.n.Store(1)
	return c
}

// follow makes the group behind c, which is not empty before c is.
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

// enter lets a batch on its way to the journal, which it must leave, or says
// that one of its streams is held.
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

// longestRetry is how long a client is told to stay away at most: what it waits
// for may be over sooner.
const longestRetry = 5 * time.Second

func errHeld(stream string, h *held, now time.Time) error {
	e := telemetry.Errorf(telemetry.Unavailable, "held",
		"stream %s takes no readings for a moment, because its storage is being changed; nothing was taken, send the request again", stream)
	e.RetryAfter = longestRetry
	if h.drained && !h.until.IsZero() {
		e.RetryAfter = max(time.Second, min(longestRetry, h.until.Sub(now)))
	}
	return e
}

// begin holds a stream. The group that it returns ends with the last request
// that came in before; it is nil where all of that is stored already.
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
	before.leave() // no request is added any more
	return one, before
}

// keep makes a hold last for the lease from now on, and returns a copy of it;
// false if it was released or ran out meanwhile. A lease does not shorten a hold until the
// end.
func (h *holds) keep(stream string, one *held, lease time.Duration) (held, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.held[stream] != one, !one.lives(time.Now()): // who came since it ran out is in
		return held{}, false
	case lease == 0:
		one.until = time.Time{}
	case !one.drained || !one.until.IsZero():
		one.until = time.Now().Add(lease)
	}
	one.drained = true
	return *one, true
}

// lift ends a hold that could not be had.
func (h *holds) lift(stream string, one *held) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.held[stream] == one && !one.drained {
		delete(h.held, stream)
	}
}

// release ends whatever hold of the stream there is, and reports whether it
// lived.
func (h *holds) release(stream string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	one := h.held[stream]
	delete(h.held, stream)
	return one.lives(time.Now())
}

// of returns the stream's hold, nil if there is none that lives.
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
		return "is stored what was taken, and then until it is told"
	case h.until.IsZero():
		return "the daemon is restarted"
	default:
		return h.until.UTC().Format(time.RFC3339)
	}
}

// A holder is the daemon's, see admin.Holder.
type holder struct{ *daemon }

// Hold implements admin.Holder.
//
// What is stored is known of the journal as a whole, up to one position. So
// everything that was taken before is waited for, of other streams, too; they go
// on taking more.
func (d holder) Hold(ctx context.Context, stream string, lease time.Duration) (admin.Held, error) {
	if !d.cfg.hasStream(stream) {
		return admin.Held{}, unknownStream(stream)
	}
	one, before := d.inlet.holds.begin(stream)
	if before != nil && !d.faults.Off(fault.Drain) {
		if err := d.settle(ctx, before); err != nil {
			d.inlet.holds.lift(stream, one)
			return admin.Held{}, err
		}
	}
	now, live := d.inlet.holds.keep(stream, one, lease)
	if !live {
		return admin.Held{}, fmt.Errorf("hold stream %s: the hold has ended meanwhile, ask again", stream)
	}
	d.log.Info("stream is held and takes no readings", "stream", stream, "until", now.String())
	out := admin.Held{Stream: stream, Since: now.since, Session: d.session}
	if !now.until.IsZero() {
		out.Until = &now.until
	}
	return out, nil
}

// settle waits until all that was let in before is stored, and what the journal
// says of itself is durable.
func (d holder) settle(ctx context.Context, before *inFlight) error {
	select {
	case <-before.empty:
	case <-ctx.Done():
		return fmt.Errorf("wait for requests under way: %w", ctx.Err())
	}
	j := d.journal.Load()
	if j == nil {
		return admin.ErrNotReady
	}
	if err := (*j).Reach(ctx); err != nil {
		return err
	}
	if err := d.flush(ctx); err != nil {
		return err
	}
	return (*j).Secure()
}

// Release implements admin.Holder.
func (d holder) Release(stream string) error {
	if !d.cfg.hasStream(stream) {
		return unknownStream(stream)
	}
	if d.inlet.holds.release(stream) {
		d.log.Info("stream takes readings again", "stream", stream)
	}
	return nil
}

func unknownStream(stream string) error {
	return fmt.Errorf("%w: %q", admin.ErrUnknownStream, stream)
}

func (c *Settings) hasStream(name string) bool {
	for _, s := range c.Streams {
		if s.Name == name {
			return true
		}
	}
	return false
}

// heldParts tells readiness of the streams that are held. Where others take
// readings, the daemon does.
func (d *daemon) heldParts() []admin.Part {
	var parts []admin.Part
	for _, stream := range d.cfg.Streams {
		if h := d.inlet.holds.of(stream.Name); h != nil {
			parts = append(parts, admin.Part{
				Name: "hold of stream " + stream.Name, Reason: "the stream takes no readings until " + h.String(),
			})
		}
	}
	for i := range parts {
		parts[i].Optional = len(parts) < len(d.cfg.Streams)
	}
	return parts
}
