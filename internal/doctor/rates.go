package doctor

import (
	"encoding/json"
	"math"
	"time"
)

// A Rate is computed from two samples, mostly of a counter.
type Rate struct {
	Name  string  `json:"name"`
	Title string  `json:"title"`
	Value float64 `json:"value"` // NaN, in JSON null, when it is unknown
	Unit  string  `json:"unit"`
}

// MarshalJSON writes an unknown value as null.
func (r Rate) MarshalJSON() ([]byte, error) {
	type plain Rate
	return json.Marshal(struct {
		plain
		Value *float64 `json:"value"`
	}{plain(r), finite(r.Value)})
}

// Text is the value with its unit, as in "1,240 ops/s".
func (r Rate) Text() string { return withUnit(r.Value, r.Unit) }

// Names of the rates.
const (
	rateWrites          = "writes"
	rateWriteTime       = "write_time"
	rateReads           = "reads"
	rateJournalSyncs    = "journal_syncs"
	rateJournalSyncTime = "journal_sync_time"
	rateJournalBytes    = "journal_written_bytes"
	rateBlockBytes      = "block_written_bytes"
	rateCheckpoints     = "checkpoints"
	rateCheckpointShare = "checkpoint_share"
	rateCheckpointBytes = "checkpoint_bytes"
	rateCacheRead       = "cache_read_bytes"
	rateEvictions       = "evictions"
	rateAppEvictions    = "application_evictions"
	rateAppEvictionTime = "application_eviction_share"
	rateHistory         = "history_inserts"
	rateDiskBusy        = "disk_busy"
	rateDiskAwait       = "disk_await"
	rateDiskReads       = "disk_reads"
	rateDiskWrites      = "disk_writes"
	rateDiskReadBytes   = "disk_read_bytes"
	rateDiskWritten     = "disk_written_bytes"
	rateProcessors      = "mongod_processors"
	rateMachineBusy     = "machine_busy"
)

const (
	mega    = 1e6
	percent = 100
)

// rateRules are all rates in display order.
var rateRules = []struct {
	name, title, unit string
	of                func(d *delta) float64
}{
	{rateWrites, "Write operations", "ops/s", func(d *delta) float64 { return d.perSecond(operationsWrite) }},
	{rateWriteTime, "Time of a write operation", "ms", func(d *delta) float64 {
		return mean(d.grown("operation_seconds_total write"), d.grown(operationsWrite)) / millis
	}},
	{rateReads, "Read operations", "ops/s", func(d *delta) float64 { return d.perSecond("operations_total read") }},
	{rateJournalSyncs, "Journal syncs", "syncs/s", func(d *delta) float64 { return d.perSecond(journalSyncs) }},
	{rateJournalSyncTime, "Time of a journal sync", "ms", func(d *delta) float64 {
		return mean(d.grown("journal_sync_seconds_total"), d.grown(journalSyncs)) / millis
	}},
	{rateJournalBytes, "Journal written", "MB/s", func(d *delta) float64 { return d.perSecond("journal_written_bytes_total") / mega }},
	{rateBlockBytes, "Files written", "MB/s", func(d *delta) float64 { return d.perSecond("block_written_bytes_total") / mega }},
	{rateCheckpoints, "Checkpoints", "", func(d *delta) float64 { return d.grown(checkpoints) }},
	// The engine counts a checkpoint's time when it ends, so it may have begun
	// before the first sample.
	{rateCheckpointShare, "Time in checkpoints", "%", func(d *delta) float64 {
		return math.Min(percent*d.perSecond("checkpoint_seconds_total"), percent)
	}},
	{rateCheckpointBytes, "Checkpoints written", "MB/s", func(d *delta) float64 {
		return d.perSecond("block_checkpoint_written_bytes_total") / mega
	}},
	{rateCacheRead, "Read into the cache", "MB/s", func(d *delta) float64 { return d.perSecond("cache_read_bytes_total") / mega }},
	{rateEvictions, "Evictions", "pages/s", func(d *delta) float64 {
		return d.perSecond("cache_evicted_pages_total modified", "cache_evicted_pages_total unmodified")
	}},
	{rateAppEvictions, "Application evictions", "pages/s", func(d *delta) float64 { return d.perSecond(appEvictions) }},
	// 100 % is one thread that does nothing else.
	{rateAppEvictionTime, "Time of application threads in evictions", "%", func(d *delta) float64 {
		return percent * d.perSecond("cache_application_eviction_seconds_total")
	}},
	{rateHistory, "History store inserts", "inserts/s", func(d *delta) float64 { return d.perSecond(historyInserts) }},
	{rateDiskBusy, "Disk busy", "%", func(d *delta) float64 { return percent * d.busy }},
	{rateDiskAwait, "Disk latency", "ms", func(d *delta) float64 { return d.await / millis }},
	{rateDiskReads, "Disk reads", "ops/s", func(d *delta) float64 { return d.ofDisk(func(l *diskSample) float64 { return l.reads }) }},
	{rateDiskWrites, "Disk writes", "ops/s", func(d *delta) float64 { return d.ofDisk(func(l *diskSample) float64 { return l.writes }) }},
	{rateDiskReadBytes, "Disk read", "MB/s", func(d *delta) float64 { return d.ofDisk(func(l *diskSample) float64 { return l.readBytes }) / mega }},
	{rateDiskWritten, "Disk written", "MB/s", func(d *delta) float64 { return d.ofDisk(func(l *diskSample) float64 { return l.writtenBytes }) / mega }},
	{rateProcessors, "CPUs that mongod uses", "", func(d *delta) float64 { return d.perSecond(cpuUser, cpuSystem) }},
	{rateMachineBusy, "CPU busy, all processes of the host", "%", func(d *delta) float64 { return percent * d.now.machine.busySince(d.before.machine) }},
}

