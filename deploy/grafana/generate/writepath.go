package main

const storeWrites = "brim_store_write_seconds_bucket" + ofStream

// writePath shows what happens to readings between a request and MongoDB,
// starting with how update latency grows as buckets fill.
func writePath() dashboard {
	return dashboard{
		name:  "write-path",
		title: "Brim: write path",
		about: "How long updates take as buckets fill, and where readings wait between a request and MongoDB.",
		rows: []row{
			{"Now", now()},
			{"Latency as buckets fill", filling()},
			{"Rate and merging", merging()},
			{"Queue and journal", waiting()},
			{"Requests", requests()},
			{"MQTT", mqtt()},
		},
	}
}

func now() []panel {
	return []panel{
		{title: "Stored", kind: number, unit: perSec, about: "Readings stored a second, of all streams.",
			queries: each("stored", total("brim_store_update_readings_sum"))},
		{title: "Write p99", kind: number, unit: seconds, warn: 0.0256, alarm: 0.0512, about: "99 % of updates take less. An alert fires above 51.2 ms, which like 25.6 ms is a bound of the histogram; in between, quantiles are interpolated.",
			queries: each("p99", quantile(0.99, storeWrites))},
		{title: "Last tenth against first", kind: number, unit: "suffix:×", warn: 2, alarm: 5, about: "p99 of updates of nearly full buckets, relative to new ones, over the page's time range. Near 1: the size of buckets costs nothing.",
			queries: each("ratio",
				`histogram_quantile(0.99, sum by (le) (increase(brim_store_write_seconds_bucket{stream=~"$stream", fill="90-100"}[$__range])))`+
					` / histogram_quantile(0.99, sum by (le) (increase(brim_store_write_seconds_bucket{stream=~"$stream", fill="0-10"}[$__range])))`)},
		{title: "Late now", kind: number, unit: seconds, warn: 5, alarm: 10, about: "How late the most overdue update is. Near 0 while MongoDB keeps up, however long readings gather. An alert fires above 10 s.",
			queries: each("past due", "max(brim_queue_past_due_seconds)")},
		{title: "Refused", kind: number, unit: share, warn: 0.01, alarm: 0.05, about: "Share of the readings that break a rule.",
			queries: each("refused", total("brim_ingest_rejected_total")+" / ("+total("brim_ingest_rejected_total")+" + "+total("brim_ingest_readings_total")+")")},
		{title: "Dead letters", kind: number, unit: count, warn: 1, alarm: 1, about: "Readings that MongoDB refused for their content since the daemon started. They are in a file: brim deadletter list.",
			queries: each("dead letters", "sum(brim_queue_dead_letters_total)")},
	}
}

func filling() []panel {
	const half = width / 2
	return []panel{
		{title: "Latency by fill", kind: bars, by: "fill", unit: seconds, width: half, height: 9, queries: byFill(),
			about: "Round trip of updates by how full the bucket is, over the page's time range. Bars that rise to the right are the cost of large documents; a smaller granularity, or more readings per update, lowers them."},
		{title: "Latency over the window", unit: seconds, width: half, height: 9,
			about:   "The same over time, with the elapsed part of the window by the clock (dashed, right). A sawtooth in step with it: buckets are too large. Out of step with it: check checkpoints.",
			queries: with(medianAndP99(storeWrites), share, "window, {{stream}}", "max by (stream) (brim_store_bucket_window_ratio"+ofStream+")")},
		{title: "p99 by fill over time", unit: seconds, width: half, height: 9, queries: each("{{fill}} %", quantile(0.99, storeWrites, "fill")),
			about: "A line for each tenth of the fill. Equal lines: the fill costs nothing. All rise together: the storage is slow, whatever the fill."},
		{title: "Write latency", kind: heatmap, unit: seconds, width: half, height: 9,
			queries: each("{{le}}", "sum by (le) (increase("+storeWrites+"[$__rate_interval]))"),
			about:   "All updates by their round trip. A second band above the first, now and then: checkpoints or evictions. The whole band rises: fill or disk."},
	}
}

