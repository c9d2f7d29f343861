package ingest

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"

	"github.com/brim-telemetry/brim/internal/access"
	"github.com/brim-telemetry/brim/internal/machine"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// An Appender accepts messages; in the daemon it is a Server.
type Appender interface {
	AppendMessages(ctx context.Context, identity, key string, messages []Message) (map[int]*telemetry.Error, error)
}

// A Feed takes the messages of a subscription, and appends them in batches until they are
// journaled or refused:
//
//	Put ─▶ waiting ─▶ batch ─▶ Decode ─▶ AppendMessages ─▶ journal
//	                  Done ◀─ Save ◀──────────┤
//	                                          └─▶ refused: dead letters
type Feed struct {
	config   FeedConfig
	to       Appender
	waiting  chan *Delivery
	room     *semaphore.Weighted // bytes of waiting messages
	stopping context.Context     //nolint:containedctx // ends when Stop is called
	stop     context.CancelFunc
	abandon  context.CancelFunc // stops waiting for the journal
	gatherer sync.WaitGroup
	denied   atomic.Pointer[telemetry.Error] // why the identity may not send; nil: it may

	// Used by gather only.
	warned         time.Time // when a failure that is retried was last logged
	lastRefusedLog time.Time // when refused messages were last logged
	unlogged       int       // refused since then
}

// FeedConfig configures a Feed.
type FeedConfig struct {
	Name     string // of the subscription
	Identity string // see AppendMessages
	Messages int    // how many may wait
	Bytes    int64  // largest size of the waiting ones together

	// Decode returns what a message contains, nil if that is nothing to store, or why it is
	// refused.
	Decode func(*Delivery) (*Message, error)
	// Save saves what Decode remembers. It is called before the messages of a batch are
	// done, until it succeeds.
	Save func() error

	Letters *LetterFile            // of refused messages
	Refused *prometheus.CounterVec // by code
	Waits   *prometheus.CounterVec // times that messages were not accepted, by what they wait for
	Logger  *slog.Logger
}

// What messages wait for that are not accepted.
const (
	WaitJournal = "journal"
	WaitQuota   = "quota"
	WaitAccess  = "access"
)

// A Delivery is a message as a broker sent it.
type Delivery struct {
	Topic    string
	Payload  []byte
	Received time.Time
	// Done, if it is not nil, is called in order of arrival when messages may be acknowledged;
	// ok is false if the feed was stopped before that.
	Done func(ok bool)

	refused *telemetry.Error // why the message, or some of its readings, were refused
}

func (d *Delivery) size() int64 { return int64(len(d.Topic) + len(d.Payload)) }

const (
	batchMessages = 1000
	batchBytes    = 1 << 20
	// linger is how long a batch waits for more messages, because each batch costs an fsync.
	linger = 4 * time.Millisecond

	minBackoff, maxBackoff = 100 * time.Millisecond, 10 * time.Second
	// logInterval is how often refused messages are logged, and failures that are retried: a
	// quota may be used up all the time.
	logInterval = 10 * time.Second
)

// NewFeed starts a feed.
func NewFeed(c FeedConfig, to Appender) *Feed {
	f := &Feed{config: c, to: to, waiting: make(chan *Delivery, c.Messages), room: semaphore.NewWeighted(c.Bytes)}
	f.stopping, f.stop = context.WithCancel(context.Background())
	ctx, abandon := context.WithCancel(context.Background())
	f.abandon = abandon
	f.gatherer.Go(func() { f.gather(ctx) })
	return f
}

// Put queues a message once there is room for it. It returns false if ctx ended before that.
func (f *Feed) Put(ctx context.Context, d *Delivery) bool {
	if f.room.Acquire(ctx, d.size()) != nil {
		return false
	}
	select {
	case f.waiting <- d:
		return true
	case <-ctx.Done():
		f.room.Release(d.size())
		return false
	}
}

// Denied returns why the identity may not send now; nil if it may.
func (f *Feed) Denied() *telemetry.Error { return f.denied.Load() }

// Stop processes the messages that are waiting. When ctx ends, it gives up those that are not
// journaled. Messages that are put later are not processed.
func (f *Feed) Stop(ctx context.Context) {
	f.stop()
	defer context.AfterFunc(ctx, f.abandon)()
	f.gatherer.Wait()
	f.abandon()
}

// gather processes messages in batches. After Stop is called, it returns when those that were
// put before are done.
func (f *Feed) gather(ctx context.Context) {
	timer := time.NewTimer(linger)
	defer timer.Stop()
	for {
		var first *Delivery
		select {
		case first = <-f.waiting:
		case <-f.stopping.Done():
			select {
			case first = <-f.waiting:
			default:
				return
			}
		}
		batch, size := []*Delivery{first}, first.size()
		timer.Reset(linger)
		for more := true; more && len(batch) < batchMessages && size < batchBytes; {
			select {
			case d := <-f.waiting:
				batch, size = append(batch, d), size+d.size()
			case <-timer.C:
				more = false
			case <-f.stopping.Done():
				more = false
			}
		}
		ok := f.process(ctx, batch)
		for _, d := range batch {
			if d.Done != nil {
				d.Done(ok)
			}
			f.room.Release(d.size())
		}
	}
}

