package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/brim-telemetry/brim/internal/config"
)

// A Held says that a stream takes no readings, and that all it took is stored.
type Held struct {
	Stream string `json:"stream"`
	// Since is when the hold began. A hold that ran out and was asked for again
	// began anew.
	Since time.Time `json:"since"`
	// Until is when it ends unless it is asked for again; nil: with the process.
	Until *time.Time `json:"until,omitempty"`
	// Session is that of the process that holds.
	Session string `json:"session"`
}

// A Holder holds streams for who changes their collections.
type Holder interface {
	// Hold refuses what comes for the stream from now on, and returns when all
	// that it took is stored, the outcome of every write known, and the journal's
	// mark behind it durable. The hold ends by itself after the lease, counted from
	// then, unless it is asked for again; 0 is until the process ends. Where ctx
	// ends first, the hold that this call began is lifted.
	Hold(ctx context.Context, stream string, lease time.Duration) (Held, error)
	// Release lets the stream take readings again; it may do so already.
	Release(stream string) error
}

// ErrUnknownStream is returned by a Holder for a stream that there is not.
var ErrUnknownStream = errors.New("there is no such stream")

// Bounds of a hold. One that is not renewed must not outlive its caller for
// long, and one that cannot be had must not keep sensors out for long.
const (
	maxLease       = 10 * time.Minute
	defaultLease   = time.Minute
	defaultDrain   = 30 * time.Second
	untilRestart   = "restart"
	leaseCondition = "a duration above 0 and up to 10m, like 60s, or restart"
)

// hold answers 200 when the stream is held and what it took is stored, and 504
// when that takes too long; readings are then taken again.
func (h *handler) hold(w http.ResponseWriter, r *http.Request) {
	values, err := parameters(r, "stream", "for", "timeout")
	if err != nil {
		h.write(w, http.StatusBadRequest, problem{Code: "invalid_parameter", Message: err.Error()})
		return
	}
	lease, timeout, err := holdTimes(values["for"], values["timeout"])
	if err != nil {
		h.write(w, http.StatusBadRequest, problem{Code: "invalid_parameter", Message: err.Error()})
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), timeout)
	defer cancel()
	held, err := h.cfg.Holder.Hold(ctx, values["stream"], lease)
	switch {
	case err == nil:
		h.write(w, http.StatusOK, held)
	case errors.Is(err, ErrUnknownStream):
		h.write(w, http.StatusNotFound, problem{Code: "unknown_stream", Message: err.Error()})
	case errors.Is(err, ErrNotReady):
		w.Header().Set("Retry-After", "1")
		h.write(w, http.StatusServiceUnavailable, problem{Code: "starting", Message: err.Error()})
	case ctx.Err() != nil:
		message := fmt.Sprintf("not everything that was taken was stored within %v, so the stream takes readings again; /status and /readyz show what it waits for", timeout)
		h.write(w, http.StatusGatewayTimeout, problem{Code: "hold_timeout", Message: message})
	default:
		h.cfg.Logger.Error("hold a stream on request", "err", err)
		h.write(w, http.StatusInternalServerError, problem{Code: "internal", Message: "the stream could not be held; the daemon's log says why"})
	}
}

// released is the answer of a release.
type released struct {
	Stream   string `json:"stream"`
	Released bool   `json:"released"`
}

// release answers 200 when the stream takes readings again.
func (h *handler) release(w http.ResponseWriter, r *http.Request) {
	values, err := parameters(r, "stream")
	if err != nil {
		h.write(w, http.StatusBadRequest, problem{Code: "invalid_parameter", Message: err.Error()})
		return
	}
	if err := h.cfg.Holder.Release(values["stream"]); err != nil {
		h.write(w, http.StatusNotFound, problem{Code: "unknown_stream", Message: err.Error()})
		return
	}
	h.write(w, http.StatusOK, released{Stream: values["stream"], Released: true})
}

// parameters returns those of a request, of which the first has to be there.
func parameters(r *http.Request, allowed ...string) (map[string]string, error) {
	values := make(map[string]string)
next:
	for key, given := range r.URL.Query() {
		for _, name := range allowed {
			if key == name {
				values[key] = strings.TrimSpace(given[0])
				continue next
			}
		}
		return nil, fmt.Errorf("parameter %q is unknown; allowed are %s", key, strings.Join(allowed, ", "))
	}
	if values[allowed[0]] == "" {
		return nil, fmt.Errorf("parameter %s is missing", allowed[0])
	}
	return values, nil
}

// holdTimes reads for how long a hold is asked, 0 until the process ends, and
// how long that may be waited for.
func holdTimes(lease, timeout string) (l, t time.Duration, err error) {
	l, t = defaultLease, defaultDrain
	switch lease {
	case "":
	case untilRestart:
		l = 0
	default:
		if l, err = config.ParseDuration(lease); err != nil || l <= 0 || l > maxLease {
			return 0, 0, fmt.Errorf("for %q is not %s", lease, leaseCondition)
		}
	}
	if timeout != "" {
		if t, err = parseTimeout(timeout); err != nil {
			return 0, 0, err
		}
	}
	return l, t, nil
}
