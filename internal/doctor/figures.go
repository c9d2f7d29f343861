package doctor

import (
	"math"

	"github.com/prometheus/client_golang/prometheus"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// A key names a figure of serverStatus: its metric's name without the prefix,
// and the label's value if there is one.
type key string

// The figures that signals are made of.
const (
	cacheMax        key = "cache_max_bytes"
	cacheUsed       key = "cache_used_bytes"
	cacheDirty      key = "cache_dirty_bytes"
	cacheUpdates    key = "cache_updates_bytes"
	appEvictions    key = "cache_application_evictions_total"
	historyInserts  key = "history_store_inserts_total"
	checkpoints     key = "checkpoints_total"
	checkpointLast  key = "checkpoint_last_seconds"
	readsAvailable  key = "tickets_available read"
	readsInUse      key = "tickets_in_use read"
	readsQueued     key = "queued_operations read"
	writesAvailable key = "tickets_available write"
	writesInUse     key = "tickets_in_use write"
	writesQueued    key = "queued_operations write"
	operationsWrite key = "operations_total write"
	journalSyncs    key = "journal_syncs_total"
	cpuUser         key = "cpu_seconds_total user"
	cpuSystem       key = "cpu_seconds_total system"
)

// A figure is a number of serverStatus that is a metric. Figures of one metric
// follow each other and differ in the label's value.
type figure struct {
	key   key
	name  string // of the metric, without brim_mongodb_
	label string
	value string
	kind  prometheus.ValueType
	help  string
	scale float64 // what the server's unit is in the metric's
	paths []path  // in which versions of MongoDB keep it; the first that is there counts
	flag  bool    // not 0 is 1
}

// A path leads to a number of serverStatus.
type path []string

func (f *figure) read(raw bson.Raw) float64 {
	for _, p := range f.paths {
		if v := number(raw, p...); !math.IsNaN(v) {
			if f.flag && v != 0 {
				return 1
			}
			return v * f.scale
		}
	}
	return math.NaN()
}

func gauge(name string, scale float64, help string, paths ...path) figure {
	return figure{key: key(name), name: name, kind: prometheus.GaugeValue, scale: scale, help: help, paths: paths}
}

func counter(name string, scale float64, help string, paths ...path) figure {
	f := gauge(name, scale, help, paths...)
	f.kind = prometheus.CounterValue
	return f
}

// with gives the figure a label.
func (f figure) with(label, value string) figure {
	f.key, f.label, f.value = f.key+" "+key(value), label, value
	return f
}

// asFlag makes the figure 0 or 1.
func (f figure) asFlag() figure {
	f.flag = true
	return f
}

// engine leads to a statistic of WiredTiger.
func engine(section, name string) path { return path{"wiredTiger", section, name} }

// tickets leads to the tickets of a kind: MongoDB 8 keeps them in queues.
func tickets(kind, name string) []path {
	return []path{{"queues", "execution", kind, name}, {"wiredTiger", "concurrentTransactions", kind, name}}
}

const (
	micros = 1e-6
	millis = 1e-3
	mebi   = 1 << 20
)

// figures are all that is read of serverStatus. Names of statistics are those
// of WiredTiger 10 and 11 (MongoDB 6 and 7) and of 11.2 and later (MongoDB 8),
// where they differ in this order: new, old.
var figures = []figure{
	gauge("cache_max_bytes", 1, "Size of WiredTiger's cache as configured.", engine("cache", "maximum bytes configured")),
	gauge("cache_used_bytes", 1, "Bytes in WiredTiger's cache.", engine("cache", "bytes currently in the cache")),
	gauge("cache_dirty_bytes", 1, "Bytes in WiredTiger's cache that no checkpoint has written yet.", engine("cache", "tracked dirty bytes in the cache")),
	gauge("cache_updates_bytes", 1, "Bytes in WiredTiger's cache that hold updates not yet made part of a page.", engine("cache", "bytes allocated for updates")),
	counter("cache_read_bytes_total", 1, "Bytes read into WiredTiger's cache.", engine("cache", "bytes read into cache")),
	counter("cache_written_bytes_total", 1, "Bytes written from WiredTiger's cache, before compression.", engine("cache", "bytes written from cache")),
	counter("cache_evicted_pages_total", 1, evictedHelp, engine("cache", "modified pages evicted")).with("pages", "modified"),
	counter("cache_evicted_pages_total", 1, evictedHelp, engine("cache", "unmodified pages evicted")).with("pages", "unmodified"),
	counter("cache_application_evictions_total", 1, "Pages that threads serving clients had to evict, or to try to, before they could go on.",
		engine("cache", "page evict attempts by application threads"), engine("cache", "pages evicted by application threads")),
	counter("cache_application_eviction_seconds_total", micros, "Time that threads serving clients spent evicting pages.",
		engine("cache", "application thread time evicting (usecs)"), engine("thread-yield", "application thread time evicting (usecs)")),

	gauge("history_store_bytes", 1, "Size on disk of the history store, where old versions of documents go.", engine("cache", "history store table on-disk size")),
	counter("history_store_inserts_total", 1, "Old versions of documents written to the history store.", engine("cache", "history store table insert calls")),

	counter("checkpoints_total", 1, "Checkpoints taken.", engine("checkpoint", "total succeed number of checkpoints"), engine("transaction", "transaction checkpoints")),
	counter("checkpoint_seconds_total", millis, "Time spent in checkpoints.",
		engine("checkpoint", "total time (msecs)"), engine("transaction", "transaction checkpoint total time (msecs)")),
	gauge("checkpoint_last_seconds", millis, "Duration of the last checkpoint.",
		engine("checkpoint", "most recent time (msecs)"), engine("transaction", "transaction checkpoint most recent time (msecs)")),
	gauge("checkpoint_running", 1, "1 while a checkpoint is being taken.",
		engine("checkpoint", "progress state"), engine("transaction", "transaction checkpoint currently running")).asFlag(),

	counter("block_read_bytes_total", 1, "Bytes that the engine read from its files.", engine("block-manager", "bytes read")),
	counter("block_written_bytes_total", 1, "Bytes that the engine wrote to its files, without its journal.", engine("block-manager", "bytes written")),
	counter("block_checkpoint_written_bytes_total", 1, "Bytes that checkpoints wrote to the engine's files.", engine("block-manager", "bytes written for checkpoint")),

	counter("journal_written_bytes_total", 1, "Bytes written to WiredTiger's journal.", engine("log", "log bytes written")),
	counter("journal_syncs_total", 1, "Syncs of WiredTiger's journal to the disk.", engine("log", "log sync operations")),
	counter("journal_sync_seconds_total", micros, "Time spent in syncs of WiredTiger's journal.", engine("log", "log sync time duration (usecs)")),

	gauge("tickets_available", 1, availableHelp, tickets("read", "available")...).with("kind", "read"),
	gauge("tickets_available", 1, availableHelp, tickets("write", "available")...).with("kind", "write"),
	gauge("tickets_in_use", 1, inUseHelp, tickets("read", "out")...).with("kind", "read"),
	gauge("tickets_in_use", 1, inUseHelp, tickets("write", "out")...).with("kind", "write"),
	gauge("queued_operations", 1, queuedHelp, path{"globalLock", "currentQueue", "readers"}).with("kind", "read"),
	gauge("queued_operations", 1, queuedHelp, path{"globalLock", "currentQueue", "writers"}).with("kind", "write"),

	counter("operations_total", 1, operationsHelp, path{"opLatencies", "reads", "ops"}).with("kind", "read"),
	counter("operations_total", 1, operationsHelp, path{"opLatencies", "writes", "ops"}).with("kind", "write"),
	counter("operations_total", 1, operationsHelp, path{"opLatencies", "commands", "ops"}).with("kind", "command"),
	counter("operations_total", 1, operationsHelp, path{"opLatencies", "transactions", "ops"}).with("kind", "transaction"),
	counter("operation_seconds_total", micros, operationSecondsHelp, path{"opLatencies", "reads", "latency"}).with("kind", "read"),
	counter("operation_seconds_total", micros, operationSecondsHelp, path{"opLatencies", "writes", "latency"}).with("kind", "write"),
	counter("operation_seconds_total", micros, operationSecondsHelp, path{"opLatencies", "commands", "latency"}).with("kind", "command"),
	counter("operation_seconds_total", micros, operationSecondsHelp, path{"opLatencies", "transactions", "latency"}).with("kind", "transaction"),

	gauge("connections", 1, "Connections of clients to the server.", path{"connections", "current"}),
	gauge("resident_bytes", mebi, "Memory of the server's process, to the MiB.", path{"mem", "resident"}),
	counter("cpu_seconds_total", micros, cpuHelp, path{"extra_info", "user_time_us"}).with("mode", "user"),
	counter("cpu_seconds_total", micros, cpuHelp, path{"extra_info", "system_time_us"}).with("mode", "system"),
}

const (
	evictedHelp          = "Pages evicted from WiredTiger's cache."
	availableHelp        = "Operations that the engine would let in besides those that are inside."
	inUseHelp            = "Operations inside the engine."
	queuedHelp           = "Operations that wait for a lock or for a ticket."
	operationsHelp       = "Operations that the server has done, a bulk being one."
	operationSecondsHelp = "Time that the server spent on operations, waits included."
	cpuHelp              = "CPU time of the server's process."
)
