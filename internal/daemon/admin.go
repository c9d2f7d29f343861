package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"net/http/pprof"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/brim-telemetry/brim/internal/access"
	"github.com/brim-telemetry/brim/internal/config"
	"github.com/brim-telemetry/brim/internal/daemon/console"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// adminPages is the handler of the admin listener:
//
//	/healthz /readyz                         without authentication
//	/metrics /status / /page /console        scope read for all sensors, or admin
//	/v1/sensors, which the live page asks    scope read for all sensors, or admin
//	/flush /seal /debug/pprof                scope admin
//
// Its functions are called concurrently. Those without a context do no I/O: probes call
// them every few seconds and must not hang with what they probe.
type adminPages struct {
	gatherer prometheus.Gatherer
	page     http.Handler // the live page
	sensors  http.Handler // package read without access control; only for GET
	parts    func() []console.Part
	status   func() any
	// flush returns when all readings accepted before the call are stored, or ctx ends.
	flush func(ctx context.Context) error
	// seal begins to pack all buckets of the stream with ended windows. /status shows the
	// progress of the pass in the answer.
	seal  func(stream string) (answer any, err error)
	guard *access.Guard // nil: no authentication
	hosts *access.Hosts // host names that requests may use, except for /healthz and /readyz; nil: all
	log   *slog.Logger
}

var (
	errNotReady      = errors.New("the daemon is starting")
	errUnknownStream = errors.New("there is no such stream")
	errNoBuckets     = errors.New("the stream has no buckets")
)

// ready reports whether readings can be accepted.
func ready(parts []console.Part) bool {
	return !slices.ContainsFunc(parts, func(p console.Part) bool { return !p.Ready && !p.Optional })
}

// handler returns the handler of all paths.
func (a *adminPages) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		// A failure here restarts the daemon, so it must not depend on anything that recovers by itself.
		a.write(w, http.StatusOK, map[string]string{"status": "ok"})
	})
	mux.HandleFunc("GET /readyz", a.serveReady)
	for pattern, handler := range map[string]http.Handler{
		"GET /metrics": promhttp.HandlerFor(a.gatherer, promhttp.HandlerOpts{
			EnableOpenMetrics: true, ErrorLog: slog.NewLogLogger(a.log.Handler(), slog.LevelWarn),
		}),
		"GET /{$}": a.page, "GET /page/": a.page, "GET /console": a.page, "GET /console/seconds": a.page,
		"GET /v1/sensors": a.sensors, "GET /v1/sensors/": a.sensors,
		"GET /status": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { a.write(w, http.StatusOK, a.status()) }),
	} {
		mux.Handle(pattern, a.guarded(access.Read, handler))
	}
	for pattern, handle := range map[string]http.HandlerFunc{
		"/debug/pprof/":        pprof.Index,
		"/debug/pprof/cmdline": serveCommand,
		"/debug/pprof/profile": pprof.Profile,
		"/debug/pprof/symbol":  pprof.Symbol,
		"/debug/pprof/trace":   pprof.Trace,
		"POST /flush":          a.serveFlush,
		"POST /seal":           a.serveSeal,
	} {
		mux.Handle(pattern, a.guarded(access.Admin, handle))
	}
	return protect(access.SameOrigin(a.refuse, a.withJSONErrors(mux)))
}

// withJSONErrors answers requests that match no handler with an error in JSON.
func (a *adminPages) withJSONErrors(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		notFound, pattern := mux.Handler(r)
		if pattern != "" {
			mux.ServeHTTP(w, r)
			return
		}
		recorder := errorRecorder{header: http.Header{}}
		notFound.ServeHTTP(&recorder, r)
		if allowed := recorder.header.Get("Allow"); recorder.status == http.StatusMethodNotAllowed {
			w.Header().Set("Allow", allowed)
			a.problem(w, recorder.status, "method_not_allowed", "this method is not allowed here; allowed: "+allowed)
			return
		}
		a.problem(w, http.StatusNotFound, "path_unknown", "there is no such path on the admin listener; readings and queries go to the HTTP listener (http-addr)")
	})
}

// An errorRecorder records the error of http.ServeMux for a request without a handler.
type errorRecorder struct {
	header http.Header
	status int
}

func (r *errorRecorder) Header() http.Header         { return r.header }
func (r *errorRecorder) WriteHeader(status int)      { r.status = status }
func (r *errorRecorder) Write(b []byte) (int, error) { return len(b), nil }

// guarded refuses other host names, callers without the scope, and identities that are limited to
// some sensors, because these pages show all of them. Without authentication it admits everyone, and
// does not charge the quota of all senders together: operators need these pages most when that is
// used up.
func (a *adminPages) guarded(scope access.Scope, next http.Handler) http.Handler {
	allowed := next
	if a.guard.Authenticates() {
		allowed = access.Require(a.guard, scope, a.refuse, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if i := access.From(r.Context()); i.Limited() && i.Require(access.Admin) != nil {
				a.refuse(w, telemetry.Errorf(telemetry.Forbidden, "sensor_forbidden",
					"this page is about all sensors, and %s may only access those whose ids begin with %q", i.Name, i.Prefix()))
				return
			}
			next.ServeHTTP(w, r)
		}))
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := a.hosts.Check(r); err != nil {
			a.refuse(w, err)
			return
		}
		allowed.ServeHTTP(w, r)
	})
}

