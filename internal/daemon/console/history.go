package console

import (
	"cmp"
	"math"
	"slices"
	"strings"
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
	metricOldest      = "brim_queue_oldest_seconds"
	metricPastDue     = "brim_queue_past_due_seconds"
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

// countedLabels lists the counters whose sum over the span is shown, each with the
// labels by which it is split.
func countedLabels() map[string][]string {
	return map[string][]string{
		metricIngested: nil, metricRepeated: nil, metricRetries: nil, metricDeadLetters: nil, metricUnknown: nil, metricDuplicates: nil,
		metricConflicts: nil, metricRestarts: nil, metricRejected: {"reason"}, metricRefused: {"reason"}, metricRequests: {"protocol", "code"},
	}
}

const (
	// span is how far back the page goes.
	span = 15 * time.Minute
	// sumInterval is the resolution of the start of sums and distributions.
	sumInterval = time.Minute
)

// A history covers the last 15 minutes: what happened in each second, for the
// charts' lines, and a sample of each minute, as the start of sums. Its owner
// locks it.
type history struct {
	most    int // seconds kept
	seconds []second
	minutes []moment

	last   scrape.Sample // nil before the first one
	lastAt time.Time
}

// A second is what happened between two samples, which are usually one second apart.
// Unknown values are NaN. An entry never changes once it was added.
type second struct {
	At int64 // of the later sample, Unix milliseconds

	Restarted bool // the embedded mongod died and was restarted

	In      float32 // readings acknowledged, per second
	Stored  float32 // readings stored, per second
	Updates float32 // buckets written, per second
	Lag     float32 // from receipt to stored, the median, seconds
	Journal float32 // bytes
	Oldest  float32 // age of the oldest reading that is not in MongoDB yet, seconds
	PastDue float32 // how late updates are, seconds
	Queue   float32 // readings not stored yet

	Writes []writes // of the streams that were written, sorted; the first is for all streams
}

// writes are the bucket updates of one stream in a second: 32 bytes, so 900 seconds
// of a stream that is written in each of them take 29 KB.
type writes struct {
	Stream string  // empty: all streams
	Rate   float32 // per second
	P50    float32 // seconds
	P99    float32 // seconds
	Fill   float32 // 0 to 1: the mean of the buckets written
}

// A moment has the metrics that are shown as sums; none before the process began.
type moment struct {
	at     int64 // Unix milliseconds
	sample scrape.Sample
}

// A counter is a metric with the values of its countedLabels, joined by a space.
type counter struct{ Family, Labels string }

// A bucketFill is a stream and a tenth of the bucket's fill.
type bucketFill struct {
	Stream string
	Tenth  int
}

func newHistory(interval time.Duration) *history { return &history{most: int(span / interval)} }

// add adds a sample.
func (h *history) add(now time.Time, sample scrape.Sample) {
	if n := len(h.minutes); n == 0 || now.UnixMilli()-h.minutes[n-1].at >= sumInterval.Milliseconds() {
		m := moment{at: now.UnixMilli(), sample: scrape.Sample{metricWrite: h.last[metricWrite]}}
		for family := range countedLabels() {
			m.sample[family] = h.last[family]
		}
		h.minutes = append(h.minutes, m)
	}
	h.seconds = append(h.seconds, h.measure(now, sample))
	h.last, h.lastAt = sample, now
	h.forget(now)
}

// forget drops what is older than the span, and what lies in the future because the
// clock was set back.
func (h *history) forget(now time.Time) {
	from, to := now.Add(-span).UnixMilli(), now.UnixMilli()
	h.seconds = slices.DeleteFunc(h.seconds, func(s second) bool { return s.At <= from || s.At > to })
	if surplus := len(h.seconds) - h.most; surplus > 0 {
		h.seconds = slices.Delete(h.seconds, 0, surplus)
	}
	h.minutes = slices.DeleteFunc(h.minutes, func(m moment) bool { return m.at <= from || m.at > to })
}

// measure returns what happened since the last sample.
func (h *history) measure(now time.Time, sample scrape.Sample) second {
	s := second{
		At:      now.UnixMilli(),
		Journal: float32(sample.Value(metricJournal, nil)),
		Oldest:  float32(oldestOf(sample, "")),
		PastDue: float32(sample.Value(metricPastDue, nil)),
		Queue:   float32(sample.Value(metricQueue, nil)),
	}
	elapsed := now.Sub(h.lastAt).Seconds()
	if h.last == nil || elapsed <= 0 {
		nan := float32(math.NaN())
		s.In, s.Stored, s.Updates, s.Lag = nan, nan, nan, nan
		return s
	}
	before, after := countersOf(h.last), countersOf(sample)
	rose := func(family string) float64 { return after[counter{Family: family}] - before[counter{Family: family}] }
	updates := sample.Histogram(metricUpdate, nil).Since(h.last.Histogram(metricUpdate, nil))
	s.In, s.Stored, s.Updates = float32(rose(metricIngested)/elapsed), float32(updates.Sum/elapsed), float32(updates.Count/elapsed)
	lag := sample.Histogram(metricLag, nil).Since(h.last.Histogram(metricLag, nil))
	s.Lag = float32(lag.Quantile(0.5))
	s.Restarted = rose(metricRestarts) > 0
	s.Writes = writesBetween(h.last, sample, elapsed)
	return s
}

// oldestOf returns the age of the oldest reading of a stream, or of all streams, that is
// not in MongoDB; NaN: unknown.
func oldestOf(sample scrape.Sample, stream string) float64 {
	oldest := math.NaN()
	for _, m := range sample[metricOldest].GetMetric() {
		if age := m.GetGauge().GetValue(); (stream == "" || scrape.Label(m, "stream") == stream) && !(age <= oldest) {
			oldest = age
		}
	}
	return oldest
}

// countersOf returns the counters in a sample that are shown as sums.
func countersOf(sample scrape.Sample) map[counter]float64 {
	out := make(map[counter]float64)
	for family, labels := range countedLabels() {
		for _, m := range sample[family].GetMetric() {
			values := make([]string, len(labels))
			for i, l := range labels {
				values[i] = scrape.Label(m, l)
			}
			out[counter{family, strings.Join(values, " ")}] += m.GetCounter().GetValue()
		}
	}
	return out
}

// updatesBetween returns the updates between two samples. Histograms that have not changed
// are skipped.
func updatesBetween(before, now scrape.Sample) map[bucketFill]scrape.Histogram {
	fillOf := func(m *dto.Metric) bucketFill {
		return bucketFill{scrape.Label(m, "stream"), max(0, slices.Index(store.Fills[:], scrape.Label(m, "fill")))}
	}
	last := make(map[bucketFill]*dto.Metric)
	for _, m := range before[metricWrite].GetMetric() {
		last[fillOf(m)] = m
	}
	out := make(map[bucketFill]scrape.Histogram)
	for _, m := range now[metricWrite].GetMetric() {
		of := fillOf(m)
		if m.GetHistogram().GetSampleCount() != last[of].GetHistogram().GetSampleCount() {
			out[of] = scrape.HistogramOf(m).Since(scrape.HistogramOf(last[of]))
		}
	}
	return out
}

// writesBetween returns the updates between two samples, by stream.
func writesBetween(before, now scrape.Sample, elapsed float64) []writes {
	type tally struct {
		scrape.Histogram
		fill float64 // sum over the updates
	}
	tallies := make(map[string]tally)
	for of, made := range updatesBetween(before, now) {
		for _, stream := range []string{"", of.Stream} {
			t := tallies[stream]
			fill := (float64(of.Tenth) + 0.5) / float64(len(store.Fills))
			tallies[stream] = tally{t.Add(made), t.fill + made.Count*fill}
		}
	}
	out := make([]writes, 0, len(tallies))
	for stream, t := range tallies {
		out = append(out, writes{
			Stream: stream, Rate: float32(t.Count / elapsed), Fill: float32(t.fill / t.Count),
			P50: float32(t.Quantile(0.5)), P99: float32(t.Quantile(0.99)),
		})
	}
	slices.SortFunc(out, func(a, b writes) int { return cmp.Compare(a.Stream, b.Stream) })
	return out
}

// of returns the writes of a stream in a second.
func (s *second) of(stream string) writes {
	i, found := slices.BinarySearchFunc(s.Writes, stream, func(w writes, stream string) int { return cmp.Compare(w.Stream, stream) })
	if found {
		return s.Writes[i]
	}
	nan := float32(math.NaN())
	return writes{Stream: stream, P50: nan, P99: nan, Fill: nan}
}

// merging is the number of readings per update.
func (s *second) merging() float32 {
	if !(s.Updates > 0) {
		return float32(math.NaN())
	}
	return s.Stored / s.Updates
}
