// Command draw runs the queries of a Grafana dashboard against Prometheus and draws the
// time series as a page. It shows the dashboards without Grafana:
//
//	go run ./deploy/grafana/draw --prometheus http://127.0.0.1:9090 --last 15m deploy/grafana/dashboards/write-path.json > page.html
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"html/template"
	"io"
	"math"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/brim-telemetry/brim/internal/chart"
)

const (
	steps         = 180 // points per line
	width, height = 460, 200
	mostLines     = 6 // per panel, one per colour
)

func main() {
	address := flag.String("prometheus", "http://127.0.0.1:9090", "`URL` of the Prometheus that scrapes Brim")
	last := flag.Duration("last", 15*time.Minute, "`duration` to draw, up to now")
	flag.Parse()
	if err := run(os.Stdout, *address, *last, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "draw:", err)
		os.Exit(1) //nolint:forbidigo // this is main
	}
}

// A dashboard is the part of a Grafana dashboard file that is drawn.
type dashboard struct {
	Title  string
	Panels []panel
}

type panel struct {
	Type, Title string
	FieldConfig struct {
		Defaults  struct{ Unit string }
		Overrides []struct { // those of the unit give a line an axis of its own
			Matcher    struct{ Options any }
			Properties []struct{ ID string }
		}
	}
	Targets []struct{ RefID, Expr, LegendFormat string }
}

// units are Grafana's; all others are counts.
var units = map[string]chart.Unit{
	"s": chart.Seconds, "cps": chart.PerSecond, "reqps": chart.PerSecond, "ops": chart.PerSecond, "bytes": chart.Bytes, "Bps": chart.Bytes, "percentunit": chart.Ratio,
}

func run(w io.Writer, address string, last time.Duration, files []string) error {
	if len(files) != 1 || last < time.Minute {
		return errors.New("name one dashboard, such as deploy/grafana/dashboards/write-path.json, and draw at least --last 1m")
	}
	content, err := os.ReadFile(files[0])
	if err != nil {
		return err
	}
	var d dashboard
	if err := json.Unmarshal(content, &d); err != nil {
		return fmt.Errorf("read %s: %w", files[0], err)
	}
	now := time.Now()
	over := span{address: address, from: now.Add(-last), to: now, step: max((last / steps).Round(time.Second), time.Second)}
	page := struct {
		Title  string
		CSS    template.CSS
		Charts []template.HTML
	}{Title: d.Title, CSS: chart.PageCSS()}
	for _, p := range d.Panels {
		if p.Type != "timeseries" {
			continue
		}
		svg, err := p.draw(over)
		if err != nil {
			return fmt.Errorf("panel %q: %w", p.Title, err)
		}
		page.Charts = append(page.Charts, svg)
	}
	return layout.Execute(w, page)
}

//nolint:gochecknoglobals // never changes
var layout = template.Must(template.New("page").Parse(`<!doctype html><html lang="en"><meta charset="utf-8"><title>{{.Title}}</title>
<style>{{.CSS}} main{display:grid;grid-template-columns:repeat(auto-fit,minmax(420px,1fr));gap:12px}</style>
<h1>{{.Title}}</h1><main>{{range .Charts}}<figure>{{.}}</figure>{{end}}</main></html>
`))

var label = regexp.MustCompile(`\{\{\s*(\w+)\s*\}\}`)

func (p *panel) draw(over span) (template.HTML, error) {
	out := chart.Time{Title: p.Title, Width: width, Height: height, Y: chart.Axis{Unit: chart.Count}}
	if unit, ok := units[p.FieldConfig.Defaults.Unit]; ok {
		out.Y.Unit = unit
	}
	for at := over.from; !at.After(over.to); at = at.Add(over.step) {
		out.X = append(out.X, at.Sub(over.to).Seconds())
	}
	for _, target := range p.Targets {
		if p.hasOwnUnit(target.RefID) {
			continue // one axis is drawn
		}
		lines, err := over.query(strings.NewReplacer("$stream", ".*", "$__rate_interval", "30s", "$__range", over.to.Sub(over.from).String()).Replace(target.Expr))
		if err != nil {
			return "", err
		}
		for _, line := range lines[:min(len(lines), mostLines-len(out.Series))] {
			s := chart.Series{Tone: chart.Tone(len(out.Series)), Y: make([]float64, len(out.X))}
			s.Name = label.ReplaceAllStringFunc(target.LegendFormat, func(name string) string { return line.Metric[label.FindStringSubmatch(name)[1]] })
			for i := range s.Y {
				s.Y[i] = math.NaN()
			}
			for _, v := range line.Values {
				if i := int(math.Round((v.at - float64(over.from.UnixMilli())/1000) / over.step.Seconds())); i >= 0 && i < len(s.Y) {
					s.Y[i] = v.value
				}
			}
			out.Series = append(out.Series, s)
		}
	}
	return out.SVG()
}

func (p *panel) hasOwnUnit(refID string) bool {
	for _, o := range p.FieldConfig.Overrides {
		for _, property := range o.Properties {
			if property.ID == "unit" && o.Matcher.Options == any(refID) {
				return true
			}
		}
	}
	return false
}

// A span is the time range to draw, and the Prometheus to query.
type span struct {
	address  string
	from, to time.Time
	step     time.Duration
}

type line struct {
	Metric map[string]string
	Values []point
}

type point struct{ at, value float64 }

// UnmarshalJSON decodes a pair of seconds and a number in quotes.
func (p *point) UnmarshalJSON(b []byte) error {
	var text string
	if err := json.Unmarshal(b, &[]any{&p.at, &text}); err != nil {
		return err
	}
	var err error
	p.value, err = strconv.ParseFloat(text, 64)
	return err
}

// query returns the lines of a query.
func (s span) query(expr string) ([]line, error) {
	parameters := url.Values{
		"query": {expr}, "start": {s.from.Format(time.RFC3339Nano)}, "end": {s.to.Format(time.RFC3339Nano)}, "step": {s.step.String()},
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.address+"/api/v1/query_range?"+parameters.Encode(), http.NoBody)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var answer struct {
		Error string
		Data  struct{ Result []line }
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return nil, fmt.Errorf("%s: %w", resp.Status, err)
	}
	if answer.Error != "" {
		return nil, errors.New(answer.Error)
	}
	return answer.Data.Result, nil
}