// protect sets the headers that keep a browser from using an answer elsewhere.
func protect(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'") // the live page has its own
		next.ServeHTTP(w, r)
	})
}

// refuse answers a caller that is not authenticated or not authorized.
func (a *adminPages) refuse(w http.ResponseWriter, err error) {
	var e *telemetry.Error
	errors.As(err, &e) // access has no other errors
	status := http.StatusForbidden
	switch e.Kind {
	case telemetry.Unauthenticated:
		status = http.StatusUnauthorized
	case telemetry.Quota:
		status = http.StatusTooManyRequests
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(e.RetryAfter.Seconds()))))
	default: // authenticated, but not authorized
	}
	a.problem(w, status, e.Code, e.Message)
}

// write answers with v as indented JSON, since people read it too.
func (a *adminPages) write(w http.ResponseWriter, code int, v any) {
	body, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		a.log.Error("encode an admin answer", "err", err)
		http.Error(w, "the answer cannot be encoded; the daemon's log says why", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	_, _ = w.Write(append(body, '\n')) // fails only if the client is gone
}

// problem answers with an error, in the same form as the data listener.
func (a *adminPages) problem(w http.ResponseWriter, status int, code, message string) {
	a.write(w, status, struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	}{code, message})
}

// serveReady answers whether readings can be accepted now: 200, or 503 with the reason for
// each part that is not ready. Optional parts do not count.
func (a *adminPages) serveReady(w http.ResponseWriter, _ *http.Request) {
	answer := struct {
		Ready bool           `json:"ready"`
		Parts []console.Part `json:"parts"`
	}{Parts: a.parts()}
	answer.Ready = ready(answer.Parts)
	code := http.StatusOK
	if !answer.Ready {
		code = http.StatusServiceUnavailable
	}
	a.write(w, code, answer)
}

// serveCommand answers the program's name without its arguments, which may include a URI with
// a password.
func serveCommand(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte(filepath.Base(os.Args[0]))) // fails only if the client is gone
}

// maxFlushTimeout bounds the parameter timeout of POST /flush.
const maxFlushTimeout = time.Hour

// serveFlush answers 200 when all readings accepted before the call are stored, or 504 if the
// timeout ends first; the rest is still stored later.
func (a *adminPages) serveFlush(w http.ResponseWriter, r *http.Request) {
	text, err := parameter(r, "timeout")
	timeout := time.Minute
	if text != "" {
		timeout, err = config.ParseDuration(text)
		if err != nil || timeout <= 0 || timeout > maxFlushTimeout {
			err = fmt.Errorf("timeout %q is not a duration above 0 and up to 1h, written as %s", text, config.DurationForms)
		}
	}
	if err != nil {
		a.problem(w, http.StatusBadRequest, "invalid_parameter", err.Error())
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), timeout)
	defer cancel()
	begin := time.Now()
	err = a.flush(ctx)
	if err != nil && ctx.Err() != nil {
		a.problem(w, http.StatusGatewayTimeout, "flush_timeout", fmt.Sprintf("not everything was stored within %v; queue.readings in /status is the number left, and /readyz shows whether MongoDB is the cause", timeout))
		return
	}
	a.answer(w, "flush", map[string]any{"flushed": true, "seconds": time.Since(begin).Seconds()}, err)
}

func (a *adminPages) serveSeal(w http.ResponseWriter, r *http.Request) {
	stream, err := parameter(r, "stream")
	if err == nil && stream == "" {
		err = errors.New("parameter stream is missing")
	}
	if err != nil {
		a.problem(w, http.StatusBadRequest, "invalid_parameter", err.Error())
		return
	}
	answer, err := a.seal(stream)
	a.answer(w, "seal", answer, err)
}

// answer answers a request that changes something.
func (a *adminPages) answer(w http.ResponseWriter, request string, answer any, err error) {
	switch {
	case err == nil:
		a.write(w, http.StatusOK, answer)
	case errors.Is(err, errUnknownStream):
		a.problem(w, http.StatusNotFound, "unknown_stream", err.Error())
	case errors.Is(err, errNoBuckets):
		a.problem(w, http.StatusBadRequest, "no_buckets", err.Error())
	case errors.Is(err, errNotReady):
		w.Header().Set("Retry-After", "1")
		a.problem(w, http.StatusServiceUnavailable, "starting", err.Error())
	default:
		a.log.Error("admin request failed", "request", request, "err", err)
		a.problem(w, http.StatusInternalServerError, "internal", "the "+request+" failed; the daemon's log says why")
	}
}

// parameter returns the only query parameter that a request may have.
func parameter(r *http.Request, allowed string) (value string, err error) {
	for key, given := range r.URL.Query() {
		if key != allowed {
			return "", fmt.Errorf("parameter %q is unknown; allowed: %s", key, allowed)
		}
		value = strings.TrimSpace(given[0])
	}
	return value, nil
}
