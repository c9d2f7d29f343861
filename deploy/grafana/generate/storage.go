package main

// storageEngine shows MongoDB's storage engine and the disk under it.
func storageEngine() dashboard {
	return dashboard{
		name:  "storage-engine",
		title: "Brim: storage engine",
		about: "What WiredTiger and the disk under it do for the writes of Brim, with the thresholds of brim doctor as dashed lines.",
		rows: []row{
			{"Health", health()},
			{"Cache", cache()},
			{"Checkpoints and what is written", checkpoints()},
			{"Operations", operations()},
			{"Disk", disk()},
			{"Collections", collections()},
			{"Time-series collections", timeSeries()},
		},
	}
}

func health() []panel {
	return []panel{
		{title: "MongoDB", kind: number, unit: count, name: true, width: 6, queries: each("{{version}} {{topology}} {{engine}}", "brim_mongodb_info"),
			about: "Version, topology and storage engine of the server."},
		{title: "Disk", kind: number, unit: count, name: true, width: 6, queries: each("{{device}} {{kind}}", "brim_disk_info"),
			about: "The disk that holds the data, and its kind, which decides the thresholds of await. Empty if it is unknown: MongoDB on another machine, an overlay file system."},
		{title: "Answers", kind: number, unit: count, width: 6, low: true, warn: 1, queries: each("answers", "min(brim_mongodb_up)"),
			about: "1 when the last serverStatus answered."},
		{title: "Embedded mongod restarted", kind: number, unit: count, width: 6, warn: 1, alarm: 1, queries: each("restarts", "sum(brim_mongod_restarts_total)"),
			about: "How often the daemon's own mongod exited and was started again."},
		{title: "Health", kind: states, unit: count, width: width, height: 10, queries: each("{{signal}}", "max by (signal) (brim_storage_health)"),
			about: "Each signal's class over time. The first that turns orange as load rises is the next bottleneck; its panel is below."},
	}
}

// cacheShare is the size of a part of the cache divided by the cache's.
func cacheShare(part string) string {
	return "max(brim_mongodb_cache_" + part + "_bytes / brim_mongodb_cache_max_bytes)"
}

func cache() []panel {
	return []panel{
		{title: "Cache dirty", unit: share, warn: 0.05, alarm: 0.15, queries: each("dirty", cacheShare("dirty")),
			about: "Changed and not yet written. Eviction starts at 5 %; at 20 % each writer must evict before it may write. Rising steadily: the disk cannot keep up."},
		{title: "Cache updates", unit: share, warn: 0.025, alarm: 0.1, queries: each("updates", cacheShare("updates")),
			about: "Changes not yet merged into pages. Appending to buckets reaches this limit first: eviction starts at 2.5 %, writers must help at 10 %."},
		{title: "Cache used", unit: share, warn: 0.9, alarm: 0.95, queries: each("used", cacheShare("used")),
			about: "WiredTiger holds a full cache at 80 %, so a flat line there is normal. Above 95 % each operation must evict first."},
		{title: "Application evictions", unit: perSec, warn: 1, alarm: 100, queries: with(each("pages", total("brim_mongodb_cache_application_evictions_total")), seconds,
			"time spent per second", total("brim_mongodb_cache_application_eviction_seconds_total")),
			about: "Pages evicted by threads that should serve writes, and the time it takes them (dashed, right). Anything but 0 is part of the write latency."},
		{title: "Evicted pages", unit: perSec, stack: true, queries: each("{{pages}}", total("brim_mongodb_cache_evicted_pages_total", "pages")),
			about: "Modified pages are written when evicted, unmodified ones are dropped."},
		{title: "Cache traffic", unit: bytesPerSec, queries: each("read into", total("brim_mongodb_cache_read_bytes_total"), "written from", total("brim_mongodb_cache_written_bytes_total")),
			about: "Reads under an append-only load: buckets left the cache before they were full; a larger cache or smaller windows help."},
		{title: "History store", unit: inBytes, queries: with(each("size", "sum(brim_mongodb_history_store_bytes)"), perSec, "inserts", total("brim_mongodb_history_store_inserts_total")),
			about: "Former versions of documents that a reader may still need. Each update of a bucket can leave one of the bucket's size here. From 100 inserts a second on it costs writes; steady growth: an old snapshot is held open."},
	}
}

