package console

import (
	"math"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/brim-telemetry/brim/internal/scrape"
	"github.com/brim-telemetry/brim/internal/store"
)

// The metrics that the page shows.
const (
	metricIngested    = "brim_ingest_readings_total"
	metricRequests    = "brim_ingest_requests_total"
	metricRejected    = "brim_ingest_rejected_total"
	metricRepeated    = "brim_ingest_repeated_total"
	metricRefused     = "brim_journal_refused_total"
	metricJournal     = "brim_journal_bytes"
	metricJournalMax  = "brim_journal_max_bytes"
	metricOldest      = "brim_journal_oldest_unapplied_seconds"
	metricQueue       = "brim_queue_readings"
	metricLag         = "brim_queue_lag_seconds"
	metricRetries     = "brim_queue_retries_total"
	metricDeadLetters = "brim_queue_dead_letters_total"
	metricSetAside    = "brim_queue_set_aside_buckets"
	metricWrite       = "brim_store_write_seconds"
	metricUpdate      = "brim_store_update_readings"
	metricUnknown     = "brim_store_unknown_outcomes_total"
	metricDuplicates  = "brim_store_duplicates_prevented_total"
	metricConflicts   = "brim_store_tag_conflicts_total"
	metricWindow      = "brim_store_bucket_window_ratio"
	metricRestarts    = "brim_mongod_restarts_total"
	metricUp          = "brim_mongodb_up"
)

// sums are the families that a checkpoint keeps.
var sums = [...]string{
	metricIngested, metricRequests, metricRejected, metricRepeated, metricRefused, metricRetries, metricDeadLetters,
	metricWrite, metricUnknown, metricDuplicates, metricConflicts, metricRestarts,
}

// summed returns the part of a look that checkpoints keep.
func summed(look scrape.Look) scrape.Look {
	out := make(scrape.Look, len(sums))
	for _, name := range sums {
		if f := look[name]; f != nil {
			out[name] = slim(f)
		}
	}
	return out
}

// slim returns a family without what is 0, and without the classic buckets of
// histograms that have native ones: a tenth of the size.
func slim(f *dto.MetricFamily) *dto.MetricFamily {
	out := &dto.MetricFamily{Name: f.Name, Type: f.Type}
	for _, m := range f.GetMetric() {
		h := m.GetHistogram()
		switch {
		case m.GetCounter().GetValue() == 0 && h.GetSampleCount() == 0:
			continue
		case len(h.GetPositiveSpan()) > 0:
			m = &dto.Metric{Label: m.GetLabel(), Histogram: &dto.Histogram{
				SampleCount: h.SampleCount, SampleSum: h.SampleSum, Schema: h.Schema, ZeroThreshold: h.ZeroThreshold,
				ZeroCount: h.ZeroCount, PositiveSpan: h.GetPositiveSpan(), PositiveDelta: h.GetPositiveDelta(),
			}}
		}
		out.Metric = append(out.Metric, m)
	}
	return out
}

// measure tells what happened since the look before.
func (h *history) measure(now time.Time, look scrape.Look) second {
	s := second{
		At: now.UnixMilli(), First: h.last == nil,
		Journal: float32(look.Value(metricJournal, nil)),
		Oldest:  float32(look.Value(metricOldest, nil)),
		Queue:   float32(look.Value(metricQueue, nil)),
	}
	elapsed := now.Sub(h.lastAt).Seconds()
	if s.First || elapsed <= 0 {
		nan := float32(math.NaN())
		s.In, s.Stored, s.Updates, s.LagP50, s.LagP99 = nan, nan, nan, nan, nan
		return s
	}
	rate := func(n float64) float32 { return float32(n / elapsed) }
	s.In = rate(rise(h.last.Value(metricIngested, nil), look.Value(metricIngested, nil)))
	updates := look.Histogram(metricUpdate, nil).Since(h.last.Histogram(metricUpdate, nil))
	s.Stored, s.Updates = rate(updates.Sum), rate(updates.Count)
	lag := look.Histogram(metricLag, nil).Since(h.last.Histogram(metricLag, nil))
	s.LagP50, s.LagP99 = float32(lag.Quantile(0.5)), float32(lag.Quantile(0.99))
	s.Restarted = rise(h.last.Value(metricRestarts, nil), look.Value(metricRestarts, nil)) > 0
	s.Writes = h.writes(look, elapsed)
	return s
}

