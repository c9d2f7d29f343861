package admin

import (
	"fmt"
	"html"
	"net/http"
)

// page lists what else there is.
func (h *handler) page(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = fmt.Fprintf(w, pageHTML, html.EscapeString(h.cfg.Version)) // fails only if the client is gone
}

const pageHTML = `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>Brim</title>
<h1>Brim %s</h1>
<ul>
<li><a href="/status">/status</a> what runs here, and what waits to be stored
<li><a href="/readyz">/readyz</a> whether readings can be taken now, and why not
<li><a href="/healthz">/healthz</a> whether the process lives
<li><a href="/metrics">/metrics</a> for Prometheus
<li><a href="/debug/pprof/">/debug/pprof</a> profiles
</ul>
<form method="post" action="/flush"><button>POST /flush</button> store what was taken so far</form>
</html>
`