// A delta compares two samples.
type delta struct {
	before, now *sample
	seconds     float64 // between the server's answers; NaN: not comparable
	busy, await float64 // of the disk; NaN: not comparable
}

// grown is the growth of some counters, added up.
func (d *delta) grown(keys ...key) float64 {
	if math.IsNaN(d.seconds) {
		return d.seconds
	}
	sum := 0.0
	for _, k := range keys {
		sum += d.now.server.value(k) - d.before.server.value(k)
	}
	return sum
}

func (d *delta) perSecond(keys ...key) float64 { return d.grown(keys...) / d.seconds }

// ofDisk is the growth per second of one of the disk's counters.
func (d *delta) ofDisk(counter func(*diskSample) float64) float64 {
	if math.IsNaN(d.busy) {
		return d.busy
	}
	return (counter(&d.now.disk) - counter(&d.before.disk)) / d.now.disk.at.Sub(d.before.disk.at).Seconds()
}

// mean is 0 where there is nothing to average.
func mean(sum, n float64) float64 {
	if n == 0 {
		return 0
	}
	return sum / n
}

// rates are computed from two samples.
type rates struct {
	Rates

	over               time.Duration // between the samples; 0: there is only one
	serverWhy, diskWhy string        // why there are none
}

// Rates are all rates, in the order of rateRules.
type Rates []Rate

// value returns NaN if the rate is unknown.
func (r Rates) value(name string) float64 {
	for i := range r {
		if r[i].Name == name {
			return r[i].Value
		}
	}
	return math.NaN()
}

// operationSize is the mean size of the disk's reads and writes in bytes.
func (r Rates) operationSize() float64 {
	operations := r.value(rateDiskReads) + r.value(rateDiskWrites)
	return (r.value(rateDiskReadBytes) + r.value(rateDiskWritten)) * mega / math.Max(operations, 1e-9)
}

const (
	whyFirst     = "it is a rate, known from the second sample on"
	whyRestarted = "MongoDB was restarted, its clock was set back, or another member is primary now; known from the next sample on"
)

func ratesBetween(before, now sample) rates {
	var r rates
	if !before.at.IsZero() && now.at.After(before.at) {
		r.over = now.at.Sub(before.at)
	}
	d := delta{before: &before, now: &now, seconds: math.NaN()}
	switch {
	case now.server == nil || now.serverWhy != "":
		r.serverWhy = now.serverWhy
	case before.server == nil || r.over <= 0:
		r.serverWhy = whyFirst
	case now.server.host != before.server.host || now.server.pid != before.server.pid || now.server.uptime < before.server.uptime:
		r.serverWhy = whyRestarted
	default:
		d.seconds = r.over.Seconds()
	}
	d.busy, d.await, r.diskWhy = now.disk.since(before.disk)
	for _, rule := range rateRules {
		r.Rates = append(r.Rates, Rate{Name: rule.name, Title: rule.title, Value: rule.of(&d), Unit: rule.unit})
	}
	return r
}