// rise is how much a counter rose. One that fell began anew at 0, and one that
// is seen for the first time was 0 before.
func rise(before, now float64) float64 {
	switch {
	case math.IsNaN(now):
		return 0
	case math.IsNaN(before), now < before:
		return now
	}
	return now - before
}

// cellKey tells one histogram of writes from the others.
type cellKey struct{ stream, fill string }

func keyOf(m *dto.Metric) cellKey {
	return cellKey{scrape.Label(m, "stream"), scrape.Label(m, "fill")}
}

// tally is the writes of one stream since the look before.
type tally struct {
	histogram scrape.Histogram
	count     float64
	fill      float64 // sum over the writes
}

func (t *tally) add(h scrape.Histogram, fill float64) {
	t.histogram = t.histogram.Add(h)
	t.count += h.Count
	t.fill += h.Count * fill
}

func (t *tally) writes(place int, elapsed float64) writes {
	return writes{
		Place: int32(place), Rate: float32(t.count / elapsed), Fill: float32(t.fill / t.count),
		P50: float32(t.histogram.Quantile(0.5)), P99: float32(t.histogram.Quantile(0.99)),
	}
}

// writes tells those since the look before, by stream. Most of the histograms
// have not changed in a second, and those are not opened.
func (h *history) writes(look scrape.Look, elapsed float64) []writes {
	before := make(map[cellKey]*dto.Metric)
	for _, m := range h.last[metricWrite].GetMetric() {
		before[keyOf(m)] = m
	}
	h.placeAll(look[metricWrite].GetMetric())
	tallies := make([]tally, 1, len(h.names)) // by place; one in which nothing is counted is left out
	for _, m := range look[metricWrite].GetMetric() {
		key := keyOf(m)
		last := before[key]
		if m.GetHistogram().GetSampleCount() == last.GetHistogram().GetSampleCount() {
			continue
		}
		made := scrape.HistogramOf(m).Since(scrape.HistogramOf(last))
		fill := (float64(tenth(key.fill)) + 0.5) / float64(len(store.Fills))
		tallies[0].add(made, fill)
		if place := h.place(key.stream); place > 0 {
			for len(tallies) <= place {
				tallies = append(tallies, tally{})
			}
			tallies[place].add(made, fill)
		}
	}
	var out []writes
	for place := range tallies {
		if t := &tallies[place]; t.count > 0 {
			out = append(out, t.writes(place, elapsed))
		}
	}
	return out
}

// placeAll makes places for the streams of metrics, also for those that were
// not written yet: they have 0 and not nothing. When places run out it gives up
// those that are not needed any more.
func (h *history) placeAll(metrics []*dto.Metric) {
	if len(h.names) > maxStreams {
		h.prune()
	} else if h.placed == len(metrics) {
		return
	}
	h.placed = len(metrics)
	last := ""
	for _, m := range metrics {
		if stream := scrape.Label(m, "stream"); stream != last { // they are sorted
			h.place(stream)
			last = stream
		}
	}
}

// place returns the place of a stream in names, and makes one for a new stream
// if there is room, else -1.
func (h *history) place(stream string) int {
	if i := h.stream(stream); i > 0 {
		return i
	}
	if len(h.names) > maxStreams || stream == "" {
		return -1
	}
	h.names = append(h.names, stream)
	return len(h.names) - 1
}

func tenth(fill string) int {
	for i, f := range store.Fills {
		if f == fill {
			return i
		}
	}
	return 0
}