func checkpoints() []panel {
	return []panel{
		{title: "Checkpoints", unit: seconds, warn: 5, alarm: 15, queries: with(each("last", "max(brim_mongodb_checkpoint_last_seconds)"), count, "running", "max(brim_mongodb_checkpoint_running)"),
			about: "How long the last one took, and whether one is running (dashed, right). Above 15 s, latency suffers through much of each minute."},
		{title: "Write latency during checkpoints", unit: seconds, queries: with(medianAndP99(storeWrites), count, "checkpoint running", "max(brim_mongodb_checkpoint_running)"),
			about: "Peaks of p99 while the dashed line is up are what checkpoints cost."},
		{title: "Checkpoints done", unit: count, queries: with(each("an hour", "sum(rate("+seen("brim_mongodb_checkpoints_total")+")) * 3600"), share,
			"share of the time", "sum(rate("+seen("brim_mongodb_checkpoint_seconds_total")+"))"),
			about: "60 an hour by default, and the share of the time that they take (dashed, right)."},
		{title: "Block manager", unit: bytesPerSec, queries: each(
			"read", total("brim_mongodb_block_read_bytes_total"), "written", total("brim_mongodb_block_written_bytes_total"), "of these by checkpoints", total("brim_mongodb_block_checkpoint_written_bytes_total")),
			about: "What WiredTiger reads and writes. Far more written than the readings' own size: documents are rewritten again and again; merge more."},
		{title: "Bytes written per reading", unit: inBytes, queries: each(
			"by the block manager", total("brim_mongodb_block_written_bytes_total")+" / "+total("brim_store_update_readings_sum"),
			"to MongoDB's journal", total("brim_mongodb_journal_written_bytes_total")+" / "+total("brim_store_update_readings_sum")),
			about: "The price of a reading. It falls with more readings per update and with smaller buckets."},
		{title: "MongoDB's journal", unit: bytesPerSec, queries: with(each("written", total("brim_mongodb_journal_written_bytes_total")), seconds,
			"per sync", total("brim_mongodb_journal_sync_seconds_total")+" / "+total("brim_mongodb_journal_syncs_total")),
			about: "Each update waits for a sync of it; the mean time of one is dashed, on the right."},
	}
}

func operations() []panel {
	return []panel{
		{title: "Operation latency", unit: seconds, queries: each("{{kind}}", total("brim_mongodb_operation_seconds_total", "kind")+" / "+total("brim_mongodb_operations_total", "kind")),
			about: "Mean time inside MongoDB. Write latency far above it: the time is lost between Brim and MongoDB."},
		{title: "Operations", unit: opsSec, queries: each("{{kind}}", total("brim_mongodb_operations_total", "kind")), about: "All clients together, not Brim alone."},
		{title: "Tickets", unit: share, queries: each("{{kind}} free", "min by (kind) (brim_mongodb_tickets_available / (brim_mongodb_tickets_available + brim_mongodb_tickets_in_use))"),
			about: "Share of the read and write tickets that is free. Since MongoDB 7 their number follows the load, so that near 0 means something only when operations queue (the next panel): then each takes long, and more clients make it worse. The alert uses the signals write_tickets and read_tickets on Health, which consider both."},
		{title: "Queued operations", unit: count, queries: each("{{kind}}", "sum by (kind) (brim_mongodb_queued_operations)"), about: "Operations that wait for a ticket or a lock. 0 on a healthy server."},
		{title: "CPU busy", unit: share, warn: 0.7, alarm: 0.9, queries: each("busy", "max(brim_processor_utilization_ratio)"),
			about: "mongod's share of the CPU, or that of all processes if mongod runs on Brim's host and they use more. Above 90 % the host is saturated; the signal write_slowdown on Health says whether that slows writes down, and the panel mongod how much of it is mongod."},
		{title: "mongod", unit: count, queries: with(each("CPUs, {{mode}}", total("brim_mongodb_cpu_seconds_total", "mode")), inBytes, "resident", "sum(brim_mongodb_resident_bytes)"),
			about: "CPUs in use, and memory (dashed, right)."},
		{title: "Connections and sampling", unit: count, queries: with(each("connections", "sum(brim_mongodb_connections)"), seconds,
			"serverStatus", "sum(rate(brim_mongodb_server_status_seconds_sum[1m])) / sum(rate(brim_mongodb_server_status_seconds_count[1m]))"),
			about: "Clients' connections, and the cost of the figures on this page: the mean time of a serverStatus (dashed, right), run once per interval."},
	}
}

