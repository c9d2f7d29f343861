package read

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/brim-telemetry/brim/internal/access"
	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A query is a request that is being answered: to read, or to delete.
type query struct {
	*Session

	params params
	w      *answer
	r      *http.Request
}

// errTimeout is the cause of a context that ended because an answer took too long.
var errTimeout = errors.New("the answer took too long")

// errDatabaseDown is the cause of a context that ended because the stream's database
// became unavailable.
var errDatabaseDown = errors.New("the stream's database became unavailable")

// errClientGone says that the client stopped reading the answer.
var errClientGone = errors.New("the client stopped reading the answer")

// errAborted says that an answer was aborted after it had begun; its last line says why.
var errAborted = errors.New("the answer was aborted")

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
		r.metrics.Answered(string(c), strconv.Itoa(a.status()), begin)
	case errors.Is(err, errAborted):
		r.metrics.Answered(string(c), codeCut, begin)
		// Without a last chunk the client's HTTP library reports that the answer is incomplete.
		panic(http.ErrAbortHandler) //nolint:forbidigo // how net/http aborts a connection
	case req.Context().Err() != nil, errors.Is(err, errClientGone):
		r.metrics.Answered(string(c), codeGone, begin)
	default:
		r.cfg.Problem(a, err)
		r.metrics.Answered(string(c), strconv.Itoa(a.status()), begin)
	}
}

// opened returns the sources of answers, or an error before Open.
func (r *Reader) opened() (*Stored, error) {
	if stored := r.stored.Load(); stored != nil {
		return stored, nil
	}
	e := telemetry.Errorf(telemetry.Unavailable, "starting", "the daemon is starting; nothing can be read yet, send the request again")
	e.RetryAfter = time.Second
	return nil, e
}

// answer answers a request. If it returns an error, nothing was written, unless the answer
// was aborted or the client is gone.
func (r *Reader) answer(w *answer, req *http.Request, c call, sensor string) error {
	stored, err := r.opened()
	if err != nil {
		return err
	}
	p, wrong := parse(c, sensor, req)
	if w.waiting = p.waitingOnly; w.waiting {
		w.Header().Set(daemonHeader, r.cfg.Daemon)
	}
	q := &query{params: p, w: w, r: req, Session: &Session{
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
	defer q.End()
	if p.waitingOnly {
		return r.answerWaiting(q)
	}
	ctx, err := q.enter(req.Context(), slotWait)
	if err != nil {
		return err
	}
	q.asking.Add(1)
	defer w.setDeadline(r.cfg.Timeout + deadlineGrace)()
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

// finish aborts an answer that failed after it had begun, unless the client is gone.
func (q *query) finish(err error) error {
	if err == nil || !q.w.begun || q.r.Context().Err() != nil || errors.Is(err, errClientGone) {
		return err
	}
	q.reader.abort(q.w, err)
	return errAborted
}

// sourceOf returns the name and the source of a stream; an empty name is the default's.
func (r *Reader) sourceOf(stored *Stored, stream string) (string, Source, error) {
	stream = cmp.Or(stream, r.cfg.DefaultStream)
	source := stored.Sources[stream]
	if source == nil {
		return "", nil, telemetry.Errorf(telemetry.NotFound, "stream_unknown", "stream %s does not exist; GET /v1/streams lists those that do", telemetry.Quote([]byte(stream)))
	}
	if stored.Duplicates != nil {
		switch stored.Duplicates(stream) {
		case store.DropIdentical:
			source = distinctSource{source}
		case store.LastWins:
			source = lastWinsSource{source}
		}
	}
	return stream, source, nil
}

// explain turns an error of a source, or of the context, into one for the client.
func (s *Session) explain(ctx context.Context, err error) error {
	var known *telemetry.Error
	if errors.As(err, &known) {
		return err
	}
	if cause := s.stored.Available(s.stream); cause != nil {
		return unavailable(errors.Join(cause, err))
	}
	timeout, nothing := s.reader.cfg.Timeout, s.asking.Load() > 0 && s.budget.Spent() == 0 // MongoDB sent no document
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
	case store.Away(err), errors.Is(context.Cause(ctx), errDatabaseDown):
		return unavailable(err)
	case store.Transient(err):
		return &telemetry.Error{
			Kind: telemetry.Unavailable, Code: "query_interrupted", RetryAfter: time.Second, Err: err,
			Message: "MongoDB ended the query early, as it does when it is short of resources or a collection is replaced; ask again",
		}
	}
	return err
}

const askForLess = "ask for less at once: a narrower span with from and to, a smaller limit with after from page to page, or a shorter span of a summary"

func unavailable(err error) error {
	return &telemetry.Error{
		Kind: telemetry.Unavailable, Code: "mongodb_away", Message: "MongoDB does not answer; nothing can be read until it is back",
		RetryAfter: time.Second, Err: err,
	}
}
