package main

// loadTest shows the generator beside the daemon beside MongoDB.
func loadTest() dashboard {
	return dashboard{
		name:  "load-test",
		title: "Brim: load test",
		about: "A run of brim load (started with --metrics-addr): what it asked for and got, beside what the daemon and MongoDB did meanwhile.",
		rows: []row{
			{"Rate", asked()},
			{"Latency", answered()},
			{"The three processes", processes()},
		},
	}
}

func asked() []panel {
	return []panel{
		{title: "Asked, achieved, stored", unit: perSec, width: 12, height: 9, queries: each(
			"asked", "sum(brim_load_offered_rate)",
			"sent", total("brim_load_sent_readings_total"),
			"acknowledged", total("brim_load_acked_readings_total"),
			"stored", total("brim_store_update_readings_sum")),
			about: "All lines should lie on each other. Acknowledged below asked: the daemon or the generator cannot follow. Stored below acknowledged: the journal takes the difference."},
		{title: "Not taken", unit: perSec, width: 12, height: 9, queries: each(
			"dropped", total("brim_load_dropped_readings_total"),
			"failed", total("brim_load_failed_readings_total"),
			"refused", total("brim_load_rejected_readings_total")),
			about: "Dropped: due while too many requests were under way, never sent; then the run says more of its limits than of latency. Failed: no answer, or an error. Refused: broke a rule."},
		{title: "In flight", unit: count, queries: each("in flight", "sum(brim_load_in_flight)"),
			about: "Requests due and not answered. A slope means that the daemon falls behind."},
		{title: "Requests by result", unit: requestsSec, stack: true, queries: each("{{result}}", total("brim_load_requests_total", "result")), about: "partial: some of a request's readings were refused."},
		{title: "Due and acknowledged", unit: count, queries: each("due", "sum(brim_load_offered_readings_total)", "acknowledged", "sum(brim_load_acked_readings_total)"),
			about: "Since the run began. The gap is what is under way, or was not taken."},
	}
}

func answered() []panel {
	const half = width / 2
	return []panel{
		{title: "Response against service", unit: seconds, width: half, height: 9, queries: each(
			"response p50", quantile(0.5, "brim_load_response_seconds_bucket"), "response p99", quantile(0.99, "brim_load_response_seconds_bucket"),
			"service p50", quantile(0.5, "brim_load_service_seconds_bucket"), "service p99", quantile(0.99, "brim_load_service_seconds_bucket")),
			about: "Response counts from the time a request was due, service from when it was sent. Response far above service: requests queued behind a stall, which users would have felt."},
		{title: "Where the time goes", unit: seconds, width: half, height: 9, queries: each(
			"generator: service p99", quantile(0.99, "brim_load_service_seconds_bucket"),
			"daemon: request p99", quantile(0.99, "brim_ingest_request_seconds_bucket"),
			"daemon: fsync p99", quantile(0.99, "brim_journal_fsync_seconds_bucket"),
			"daemon: store write p99", quantile(0.99, storeWrites),
			"MongoDB: write mean", `sum(rate(brim_mongodb_operation_seconds_total{kind="write"}[$__rate_interval])) / sum(rate(brim_mongodb_operations_total{kind="write"}[$__rate_interval]))`),
			about: "From outside to inside. Service above request: the network or the generator's machine. Store write is part of a request only with ack=stored."},
		{title: "Latency over the window", unit: seconds, width: half, height: 9, queries: with(each(
			"response p99", quantile(0.99, "brim_load_response_seconds_bucket"), "store write p99", quantile(0.99, storeWrites)), share,
			"window", "max(brim_load_window_ratio)"),
			about: "With how much of its window event time has passed (dashed, right), which a speed-up makes run faster than the clock. Store write should not follow the dashed line up."},
		{title: "Store latency by fill", kind: bars, by: "fill", unit: seconds, width: half, height: 9, queries: byFill(),
			about: "The daemon's own measurement of updates over what the page shows: choose the run's time as the page's range. Ten bars alike: the fill costs nothing."},
	}
}

func processes() []panel {
	return []panel{
		{title: "Processors", unit: count, queries: each(
			"generator", `sum(rate(process_cpu_seconds_total{job="brim-load"}[$__rate_interval]))`,
			"daemon", `sum(rate(process_cpu_seconds_total{job="brim"}[$__rate_interval]))`,
			"mongod", total("brim_mongodb_cpu_seconds_total")),
			about: "In use by each. Their sum near the number of processors of the machine: it is the limit, and latencies are those of a machine that is full."},
		{title: "Memory", unit: inBytes, queries: each(
			"generator", `sum(process_resident_memory_bytes{job="brim-load"})`,
			"daemon", `sum(process_resident_memory_bytes{job="brim"})`,
			"mongod", "sum(brim_mongodb_resident_bytes)"),
			about: "Resident. The daemon's must not grow with the time that a test takes."},
		{title: "Goroutines", unit: count, queries: each("generator", `sum(go_goroutines{job="brim-load"})`, "daemon", `sum(go_goroutines{job="brim"})`),
			about: "The daemon's follow the connections. A slope that stays is a leak."},
		{title: "Readings per update", unit: count, queries: each("mean", mean("brim_store_update_readings")), about: "Merging grows by itself under load; see whether the test's sensors report often enough for it."},
		{title: "Lag and oldest", unit: seconds, queries: each("lag p99", quantile(0.99, "brim_queue_lag_seconds_bucket"), "oldest not stored", "max(brim_journal_oldest_unapplied_seconds)"),
			about: "A rate is sustained only if these stay level to the end of the run."},
		{title: "Storage under the test", unit: share, queries: each("disk busy", "max(brim_disk_utilization_ratio)", "cache dirty", cacheShare("dirty"), "cache updates", cacheShare("updates")),
			about: "The first that rises with the rate is the limit to come. More on the dashboard Storage engine."},
	}
}
