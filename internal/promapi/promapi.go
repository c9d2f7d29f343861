// Package promapi serves the Prometheus query API for stored readings:
//
//	GET, POST ─▶ access ─▶ parse ─▶ read.Session ─▶ promql.Engine ─▶ JSON
//	                                     │               │
//	                                     └── querier ◀───┘ Select, one for each selector
//
// A stream is chosen by the path, /prometheus/{stream}/api/v1/…, or by the header Brim-Stream.
// A field is a metric with its name; tags and the sensor are labels.
//
// endpoints.go has the calls, query.go runs the engine, querier.go plans what a query reads,
// fetch.go reads it, record.go holds it, share.go lets queries share it, flights.go lets equal
// requests share an answer, rollup.go replaces what has expired, scheduler.go limits
// concurrency, labels.go derives labels from readings, encode.go writes the answers, errors.go
// the errors.
package promapi

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/brim-telemetry/brim/internal/access"
	"github.com/brim-telemetry/brim/internal/read"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

const (
	// root is the prefix of all paths.
	root = "/prometheus"
	// streamHeader selects the stream if the path does not.
	streamHeader = "Brim-Stream"
	// version is part of each path.
	version = "/api/v1/"
)

// Config configures an API.
type Config struct {
	Reader *read.Reader
	Guard  *access.Guard // nil: everyone may read
	// Lookback returns the maximum age of a sample at an instant of a query; 0: five minutes, or
	// three times the sensor's interval if that is longer.
	Lookback func(stream string) time.Duration
	// Window returns the length of a stream's bucket windows; 0: it has no buckets. Nil: no stream
	// has.
	Window func(stream string) time.Duration
	// Rollup returns the length of the steps of a stream's rollups, 0 if it has none, and the
	// retention of readings. Nil: no stream has rollups.
	Rollup func(stream string) (every, retention time.Duration)
	// MaxSamples is the maximum number of samples that a query may hold in memory; 0:
	// DefaultMaxSamples.
	MaxSamples int
	Version    string // of the daemon
	Logger     *slog.Logger
	Registerer prometheus.Registerer // nil: metrics are kept and not registered
}

// DefaultMaxSamples is the default of Config.MaxSamples: 16 bytes each.
const DefaultMaxSamples = 10_000_000

// An API answers queries.
type API struct {
	cfg       Config
	parser    parser.Parser
	engine    *promql.Engine
	metrics   *metrics
	scheduler *scheduler
	shares    *shares
	flights   *flights
}

// New returns an API.
func New(cfg Config) (*API, error) {
	cfg.MaxSamples = cmp.Or(cfg.MaxSamples, DefaultMaxSamples)
	if cfg.Lookback == nil {
		cfg.Lookback = func(string) time.Duration { return 0 }
	}
	if cfg.Window == nil {
		cfg.Window = func(string) time.Duration { return 0 }
	}
	if cfg.Rollup == nil {
		cfg.Rollup = func(string) (time.Duration, time.Duration) { return 0, 0 }
	}
	switch {
	case cfg.Reader == nil:
		return nil, errors.New("the query API needs a reader")
	case cfg.Logger == nil:
		return nil, errors.New("the query API needs a logger")
	case cfg.MaxSamples < 1:
		return nil, fmt.Errorf("query-max-samples %d is out of range; allowed: 1 or more", cfg.MaxSamples)
	}
	a := &API{cfg: cfg, parser: parser.NewParser(parser.Options{}), metrics: newMetrics(cfg.Registerer), scheduler: &scheduler{arriving: cfg.Reader.Arriving}, flights: &flights{}}
	a.shares = newShares(cfg.MaxSamples, readers(), a.scheduler, cfg.Logger)
	a.engine = promql.NewEngine(promql.EngineOpts{
		MaxSamples: cfg.MaxSamples, Timeout: time.Hour, // the session's timeout is shorter
		LookbackDelta: defaultLookback, EnableAtModifier: true, EnableNegativeOffset: true,
		NoStepSubqueryIntervalFn: func(int64) int64 { return time.Minute.Milliseconds() },
		Logger:                   slog.New(slog.DiscardHandler), Parser: a.parser,
	})
	return a, nil
}

// Serves reports whether requests with the path are for the API.
func Serves(u *url.URL) bool {
	p := u.EscapedPath()
	return p == root || strings.HasPrefix(p, root+"/")
}

// Handler serves the paths for which Serves is true.
func (a *API) Handler() http.Handler {
	return access.Require(a.cfg.Guard, access.Read, a.problem, http.HandlerFunc(a.serve))
}

// parsePath returns the stream in a path, empty if there is none, and the part after /api/v1/.
func parsePath(escaped string) (stream, rest string, ok bool) {
	after, ok := strings.CutPrefix(escaped, root)
	if !ok {
		return "", "", false
	}
	if rest, ok = strings.CutPrefix(after, version); ok {
		return "", rest, true
	}
	name, rest, ok := strings.Cut(strings.TrimPrefix(after, "/"), version)
	if !ok || name == "" || strings.Contains(name, "/") {
		return "", "", false
	}
	stream, err := url.PathUnescape(name)
	return stream, rest, err == nil
}

// serve answers an authorized request.
func (a *API) serve(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Content-Type-Options", "nosniff")
	stream, rest, ok := parsePath(r.URL.EscapedPath())
	e, label := find(rest)
	if ok && rest == "write" || strings.HasSuffix(r.URL.Path, "/api/v1/write") {
		a.problem(w, telemetry.Errorf(telemetry.NotFound, "path_unknown", "the path %s does not exist; remote write goes to POST /api/v1/write, without %s", telemetry.Quote([]byte(r.URL.Path)), root))
		return
	}
	if !ok || e == nil {
		a.problem(w, telemetry.Errorf(telemetry.NotFound, "path_unknown",
			"the path %s does not exist; the Prometheus query API has query, query_range, series, labels, label/{name}/values and metadata under %s%s", telemetry.Quote([]byte(r.URL.Path)), root, version))
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead && (r.Method != http.MethodPost || !e.post) {
		w.Header().Set("Allow", e.methods())
		a.write(w, http.StatusMethodNotAllowed, problem{Status: "error", Type: "bad_data", Error: "this method is not allowed here; allowed: " + e.methods()})
		return
	}
	begin := time.Now()
	x := &exchange{api: a, w: w, r: r, label: label, stream: cmp.Or(stream, r.Header.Get(streamHeader))}
	x.active = a.shares.register(client{a.cfg.Reader.Stream(x.stream), access.From(r.Context()).Name, r.Header.Get("Authorization")})
	defer a.shares.unregister(x.active)
	code := x.run(e)
	a.metrics.calls.Answered(e.name, code, begin)
}
