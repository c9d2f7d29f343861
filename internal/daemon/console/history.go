package console

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
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
	// sumInterval is how exactly the span of sums and distributions begins.
	sumInterval = time.Minute
)

// A history is the last 15 minutes: what happened in each second, for the lines of
// the charts, and in each minute, for what is shown as a sum over the span. Rates
// and sums are of the difference between two samples of one process, so both go on
// over restarts. Its owner locks it.
type history struct {
	most    int // seconds kept
	seconds []second
	minutes []minute

	last   scrape.Sample // nil before the first one of this process
	lastAt time.Time
}

// A second is what happened between two samples, which are usually one second apart.
// Unknown values are NaN. An entry never changes once it was added.
type second struct {
	At    int64 // of the later sample, Unix milliseconds
	First bool  // of a process: only gauges are known

	Restarted bool // the embedded mongod died and was restarted

	In      float32 // readings acknowledged, per second
	Stored  float32 // readings stored, per second
	Updates float32 // buckets written, per second
	Lag     float32 // from receipt to stored, the median, seconds
	Journal float32 // bytes
	Oldest  float32 // age of the oldest reading that is not in MongoDB yet, seconds
	PastDue float32 // how late updates are, seconds
	Queue   float32 // readings not stored yet

	Writes []writes // of the streams that were written, sorted; the first is that of all streams
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

// A minute has the sums of about a minute.
type minute struct {
	At     int64 // its first sample, Unix milliseconds
	Counts map[counter]float64
	Writes map[bucketFill]scrape.Histogram
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
	if n := len(h.minutes); n == 0 || h.last == nil || now.UnixMilli()-h.minutes[n-1].At >= sumInterval.Milliseconds() {
		h.minutes = append(h.minutes, minute{At: now.UnixMilli(), Counts: make(map[counter]float64), Writes: make(map[bucketFill]scrape.Histogram)})
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
	h.minutes = slices.DeleteFunc(h.minutes, func(m minute) bool { return m.At <= from || m.At > to })
}

// measure returns what happened since the last sample, and adds it to the last minute.
func (h *history) measure(now time.Time, sample scrape.Sample) second {
	s := second{
		At: now.UnixMilli(), First: h.last == nil,
		Journal: float32(sample.Value(metricJournal, nil)),
		Oldest:  float32(oldestOf(sample, "")),
		PastDue: float32(sample.Value(metricPastDue, nil)),
		Queue:   float32(sample.Value(metricQueue, nil)),
	}
	elapsed := now.Sub(h.lastAt).Seconds()
	if s.First || elapsed <= 0 {
		nan := float32(math.NaN())
		s.In, s.Stored, s.Updates, s.Lag = nan, nan, nan, nan
		return s
	}
	counts := h.minutes[len(h.minutes)-1].Counts
	before := countersOf(h.last)
	for c, v := range countersOf(sample) {
		if n := rise(before[c], v); n > 0 {
			counts[c] += n
		}
	}
	rate := func(n float64) float32 { return float32(n / elapsed) }
	s.In = rate(rise(h.last.Value(metricIngested, nil), sample.Value(metricIngested, nil)))
	updates := sample.Histogram(metricUpdate, nil).Since(h.last.Histogram(metricUpdate, nil))
	s.Stored, s.Updates = rate(updates.Sum), rate(updates.Count)
	lag := sample.Histogram(metricLag, nil).Since(h.last.Histogram(metricLag, nil))
	s.Lag = float32(lag.Quantile(0.5))
	s.Restarted = rise(h.last.Value(metricRestarts, nil), sample.Value(metricRestarts, nil)) > 0
	s.Writes = h.writes(sample, elapsed)
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

// rise is how much a counter rose. One that fell was reset to 0, and one that is seen
// for the first time was 0 before.
func rise(before, now float64) float64 {
	switch {
	case math.IsNaN(now):
		return 0
	case math.IsNaN(before), now < before:
		return now
	}
	return now - before
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

// writes returns the updates since the last sample, by stream, and adds them to the
// last minute. Most of the histograms have not changed in a second, and are not opened.
func (h *history) writes(sample scrape.Sample, elapsed float64) []writes {
	type tally struct {
		scrape.Histogram
		fill float64 // sum over the updates
	}
	fillOf := func(m *dto.Metric) bucketFill {
		return bucketFill{scrape.Label(m, "stream"), max(0, slices.Index(store.Fills[:], scrape.Label(m, "fill")))}
	}
	before := make(map[bucketFill]*dto.Metric)
	for _, m := range h.last[metricWrite].GetMetric() {
		before[fillOf(m)] = m
	}
	sums, tallies := h.minutes[len(h.minutes)-1].Writes, make(map[string]tally)
	for _, m := range sample[metricWrite].GetMetric() {
		of := fillOf(m)
		last := before[of]
		if m.GetHistogram().GetSampleCount() == last.GetHistogram().GetSampleCount() {
			continue
		}
		made := scrape.HistogramOf(m).Since(scrape.HistogramOf(last))
		sums[of] = sums[of].Add(made)
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

// of returns the writes of a stream in a second. In the first second of a process
// none are known.
func (s *second) of(stream string) writes {
	i, found := slices.BinarySearchFunc(s.Writes, stream, func(w writes, stream string) int { return cmp.Compare(w.Stream, stream) })
	if found {
		return s.Writes[i]
	}
	nan := float32(math.NaN())
	w := writes{Stream: stream, P50: nan, P99: nan, Fill: nan}
	if s.First {
		w.Rate = nan
	}
	return w
}

// merging is the number of readings per update.
func (s *second) merging() float32 {
	if !(s.Updates > 0) {
		return float32(math.NaN())
	}
	return s.Stored / s.Updates
}

const (
	fileFormat = 4
	// maxFile bounds what is read of a file that may hold anything.
	maxFile = 64 << 20
)

// saved is the form of the file: gob within gzip, whose checksum detects damage.
type saved struct {
	Format  int
	Seconds []second
	Minutes []minute
}

// save writes the history to the file. A failure is logged when it begins and when it
// ends, not every ten seconds in between.
func (c *Console) save() {
	if c.cfg.File == "" {
		return
	}
	var content bytes.Buffer
	c.mu.Lock()
	err := (&saved{fileFormat, c.history.seconds, c.history.minutes}).encode(&content)
	c.mu.Unlock()
	if err == nil {
		err = replace(c.cfg.File, content.Bytes())
	}
	switch {
	case err != nil && !c.unsaved:
		c.log.Warn("cannot save the live page's history", "file", c.cfg.File, "err", err)
	case err == nil && c.unsaved:
		c.log.Info("the live page's history is saved again", "file", c.cfg.File)
	}
	c.unsaved = err != nil
}

// load restores the history of an earlier process. If the file cannot be read, the
// page starts empty.
func (c *Console) load() {
	s, err := read(c.cfg.File)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		c.log.Warn("the live page's history cannot be read; it starts empty", "file", c.cfg.File, "err", err)
	default:
		c.history.seconds, c.history.minutes = s.Seconds, s.Minutes
		c.history.forget(c.cfg.Now())
	}
}

func (s *saved) encode(to io.Writer) error {
	zip, err := gzip.NewWriterLevel(to, gzip.BestSpeed)
	if err != nil {
		return err
	}
	return errors.Join(gob.NewEncoder(zip).Encode(s), zip.Close())
}

// replace writes a file under a temporary name and renames it, so that there is always
// a whole one. It is not synced: an fsync every ten seconds would delay the journal's.
func replace(path string, content []byte) error {
	temporary := path + ".new" // always the same: the next save overwrites what a crash leaves
	err := os.WriteFile(temporary, content, 0o600)
	if err == nil {
		err = os.Rename(temporary, path)
	}
	if err != nil {
		return fmt.Errorf("write the history: %w", errors.Join(err, os.Remove(temporary)))
	}
	return nil
}

// read reads a whole file before it decodes any of it, since the checksum is at its end.
func read(path string) (*saved, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read the history: %w", err)
	}
	defer f.Close()
	zip, err := gzip.NewReader(f)
	if err != nil {
		return nil, fmt.Errorf("read the history: %w", err)
	}
	raw, err := io.ReadAll(io.LimitReader(zip, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("read the history: %w", err)
	}
	if len(raw) > maxFile {
		return nil, fmt.Errorf("read the history: it is larger than %d bytes", maxFile)
	}
	s := new(saved)
	if err := gob.NewDecoder(bytes.NewReader(raw)).Decode(s); err != nil {
		return nil, fmt.Errorf("read the history: %w", err)
	}
	if s.Format != fileFormat {
		return nil, fmt.Errorf("read the history: its format is %d, not %d", s.Format, fileFormat)
	}
	for _, m := range s.Minutes {
		for of := range m.Writes {
			if of.Tenth < 0 || of.Tenth >= len(store.Fills) {
				return nil, fmt.Errorf("read the history: there is no tenth %d of a bucket", of.Tenth)
			}
		}
	}
	return s, nil
}
