package report

import (
	"bytes"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/bench"
)

func htmlOf(t *testing.T, results ...*bench.Result) string {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, HTML(&b, results...))
	return b.String()
}

func TestPageHasClaimsPlotsTablesAndFindings(t *testing.T) {
	t.Parallel()
	page := htmlOf(t, aResult())
	for _, want := range []string{
		"<h1>Experiment granularity</h1>", "<div class=\"box good\">\n<p>Use 5m, because it is so.</p>", "docs/experiments.md",
		`<line class="range" x1="37.1%" x2="37.1%" y1="50%" y2="50%"/><circle cx="37.1%"`, `<span class="verdict good">confirmed</span>`, `<span class="verdict fair">direction holds, size differs</span>`,
		`<span class="verdict none">not seen here</span>`, `<span class="verdict bad">opposite</span>`, "<figcaption>It rises.</figcaption>",
		"<h3>Round trip of an append</h3>", `<td class="left" title="readings">12</td><td>115 µs (111 µs to 119 µs)</td>`, "a|b &lt;b&gt;", "<figcaption>Dirty data.</figcaption>",
		"<h3>Held constant</h3>", "<li>compressor snappy</li>", "<th>mongod</th><td>8.0.4, replica set and standalone", "prefers-color-scheme: dark", `name="viewport"`,
	} {
		assert.Contains(t, page, want)
	}
	charts := regexp.MustCompile(`<script type="application/json">(.*?)</script>`).FindAllStringSubmatch(page, -1)
	require.Len(t, charts, 3)
	assert.JSONEq(t, `{"title":"Cost of an append","x":{"kind":"number","label":"readings","at":[12,360]},"panels":[{"unit":"seconds","series":[
		{"name":"round trip","y":[0.000115,0.000482],"low":[0.000111,0.000482],"high":[0.000119,0.000482],"tone":0,"points":true,"bridge":true},
		{"name":"remote","y":[null,null],"low":[null,null],"high":[null,null],"tone":1,"points":true,"bridge":true}]}]}`, charts[0][1])
	assert.Contains(t, charts[1][1], `"x":{"kind":"names","label":"readings","names":["12","360"],"at":[0,1]}`)
	assert.Contains(t, charts[1][1], `"bars":true`)
	assert.NotContains(t, charts[2][1], `"points"`)
	assert.NotContains(t, page, "<h3>Over time</h3>", "a long table is drawn only")
	assert.NotContains(t, page, `href="#granularity"`, "one experiment needs no table of contents")
}

func TestPageOfAllHasEach(t *testing.T) {
	t.Parallel()
	interrupted := aResult()
	interrupted.Experiment, interrupted.Interrupted = "storage", true
	page := htmlOf(t, aResult(), aFailure(), interrupted)
	for _, want := range []string{
		"<h1>Experiments</h1>", "8 claims: 2 confirmed;", `<a href="#granularity">`, `<section id="granularity">`, `<section id="fill">`, `<section id="storage">`,
		"It failed: fill: mongod said &lt;b&gt;?[2J&lt;/b&gt; no", "It was interrupted", "brim_bench_20261121_164900_77, which is dropped",
	} {
		assert.Contains(t, page, want)
	}
}

func TestPageLoadsNothing(t *testing.T) {
	t.Parallel()
	page := htmlOf(t, aResult(), aResult())
	assert.NotRegexp(t, `(?i)<link|<img|<iframe|\bsrc=|\bhref="[^#]|url\(|@import|@font-face|\bimport\b|fetch\(`, page)
	for _, url := range regexp.MustCompile(`https?://[^"'< ]*`).FindAllString(page, -1) {
		assert.Equal(t, "https://github.com/leeoniya/uPlot", url)
	}
}

func TestPageEscapes(t *testing.T) {
	t.Parallel()
	const evil = `</style><script>alert(1)</script>`
	r := aResult()
	r.Experiment, r.Question, r.Error, r.Environment.Mongod = evil, evil, evil, evil
	r.Pinned, r.Tables[0].Rows[0].Name, r.Rows[0].Why = []string{evil}, evil, evil
	assert.NotContains(t, htmlOf(t, r, r), "<script>alert")
}
