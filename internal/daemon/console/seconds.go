package console

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strconv"

	"github.com/brim-telemetry/brim/internal/chart"
	"github.com/brim-telemetry/brim/internal/scrape"
	"github.com/brim-telemetry/brim/internal/store"
)

// seconds is the history in columns, which the page's charts are drawn from.
type seconds struct {
	Now       int64          `json:"now"`      // Unix milliseconds
	Interval  float64        `json:"interval"` // between two samples, in seconds
	At        []int64        `json:"at"`       // Unix milliseconds
	Restarted []int64        `json:"restarted,omitempty"`
	In        chart.Values   `json:"in"`
	Stored    chart.Values   `json:"stored"`
	Lag       chart.Values   `json:"lag"`
	Oldest    chart.Values   `json:"oldest"`
	PastDue   chart.Values   `json:"pastDue"`
	Queue     chart.Values   `json:"queue"`
	Merging   chart.Values   `json:"merging"`
	Journal   chart.Values   `json:"journal"`
	Streams   []streamSeries `json:"streams"`
}

// A streamSeries has the writes of one stream, per second and, for the whole span, by fill.
type streamSeries struct {
	Name        string       `json:"name"`
	Storage     string       `json:"storage"`
	Granularity string       `json:"granularity"`
	P50         chart.Values `json:"p50"`
	P99         chart.Values `json:"p99"`
	Fill        chart.Values `json:"fill"`
	ByFill      struct {
		P50 chart.Values `json:"p50"`
		P99 chart.Values `json:"p99"`
	} `json:"byFill"`
}

// seconds returns what was sampled after a time.
func (c *Console) seconds(after int64) seconds {
	g := c.glance("")
	out := seconds{Now: c.cfg.Now().UnixMilli(), Interval: c.cfg.Interval.Seconds(), At: []int64{}}
	for _, s := range c.cfg.Streams() {
		one := streamSeries{Name: s.Name, Storage: s.Storage, Granularity: s.Granularity}
		for i := range len(store.Fills) {
			h := g.byFill[bucketFill{s.Name, i}]
			one.ByFill.P50, one.ByFill.P99 = append(one.ByFill.P50, h.Quantile(0.5)), append(one.ByFill.P99, h.Quantile(0.99))
		}
		out.Streams = append(out.Streams, one)
	}
	add := func(to *chart.Values, v float32) { *to = append(*to, float64(v)) }
	for i := range g.seconds {
		s := &g.seconds[i]
		if s.At <= after {
			continue
		}
		out.At = append(out.At, s.At)
		if s.Restarted {
			out.Restarted = append(out.Restarted, s.At)
		}
		add(&out.In, s.In)
		add(&out.Stored, s.Stored)
		add(&out.Lag, s.Lag)
		add(&out.Oldest, s.Oldest)
		add(&out.PastDue, s.PastDue)
		add(&out.Queue, s.Queue)
		add(&out.Merging, s.merging())
		add(&out.Journal, s.Journal)
		for j := range out.Streams {
			one := &out.Streams[j]
			w := s.of(one.Name)
			add(&one.P50, w.P50)
			add(&one.P99, w.P99)
			add(&one.Fill, w.Fill)
		}
	}
	return out
}

// serveSeconds answers GET /console/seconds?after=MILLISECONDS.
func (c *Console) serveSeconds(w http.ResponseWriter, r *http.Request) {
	after := int64(math.MinInt64)
	if text := r.URL.Query().Get("after"); text != "" {
		var err error
		if after, err = strconv.ParseInt(text, 10, 64); err != nil {
			http.Error(w, fmt.Sprintf("after %q is not a time in milliseconds since 1970", text), http.StatusBadRequest)
			return
		}
	}
	body, err := json.Marshal(c.seconds(after))
	if err != nil {
		c.fail(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	c.page.setHeaders(w.Header())
	_, _ = w.Write(body) // fails only if the client is gone
}

// tenths are the updates of a stream, or of all, by the fill of their buckets.
func (g *glance) tenths() (out [len(store.Fills)]scrape.Histogram) {
	for of, updates := range g.byFill {
		if g.stream == "" || g.stream == of.Stream {
			out[of.Tenth] = out[of.Tenth].Add(updates)
		}
	}
	return out
}
