// Package console is the live page of a running daemon: throughput, write latency as
// buckets fill, backlog, refusals and storage health over the last 15 minutes.
//
//	registry ─▶ sample each second ─▶ history ─▶ page
//
// It needs nothing but the process's own metrics, and all viewers together cost
// one rendering a second.
package console

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	_ "embed" // the page's files
	"encoding/base64"
	"fmt"
	"html/template"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/brim-telemetry/brim/internal/chart"
	"github.com/brim-telemetry/brim/internal/doctor"
	"github.com/brim-telemetry/brim/internal/scrape"
)

// A Part is one component of the daemon, as /readyz reports it.
type Part struct {
	Name   string `json:"name"`
	Ready  bool   `json:"ready"`
	Reason string `json:"reason,omitempty"` // why it is not ready
	// Optional: readings are accepted even while the part is not ready.
	Optional bool `json:"optional,omitempty"`
}

// A Stream is one that readings can be sent to.
type Stream struct {
	Name        string
	Storage     string // bucket, timeseries or memory
	Granularity string // as in a flag: 5m
	Default     bool
	Ready       bool
}

// A Diagnosis says what slows writes down.
type Diagnosis struct {
	Findings []doctor.Finding // those of one cause follow each other
	Note     string           // what is over its threshold though nothing is wrong; may be empty
}

// Config says where the page gets its data. The functions are called
// concurrently and do no I/O.
type Config struct {
	Version   string
	Gatherer  prometheus.Gatherer
	Parts     func() []Part
	Streams   func() []Stream
	Signals   func() []doctor.Signal // none: there is no MongoDB to sample
	Diagnosis func() Diagnosis
	HTTPAddr  func() string // host:port that accepts readings
	Scheme    string        // of HTTPAddr; empty: http
	Interval  time.Duration // between two samples; 0: 1 s, some six points for each tenth of a one-minute window
	Logger    *slog.Logger
	Now       func() time.Time // nil: time.Now
}

// A Console keeps the history and serves the page at / and its live part at
// /console.
type Console struct {
	cfg  Config
	page *page
	log  *slog.Logger

	mu      sync.Mutex
	history *history

	renderMu sync.Mutex
	rendered map[view]rendering
}

// New returns a console.
func New(cfg Config) (*Console, error) {
	cfg.Interval = cmp.Or(cfg.Interval, time.Second)
	cfg.Scheme = cmp.Or(cfg.Scheme, "http")
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	p, err := newPage()
	if err != nil {
		return nil, fmt.Errorf("set up the live page: %w", err)
	}
	return &Console{cfg: cfg, page: p, log: cfg.Logger, history: newHistory(cfg.Interval), rendered: make(map[view]rendering)}, nil
}

// Run samples the metrics once per interval until ctx ends.
func (c *Console) Run(ctx context.Context) {
	ticker := time.NewTicker(c.cfg.Interval)
	defer ticker.Stop()
	for {
		c.sample()
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

func (c *Console) sample() {
	// Gather returns what it could gather even with an error, and /metrics reports those.
	sample, err := scrape.Gather(c.cfg.Gatherer)
	if err != nil {
		c.log.Debug("sample the metrics for the live page", "err", err)
	}
	now := c.cfg.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.history.add(now, sample)
}

// ServeHTTP answers GET / and GET /console.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var html []byte
	var err error
	streams := c.cfg.Streams()
	v := viewOf(r, streams)
	if r.URL.Path == "/console" {
		html, err = c.render(v)
	} else {
		html, err = c.renderPage(v, streams)
	}
	if err != nil {
		c.log.Error("render the live page", "err", err)
		http.Error(w, "the page cannot be rendered; the daemon's log says why", http.StatusInternalServerError)
		return
	}
	c.page.setHeaders(w.Header())
	_, _ = w.Write(html) // fails only if the client is gone
}

// A view is what a client can ask for; there are few.
type view struct {
	stream string // empty: all
	narrow bool
}

func (v view) width() float64 {
	if v.narrow {
		return narrow
	}
	return wide
}

// viewOf returns the view that a request asks for. An unknown stream means all
// streams: a page that stays open for weeks should not break.
func viewOf(r *http.Request, streams []Stream) view {
	query := r.URL.Query()
	v := view{stream: query.Get("stream"), narrow: query.Has("narrow")}
	if !slices.ContainsFunc(streams, func(s Stream) bool { return s.Name == v.stream }) {
		v.stream = ""
	}
	return v
}

// A rendering is valid until the next sample.
type rendering struct {
	at   time.Time
	html []byte
}

// render returns the live part. One is made at a time, and one per interval and
// view, however many clients ask.
func (c *Console) render(v view) ([]byte, error) {
	c.renderMu.Lock()
	defer c.renderMu.Unlock()
	now := c.cfg.Now()
	if r, found := c.rendered[v]; found && now.Sub(r.at).Abs() < c.cfg.Interval {
		return r.html, nil
	}
	shown, err := c.live(v)
	if err != nil {
		return nil, err
	}
	html, err := c.page.execute("live", shown)
	if err != nil {
		return nil, err
	}
	c.rendered[v] = rendering{at: now, html: html}
	return html, nil
}

func (c *Console) renderPage(v view, streams []Stream) ([]byte, error) {
	html, err := c.render(v)
	if err != nil {
		return nil, err
	}
	return c.page.execute("page", struct {
		*page

		Version, Stream string
		Streams         []Stream
		Live            template.HTML
	}{c.page, c.cfg.Version, v.stream, streams, template.HTML(html)}) //nolint:gosec // a template made it
}

//go:embed page/page.html
var pageHTML string

//go:embed page/live.html
var liveHTML string

//go:embed page/page.css
var pageCSS string

//go:embed page/page.js
var pageJS string

// A page is the templates with their style and script.
type page struct {
	CSS     template.CSS
	JS      template.JS
	Edition string // changes with the page's files

	templates *template.Template
	policy    string // Content-Security-Policy
}

func newPage() (*page, error) {
	templates, err := template.New("page").Parse(pageHTML)
	if err != nil {
		return nil, err
	}
	if _, err := templates.New("live").Parse(liveHTML); err != nil {
		return nil, err
	}
	digest := func(text string) string {
		sum := sha256.Sum256([]byte(text))
		return base64.StdEncoding.EncodeToString(sum[:])
	}
	css := chart.CSS + pageCSS
	return &page{
		templates: templates, CSS: template.CSS(css), JS: template.JS(pageJS), //nolint:gosec // files of this package
		Edition: digest(pageHTML + css + pageJS)[:12],
		policy: "default-src 'none'; style-src 'sha256-" + digest(css) + "'; script-src 'sha256-" + digest(pageJS) +
			"'; connect-src 'self'; img-src data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
	}, nil
}

func (p *page) setHeaders(h http.Header) {
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", p.policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Brim-Page", p.Edition)
}

func (p *page) execute(name string, data any) ([]byte, error) {
	var out bytes.Buffer
	if err := p.templates.ExecuteTemplate(&out, name, data); err != nil {
		return nil, fmt.Errorf("render the live page: %w", err)
	}
	return out.Bytes(), nil
}
