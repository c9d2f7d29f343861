package console

import (
	"bytes"
	"crypto/sha256"
	_ "embed" // the page's files
	"encoding/base64"
	"fmt"
	"html/template"
	"net/http"

	"github.com/brim-telemetry/brim/internal/chart"
)

//go:embed page/page.html
var pageHTML string

//go:embed page/live.html
var liveHTML string

//go:embed page/page.css
var pageCSS string

//go:embed page/page.js
var pageJS string

// A page is the templates and what belongs to them.
type page struct {
	templates *template.Template
	css       template.CSS
	js        template.JS
	policy    string // Content-Security-Policy
	edition   string // differs where anything of the page does
}

func newPage() (*page, error) {
	templates := template.New("")
	for name, text := range map[string]string{"page": pageHTML, "live": liveHTML} {
		if _, err := templates.New(name).Parse(text); err != nil {
			return nil, fmt.Errorf("set up the live page: %w", err)
		}
	}
	p := &page{templates: templates, css: template.CSS(chart.CSS + pageCSS), js: template.JS(pageJS)} //nolint:gosec // files of this package
	digest := func(text string) string {
		sum := sha256.Sum256([]byte(text))
		return base64.StdEncoding.EncodeToString(sum[:])
	}
	p.policy = "default-src 'none'; style-src 'sha256-" + digest(string(p.css)) + "'; script-src 'sha256-" + digest(pageJS) +
		"'; connect-src 'self'; img-src data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
	p.edition = digest(pageHTML + string(p.css) + pageJS)[:12]
	return p, nil
}

// whole is what the template of the page is given.
type whole struct {
	Version string
	CSS     template.CSS
	JS      template.JS
	Edition string
	Streams []Stream
	Stream  string
	Live    template.HTML
}

// headers sets those of both answers.
func (p *page) headers(h http.Header) {
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", p.policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Brim-Page", p.edition)
}

func (p *page) execute(name string, data any) ([]byte, error) {
	var out bytes.Buffer
	if err := p.templates.ExecuteTemplate(&out, name, data); err != nil {
		return nil, fmt.Errorf("write the live page: %w", err)
	}
	return out.Bytes(), nil
}
