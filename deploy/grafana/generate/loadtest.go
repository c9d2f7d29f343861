package main

// loadTest shows the load generator next to the daemon and MongoDB.
func loadTest() dashboard {
	return dashboard{
		name:  "load-test",
		title: "Brim: load test",
		about: "A run of brim load (started with --metrics-addr): what it offered and achieved, next to what the daemon and MongoDB did.",
		rows: []row{
			{"Rate", asked()},
			{"Latency", answered()},
			{"The three processes", processes()},
		},
	}
}

func asked() []panel {
	return []panel{
		{title: "Offered, achieved, stored", unit: perSec, width: 12, height: 9, queries: each(
			"offered", "sum(brim_load_offered_rate)",
			"sent", total("brim_load_sent_readings_total"),
			"acknowledged", total("brim_load_acked_readings_total"),
			"stored", total("brim_store_update_readings_sum")),
			about: "All lines should coincide. Acknowledged below offered: the daemon or the generator cannot keep up. Stored below acknowledged: the journal holds the difference."},
		{title: "Not accepted", unit: perSec, width: 12, height: 9, queries: each(
			"dropped", total("brim_load_dropped_readings_total"),
			"failed", total("brim_load_failed_readings_total"),
			"refused", total("brim_load_rejected_readings_total")),
			about: "Dropped: due while too many requests were in flight, never sent; the run then measures its own limits rather than latency. Failed: no answer, or an error. Refused: broke a rule."},
		{title: "In flight", unit: count, queries: each("in flight", "sum(brim_load_in_flight)"),
			about: "Requests due and not answered. A slope means that the daemon is falling behind."},
		{title: "Requests by result", unit: requestsSec, stack: true, queries: each("{{result}}", total("brim_load_requests_total", "result")), about: "partial: some of a request's readings were refused."},
		{title: "Due and acknowledged", unit: count, queries: each("due", "sum(brim_load_offered_readings_total)", "acknowledged", "sum(brim_load_acked_readings_total)"),
			about: "Since the run began. The gap is in flight, or was not accepted."},
	}
}

func answered() []panel {
	const half = width / 2
	return []panel{
		{title: "Response against service", unit: seconds, width: half, height: 9, queries: each(
			"response p50", quantile(0.5, "brim_load_response_seconds_bucket"), "response p99", quantile(0.99, "brim_load_response_seconds_bucket"),
			"service p50", quantile(0.5, "brim_load_service_seconds_bucket"), "service p99", quantile(0.99, "brim_load_service_seconds_bucket")),
			about: "Response time counts from when a request was due, service time from when it was sent. Response far above service: requests queued behind a stall, which users would have noticed."},
		{title: "Where the time goes", unit: seconds, width: half, height: 9, queries: each(
			"generator: service p99", quantile(0.99, "brim_load_service_seconds_bucket"),
			"daemon: request p99", quantile(0.99, "brim_ingest_request_seconds_bucket"),
			"daemon: fsync p99", quantile(0.99, "brim_journal_fsync_seconds_bucket"),
			"daemon: store write p99", quantile(0.99, storeWrites),
			"MongoDB: write mean", `sum(rate(brim_mongodb_operation_seconds_total{kind="write"}[$__rate_interval])) / sum(rate(brim_mongodb_operations_total{kind="write"}[$__rate_interval]))`),
			about: "From the outside in. Service above request: the network or the generator's machine. Store write is part of a request only with ack=stored."},
		{title: "Latency over the window", unit: seconds, width: half, height: 9, queries: with(each(
			"response p99", quantile(0.99, "brim_load_response_seconds_bucket"), "store write p99", quantile(0.99, storeWrites)), share,
			"window", "max(brim_load_window_ratio)"),
			about: "With the elapsed part of the window in event time (dashed, right), which a speed-up makes run faster than the clock. Store write should not rise with the dashed line."},
		{title: "Store latency by fill", kind: bars, by: "fill", unit: seconds, width: half, height: 9, queries: byFill(),
			about: "The daemon's own measurement of updates over the page's time range: select the run. Ten equal bars: the fill costs nothing."},
	}
}

func processes() []panel {
	return []panel{
		{title: "CPUs", unit: count, queries: each(
			"generator", `sum(rate(process_cpu_seconds_total{job="brim-load"}[$__rate_interval]))`,
			"daemon", `sum(rate(process_cpu_seconds_total{job="brim"}[$__rate_interval]))`,
			"mongod", total("brim_mongodb_cpu_seconds_total")),
			about: "In use by each. If the sum is near the machine's number of CPUs, the CPU is the limit, and latencies are those of a saturated machine."},
		{title: "Memory", unit: inBytes, queries: each(
			"generator", `sum(process_resident_memory_bytes{job="brim-load"})`,
			"daemon", `sum(process_resident_memory_bytes{job="brim"})`,
			"mongod", "sum(brim_mongodb_resident_bytes)"),
			about: "Resident. The daemon's must not grow with the length of a test."},
		{title: "Goroutines", unit: count, queries: each("generator", `sum(go_goroutines{job="brim-load"})`, "daemon", `sum(go_goroutines{job="brim"})`),
			about: "The daemon's follow the connections. A steady slope is a leak."},
		{title: "Readings per update", unit: count, queries: each("mean", mean("brim_store_update_readings")), about: "Higher if sensors send often or --flush-max is long."},
		{title: "Past due and oldest", unit: seconds, queries: each("past due", "max(brim_queue_past_due_seconds)", "oldest not stored", "max(brim_journal_oldest_unapplied_seconds)"),
			about: "A rate is sustained only if past due stays near 0 to the end of the run. The oldest reading may be as old as --flush-max."},
		{title: "Storage under the test", unit: share, queries: each("disk busy", "max(brim_disk_utilization_ratio)", "cache dirty", cacheShare("dirty"), "cache updates", cacheShare("updates")),
			about: "The first that rises with the rate is the next limit. More on the dashboard Storage engine."},
	}
}
