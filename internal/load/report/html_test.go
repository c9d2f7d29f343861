package report

import (
	"bytes"
	"encoding/json"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/load"
)

func htmlOf(t *testing.T, r *load.Result) string {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, HTML(&b, r))
	return b.String()
}

func TestPageHasEveryFigureAndPlot(t *testing.T) {
	t.Parallel()
	page := htmlOf(t, aResult())
	for _, want := range []string{
		`<div class="box good">`, "The load was sustained", "2,003 of 2,004 readings a second", "(99.96 %)", "<td>120,240</td>",
		`">62.1 ms</td>`, `">103 ms</td>`, `title="part">90–100 %</td><td>12,024</td><td>2.19 ms</td><td>8.4 ms</td>`,
		"<td>1,679</td><td>1.8 ms</td><td>6.5 ms</td>", "<td>sensors 167, interval 5 s of event time",
		"prefers-color-scheme: dark", `name="viewport"`,
	} {
		assert.Contains(t, page, want)
	}
	charts := chartsOf(t, page)
	require.Len(t, charts, 5)
	for i, title := range []string{"Response time", "Readings a second", "Response time by fill", "The daemon's store time by fill", "Times by percentile"} {
		assert.Equal(t, title, charts[i].Title)
		for _, panel := range charts[i].Panels {
			for _, s := range panel.Series {
				assert.Len(t, s.Y, len(charts[i].X.At), "%s: %s", title, s.Name)
			}
		}
	}
	assert.True(t, charts[0].Panels[0].Log, "a spike must not flatten the rest")
	require.Len(t, charts[4].Panels[0].Series, 2)
	assert.NotContains(t, page, "First errors")
}

func TestPageOfAnOverload(t *testing.T) {
	t.Parallel()
	r := anOverload()
	r.StoreByFill = nil
	r.Interrupted = true
	page := htmlOf(t, r)
	for _, want := range []string{`<div class="box bad">`, "interrupted; until then", "Dropped readings: ", "is a lower bound", "Requests by reason: 503 29,000", "<li>a fourth</li>"} {
		assert.Contains(t, page, want)
	}
	assert.Len(t, chartsOf(t, page), 4)
	assert.NotContains(t, page, "updates")
}

func TestPageLoadsNothing(t *testing.T) {
	t.Parallel()
	page := htmlOf(t, aResult())
	assert.NotRegexp(t, `(?i)<link|<img|<iframe|\bsrc=|\bhref=|url\(|@import|@font-face|\bimport\b|fetch\(`, page)
	for _, url := range regexp.MustCompile(`https?://[^"'< ]*`).FindAllString(page, -1) {
		assert.Contains(t, []string{"https://github.com/leeoniya/uPlot", "http://127.0.0.1:8430", "http://127.0.0.1:8430,"}, url)
	}
}

func TestPageEscapes(t *testing.T) {
	t.Parallel()
	r := anOverload()
	const evil = `</style><script>alert(1)</script>`
	r.Setup.Target, r.Setup.Stream = evil, evil
	r.Failures[evil], r.FirstErrors = 1, []string{evil}
	assert.NotContains(t, htmlOf(t, r), "<script>alert")
}

// A drawn is a chart as embedded in the page.
type drawn struct {
	Title  string
	X      struct{ At []any }
	Panels []struct {
		Log    bool
		Series []struct {
			Name string
			Y    []any
		}
	}
}

// chartsOf returns the charts in the page.
func chartsOf(t *testing.T, page string) []drawn {
	t.Helper()
	specs := regexp.MustCompile(`<script type="application/json">(.*?)</script>`).FindAllStringSubmatch(page, -1)
	all := make([]drawn, len(specs))
	for i, spec := range specs {
		require.NoError(t, json.Unmarshal([]byte(spec[1]), &all[i]))
	}
	return all
}