func merging() []panel {
	return []panel{
		{title: "Rate", unit: perSec, queries: each("acknowledged", total("brim_ingest_readings_total"), "stored", total("brim_store_update_readings_sum")),
			about: "Readings acknowledged and readings stored, of all streams. If stored stays below acknowledged for longer than --flush-max, the journal grows."},
		{title: "Readings per update", unit: count, queries: each("mean", mean("brim_store_update_readings"), "p90", quantile(0.9, "brim_store_update_readings_bucket")),
			about: "How many readings one update carries. The more, the less often a document is rewritten: the cheapest way to lower latency. 1 means no merging."},
		{title: "Updates", unit: perSec, queries: with(each("{{stream}}", total("brim_store_write_seconds_count"+ofStream, "stream")), count, "active buckets", "sum(brim_store_active_buckets)"),
			about: "Updates a second, by stream, and recently written buckets (dashed, right, of all streams)."},
		{title: "Readings per update by trigger", unit: count, queries: each("{{trigger}}", readingsByTrigger()),
			about: "Readings in an update, by what triggered it. readings: --merge-readings. age: what a sensor sends within --flush-max. budget: what it has sent by the time the budget allows an update. request: what clients with ack=stored send in one request."},
		{title: "Updates by trigger", unit: perSec, stack: true, queries: each("{{trigger}}", total("brim_queue_updates_total"+ofStream, "trigger")+" > 0"),
			about: "What triggered updates: a waiting request, a flush, --merge-readings (readings), --flush-max (age), --flush-budget, full memory (--queue-max-bytes), a nearly full journal, or a retry. If memory triggers many, raise --queue-max-bytes: such updates carry fewer readings."},
		{title: "How far MongoDB is behind", unit: seconds, queries: each("{{stream}}", "max by (stream) (brim_queue_oldest_seconds"+ofStream+")"),
			about: "Age of the oldest reading in memory that is not in MongoDB yet. Programs that read MongoDB directly are behind by up to that. Up to --flush-max is normal. Queries through Brim return every acknowledged reading."},
	}
}

// readingsByTrigger is the mean number of readings per update, by trigger.
func readingsByTrigger() string {
	return total("brim_queue_updated_readings_total"+ofStream, "trigger") + " / (" + total("brim_queue_updates_total"+ofStream, "trigger") + " > 0)"
}

func waiting() []panel {
	return []panel{
		{title: "Past due", unit: seconds, queries: each("{{instance}}", "max by (instance) (brim_queue_past_due_seconds)"), alarm: 10,
			about: "How late the most overdue update is. An update is due when a client waits for it, when it has --merge-readings readings, or when they have waited for --flush-max. A rising line means that MongoDB is away, or stores less than arrives."},
		{title: "Lag", unit: seconds, queries: medianAndP99("brim_queue_lag_seconds_bucket"),
			about: "Time from the receipt of a request until its readings are stored: up to --flush-max, or milliseconds with ack=stored. Past due shows what is too long."},
		{title: "Waiting readings", unit: count, queries: each("waiting", "sum(brim_queue_readings)"),
			about: "Readings accepted and not yet stored. A flat line is normal (rate times how long readings gather). A line that rises for longer than --flush-max is not."},
		{title: "Oldest reading not stored", unit: seconds, queries: each("oldest", "max(brim_journal_oldest_unapplied_seconds)"),
			about: "Age of the oldest acknowledged reading that is only on this machine's disk. Losing the disk would lose readings up to that age. Up to --flush-max is normal."},
		{title: "Journal", unit: inBytes, queries: with(each("bytes", "sum(brim_journal_bytes)"), share, "share of what it may hold", "max(brim_journal_bytes / brim_journal_max_bytes)"),
			about: "At 100 % of --journal-max-bytes, requests are refused. Some segments are always there, since it is deleted a segment at a time."},
		{title: "Journal fsync", unit: seconds, queries: with(medianAndP99("brim_journal_fsync_seconds_bucket"), count, "requests per fsync", mean("brim_journal_commit_requests")),
			about: "Each acknowledgement waits for one of these. Requests per fsync (dashed, right) rise under load, which keeps the cost of one down."},
		{title: "Set aside", unit: count, queries: each("buckets set aside", "sum(brim_queue_set_aside_buckets)", "keys", "sum(brim_journal_keys)"),
			about: "Buckets that cannot be written while others can: above 0 for minutes, look at the daemon's log. Also the idempotency keys that are known."},
		{title: "Outcomes", unit: perSec, queries: each(
			"failed writes, retried", total("brim_queue_retries_total"),
			"unknown outcomes", total("brim_store_unknown_outcomes_total"),
			"duplicates prevented", total("brim_store_duplicates_prevented_total"),
			"tag conflicts", total("brim_store_tag_conflicts_total"),
			"journal reads failed", total("brim_queue_read_errors_total"),
			"journal marks failed", total("brim_journal_mark_failures_total")),
			about: "Normally all 0. Unknown outcomes: connections to MongoDB break. Duplicates prevented: the write guard worked. Tag conflicts: a sensor changed its tags within a bucket."},
		{title: "Must be 0", unit: count, queries: each(
			"dead letters", "sum(brim_queue_dead_letters_total)",
			"out of order", "sum(brim_queue_out_of_order_total)",
			"journal bytes given up", "sum(brim_journal_given_up_bytes)"),
			about: "Since the start: readings that MongoDB refused for good, readings out of order (a defect in Brim), and journal bytes that could not be read."},
	}
}

