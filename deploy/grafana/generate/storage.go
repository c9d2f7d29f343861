package main

// storageEngine shows what MongoDB's storage engine and the disk under it say.
func storageEngine() dashboard {
	return dashboard{
		name:  "storage-engine",
		title: "Brim: storage engine",
		about: "What WiredTiger and the disk beneath it do for the writes of Brim, with the bounds of the storage doctor as dashed lines.",
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
			about: "The disk that holds the data, and its kind, which decides the bounds of await. Empty where it cannot be seen: MongoDB on another machine, an overlay file system."},
		{title: "Answers", kind: number, unit: count, width: 6, low: true, warn: 1, queries: each("answers", "min(brim_mongodb_up)"),
			about: "1 when the last serverStatus answered."},
		{title: "Embedded mongod restarted", kind: number, unit: count, width: 6, warn: 1, alarm: 1, queries: each("restarts", "sum(brim_mongod_restarts_total)"),
			about: "How often the daemon's own mongod died and was started again."},
		{title: "Health", kind: states, unit: count, width: width, height: 10, queries: each("{{signal}}", "max by (signal) (brim_storage_health)"),
			about: "Each signal's class over time. The first that turns orange as load rises is the bottleneck to be; its panel is below."},
	}
}

// cacheShare is a part of the cache as a share of its size.
func cacheShare(part string) string {
	return "max(brim_mongodb_cache_" + part + "_bytes / brim_mongodb_cache_max_bytes)"
}

func cache() []panel {
	return []panel{
		{title: "Cache dirty", unit: share, warn: 0.05, alarm: 0.15, queries: each("dirty", cacheShare("dirty")),
			about: "Changed and not yet written. Eviction starts at 5 %; at 20 % each writer must evict before it writes. Rising without an end: the disk cannot follow."},
		{title: "Cache updates", unit: share, warn: 0.025, alarm: 0.1, queries: each("updates", cacheShare("updates")),
			about: "Changes not yet merged into pages. Appending to buckets meets this limit first: eviction starts at 2.5 %, writers must help at 10 %."},
		{title: "Cache used", unit: share, warn: 0.9, alarm: 0.95, queries: each("used", cacheShare("used")),
			about: "80 % is where WiredTiger holds a cache that is full, a level there is normal. Above 95 % each operation must evict first."},
		{title: "Application evictions", unit: perSec, warn: 1, alarm: 100, queries: with(each("pages", total("brim_mongodb_cache_application_evictions_total")), seconds,
			"time spent per second", total("brim_mongodb_cache_application_eviction_seconds_total")),
			about: "Pages that threads evict which should serve writes, and their time for it (dashed, right). Anything but 0 is part of the write latency."},
		{title: "Evicted pages", unit: perSec, stack: true, queries: each("{{pages}}", total("brim_mongodb_cache_evicted_pages_total", "pages")),
			about: "Modified pages are written as they go, unmodified ones just go."},
		{title: "Cache traffic", unit: bytesPerSec, queries: each("read into", total("brim_mongodb_cache_read_bytes_total"), "written from", total("brim_mongodb_cache_written_bytes_total")),
			about: "Reads during a load that only appends: buckets fell out of the cache before they were full; a larger cache or smaller windows help."},
		{title: "History store", unit: inBytes, queries: with(each("size", "sum(brim_mongodb_history_store_bytes)"), perSec, "inserts", total("brim_mongodb_history_store_inserts_total")),
			about: "Former versions of documents that somebody may still read. Each update of a bucket can leave one of the bucket's size here. From 100 inserts a second it costs writes; growth without an end: an old snapshot is held open."},
	}
}

