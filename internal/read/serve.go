package read

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/brim-telemetry/brim/internal/access"
	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A question is one request that is being answered.
type question struct {
	*Session

	params params
	w      *answer
	r      *http.Request
}

// errTimeout is the cause of a context that ended because an answer took too long.
var errTimeout = errors.New("the answer took too long")

// errAway is the cause of a context that ended because the stream's database went
// away.
var errAway = errors.New("the stream's database went away")

// errGone says that the client stopped reading the answer.
var errGone = errors.New("the client stopped reading the answer")

// errCut says that an answer was aborted after it had begun; its last line says why.
var errCut = errors.New("the answer was aborted")

// serve answers a request, and counts the outcome.
func (r *Reader) serve(w http.ResponseWriter, req *http.Request, c call, sensor string) {
	begin := time.Now()
	a := &answer{ResponseWriter: w, head: req.Method == http.MethodHead}
	err := r.answer(a, req, c, sensor)
	if a.waiting {
		c = callWaiting
	}
	switch {
	case err == nil:
		r.metrics.answered(c, strconv.Itoa(a.status()), begin)
	case errors.Is(err, errCut):
		r.metrics.answered(c, codeCut, begin)
		// Without a last chunk the client's HTTP library reports that the answer is incomplete.
		panic(http.ErrAbortHandler) //nolint:forbidigo // how net/http aborts a connection
	case req.Context().Err() != nil, errors.Is(err, errGone):
		r.metrics.answered(c, codeGone, begin)
	default:
		r.cfg.Problem(a, err)
		r.metrics.answered(c, strconv.Itoa(a.status()), begin)
	}
}

// opened returns where the answers come from, or an error before Open.
func (r *Reader) opened() (*Stored, error) {
	if stored := r.stored.Load(); stored != nil {
		return stored, nil
	}
	e := telemetry.Errorf(telemetry.Unavailable, "starting", "the daemon is starting; nothing can be read yet, send the request again")
	e.RetryAfter = time.Second
	return nil, e
}

// answer answers, or returns an error and has written nothing.
func (r *Reader) answer(w *answer, req *http.Request, c call, sensor string) error {
	stored, err := r.opened()
	if err != nil {
		return err
	}
	p, wrong := parse(c, sensor, req)
	if w.waiting = p.waitingOnly; w.waiting {
		w.Header().Set(daemonHeader, r.cfg.Daemon)
	}
	q := &question{params: p, w: w, r: req, Session: &Session{
		reader: r, stored: stored, who: access.From(req.Context()),
		credentials: req.Header.Get("Authorization"), storedOnly: p.storedOnly, waitingOnly: p.waitingOnly,
	}}
	if q.stream, q.source, err = r.sourceOf(stored, p.stream); err != nil {
		return err // even if a parameter is wrong too: the rest depends on the stream
	}
	if wrong != nil {
		return wrong
	}
	if sensor != "" {
		if err := q.who.RequireSensor(sensor); err != nil {
			return err
		}
	}
	if p.waitingOnly {
		return r.answerWaiting(q)
	}
	ctx, err := q.enter(req.Context(), slotWait)
	if err != nil {
		return err
	}
	defer q.End()
	defer w.hurry(r.cfg.Timeout + slowClient)()
	err = endpoints[c].answer(q, ctx)
	if err != nil {
		err = q.explain(ctx, err)
	}
	var known *telemetry.Error
	if errors.As(err, &known) && known.Code == telemetry.CodeTooCostly {
		err = &telemetry.Error{Kind: known.Kind, Code: known.Code, Message: known.Message + "; " + askForLess}
	}
	return q.finish(err)
}

// finish breaks an answer off that has begun and failed, unless the client is gone.
func (q *question) finish(err error) error {
	if err == nil || !q.w.begun || q.r.Context().Err() != nil || errors.Is(err, errGone) {
		return err
	}
	q.reader.breakOff(q.w, err)
	return errCut
}

// sourceOf returns a stream to query; an empty name is the default's.
func (r *Reader) sourceOf(stored *Stored, stream string) (string, Source, error) {
	stream = cmp.Or(stream, r.cfg.DefaultStream)
	source := stored.Sources[stream]
	if source == nil {
		return "", nil, telemetry.Errorf(telemetry.NotFound, "stream_unknown", "stream %s does not exist; GET /v1/streams lists those that do", telemetry.Quote([]byte(stream)))
	}
	return stream, source, nil
}

