package trend

import (
	"time"

	"github.com/brim-telemetry/brim/internal/doctor"
)

// Names of what is looked at beside the signals.
const (
	writeP50          = "write_p50"
	writeP99          = "write_p99"
	readingsRate      = "readings_rate"
	readingsPerUpdate = "readings_per_update"
	bytesPerReading   = "bytes_per_reading"
	evictedPages      = "evicted_pages"
	diskFree          = "disk_free"
)

// A measure is a series that is looked at.
type measure struct {
	name, title, unit string
	text              string         // PromQL as in doctor.FillPromQL; empty: the signal's of this name
	rule              *doctor.Signal // with its threshold in force; nil: there is none
}

func (m measure) query(selector string, window, resolution time.Duration) string {
	if m.text == "" {
		return doctor.PromQL(m.name, selector, window, resolution)
	}
	return doctor.FillPromQL(m.text, selector, window, resolution)
}

// How the texts below are made. Of several daemons at one MongoDB each shows
// its collections, so that the most counts for each stream; what the daemons do
// themselves is added up.
const (
	updateReadings = "sum(rate(brim_store_update_readings_sum{$s}[$w]))"
	updates        = "sum(rate(brim_store_update_readings_count{$s}[$w]))"
)

func writeQuantile(q string) string {
	return "1000 * histogram_quantile(" + q + ", sum by (le) (rate(brim_store_write_seconds_bucket{$s}[$w])))"
}

func ofCollections(metric string) string {
	return "avg_over_time(sum(max by (stream) (brim_mongodb_collection_" + metric + "{$s} >= 0))[$w:$r])"
}

// measures are those of the writes and of what is written, in the order in
// which they are shown. The signals follow them.
var measures = []measure{
	{name: writeP99, title: "Write latency, p99", unit: "ms", text: writeQuantile("0.99")},
	{name: writeP50, title: "Write latency, p50", unit: "ms", text: writeQuantile("0.5")},
	{name: readingsRate, title: "Readings taken", unit: "readings/s", text: "sum(rate(brim_ingest_readings_total{$s}[$w]))"},
	{name: readingsPerUpdate, title: "Readings per update", unit: "", text: updateReadings + " / (" + updates + " > 0)"},
	{name: bytesPerReading, title: "Bytes written per reading", unit: "bytes",
		text: "max(rate((brim_mongodb_block_written_bytes_total{$s} >= 0)[$w:$r])) / (" + updateReadings + " > 0)"},
	{name: "collection_bytes", title: "Collections, uncompressed", unit: "bytes", text: ofCollections("bytes")},
	{name: "collection_file", title: "Collections' files", unit: "bytes", text: ofCollections("storage_bytes")},
	{name: "index_bytes", title: "Indexes", unit: "bytes", text: ofCollections("index_bytes")},
	{name: "documents", title: "Documents", unit: "documents", text: ofCollections("documents")},
	{name: evictedPages, title: "Pages evicted from the cache", unit: "pages/s",
		text: "max(sum by (job, instance) (rate((brim_mongodb_cache_evicted_pages_total{$s} >= 0)[$w:$r])))"},
	{name: diskFree, title: "Disk free", unit: "%", text: "avg_over_time(min(100 * brim_disk_free_bytes{$s} / brim_disk_size_bytes{$s} >= 0)[$w:$r])",
		rule: &doctor.Signal{Name: diskFree, Unit: "%", Threshold: doctor.Threshold{Degrading: 20, Bottleneck: 10, Below: true}, Source: "ours: the alert comes at 10 %"}},
}

// allMeasures are those above and the signals with the thresholds in force for
// a kind of disk.
func allMeasures(thresholds *doctor.Thresholds, diskKind string) []measure {
	out := append([]measure{}, measures...)
	for _, s := range doctor.Rules(thresholds, diskKind) {
		out = append(out, measure{name: s.Name, title: s.Title, unit: s.Unit, rule: &s})
	}
	return out
}

// Queries are what is asked for, by the names of the series: for each moment
// what was seen in the window before it, of gauges from looks that are
// resolution apart.
func Queries(selector string, window, resolution time.Duration) map[string]string {
	out := make(map[string]string)
	for _, m := range allMeasures(nil, "") {
		out[m.name] = m.query(selector, window, resolution)
	}
	return out
}
