package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"regexp"
	"strings"
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
		"<h1>Experiment granularity</h1>", `<span class="verdict good">confirmed</span>`, `<span class="verdict fair">direction holds, size differs</span>`,
		`<span class="verdict none">not seen here</span>`, `<span class="verdict bad">opposite</span>`, "<figcaption>It rises.</figcaption>",
		"<h3>Round trip of an append</h3>", `<td class="left" title="readings">12</td><td>115 µs (111 µs to 119 µs)</td>`, "a|b &lt;b&gt;", "<figcaption>Dirty data.</figcaption>",
		"<h3>Held constant</h3>", "<li>compressor snappy</li>", "<th>mongod</th><td>8.0.4, replica set and standalone", "prefers-color-scheme: dark", `name="viewport"`,
	} {
		assert.Contains(t, page, want)
	}
	svg := regexp.MustCompile(`(?s)<svg.*?</svg>`).FindAllString(page, -1)
	require.Len(t, svg, 3)
	for _, one := range svg {
		assertXML(t, one)
	}
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
	assert.NotRegexp(t, `(?i)<script|<link|<img|<iframe|\bsrc=|\bhref="[^#]|url\(|@import|@font-face`, page)
	for _, url := range regexp.MustCompile(`https?://[^"'< ]*`).FindAllString(page, -1) {
		assert.Equal(t, "http://www.w3.org/2000/svg", url)
	}
}

func TestPageEscapes(t *testing.T) {
	t.Parallel()
	const evil = `</style><script>alert(1)</script>`
	r := aResult()
	r.Experiment, r.Question, r.Error, r.Environment.Mongod = evil, evil, evil, evil
	r.Pinned, r.Tables[0].Rows[0].Name, r.Rows[0].Why = []string{evil}, evil, evil
	assert.NotContains(t, htmlOf(t, r, r), "<script")
}

func assertXML(t *testing.T, s string) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(s))
	for {
		_, err := d.Token()
		if errors.Is(err, io.EOF) {
			return
		}
		require.NoError(t, err)
	}
}