func checkpoints() []panel {
	return []panel{
		{title: "Checkpoints", unit: seconds, warn: 5, alarm: 15, queries: with(each("last", "max(brim_mongodb_checkpoint_last_seconds)"), count, "running", "max(brim_mongodb_checkpoint_running)"),
			about: "How long the last one took, and whether one runs now (dashed, right). Above 15 s latency suffers through much of each minute."},
		{title: "Write latency beside checkpoints", unit: seconds, queries: with(medianAndP99(storeWrites), count, "checkpoint running", "max(brim_mongodb_checkpoint_running)"),
			about: "Peaks of p99 while the dashed line is up are what checkpoints cost."},
		{title: "Checkpoints done", unit: count, queries: with(each("an hour", "sum(rate("+seen("brim_mongodb_checkpoints_total")+")) * 3600"), share,
			"share of the time", "sum(rate("+seen("brim_mongodb_checkpoint_seconds_total")+"))"),
			about: "60 an hour unless set otherwise, and the share of the time that they take (dashed, right)."},
		{title: "Block manager", unit: bytesPerSec, queries: each(
			"read", total("brim_mongodb_block_read_bytes_total"), "written", total("brim_mongodb_block_written_bytes_total"), "of these by checkpoints", total("brim_mongodb_block_checkpoint_written_bytes_total")),
			about: "What WiredTiger reads and writes. Written much above the readings' own size: documents are rewritten again and again, merge more."},
		{title: "Bytes written per reading", unit: inBytes, queries: each(
			"by the block manager", total("brim_mongodb_block_written_bytes_total")+" / "+total("brim_store_update_readings_sum"),
			"to MongoDB's journal", total("brim_mongodb_journal_written_bytes_total")+" / "+total("brim_store_update_readings_sum")),
			about: "The price of a reading. It falls with more readings per update and with smaller buckets."},
		{title: "MongoDB's journal", unit: bytesPerSec, queries: with(each("written", total("brim_mongodb_journal_written_bytes_total")), seconds,
			"per sync", total("brim_mongodb_journal_sync_seconds_total")+" / "+total("brim_mongodb_journal_syncs_total")),
			about: "Each update waits for a sync of it; the mean of one is dashed, on the right."},
	}
}

func operations() []panel {
	return []panel{
		{title: "Operation latency", unit: seconds, queries: each("{{kind}}", total("brim_mongodb_operation_seconds_total", "kind")+" / "+total("brim_mongodb_operations_total", "kind")),
			about: "Mean time inside MongoDB. Write latency far above it: the time is lost between Brim and MongoDB."},
		{title: "Operations", unit: opsSec, queries: each("{{kind}}", total("brim_mongodb_operations_total", "kind")), about: "All clients together, not Brim alone."},
		{title: "Tickets", unit: share, queries: each("{{kind}} free", "min by (kind) (brim_mongodb_tickets_available / (brim_mongodb_tickets_available + brim_mongodb_tickets_in_use))"),
			about: "Share of the read and write tickets that is free. Since MongoDB 7 their number follows the load, so that near 0 means something only when operations queue (the next panel): then each takes long, and more clients make it worse. The alert asks the signals write_tickets and read_tickets on Health, which look at both."},
		{title: "Queued operations", unit: count, queries: each("{{kind}}", "sum by (kind) (brim_mongodb_queued_operations)"), about: "Operations that wait for a ticket or a lock. 0 on a healthy server."},
		{title: "CPU busy", unit: share, warn: 0.7, alarm: 0.9, queries: each("busy", "max(brim_processor_utilization_ratio)"),
			about: "Share of the CPU that mongod uses; where it runs on Brim's host that of all processes there if that is more. Above 90 % the host is saturated; the signal write_slowdown on Health says whether writes are slower for it, and mongod beside this how much of it is mongod."},
		{title: "mongod", unit: count, queries: with(each("processors, {{mode}}", total("brim_mongodb_cpu_seconds_total", "mode")), inBytes, "resident", "sum(brim_mongodb_resident_bytes)"),
			about: "Processors in use, and memory (dashed, right)."},
		{title: "Connections and looking", unit: count, queries: with(each("connections", "sum(brim_mongodb_connections)"), seconds,
			"serverStatus", "sum(rate(brim_mongodb_server_status_seconds_sum[1m])) / sum(rate(brim_mongodb_server_status_seconds_count[1m]))"),
			about: "Clients' connections, and what the figures on this page cost: the mean of a serverStatus (dashed, right), taken once an interval."},
	}
}