func mqtt() []panel {
	return []panel{
		{title: "Subscriptions", unit: count, queries: each("{{instance}} {{subscription}}", "min by (instance, subscription) (brim_mqtt_connected)"),
			about: "1: subscribed to the broker. 0: not; the daemon's log and /readyz say why."},
		{title: "Messages", unit: perSec, queries: each("received {{subscription}}", total("brim_mqtt_messages_total", "subscription"), "connections", total("brim_mqtt_connects_total"), "tried again", total("brim_mqtt_waits_total")),
			about: "Messages that the broker delivers a second, including those delivered again. Connections: above 0 for long, the connection breaks again and again. Tried again: the journal takes no readings."},
		{title: "Not acknowledged", unit: count, queries: each("{{subscription}}", "max by (subscription) (brim_mqtt_unacknowledged)"),
			about: "Messages received and not journaled yet. At --mqtt-receive-maximum for long: the journal is slower than the messages come, or takes none."},
		{title: "Messages refused", unit: perSec, stack: true, queries: each("{{reason}}", total("brim_mqtt_refused_total", "reason"), "QoS 0 dropped", total("brim_mqtt_dropped_total")),
			about: "By reason. They are kept in a file: brim deadletter list --messages."},
	}
}

func requests() []panel {
	return []panel{
		{title: "Request latency", unit: seconds, about: "From a request's first byte to its answer, by protocol. With ack=journaled it should be close to an fsync of the journal, whatever MongoDB does.",
			queries: each("{{protocol}} p50", quantile(0.5, "brim_ingest_request_seconds_bucket", "protocol"), "{{protocol}} p99", quantile(0.99, "brim_ingest_request_seconds_bucket", "protocol"))},
		{title: "Requests by answer", unit: requestsSec, stack: true, queries: each("{{protocol}} {{code}}", total("brim_ingest_requests_total", "protocol", "code")+" > 0"),
			about: "207 and 400: readings break rules; Readings refused says which. 503: nothing is accepted; Requests refused whole says why."},
		{title: "Readings by protocol", unit: perSec, stack: true, about: "Readings acknowledged a second. Repeated requests are those whose idempotency key was known; their readings count once.",
			queries: with(each("{{protocol}}", total("brim_ingest_readings_total", "protocol")), requestsSec, "repeated", total("brim_ingest_repeated_total"))},
		{title: "Readings refused", unit: perSec, stack: true, queries: each("{{reason}}", total("brim_ingest_rejected_total", "reason")+" > 0"),
			about: "By the rule that they break. They are not accepted, and their sender got the reason."},
		{title: "Requests refused whole", unit: requestsSec, stack: true, queries: each("{{reason}}", total("brim_journal_refused_total", "reason"), "busy", total(`brim_ingest_busy_total{reason="wait"}`)),
			about: "Answered 503, nothing of them accepted. journal_full and queue_full: MongoDB accepts less than arrives. busy: requests wait too long for memory (--ingest-max-bytes). journal_failed: check the disk."},
		{title: "Daemon", unit: count, about: "CPUs in use, and memory (dashed, right). Memory is bounded: the rest waits in the journal.",
			queries: with(each("CPUs", `sum(rate(process_cpu_seconds_total{job="brim"}[$__rate_interval]))`), inBytes, "resident", `sum(process_resident_memory_bytes{job="brim"})`)},
	}
}
