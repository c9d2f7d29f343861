// Package scrape reads Prometheus metrics: those of this process from its registry,
// those of another from its /metrics. Code that shows metrics to people (the live
// page, the load generator's report) takes two samples, subtracts them, and reads
// rates and quantiles off the difference. It imports no other package of Brim.
package scrape

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
)

// A Sample has all metrics at one moment, by name. It is read-only.
type Sample map[string]*dto.MetricFamily

// Gather samples this process.
func Gather(g prometheus.Gatherer) (Sample, error) {
	families, err := g.Gather()
	sample := make(Sample, len(families))
	for _, f := range families {
		sample[f.GetName()] = f
	}
	if err != nil {
		return sample, fmt.Errorf("gather metrics: %w", err)
	}
	return sample, nil
}

// Get samples another process; url is that of its /metrics. It asks for
// the protobuf form, since the text form has no native histograms.
func Get(ctx context.Context, client *http.Client, url string) (Sample, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", url, err)
	}
	req.Header.Set("Accept", string(expfmt.NewFormat(expfmt.TypeProtoDelim))+", text/plain;q=0.5")
	resp, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("get metrics: %w", err)
	}
	defer func() { _ = resp.Body.Close() }() // it was only read
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("get %s: the answer is %s", url, resp.Status)
	}
	sample := make(Sample)
	decoder := expfmt.NewDecoder(resp.Body, expfmt.ResponseFormat(resp.Header))
	for {
		var f dto.MetricFamily
		if err := decoder.Decode(&f); errors.Is(err, io.EOF) {
			return sample, nil
		} else if err != nil {
			return nil, fmt.Errorf("read the metrics of %s: %w", url, err)
		}
		sample[f.GetName()] = &f
	}
}

// Labels are a metric's labels by name.
type Labels map[string]string

// matches reports whether m has all of the labels.
func (l Labels) matches(m *dto.Metric) bool {
	for name, value := range l {
		if Label(m, name) != value {
			return false
		}
	}
	return true
}

// Label returns the value of a metric's label, empty if there is none.
func Label(m *dto.Metric, name string) string {
	for _, pair := range m.GetLabel() {
		if pair.GetName() == name {
			return pair.GetValue()
		}
	}
	return ""
}

// Metrics returns the metrics of a family that have all of the labels.
func (s Sample) Metrics(name string, labels Labels) []*dto.Metric {
	var out []*dto.Metric
	for _, m := range s[name].GetMetric() {
		if labels.matches(m) {
			out = append(out, m)
		}
	}
	return out
}

// Value returns the sum of the counters or gauges that have all of the labels,
// NaN if there is none.
func (s Sample) Value(name string, labels Labels) float64 {
	sum := math.NaN()
	for _, m := range s.Metrics(name, labels) {
		v := m.GetCounter().GetValue() + m.GetGauge().GetValue() + m.GetUntyped().GetValue()
		if math.IsNaN(sum) {
			sum = v
		} else {
			sum += v
		}
	}
	return sum
}

// Histogram returns the sum of the histograms that have all of the labels.
func (s Sample) Histogram(name string, labels Labels) Histogram {
	var sum Histogram
	for _, m := range s.Metrics(name, labels) {
		sum = sum.Add(HistogramOf(m))
	}
	return sum
}
