// Package console is the live page of a running daemon: throughput, write latency as
// buckets fill, backlog, refusals and storage health over the last 15 minutes.
//
//	registry ─▶ sample each second ─▶ history ─┬─▶ page, and its live parts (live.go)
//	                                           └─▶ columns of the charts (seconds.go) ─▶ page/*.js
//
// It needs nothing but the process's own metrics, and all viewers together cost
// one rendering a second. Its second tab shows sensors, which the browser asks the reading
// API for.
package console

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"log/slog"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"
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
	Storage     string        // bucket, timeseries or memory
	Granularity string        // as in a flag: 5m
	Window      time.Duration // of a bucket; 0: it has no buckets
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

// A Console keeps the history and serves the page at /, its files under /page/, and what
// changes at /console and /console/seconds.
type Console struct {
	cfg  Config
	page *page
	log  *slog.Logger

	mu      sync.Mutex
	history *history

	renderMu sync.Mutex
	rendered map[string]rendering // by stream
}

// New returns a console.
func New(cfg Config) *Console {
	cfg.Interval = cmp.Or(cfg.Interval, time.Second)
	cfg.Scheme = cmp.Or(cfg.Scheme, "http")
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Console{cfg: cfg, page: newPage(), log: cfg.Logger, history: newHistory(cfg.Interval), rendered: make(map[string]rendering)}
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

// ServeHTTP answers GET requests.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if name, ok := strings.CutPrefix(r.URL.Path, "/page/"); ok {
		c.page.serveFile(w, r, name)
		return
	}
	if r.URL.Path == "/console/seconds" {
		c.serveSeconds(w, r)
		return
	}
	var html []byte
	var err error
	streams := c.cfg.Streams()
	stream := streamOf(r, streams)
	if r.URL.Path == "/console" {
		html, err = c.render(stream)
	} else {
		html, err = c.renderPage(stream, streams)
	}
	if err != nil {
		c.fail(w, err)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	c.page.setHeaders(w.Header())
	_, _ = w.Write(html) // fails only if the client is gone
}

func (c *Console) fail(w http.ResponseWriter, err error) {
	c.log.Error("render the live page", "err", err)
	http.Error(w, "the page cannot be rendered; the daemon's log says why", http.StatusInternalServerError)
}

// streamOf returns the stream that a request asks for; empty: all. An unknown stream means
// all streams: a page that stays open for weeks should not break.
func streamOf(r *http.Request, streams []Stream) string {
	stream := r.URL.Query().Get("stream")
	if !slices.ContainsFunc(streams, func(s Stream) bool { return s.Name == stream }) {
		return ""
	}
	return stream
}

// A rendering is valid until the next sample.
type rendering struct {
	at   time.Time
	html []byte
}

// render returns the live parts. One rendering is made at a time, and one per interval and
// stream, however many clients ask.
func (c *Console) render(stream string) ([]byte, error) {
	c.renderMu.Lock()
	defer c.renderMu.Unlock()
	now := c.cfg.Now()
	if r, found := c.rendered[stream]; found && now.Sub(r.at).Abs() < c.cfg.Interval {
		return r.html, nil
	}
	html, err := c.page.execute("live", c.live(stream))
	if err != nil {
		return nil, err
	}
	c.rendered[stream] = rendering{at: now, html: html}
	return html, nil
}

func (c *Console) renderPage(stream string, streams []Stream) ([]byte, error) {
	return c.page.execute("page", struct {
		*live

		Version, Edition string
		Choices          []Stream
	}{c.live(stream), c.cfg.Version, c.page.edition, streams})
}

//go:embed page
var files embed.FS

// A page is the templates with the files that they need.
type page struct {
	templates *template.Template
	files     map[string]string
	edition   string // changes with the page's files
}

// policy is the Content-Security-Policy of the page: everything comes from this daemon, and
// nothing is inline.
const policy = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

func newPage() *page {
	p := &page{
		templates: template.Must(template.ParseFS(files, "page/*.html")),
		files:     map[string]string{"uplot.js": chart.UPlot(), "chart.js": chart.Module(), "chart.css": chart.CSS()},
	}
	entries, _ := files.ReadDir("page") // the files are in the program
	for _, e := range entries {
		body, _ := files.ReadFile("page/" + e.Name())
		p.files[e.Name()] = string(body)
	}
	digest := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(p.files)) {
		digest.Write([]byte(p.files[name]))
	}
	p.edition = base64.RawURLEncoding.EncodeToString(digest.Sum(nil))[:12]
	return p
}

// serveFile answers GET /page/NAME. Browsers ask whether their copy is still valid.
func (p *page) serveFile(w http.ResponseWriter, r *http.Request, name string) {
	body, found := p.files[name]
	types := map[string]string{".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8"}
	kind := types[path.Ext(name)]
	if !found || kind == "" {
		http.NotFound(w, r)
		return
	}
	p.setHeaders(w.Header())
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Cache-Control", "no-cache")
	w.Header().Set("ETag", `"`+p.edition+`"`)
	http.ServeContent(w, r, name, time.Time{}, strings.NewReader(body))
}

func (p *page) setHeaders(h http.Header) {
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Brim-Page", p.edition)
}

func (p *page) execute(name string, data any) ([]byte, error) {
	var out bytes.Buffer
	if err := p.templates.ExecuteTemplate(&out, name, data); err != nil {
		return nil, fmt.Errorf("render the live page: %w", err)
	}
	return out.Bytes(), nil
}
