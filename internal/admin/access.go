package admin

import (
	"errors"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strconv"

	"github.com/brim-telemetry/brim/internal/access"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// watching lets those in who may read everything, with the scope read or admin:
// what is shown here is about all sensors.
func (h *handler) watching(next http.Handler) http.Handler {
	return h.calledRightly(h.asked(access.Read, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if i := access.From(r.Context()); i.Limited() && i.Require(access.Admin) != nil {
			h.refuse(w, telemetry.Errorf(telemetry.Forbidden, "sensor_forbidden",
				"this tells of all sensors, and %s may deal only with those whose ids begin with %q", i.Name, i.Prefix()))
			return
		}
		next.ServeHTTP(w, r)
	})))
}

// managing lets those in who may change the daemon or look into its memory.
func (h *handler) managing(next http.Handler) http.Handler {
	return h.calledRightly(h.asked(access.Admin, next))
}

// asked lets those in who have the scope. Without authentication, all are let in
// uncounted: the quota of all senders together is not an operator's, who wants to
// see just when it is used up.
func (h *handler) asked(scope access.Scope, next http.Handler) http.Handler {
	if !h.cfg.Guard.Asks() {
		return next
	}
	return access.Require(h.cfg.Guard, scope, h.refuse, next)
}

// refuse answers a caller that is not known, or may not do what was asked.
func (h *handler) refuse(w http.ResponseWriter, err error) {
	var e *telemetry.Error
	if !errors.As(err, &e) {
		h.cfg.Logger.Error("ask who is calling", "err", err)
		h.write(w, http.StatusInternalServerError, problem{Code: "internal", Message: "it cannot be said who is calling; the daemon's log says why"})
		return
	}
	status := http.StatusForbidden
	switch e.Kind {
	case telemetry.Unauthenticated:
		status = http.StatusUnauthorized
	case telemetry.Quota:
		status = http.StatusTooManyRequests
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(e.RetryAfter.Seconds()))))
	default: // it is known, and may not
	}
	h.write(w, status, problem{Code: e.Code, Message: e.Message})
}

// calledRightly lets requests in that call the listener by a name of its own.
func (h *handler) calledRightly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := h.cfg.Hosts.Check(r); err != nil {
			h.refuse(w, err)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// secured sets what tells a browser to keep an answer to itself.
func secured(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'") // the live page has one of its own
		next.ServeHTTP(w, r)
	})
}

// commandLine answers what runs, without its arguments: a URI among them may
// hold a password.
func commandLine(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte(filepath.Base(os.Args[0]))) // fails only if the client is gone
}
