package promapi

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"net/http"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/prometheus/prometheus/promql"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A problem is the response to a failed request, in Prometheus' format.
type problem struct {
	Status string `json:"status"`
	Type   string `json:"errorType"`
	Error  string `json:"error"`
}

// A kind has the status and type of the response to an error.
type kind struct {
	status int
	name   string // errorType
}

var kinds = map[telemetry.ErrorKind]kind{
	telemetry.Internal:        {http.StatusInternalServerError, "internal"},
	telemetry.Invalid:         {http.StatusBadRequest, "bad_data"},
	telemetry.TooLarge:        {http.StatusRequestEntityTooLarge, "bad_data"},
	telemetry.NotFound:        {http.StatusNotFound, "not_found"},
	telemetry.Unauthenticated: {http.StatusUnauthorized, "unauthorized"},
	telemetry.Forbidden:       {http.StatusForbidden, "forbidden"},
	telemetry.Quota:           {http.StatusTooManyRequests, "too_many_requests"},
	telemetry.Unavailable:     {http.StatusServiceUnavailable, "unavailable"},
}

// executionKind and timeoutKind are for errors that only queries have.
func executionKind() kind { return kind{http.StatusUnprocessableEntity, "execution"} }
func timeoutKind() kind   { return kind{http.StatusServiceUnavailable, "timeout"} }

// statusGone is the status that proxies log if the client went away.
const statusGone = 499

// errOwnTimeout is the cause of a context that was canceled by the parameter timeout.
var errOwnTimeout = errors.New("the request's own timeout")

// explain returns the response to an error of a query: its kind, and the error to show.
func (x *exchange) explain(ctx context.Context, err error) (kind, *telemetry.Error) {
	var (
		known   *telemetry.Error
		samples promql.ErrTooManySamples
	)
	errors.As(err, &known)
	switch {
	case errors.Is(context.Cause(ctx), errOwnTimeout):
		return timeoutKind(), telemetry.Errorf(telemetry.Unavailable, "query_timed_out", "the query took longer than its parameter timeout")
	case known != nil && known.Code == telemetry.CodeTooCostly:
		return executionKind(), &telemetry.Error{Code: known.Code, Message: known.Message + costHint}
	case known != nil && known.Code == codeTooManyLabels:
		return executionKind(), known
	case known != nil:
		k, ok := kinds[known.Kind]
		if !ok {
			k = kinds[telemetry.Internal]
		}
		if known.Code == "query_timed_out" {
			k = timeoutKind()
		}
		return k, known
	case errors.As(err, &samples):
		return executionKind(), x.tooManySamples()
	case ctx.Err() != nil && x.session != nil && !errors.Is(err, errExplained):
		return x.explain(ctx, errors.Join(errExplained, x.session.Explain(ctx)))
	case ctx.Err() != nil:
		return kind{statusGone, "canceled"}, telemetry.Errorf(telemetry.Unavailable, "canceled", "the query was canceled")
	}
	return executionKind(), telemetry.Errorf(telemetry.Invalid, "execution", "%v", err)
}

// errExplained marks an error that the session has explained already.
var errExplained = errors.New("explained")

const costHint = " (--query-max-bytes); use a shorter range or fewer sensors"

const codeTooManyLabels = "labels_too_many"

func tooManyLabels() *telemetry.Error {
	return telemetry.Errorf(telemetry.Invalid, codeTooManyLabels, "the answer has more than %d MiB of labels, which is the maximum; use the parameter limit, or a selector of fewer series", maxListed>>20)
}

func (x *exchange) tooManySamples() *telemetry.Error {
	return telemetry.Errorf(telemetry.Invalid, telemetry.CodeTooCostly,
		"the query needs more than %d samples in memory, which is the limit (--query-max-samples); use a shorter range, a longer step, or select fewer series", x.api.cfg.MaxSamples)
}

// guard turns a panic into an error. The HTTP server recovers only from panics in its own goroutines;
// another one would end the daemon.
func guard(log *slog.Logger, do func() error) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			log.Error("panic while reading for a query", "panic", cause, "stack", string(debug.Stack()))
			err = &telemetry.Error{Kind: telemetry.Internal, Code: "internal", Message: "an internal error occurred; see the daemon's log"}
		}
	}()
	return do()
}

// failure returns the result of a failed request.
func (x *exchange) failure(ctx context.Context, err error) *result {
	out := &result{}
	out.kind, out.problem = x.explain(ctx, err)
	return out
}

// problem answers a request that was refused before it was processed.
func (a *API) problem(w http.ResponseWriter, err error) {
	var known *telemetry.Error
	if !errors.As(err, &known) {
		known = &telemetry.Error{Message: "an internal error occurred; see the daemon's log", Err: err}
	}
	k, ok := kinds[known.Kind]
	if !ok {
		k = kinds[telemetry.Internal]
	}
	a.answerProblem(w, k, known)
}

func (a *API) answerProblem(w http.ResponseWriter, k kind, e *telemetry.Error) {
	if k.status == http.StatusInternalServerError {
		a.cfg.Logger.Error("a query failed", "err", e)
	}
	if e.Kind == telemetry.Unavailable || e.Kind == telemetry.Quota {
		wait := max(e.RetryAfter, time.Second)
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(wait.Seconds()))))
	}
	a.write(w, k.status, problem{Status: "error", Type: k.name, Error: e.Message})
}
