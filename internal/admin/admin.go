// Package admin is the operator's way into a running daemon: its metrics, its
// health and state, a flush, and profiles, on a listener of its own.
//
//	/healthz /readyz                    anybody
//	/metrics /status / /console         scope read for all sensors, or admin
//	/flush /hold /release /debug/pprof  scope admin
package admin

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/pprof"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/brim-telemetry/brim/internal/access"
)

// A Part is one piece of the daemon, as far as readiness goes.
type Part struct {
	Name   string `json:"name"`
	Ready  bool   `json:"ready"`
	Reason string `json:"reason,omitempty"` // why it is not
	// Optional: readings are taken also while the part is not ready.
	Optional bool `json:"optional,omitempty"`
}

// Ready reports whether readings can be taken.
func Ready(parts []Part) bool {
	return !slices.ContainsFunc(parts, func(p Part) bool { return !p.Ready && !p.Optional })
}

// Config says what the listener shows. All but Guard and Logger is required; the
// functions are called by several requests at once.
type Config struct {
	Gatherer prometheus.Gatherer
	// Page answers GET / and what is under GET /console: the live page.
	Page http.Handler
	// Parts tells which parts of the daemon are ready. It does no I/O, since
	// probes call it every few seconds and must not hang with what they probe.
	Parts func() []Part
	// Status returns what /status shows, to be encoded as JSON. It does no I/O.
	Status func() any
	// Flush returns when all readings taken before the call are stored, or ctx
	// ends. ErrNotReady says that there is nothing yet that could be flushed.
	Flush func(ctx context.Context) error
	// Holder holds streams while their collections change.
	Holder Holder
	// Guard knows who is calling; nil: no authentication, and everyone may do everything.
	Guard *access.Guard
	// Hosts are the names by which the listener may be called, except for /healthz
	// and /readyz; nil: all.
	Hosts  *access.Hosts
	Logger *slog.Logger
}

// ErrNotReady is returned by Config.Flush, and by a Holder, while the daemon starts.
var ErrNotReady = errors.New("the daemon is starting")

// New returns the listener's handler.
func New(cfg Config) (http.Handler, error) {
	if cfg.Gatherer == nil || cfg.Page == nil || cfg.Parts == nil || cfg.Status == nil || cfg.Flush == nil || cfg.Holder == nil {
		return nil, errors.New("set up the admin listener: gatherer, page, parts, status, flush or holder is missing")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	h := &handler{cfg: cfg}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", h.watching(promhttp.HandlerFor(cfg.Gatherer, promhttp.HandlerOpts{
		EnableOpenMetrics: true,
		ErrorLog:          slog.NewLogLogger(cfg.Logger.Handler(), slog.LevelWarn),
	})))
	mux.HandleFunc("GET /healthz", h.health)
	mux.HandleFunc("GET /readyz", h.ready)
	for _, pattern := range []string{"GET /{$}", "GET /console", "GET /console/"} {
		mux.Handle(pattern, h.watching(cfg.Page))
	}
	mux.Handle("GET /status", h.watching(http.HandlerFunc(h.status)))
	for pattern, handle := range map[string]http.HandlerFunc{
		"POST /flush":          h.flush,
		"POST /hold":           h.hold,
		"POST /release":        h.release,
		"/debug/pprof/":        pprof.Index,
		"/debug/pprof/cmdline": commandLine,
		"/debug/pprof/profile": pprof.Profile,
		"/debug/pprof/symbol":  pprof.Symbol,
		"/debug/pprof/trace":   pprof.Trace,
	} {
		mux.Handle(pattern, h.managing(handle))
	}
	return secured(access.SameOrigin(h.refuse, mux)), nil
}

type handler struct{ cfg Config }
