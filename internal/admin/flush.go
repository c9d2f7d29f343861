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

// Bounds of how long POST /flush waits.
const (
	defaultFlushTimeout = time.Minute
	maxFlushTimeout     = time.Hour
)

// problem is an answer that is no success, in the form that the data listener
// uses, too.
type problem struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// flushed is the answer of a flush that succeeded.
type flushed struct {
	Flushed bool    `json:"flushed"`
	Seconds float64 `json:"seconds"`
}

// flush answers 200 when all that was taken before the call is stored, and 504
// when the timeout ends first; what is left is stored later all the same.
func (h *handler) flush(w http.ResponseWriter, r *http.Request) {
	timeout, err := flushTimeout(r)
	if err != nil {
		h.write(w, http.StatusBadRequest, problem{Code: "invalid_parameter", Message: err.Error()})
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), timeout)
	defer cancel()
	begin := time.Now()
	err = h.cfg.Flush(ctx)
	switch {
	case err == nil:
		h.write(w, http.StatusOK, flushed{Flushed: true, Seconds: time.Since(begin).Seconds()})
	case errors.Is(err, ErrNotReady):
		w.Header().Set("Retry-After", "1")
		h.write(w, http.StatusServiceUnavailable, problem{Code: "starting", Message: err.Error()})
	case ctx.Err() != nil:
		message := fmt.Sprintf("not everything was stored within %v; /status and /readyz show what it waits for", timeout)
		h.write(w, http.StatusGatewayTimeout, problem{Code: "flush_timeout", Message: message})
	default:
		h.cfg.Logger.Error("flush on request", "err", err)
		h.write(w, http.StatusInternalServerError, problem{Code: "internal", Message: "the flush went wrong; the daemon's log says why"})
	}
}

func flushTimeout(r *http.Request) (time.Duration, error) {
	query := r.URL.Query()
	for key := range query {
		if key != "timeout" {
			return 0, fmt.Errorf("parameter %q is unknown; allowed is timeout", key)
		}
	}
	text := query.Get("timeout")
	if text == "" {
		return defaultFlushTimeout, nil
	}
	return parseTimeout(strings.TrimSpace(text))
}

// parseTimeout reads how long a flush may take.
func parseTimeout(text string) (time.Duration, error) {
	timeout, err := config.ParseDuration(text)
	if err != nil || timeout <= 0 || timeout > maxFlushTimeout {
		return 0, fmt.Errorf("timeout %q is not a duration above 0 and up to 1h, written as %s", text, config.DurationForms)
	}
	return timeout, nil
}