// process journals the readings of a batch and writes refused messages to the dead letters.
// It returns false if ctx ended first.
func (f *Feed) process(ctx context.Context, batch []*Delivery) bool {
	messages := make([]Message, 0, len(batch))
	from := make([]*Delivery, 0, len(batch)) // where messages come from
	for _, d := range batch {
		var m *Message
		err := f.guard(func() (err error) {
			m, err = f.config.Decode(d)
			return err
		})
		switch {
		case err != nil:
			d.refused = wholeRefused(err)
		case m != nil:
			messages, from = append(messages, *m), append(from, d)
		}
	}
	return f.append(ctx, messages, from) && f.saveRefused(ctx, batch) && f.retry(ctx, "save the state of the MQTT subscription", f.config.Save)
}

// saveRefused writes the refused messages of a batch to the dead letters. It returns false if
// ctx ended first.
func (f *Feed) saveRefused(ctx context.Context, batch []*Delivery) bool {
	var letters []Letter
	for _, d := range batch {
		if d.refused != nil {
			f.config.Refused.WithLabelValues(d.refused.Code).Inc()
			letters = append(letters, Letter{
				At: d.Received.UTC().Format(telemetry.TimeFormat), Subscription: f.config.Name, Topic: d.Topic,
				Reason: d.refused.Code + ": " + d.refused.Message, Payload: d.Payload,
			})
		}
	}
	if len(letters) == 0 {
		return true
	}
	if f.unlogged += len(letters); time.Since(f.lastRefusedLog) >= logInterval {
		f.config.Logger.Warn("MQTT messages were refused; see brim deadletter list --messages",
			"messages", f.unlogged, "topic", letters[0].Topic, "reason", letters[0].Reason)
		f.lastRefusedLog, f.unlogged = time.Now(), 0
	}
	return f.retry(ctx, "save refused MQTT messages", func() error { return f.config.Letters.put(letters) })
}

// append appends messages until they are journaled or refused. It returns false if ctx ended
// first.
func (f *Feed) append(ctx context.Context, messages []Message, from []*Delivery) bool {
	if len(messages) == 0 {
		return true
	}
	key := rand.Text()
	return f.retry(ctx, "append MQTT messages, which the broker keeps until then", func() error {
		var some map[int]*telemetry.Error
		err := f.guard(func() (err error) {
			some, err = f.to.AppendMessages(ctx, f.config.Identity, key, messages)
			return err
		})
		if err == nil {
			f.denied.Store(nil)
			for i, e := range some {
				from[i].refused = e
			}
			return nil
		}
		reason := f.waitsFor(err)
		switch {
		case ctx.Err() != nil:
			return err
		case reason != "":
			f.config.Waits.WithLabelValues(reason).Inc()
			return err
		case len(messages) == 1:
			from[0].refused = cannotAppend(err)
			return nil
		}
		half := len(messages) / 2 // one of them is the cause
		if f.append(ctx, messages[:half], from[:half]) && f.append(ctx, messages[half:], from[half:]) {
			return nil
		}
		return ctx.Err()
	})
}

// waitsFor returns what messages that were not accepted wait for; empty if waiting does not
// help.
func (f *Feed) waitsFor(err error) string {
	known, ok := errors.AsType[*telemetry.Error](err)
	if !ok {
		return WaitJournal
	}
	switch known.Kind {
	case telemetry.Unavailable, telemetry.UnknownOutcome, telemetry.Internal:
		return WaitJournal
	case telemetry.Unauthenticated, telemetry.Forbidden:
		f.denied.Store(known)
		return WaitAccess
	case telemetry.Quota:
		if known.Code != access.CodeActiveSensors { // those of known sensors would wait for up to an hour
			return WaitQuota
		}
	}
	return ""
}

// cannotAppend returns why a message that cannot be appended is refused: it does not fit into the
// journal, unless the code says otherwise.
func cannotAppend(err error) *telemetry.Error {
	if known, ok := errors.AsType[*telemetry.Error](err); ok && (known.Code == codeInternal || known.Code == access.CodeActiveSensors) {
		return known
	}
	return telemetry.Errorf(telemetry.TooLarge, codeMessageTooLarge, "%v", err)
}

// guard turns a panic into an error, so that one message cannot end the daemon.
func (f *Feed) guard(do func() error) (err error) {
	defer func() {
		if problem := recover(); problem != nil {
			f.config.Logger.Error("panic while processing MQTT messages", "panic", problem, "stack", string(debug.Stack()))
			err = telemetry.Errorf(telemetry.Invalid, codeInternal, "Brim failed on this message, which is a bug; its log says where")
		}
	}()
	return do()
}

// retry calls do until it succeeds. It returns false if ctx ended first.
func (f *Feed) retry(ctx context.Context, what string, do func() error) bool {
	for pause := minBackoff; ; pause = min(2*pause, maxBackoff) {
		err := do()
		if err == nil || ctx.Err() != nil {
			return err == nil
		}
		if time.Since(f.warned) >= logInterval {
			f.config.Logger.Warn("failed, retrying", "what", what, "err", err)
			f.warned = time.Now()
		}
		until := pause
		if known, ok := errors.AsType[*telemetry.Error](err); ok && known.Kind == telemetry.Quota {
			until = min(known.RetryAfter, maxBackoff)
		}
		if machine.Pause(ctx, until) != nil {
			return false
		}
	}
}
