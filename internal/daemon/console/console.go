// Package console is the live page of a running daemon: what it takes, how long
// MongoDB's writes take as buckets fill, what waits, and what was refused, over
// the last quarter of an hour.
//
//	registry → look each second → history → drawings → page (and a file, for after a restart)
//
// It needs nothing but the process's own metrics, and all viewers together cost
// one rendering a second.
package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/brim-telemetry/brim/internal/scrape"
)

// A Part is one piece of the daemon, as far as readiness goes.
type Part struct {
	Name   string
	Ready  bool
	Reason string // why it is not
	// Optional: readings are taken also while the part is not ready.
	Optional bool
}

// A Stream is one that readings can be sent to.
type Stream struct {
	Name        string
	Storage     string // bucket, timeseries or memory
	Granularity string // as in a flag: 5m
	Default     bool
	Ready       bool
}

// The classes of signals.
const (
	Healthy    = "healthy"
	Degrading  = "degrading"
	Bottleneck = "bottleneck"
	Unknown    = "unknown"
)

// A Signal says how one thing stands that decides how fast MongoDB can write.
type Signal struct {
	Name      string // the label of brim_storage_health
	Title     string
	Value     float64 // NaN if it cannot be seen
	Unit      string  // written after the number: %, ms, pages/s
	Class     string  // Healthy, Degrading, Bottleneck or Unknown
	Threshold string  // in words
	Why       string  // why it cannot be seen, or what it means
}

// A Diagnosis says what holds writes up, causes before what follows from them.
type Diagnosis struct {
	Causes []Cause
	Note   string // what is over its threshold though nothing is wrong; may be empty
}

// A Cause is one thing that does, with what to do about it, the cheapest first.
type Cause struct {
	Name     string // stable
	Words    string // in a few words
	Class    string // Degrading or Bottleneck
	Evidence string
	Actions  []Action
}

// An Action is what to do, and what that costs.
type Action struct{ Do, Cost string }

// Config says where the page has its figures from. The functions are called by
// several requests at once and do no I/O.
type Config struct {
	Version  string
	Gatherer prometheus.Gatherer
	Parts    func() []Part
	Streams  func() []Stream
	// Signals returns those of the storage engine and the disk. nil: there are none.
	Signals func() []Signal
	// Diagnosis returns what follows from the signals. nil: nothing does.
	Diagnosis func() Diagnosis
	// HTTPAddr returns host:port where readings are taken. nil: it is not told.
	HTTPAddr func() string
	// Scheme is how readings are sent there; empty: http.
	Scheme string
	// FlushInterval is the age at which a reading is stored when all is well.
	FlushInterval time.Duration
	// File keeps the history from one run of the daemon to the next. Empty: it
	// begins anew.
	File string
	// Interval between two looks at the metrics. 0: 1 s, so that a window of a
	// minute has some six points for each of its tenths.
	Interval time.Duration
	// Logger gets what goes wrong with the file. nil: nothing.
	Logger *slog.Logger
	// Now tells the time. nil: time.Now.
	Now func() time.Time
}

const (
	defaultInterval = time.Second
	leastInterval   = 10 * time.Millisecond
	// saveInterval is how much of the history a crash loses.
	saveInterval = 10 * time.Second
)

// A Console keeps the history and serves the page at / and its live part at
// /console.
type Console struct {
	cfg     Config
	page    *page
	log     *slog.Logger
	unsaved bool // the file could not be written last time; only Run uses it

	mu      sync.Mutex
	history *history

	renderMu sync.Mutex
	rendered map[view]rendering
}

// New returns a console with what the file has of earlier runs.
func New(cfg Config) (*Console, error) {
	if cfg.Gatherer == nil || cfg.Parts == nil || cfg.Streams == nil {
		return nil, errors.New("set up the live page: gatherer, parts or streams is missing")
	}
	if cfg.Interval == 0 {
		cfg.Interval = defaultInterval
	}
	if cfg.Interval < leastInterval || cfg.Interval > time.Minute {
		return nil, fmt.Errorf("set up the live page: interval %s is not from %s to 1m", cfg.Interval, leastInterval)
	}
	if cfg.Signals == nil {
		cfg.Signals = func() []Signal { return nil }
	}
	if cfg.Diagnosis == nil {
		cfg.Diagnosis = func() Diagnosis { return Diagnosis{} }
	}
	cfg.Scheme = cmp.Or(cfg.Scheme, "http")
	if cfg.HTTPAddr == nil {
		cfg.HTTPAddr = func() string { return "" }
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	p, err := newPage()
	if err != nil {
		return nil, err
	}
	c := &Console{cfg: cfg, page: p, log: cfg.Logger, history: newHistory(cfg.Interval), rendered: make(map[view]rendering)}
	if cfg.File != "" {
		c.load()
	}
	return c, nil
}

// Run looks at the metrics once in each interval until ctx ends, and keeps the
// history in the file.
func (c *Console) Run(ctx context.Context) {
	ticker := time.NewTicker(c.cfg.Interval)
	defer ticker.Stop()
	saved := c.cfg.Now()
	c.look()
	for {
		select {
		case <-ticker.C:
			c.look()
			if now := c.cfg.Now(); now.Sub(saved) >= saveInterval {
				c.save()
				saved = now
			}
		case <-ctx.Done():
			c.look()
			c.save()
			return
		}
	}
}

// look notes what the metrics say now.
func (c *Console) look() {
	// Gather returns what it could gather also with an error, and /metrics tells
	// of those.
	look, err := scrape.Gather(c.cfg.Gatherer)
	if err != nil {
		c.log.Debug("look at the metrics for the live page", "err", err)
	}
	now := c.cfg.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.history.add(now, look)
}

// ServeHTTP answers GET / and GET /console.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "the page can only be read", http.StatusMethodNotAllowed)
		return
	}
	switch r.URL.Path {
	case "/":
		c.servePage(w, r)
	case "/console":
		c.serveLive(w, r)
	default:
		http.NotFound(w, r)
	}
}
