package chart

import (
	_ "embed"
	"html/template"
)

//go:embed page.css
var pageSource string

// PageCSS is the look of a report, for light and for dark: CSS, and what all
// pages with drawings and tables have in common.
func PageCSS() template.CSS {
	return template.CSS(CSS + pageSource) //nolint:gosec // it is this package's own
}
