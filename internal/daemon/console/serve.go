package console

import (
	"html/template"
	"net/http"
	"slices"
	"time"
)

// A view is what can be asked for; there are few.
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

// A rendering is good until the next look.
type rendering struct {
	at   time.Time
	html []byte
}

// viewOf returns what a request asks for. A stream that does not exist (any
// more) is as none: a page that stays open for weeks should not break.
func viewOf(r *http.Request, streams []Stream) view {
	query := r.URL.Query()
	v := view{stream: query.Get("stream"), narrow: query.Has("narrow")}
	if !slices.ContainsFunc(streams, func(s Stream) bool { return s.Name == v.stream }) {
		v.stream = ""
	}
	return v
}

// render returns the live part; at most one is made at a time, and one a second
// of each view, however many ask.
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

func (c *Console) serveLive(w http.ResponseWriter, r *http.Request) {
	html, err := c.render(viewOf(r, c.cfg.Streams()))
	c.answer(w, html, err)
}

func (c *Console) servePage(w http.ResponseWriter, r *http.Request) {
	streams := c.cfg.Streams()
	v := viewOf(r, streams)
	html, err := c.render(v)
	if err == nil {
		html, err = c.page.execute("page", whole{
			Version: c.cfg.Version, CSS: c.page.css, JS: c.page.js, Edition: c.page.edition,
			Streams: streams, Stream: v.stream, Live: template.HTML(html), //nolint:gosec // a template made it
		})
	}
	c.answer(w, html, err)
}

func (c *Console) answer(w http.ResponseWriter, html []byte, err error) {
	if err != nil {
		c.log.Error("serve the live page", "err", err)
		http.Error(w, "the page cannot be made; the daemon's log says why", http.StatusInternalServerError)
		return
	}
	c.page.headers(w.Header())
	_, _ = w.Write(html) // fails only if the client is gone
}