func disk() []panel {
	return []panel{
		{title: "Disk busy", unit: share, warn: 0.5, alarm: 0.8, queries: each("busy", "max(brim_disk_utilization_ratio)"),
			about: "Share of the time in which the disk had work. Below 50 % is healthy, above 80 % a bottleneck; an alert fires when the mean of five minutes is above 60 %. An NVMe disk can do more at once, so also check await."},
		{title: "Disk await", unit: seconds, warn: 0.002, alarm: 0.01, queries: each("await", "max(brim_disk_await_seconds)"),
			about: "Time of one operation, including waiting. The lines are an SSD's thresholds; for NVMe use 0.5 and 2 ms. High while moderately busy: the disk is slow; high while very busy: it is overloaded."},
		{title: "Disk traffic", unit: bytesPerSec, queries: each("read", total("brim_disk_read_bytes_total"), "written", total("brim_disk_written_bytes_total")),
			about: "Very busy and many MB/s: throughput-bound."},
		{title: "Disk operations", unit: opsSec, queries: each("{{op}}", total("brim_disk_operations_total", "op")), about: "Very busy and many operations at a moderate await: IOPS-bound."},
		{title: "Disk space", unit: share, low: true, warn: 0.2, alarm: 0.1, queries: with(each("free", "min(brim_disk_free_bytes / brim_disk_size_bytes)"), inBytes, "bytes free", "min(brim_disk_free_bytes)"),
			about: "An alert fires below 10 %. MongoDB exits when it cannot write a checkpoint."},
	}
}

func collections() []panel {
	return []panel{
		{title: "Collection sizes", unit: inBytes, about: "Documents before compression, files, and indexes. Sampled once a minute.", queries: each(
			"{{stream}} documents", "sum by (stream) (brim_mongodb_collection_bytes"+ofStream+")",
			"{{stream}} files", "sum by (stream) (brim_mongodb_collection_storage_bytes"+ofStream+")",
			"{{stream}} indexes", "sum by (stream) (brim_mongodb_collection_index_bytes"+ofStream+")")},
		{title: "Free space inside the files", unit: share, warn: 0.2, alarm: 0.5,
			queries: each("{{stream}}", "max by (stream) (brim_mongodb_collection_free_bytes"+ofStream+" / (brim_mongodb_collection_storage_bytes"+ofStream+" > 0))"),
			about:   "What brim compact could reclaim. New documents use it again, so it matters only if it stays. Small files are mostly free space, which is harmless."},
		{title: "Sealing is behind", unit: seconds, queries: each("{{stream}}", "max by (stream) (brim_seal_lag_seconds"+ofStream+")"),
			about: "How long buckets have been due to be packed into one block. It rises between two passes, by at most five minutes and the time that a pass takes. If it keeps rising, sealing does not keep up; readings are safe, and only larger."},
		{title: "Sealed parts", unit: perSec, stack: true, queries: each("{{stream}} {{outcome}}", "sum by (stream, outcome) (rate("+seen("brim_seal_parts_total"+ofStream)+"))"),
			about: "Parts of buckets that were packed, by outcome. changed: appended to before they were packed, and packed later; failed: not what Brim writes, see the daemon's log."},
		{title: "Rollups", unit: perSec, stack: true, queries: each("{{stream}} {{outcome}}", "sum by (stream, outcome) (rate("+seen("brim_rollup_steps_total"+ofStream)+"))",
			"{{stream}} not counted: {{reason}}", "sum by (stream, reason) (rate("+seen("brim_rollup_refused_readings_total"+ofStream)+"))"),
			about: "Steps of rollups that were written, and days that another daemon changed at the same time; readings that could not be counted (expired) or are counted already (replayed)."},
		{title: "Documents", unit: count, about: "Bucket documents; of a time-series collection the buckets that the server made.",
			queries: each("{{stream}}", "sum by (stream) (brim_mongodb_collection_documents"+ofStream+")")},
	}
}

func timeSeries() []panel {
	return []panel{
		{title: "Time-series buckets", unit: count, queries: each("{{stream}}", "sum by (stream) (brim_mongodb_timeseries_buckets"+ofStream+")"), about: "Buckets in which the server stores the readings of time-series streams."},
		{title: "Time-series closes", unit: perSec, stack: true, queries: each("{{reason}}", "sum by (reason) (rate("+seen("brim_mongodb_timeseries_bucket_closes_total"+ofStream)+"))"),
			about: "Why the server closed buckets. count and size are good reasons. time_backward: late readings; memory_threshold and cache_pressure: too many sensors for the memory, buckets close half empty."},
		{title: "Measurements per commit", unit: count, queries: each("{{stream}}", "sum by (stream) (brim_mongodb_timeseries_measurements_total"+ofStream+") / clamp_min(sum by (stream) (brim_mongodb_timeseries_commits_total"+ofStream+"), 1)"),
			about: "How many readings the server puts into a bucket at a time, since the server started."},
	}
}
