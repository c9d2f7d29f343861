package report

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/chart"
)

func aDocument() *Document {
	t := &Table{Head: []string{"variant", "time", "why"}, Tone: func(cell string) string { return map[string]string{"good": "good"}[cell] }}
	t.Add("one", "115 µs (111 µs to 119 µs)", "a|b <b>")
	t.Add("two", "–", "good")
	return &Document{
		Title: "tab", Heading: "A page",
		Sections: []Section{{ID: "x", Title: "x", Lead: "Why?", Blocks: []Block{
			{Box: "bad", Text: []string{"It failed."}}, {Title: "Empty", Table: &Table{Head: []string{"a"}}},
			{Title: "Times", Table: t, Notes: []string{"The median."}}, {Plots: []Plot{{chart.Chart{Title: "Up"}, "It rises."}}},
			{Title: "Left out", List: []string{"much\x1b[2J\nmore"}}, {Title: "Where", Facts: []Fact{{"machine", "EPYC"}}},
		}}},
	}
}

func TestText(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	require.NoError(t, Text(&b, 0, aDocument()))
	assert.Equal(t, `## x: Why?

It failed.

### Times

| variant |                      time | why      |
| ------- | ------------------------: | -------- |
| one     | 115 µs (111 µs to 119 µs) | a\|b <b> |
| two     |                         – | good     |

The median.

### Left out

- much?[2J more

### Where

- machine: EPYC
`, b.String())
}

func TestWideTablesBecomeParagraphs(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	require.NoError(t, Text(&b, 40, aDocument()))
	for line := range strings.Lines(b.String()) {
		assert.LessOrEqual(t, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")), 40, line)
	}
	assert.Contains(t, b.String(), "one\n  time: 115 µs (111 µs to 119 µs)\n  why: a|b <b>\n\ntwo\n")
}

func TestSentencesAreWrapped(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	Wrap(&b, "! ", "  ", strings.Repeat("word ", 40), 100)
	lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	assert.Len(t, lines, 3)
	assert.True(t, strings.HasPrefix(lines[0], "! word"))
	assert.True(t, strings.HasPrefix(lines[1], "  word"))
}

func TestHTML(t *testing.T) {
	t.Parallel()
	d := aDocument()
	var b strings.Builder
	require.NoError(t, HTML(&b, d))
	for _, want := range []string{
		"<title>tab</title>", "<h1>A page</h1>", `<p class="lead">Why?</p>`, "<div class=\"box bad\">\n<p>It failed.</p>", "<h3>Times</h3>",
		`<td class="left" title="variant">one</td><td>115 µs (111 µs to 119 µs)</td><td class="left" title="why">a|b &lt;b&gt;</td>`,
		`<span class="verdict good">good</span>`, `<figure><div class="plot"><script type="application/json">{"title":"Up"`, "<figcaption>It rises.</figcaption></figure>", `<p class="soft">The median.</p>`, "<th>machine</th><td>EPYC</td>",
	} {
		assert.Contains(t, b.String(), want)
	}
	assert.NotContains(t, b.String(), "<h3>Empty</h3>")
	assert.NotContains(t, b.String(), "<h2>", "a page of one section uses its heading")
	d.Sections = append(d.Sections, d.Sections[0])
	d.Overview.Table = &Table{Head: []string{"a"}, Rows: [][]string{{"x"}}, Link: true}
	b.Reset()
	require.NoError(t, HTML(&b, d))
	assert.Contains(t, b.String(), "<h2>x</h2>")
	assert.Contains(t, b.String(), `<a href="#x">x</a>`)
}

func TestWideTablesAreStackedOnNarrowScreens(t *testing.T) {
	t.Parallel()
	narrow := &Table{Head: []string{"part", "readings"}, Rows: [][]string{{"0–10 %", "12,024"}}}
	assert.False(t, narrow.Stacked())
	wide := &Table{Head: []string{"claim", "why"}, Rows: [][]string{{"it grows", strings.Repeat("because ", 6)}}}
	assert.True(t, wide.Stacked())
	var b strings.Builder
	require.NoError(t, HTML(&b, &Document{Overview: Block{Table: wide}}))
	assert.Contains(t, b.String(), `<table class="stacked">`)
}

func TestMeasuredFiguresBesidePublishedOnes(t *testing.T) {
	t.Parallel()
	for times, want := range map[float64]string{1: "50.0%", 10: "100.0%", 0.1: "0.0%", 1e9: "100.0%", 0.5: "34.9%"} {
		assert.Equal(t, want, Comparison{}.At(times))
	}
	d := &Document{Overview: Block{Compared: []Comparison{{What: "an append", Published: "85 µs", Measured: "170 µs", Times: 2, Low: 1, High: 3, Tone: "fair"}}}}
	var page, text strings.Builder
	require.NoError(t, HTML(&page, d))
	assert.Contains(t, page.String(), `<div class="claim fair"><p>an append</p>`)
	assert.Contains(t, page.String(), `<line class="range" x1="50.0%" x2="73.9%" y1="50%" y2="50%"/><circle cx="65.1%"`)
	require.NoError(t, Text(&text, 0, d))
	assert.Empty(t, text.String(), "on the page only")
}