func disk() []panel {
	return []panel{
		{title: "Disk busy", unit: share, warn: 0.5, alarm: 0.8, queries: each("busy", "max(brim_disk_utilization_ratio)"),
			about: "Share of the time in which the disk had something to do. Below 50 % healthy, above 80 % the bottleneck; an alert fires when the mean of five minutes is above 60 %. An NVMe disk can do more at once, so look at await, too."},
		{title: "Disk await", unit: seconds, warn: 0.002, alarm: 0.01, queries: each("await", "max(brim_disk_await_seconds)"),
			about: "Time of one operation, waiting included. The lines are an SSD's bounds; for NVMe take 0.5 and 2 ms. High at a moderate busy: the disk is slow; high at a high busy: it is overloaded."},
		{title: "Disk traffic", unit: bytesPerSec, queries: each("read", total("brim_disk_read_bytes_total"), "written", total("brim_disk_written_bytes_total")),
			about: "High busy and many MB/s: bound by throughput."},
		{title: "Disk operations", unit: opsSec, queries: each("{{op}}", total("brim_disk_operations_total", "op")), about: "High busy and many operations at a moderate await: bound by operations."},
		{title: "Disk space", unit: share, low: true, warn: 0.2, alarm: 0.1, queries: with(each("free", "min(brim_disk_free_bytes / brim_disk_size_bytes)"), inBytes, "bytes free", "min(brim_disk_free_bytes)"),
			about: "An alert fires below 10 %. MongoDB ends when it cannot write a checkpoint."},
	}
}

func collections() []panel {
	return []panel{
		{title: "Collection sizes", unit: inBytes, about: "Documents before compression, files, and indexes. Looked at once a minute.", queries: each(
			"{{stream}} documents", "sum by (stream) (brim_mongodb_collection_bytes"+ofStream+")",
			"{{stream}} files", "sum by (stream) (brim_mongodb_collection_storage_bytes"+ofStream+")",
			"{{stream}} indexes", "sum by (stream) (brim_mongodb_collection_index_bytes"+ofStream+")")},
		{title: "Free space inside the files", unit: share, warn: 0.2, alarm: 0.5,
			queries: each("{{stream}}", "max by (stream) (brim_mongodb_collection_free_bytes"+ofStream+" / (brim_mongodb_collection_storage_bytes"+ofStream+" > 0))"),
			about:   "What compacting could give back. It is used again by new documents, so it matters only when it stays. Small files are mostly free space, and no trouble."},
		{title: "Documents", unit: count, about: "Bucket documents; of a time-series collection the buckets that the server made.",
			queries: each("{{stream}}", "sum by (stream) (brim_mongodb_collection_documents"+ofStream+")")},
	}
}

func timeSeries() []panel {
	return []panel{
		{title: "Time-series buckets", unit: count, queries: each("{{stream}}", "sum by (stream) (brim_mongodb_timeseries_buckets"+ofStream+")"), about: "Buckets that the server made of the readings of time-series streams."},
		{title: "Time-series closes", unit: perSec, stack: true, queries: each("{{reason}}", "sum by (reason) (rate("+seen("brim_mongodb_timeseries_bucket_closes_total"+ofStream)+"))"),
			about: "Why the server closed buckets. count and size are good ends. time_backward: late readings; memory_threshold and cache_pressure: too many sensors for the memory, buckets close half empty."},
		{title: "Measurements per commit", unit: count, queries: each("{{stream}}", "sum by (stream) (brim_mongodb_timeseries_measurements_total"+ofStream+") / clamp_min(sum by (stream) (brim_mongodb_timeseries_commits_total"+ofStream+"), 1)"),
			about: "How many readings the server puts into a bucket at a time, since the server started."},
	}
}
