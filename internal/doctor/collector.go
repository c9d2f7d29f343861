package doctor

import (
	"math"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/brim-telemetry/brim/internal/scrape"
	"github.com/brim-telemetry/brim/internal/store"
)

// newTook measures what a look itself costs MongoDB.
func newTook() prometheus.Histogram {
	return prometheus.NewHistogram(scrape.WithNative(prometheus.HistogramOpts{
		Name: "brim_mongodb_server_status_seconds",
		Help: "Time that a request for MongoDB's status took, also one that was not answered.",
		// 100 us to 6.5 s: an answer takes half a millisecond, a look gives up at 5 s.
		Buckets: prometheus.ExponentialBuckets(0.0001, 2, 17),
	}))
}

// A collector gives the last look to Prometheus. It does no I/O. A gauge that
// cannot be seen is NaN, and its metric is there all the same. A counter that
// cannot be seen any more keeps the value that it had, and is NaN only as long
// as it was never seen; brim_mongodb_up 0 and brim_storage_health -1 say that
// it is not looked at.
type collector struct {
	monitor *Monitor
}

// Describe tells what Collect collects, which is always the same.
func (c *collector) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, ch) }

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	v := c.monitor.seen.Load()
	e := emitter(ch)
	c.monitor.took.Collect(ch)
	e.server(v, v.last.answered && c.monitor.away() == nil)
	e.processors(v)
	e.path(v.last.path)
	for _, s := range c.monitor.config.Streams {
		col, ok := v.last.collections[s.Name]
		if !ok {
			col = unseenCollection("")
		}
		e.collection(s.Name, col)
		if s.Storage == store.TimeSeries {
			e.timeSeries(s.Name, col, v.counted.collection(s.Name))
		}
	}
	e.disk(v)
	for _, s := range v.signals {
		e.gauge("brim_storage_health", "How a signal of the storage engine or the disk stands: 0 healthy, 1 degrading, 2 bottleneck, -1 cannot be seen.",
			float64(s.Class), "signal", s.Name)
	}
}

// An emitter sends metrics. Labels are given as names and values in turn.
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

// path tells how fast updates are stored; the names are read by WritePathOf.
func (e emitter) path(p WritePath) {
	took, usual := p.Seconds, p.Baseline
	if took == 0 && !p.Idle {
		took = math.NaN()
	}
	if usual == 0 {
		usual = math.NaN()
	}
	e.gauge(metricWriteMean, "Mean round trip of the updates of the last looks, 0 if next to none were written and nothing waits; while writes hang, for how long.", took)
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
		"version", orUnknown(v.info.version), "topology", orUnknown(v.info.topology), "engine", orUnknown(v.info.engine))
	for i := range figures {
		f := &figures[i]
		var labels []string
		if f.label != "" {
			labels = []string{f.label, f.value}
		}
		value := v.last.server.value(f.key)
		if f.kind == prometheus.CounterValue {
			value = v.counted.figure(f.key)
		}
		e.send(f.kind, "brim_mongodb_"+f.name, f.help, value, labels)
	}
}

// processors tells the signal of that name as a ratio, and what it is a share of.
func (e emitter) processors(v *view) {
	count := v.last.cores
	if count == 0 {
		count = math.NaN()
	}
	e.gauge("brim_mongodb_processors", "Logical processors of the server's machine that the server may use.", count)
	share := math.NaN()
	for _, one := range v.signals {
		if one.Name == processor {
			share = one.Value / percent
		}
	}
	e.gauge("brim_processor_utilization_ratio", "Share of the server's processors that were busy between the last two looks: for the server, or for everything on its machine if it is this one and that is more.", share)
}

// orUnknown stands in for a name that was not told.
func orUnknown(name string) string {
	if name == "" {
		return "unknown"
	}
	return name
}

func (e emitter) collection(stream string, c collection) {
	e.gauge("brim_mongodb_collection_bytes", "Bytes of the collection's documents, before compression.", c.data, "stream", stream)
	e.gauge("brim_mongodb_collection_storage_bytes", "Bytes of the collection's file.", c.storage, "stream", stream)
	e.gauge("brim_mongodb_collection_free_bytes", "Bytes of the collection's file that hold nothing.", c.free, "stream", stream)
	e.gauge("brim_mongodb_collection_index_bytes", "Bytes of the collection's indexes.", c.index, "stream", stream)
	e.gauge("brim_mongodb_collection_documents", "Documents of the collection; of a time-series collection its buckets.", c.documents, "stream", stream)
}

func (e emitter) timeSeries(stream string, now, c collection) {
	e.gauge("brim_mongodb_timeseries_buckets", "Buckets of the time-series collection.", now.buckets, "stream", stream)
	for i, reason := range closeReasons {
		e.counter("brim_mongodb_timeseries_bucket_closes_total", "Buckets of the time-series collection that the server closed.",
			c.closes[i], "stream", stream, "reason", reason.label)
	}
	e.counter("brim_mongodb_timeseries_commits_total", "Writes to buckets of the time-series collection.", c.commits, "stream", stream)
	e.counter("brim_mongodb_timeseries_measurements_total", "Readings that were written to buckets of the time-series collection.", c.measurements, "stream", stream)
}

func (e emitter) disk(v *view) {
	d, counted := v.last.disk, v.counted.diskCounters()
	e.gauge("brim_disk_utilization_ratio", "Share of the time between the last two looks in which the disk had work.", v.rates.value(rateDiskBusy)/percent)
	e.gauge("brim_disk_await_seconds", "Mean time of a read or write of the disk between the last two looks, 0 if there was none.", v.rates.value(rateDiskAwait)*millis)
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
	e.gauge("brim_disk_info", "1, with the disk that holds MongoDB's files.", info, "device", orUnknown(d.device), "kind", string(d.kind))
}
