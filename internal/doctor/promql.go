package doctor

import (
	"math"
	"strings"
	"time"

	"github.com/prometheus/common/model"
)

// A promQL is how a Prometheus that reads our metrics tells a signal, in the
// signal's unit. Of several daemons the worst counts. In both texts $s stands
// for the selector of the daemons, $w for a span of time and $r for how often
// to look within it. What cannot be seen is NaN, which would spoil all of a
// span, so it is left out.
type promQL struct {
	expr string // at one moment, or of a rate over $w
	over string // sums expr up over $w; empty: expr is over $w itself
}

// How gauges are summed up over a span. The cache fills from checkpoint to
// checkpoint and tickets run short in moments, so that a mean would hide what
// the classes are about; the worst of all moments would be chance.
const (
	overMean = "avg_over_time(($e)[$w:$r])"
	overHigh = "quantile_over_time(0.95, ($e)[$w:$r])"
	overLow  = "quantile_over_time(0.05, ($e)[$w:$r])"
)

// promQLs has one for each rule; a test holds the two together.
var promQLs = map[string]promQL{
	diskBusy:             {"max(100 * brim_disk_utilization_ratio{$s} >= 0)", overMean},
	diskAwait:            {"max(1000 * brim_disk_await_seconds{$s} >= 0)", overMean},
	processor:            {"max(100 * brim_processor_utilization_ratio{$s} >= 0)", overMean},
	cacheDirtyShare:      {cachePromQL("dirty"), overHigh},
	cacheUpdatesShare:    {cachePromQL("updates"), overHigh},
	cacheUsedShare:       {cachePromQL("used"), overMean},
	applicationEvictions: {ratePromQL("brim_mongodb_cache_application_evictions_total"), ""},
	checkpointDuration:   {"max(brim_mongodb_checkpoint_last_seconds{$s} >= 0)", overMean},
	historyStore:         {ratePromQL("brim_mongodb_history_store_inserts_total"), ""},
	writeTickets:         {ticketsPromQL("write"), overLow},
	readTickets:          {ticketsPromQL("read"), overLow},
	// A small file counts as not fragmented, as it does in the class of freeShare.
	fragmentation: {"max((100 * brim_mongodb_collection_free_bytes{$s} / (brim_mongodb_collection_storage_bytes{$s} >= 67108864)) or 0 * (brim_mongodb_collection_storage_bytes{$s} >= 0))", overMean},
	writeSlowdown: {"max(brim_store_write_slowdown_ratio{$s} >= 0)", overMean},
}

func cachePromQL(part string) string {
	return "max(100 * brim_mongodb_cache_" + part + "_bytes{$s} / brim_mongodb_cache_max_bytes{$s} >= 0)"
}

func ratePromQL(counter string) string { return "max(rate((" + counter + "{$s} >= 0)[$w:$r]))" }

// ticketsPromQL leaves out moments in which few were free and the doctor said
// that nobody waited for one: then they count as all free.
func ticketsPromQL(kind string) string {
	share := `(100 * brim_mongodb_tickets_available{kind="` + kind + `",$s} / (brim_mongodb_tickets_available{kind="` + kind + `",$s} + brim_mongodb_tickets_in_use{kind="` + kind + `",$s}))`
	health := `brim_storage_health{signal="` + kind + `_tickets",$s}`
	return "min((" + share + " >= 20) or on (job, instance) (" + share + " unless on (job, instance) (" + health + " == 0)) or on (job, instance) (100 + (" + health + " == 0)) >= 0)"
}

// PromQL returns the query by which a Prometheus that reads Brim's metrics tells
// a signal over the window that ends at the moment asked for, in the signal's
// unit. selector names the daemons, as in job="brim"; empty is all. A gauge is
// summed up from looks that are resolution apart; a window of 0 asks for the
// gauge at the moment, and for a rate over the last resolution. It returns ""
// for a name that is no signal's.
func PromQL(signal, selector string, window, resolution time.Duration) string {
	q, ok := promQLs[signal]
	if !ok {
		return ""
	}
	text := q.expr
	if q.over != "" && window > 0 {
		text = strings.ReplaceAll(q.over, "$e", text)
	}
	return FillPromQL(text, selector, window, resolution)
}

// FillPromQL puts a selector for $s, a window for $w and a resolution for $r
// into a query's text.
func FillPromQL(text, selector string, window, resolution time.Duration) string {
	if window <= 0 {
		window, resolution = resolution, time.Second
	}
	return strings.NewReplacer("$s", selector, "$w", model.Duration(window).String(), "$r", model.Duration(resolution).String()).Replace(text)
}

// At returns the signal with a value that was seen by other means than a look.
func (s Signal) At(value float64) Signal {
	s.Value, s.Class = value, Unknown
	if !math.IsNaN(value) {
		s.Class = s.Threshold.Class(value)
	}
	return s
}