// explain turns an error of a source, or of the context, into what the client should know.
func (s *Session) explain(ctx context.Context, err error) error {
	var known *telemetry.Error
	if errors.As(err, &known) {
		return err
	}
	if cause := s.stored.Available(s.stream); cause != nil {
		return away(errors.Join(cause, err))
	}
	timeout, nothing := s.reader.cfg.Timeout, s.budget.Spent() == 0 // MongoDB sent no document
	switch {
	case errors.Is(context.Cause(ctx), errTimeout) && nothing: // a smaller query would not help
		return &telemetry.Error{
			Kind: telemetry.Unavailable, Code: "mongodb_away", RetryAfter: time.Second, Err: err,
			Message: fmt.Sprintf("MongoDB sent nothing within %v (--query-timeout): it hangs, is overloaded or cannot be reached; ask again later", timeout),
		}
	case errors.Is(context.Cause(ctx), errTimeout):
		// On an idle machine even the largest allowed query takes seconds: the cause is
		// the load, which passes.
		return &telemetry.Error{
			Kind: telemetry.Unavailable, Code: "query_timed_out", RetryAfter: 5 * time.Second, Err: err,
			Message: fmt.Sprintf("the answer took longer than %v (--query-timeout), since MongoDB or this machine is busy; "+
				"ask again later, or %s", timeout, askForLess),
		}
	case store.Away(err), errors.Is(context.Cause(ctx), errAway):
		return away(err)
	case store.Transient(err):
		return &telemetry.Error{
			Kind: telemetry.Unavailable, Code: "query_interrupted", RetryAfter: time.Second, Err: err,
			Message: "MongoDB ended the query early, as it does when it is short of resources or a collection is replaced; ask again",
		}
	}
	return err
}

const askForLess = "ask for less at once: a narrower span with from and to, a smaller limit with after from page to page, or a shorter span of a summary"

func away(err error) error {
	return &telemetry.Error{
		Kind: telemetry.Unavailable, Code: "mongodb_away", Message: "MongoDB does not answer; nothing can be read until it is back",
		RetryAfter: time.Second, Err: err,
	}
}

// slots are those of --max-queries. One identity has at most half of them, so that
// it cannot block all other readers. Unauthenticated clients have no such limit: a
// dashboard and a proxy have one address.
type slots struct {
	all, half int

	mu      sync.Mutex
	taken   int
	of      map[string]int // by name of the identity
	waiting int
	freed   chan struct{} // closed when one is free again
}

// slotWait is how long a request waits for a slot: a dashboard asks for everything
// it shows at once, and most answers take less. At most waitersPerSlot wait for each.
const (
	slotWait       = time.Second
	waitersPerSlot = 16
)

func newSlots(all int) *slots {
	return &slots{all: all, half: (all + 1) / 2, of: make(map[string]int), freed: make(chan struct{})}
}

// used is how many are taken.
func (p *slots) used() float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return float64(p.taken)
}

// enter takes one of the slots for an identity, and waits a while for one.
func (p *slots) enter(ctx context.Context, who *access.Identity, wait time.Duration) (leave func(), err error) {
	name := who.Name
	p.mu.Lock()
	defer p.mu.Unlock()
	leave, err = p.take(name)
	if err == nil || p.waiting == p.all*waitersPerSlot {
		return leave, err
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	p.waiting++
	defer func() { p.waiting-- }()
	for err != nil && ctx.Err() == nil {
		freed := p.freed
		p.mu.Unlock()
		select {
		case <-freed:
		case <-ctx.Done():
		}
		p.mu.Lock()
		if ctx.Err() == nil {
			leave, err = p.take(name)
		}
	}
	return leave, err
}

// take takes a slot now, or says why there is none; p is locked.
func (p *slots) take(name string) (leave func(), err error) {
	switch {
	case p.taken == p.all:
		return nil, tooMany(fmt.Sprintf("%d queries are being answered, which is the limit (--max-queries)", p.all))
	case name != "" && p.of[name] == p.half:
		return nil, tooMany(fmt.Sprintf("%d queries of %s are being answered, which is the limit for one identity (half of --max-queries)", p.half, name))
	}
	p.taken++
	if name != "" {
		p.of[name]++
	}
	return func() { p.leave(name) }, nil
}

func (p *slots) leave(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken--
	close(p.freed)
	p.freed = make(chan struct{})
	if name == "" {
		return
	}
	if p.of[name]--; p.of[name] == 0 {
		delete(p.of, name)
	}
}

func tooMany(message string) error {
	return &telemetry.Error{Kind: telemetry.Unavailable, Code: "queries_too_many", RetryAfter: time.Second, Message: message + "; ask again soon"}
}
