package doctor

import (
	"cmp"
	"math"

	"github.com/prometheus/client_golang/prometheus"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/brim-telemetry/brim/internal/store"
)

// A key names a figure of serverStatus: its metric's name without the prefix,
// and the label's value if any.
type key string

// The figures behind the signals.
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

	// Read only for the settings; not exported as metrics.
	flowControlSeconds  key = "flow_control_wait_seconds_total"
	flowControlLimit    key = "flow_control_limit"
	majorityWaitsTotal  key = "majority_waits_total"
	majorityWaitSeconds key = "majority_wait_seconds_total"
)

// A figure is a number in serverStatus that is exported as a metric. Figures of
// one metric are adjacent and differ in the label's value.
type figure struct {
	key   key
	name  string // of the metric, without brim_mongodb_
	label string
	value string
	kind  prometheus.ValueType
	help  string
	scale float64 // one server unit in the metric's unit
	paths []path  // where versions of MongoDB have it; the first one present counts
	flag  bool    // 0 or 1
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

// with adds a label to the figure.
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

// tickets leads to a kind of tickets, which MongoDB 8 keeps in queues.
func tickets(kind, name string) []path {
	return []path{{"queues", "execution", kind, name}, {"wiredTiger", "concurrentTransactions", kind, name}}
}

const (
	micros = 1e-6
	millis = 1e-3
	mebi   = 1 << 20
)

// figures is everything read from serverStatus. Where names of statistics
// differ, that of 11.2 and later (MongoDB 8) comes first, then that of
// WiredTiger 10 and 11 (MongoDB 6 and 7).
var figures = []figure{
	gauge("cache_max_bytes", 1, "Size of WiredTiger's cache as configured.", engine("cache", "maximum bytes configured")),
	gauge("cache_used_bytes", 1, "Bytes in WiredTiger's cache.", engine("cache", "bytes currently in the cache")),
	gauge("cache_dirty_bytes", 1, "Bytes in WiredTiger's cache that no checkpoint has written yet.", engine("cache", "tracked dirty bytes in the cache")),
	gauge("cache_updates_bytes", 1, "Bytes in WiredTiger's cache that hold updates not yet merged into a page.", engine("cache", "bytes allocated for updates")),
	counter("cache_read_bytes_total", 1, "Bytes read into WiredTiger's cache.", engine("cache", "bytes read into cache")),
	counter("cache_written_bytes_total", 1, "Bytes written from WiredTiger's cache, before compression.", engine("cache", "bytes written from cache")),
	counter("cache_evicted_pages_total", 1, evictedHelp, engine("cache", "modified pages evicted")).with("pages", "modified"),
	counter("cache_evicted_pages_total", 1, evictedHelp, engine("cache", "unmodified pages evicted")).with("pages", "unmodified"),
	counter("cache_application_evictions_total", 1, "Pages that application threads had to evict, or try to, before they could go on.",
		engine("cache", "page evict attempts by application threads"), engine("cache", "pages evicted by application threads")),
	counter("cache_application_eviction_seconds_total", micros, "Time that application threads spent evicting pages.",
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
	availableHelp        = "Operations that the engine would admit besides those that are inside."
	inUseHelp            = "Operations inside the engine."
	queuedHelp           = "Operations that wait for a lock or for a ticket."
	operationsHelp       = "Operations that the server has done, a bulk being one."
	operationSecondsHelp = "Time that the server spent on operations, waits included."
	cpuHelp              = "CPU time of the server's process."
)

// Describe implements prometheus.Collector.
func (m *Monitor) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(m, ch) }

// Collect exports the last sample to Prometheus. It does no I/O. A gauge that is
// unknown is NaN. A counter that becomes unknown keeps its value, since NaN would
// spoil rates across the gap; it is NaN only until first seen; brim_mongodb_up 0
// and brim_storage_health -1 mark it as stale.
func (m *Monitor) Collect(ch chan<- prometheus.Metric) {
	v := m.seen.Load()
	e := emitter(ch)
	m.took.Collect(ch)
	e.server(v, v.last.answered && m.away() == nil)
	e.cpus(v)
	e.path(v.last.path)
	for _, s := range m.config.Streams {
		now, ok := v.last.collections[s.Name]
		if !ok {
			now = unseenCollection("")
		}
		last, ok := v.known.collections[s.Name]
		if !ok {
			last = unseenCollection("")
		}
		e.collection(s, now, last)
	}
	e.disk(v)
	for _, s := range v.Signals {
		e.gauge("brim_storage_health", "Class of a signal of the storage engine or the disk: 0 healthy, 1 degrading, 2 bottleneck, -1 unknown.",
			float64(s.Class), "signal", s.Name)
	}
}

// An emitter sends metrics. Labels alternate between names and values.
type emitter chan<- prometheus.Metric

func (e emitter) gauge(name, help string, value float64, labels ...string) {
	e.send(prometheus.GaugeValue, name, help, value, labels)
}

func (e emitter) counter(name, help string, value float64, labels ...string) {
	e.send(prometheus.CounterValue, name, help, value, labels)
}

func (e emitter) send(kind prometheus.ValueType, name, help string, value float64, labels []string) {
	var names, values []string
	for i := 0; i+1 < len(labels); i += 2 {
		names, values = append(names, labels[i]), append(values, labels[i+1])
	}
	desc := prometheus.NewDesc(name, help, names, nil)
	metric, err := prometheus.NewConstMetric(desc, kind, value, values...)
	if err != nil {
		metric = prometheus.NewInvalidMetric(desc, err)
	}
	e <- metric
}

// path exports how long updates take; WritePathOf reads it back.
func (e emitter) path(p WritePath) {
	took, usual := p.Seconds, p.Baseline
	if took == 0 && !p.Idle {
		took = math.NaN()
	}
	if usual == 0 {
		usual = math.NaN()
	}
	e.gauge(metricWriteMean, "Mean round trip of the updates of the last samples, 0 if next to none were written and nothing waits; while writes hang, for how long.", took)
	e.gauge(metricWriteBaseline, "What the mean round trip of updates usually is: its median while writes were not slow, of an hour at most.", usual)
	e.gauge("brim_store_write_slowdown_ratio", "How many times as long as usual updates take; 1 if next to none are written and nothing waits.", p.slowdown())
}

func (e emitter) server(v *view, answers bool) {
	up, info := 0.0, math.NaN()
	if answers {
		up = 1
	}
	if v.last.server != nil {
		info = 1
	}
	e.gauge("brim_mongodb_up", "1 while MongoDB answers pings, and answered the last request for its status.", up)
	e.gauge("brim_mongodb_info", "1, with what MongoDB said of itself last.", info,
		"version", cmp.Or(v.Server.Version, "unknown"), "topology", cmp.Or(v.Server.Topology, "unknown"), "engine", cmp.Or(v.Server.Engine, "unknown"))
	for i := range figures {
		f := &figures[i]
		var labels []string
		if f.label != "" {
			labels = []string{f.label, f.value}
		}
		value := v.last.server.value(f.key)
		if f.kind == prometheus.CounterValue {
			value = v.known.server.value(f.key)
		}
		e.send(f.kind, "brim_mongodb_"+f.name, f.help, value, labels)
	}
}

func (e emitter) cpus(v *view) {
	count := v.last.cores
	if count == 0 {
		count = math.NaN()
	}
	e.gauge("brim_mongodb_processors", "Logical CPUs of the server's machine that the server may use.", count)
	e.gauge("brim_processor_utilization_ratio", "Share of the server's CPUs that were busy between the last two samples: by the server, or by all processes of its host if it is this one and that is more.", v.Signal(processor).Value/percent)
}

// collection exports the current sizes and, for a time-series collection, the
// last known counters.
func (e emitter) collection(s Stream, now, last collection) {
	e.gauge("brim_mongodb_collection_bytes", "Bytes of the collection's documents, before compression.", now.data, "stream", s.Name)
	e.gauge("brim_mongodb_collection_storage_bytes", "Bytes of the collection's file.", now.storage, "stream", s.Name)
	e.gauge("brim_mongodb_collection_free_bytes", "Bytes of the collection's file that are empty.", now.free, "stream", s.Name)
	e.gauge("brim_mongodb_collection_index_bytes", "Bytes of the collection's indexes.", now.index, "stream", s.Name)
	e.gauge("brim_mongodb_collection_documents", "Documents of the collection; of a time-series collection its buckets.", now.documents, "stream", s.Name)
	if s.Storage != store.TimeSeries {
		return
	}
	e.gauge("brim_mongodb_timeseries_buckets", "Buckets of the time-series collection.", now.buckets, "stream", s.Name)
	for i, reason := range closeReasons {
		e.counter("brim_mongodb_timeseries_bucket_closes_total", "Buckets of the time-series collection that the server closed.",
			last.closes[i], "stream", s.Name, "reason", reason.label)
	}
	e.counter("brim_mongodb_timeseries_commits_total", "Writes to buckets of the time-series collection.", last.commits, "stream", s.Name)
	e.counter("brim_mongodb_timeseries_measurements_total", "Readings that were written to buckets of the time-series collection.", last.measurements, "stream", s.Name)
}

func (e emitter) disk(v *view) {
	d, counted := v.last.disk, v.known.disk
	e.gauge("brim_disk_utilization_ratio", "Share of the time between the last two samples in which the disk had work.", v.rates.value(rateDiskBusy)/percent)
	e.gauge("brim_disk_await_seconds", "Mean time of a read or write of the disk between the last two samples, 0 if there was none.", v.rates.value(rateDiskAwait)*millis)
	e.counter("brim_disk_read_bytes_total", "Bytes read from the disk that holds MongoDB's files.", counted.readBytes)
	e.counter("brim_disk_written_bytes_total", "Bytes written to the disk that holds MongoDB's files.", counted.writtenBytes)
	e.counter("brim_disk_operations_total", "Reads and writes of the disk that holds MongoDB's files.", counted.reads, "op", "read")
	e.counter("brim_disk_operations_total", "Reads and writes of the disk that holds MongoDB's files.", counted.writes, "op", "write")
	e.gauge("brim_disk_size_bytes", "Size of the file system that holds MongoDB's files.", d.size)
	e.gauge("brim_disk_free_bytes", "Bytes of the file system that MongoDB may still take.", d.free)
	info := math.NaN()
	if d.device != "" {
		info = 1
	}
	e.gauge("brim_disk_info", "1, with the disk that holds MongoDB's files.", info, "device", cmp.Or(d.device, "unknown"), "kind", string(d.kind))
}
