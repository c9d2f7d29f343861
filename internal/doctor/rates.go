package doctor

import (
	"encoding/json"
	"fmt"
	"math"
	"time"
)

// A Rate is what two looks say together of something that is counted.
type Rate struct {
	Name  string  `json:"name"`
	Title string  `json:"title"`
	Value float64 `json:"value"` // NaN, in JSON null, when it cannot be seen
	Unit  string  `json:"unit"`
}

// MarshalJSON writes a value that cannot be seen as null.
func (r Rate) MarshalJSON() ([]byte, error) {
	type plain Rate
	b, err := json.Marshal(struct {
		plain
		Value *float64 `json:"value"`
	}{plain: plain(r), Value: finite(r.Value)})
	if err != nil {
		return nil, fmt.Errorf("write rate %s: %w", r.Name, err)
	}
	return b, nil
}

// finite returns nil for what JSON has no number for.
func finite(v float64) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return &v
}

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

// A rateRule is a rate without its value.
type rateRule struct {
	name, title, unit string
	of                func(d *delta) float64
}

const (
	mega    = 1e6
	percent = 100
)

// rateRules are all rates, in the order in which they are shown.
var rateRules = []rateRule{
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
	// The engine counts a checkpoint's time when it ends, which may have begun
	// before the first look.
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
	{rateAppEvictions, "Evictions by clients' threads", "pages/s", func(d *delta) float64 { return d.perSecond(appEvictions) }},
	// 100 % is one thread that does nothing else.
	{rateAppEvictionTime, "Time of clients' threads in evictions", "%", func(d *delta) float64 {
		return percent * d.perSecond("cache_application_eviction_seconds_total")
	}},
	{rateHistory, "History store inserts", "inserts/s", func(d *delta) float64 { return d.perSecond(historyInserts) }},
	{rateDiskBusy, "Disk busy", "%", func(d *delta) float64 { return percent * d.busy }},
	{rateDiskAwait, "Disk latency", "ms", func(d *delta) float64 { return d.await / millis }},
	{rateDiskReads, "Disk reads", "ops/s", func(d *delta) float64 { return d.ofDisk(func(l *diskLook) float64 { return l.reads }) }},
	{rateDiskWrites, "Disk writes", "ops/s", func(d *delta) float64 { return d.ofDisk(func(l *diskLook) float64 { return l.writes }) }},
	{rateDiskReadBytes, "Disk read", "MB/s", func(d *delta) float64 { return d.ofDisk(func(l *diskLook) float64 { return l.readBytes }) / mega }},
	{rateDiskWritten, "Disk written", "MB/s", func(d *delta) float64 { return d.ofDisk(func(l *diskLook) float64 { return l.writtenBytes }) / mega }},
	{rateProcessors, "CPUs that mongod uses", "", func(d *delta) float64 { return d.perSecond(cpuUser, cpuSystem) }},
	{rateMachineBusy, "CPU busy, all processes of the host", "%", func(d *delta) float64 { return percent * d.now.machine.busySince(d.before.machine) }},
}

// A delta is two looks, and what of them can be held against each other.
type delta struct {
	before, now *look
	seconds     float64 // between the server's answers; NaN: they say nothing together
	busy, await float64 // of the disk; NaN likewise
}

// grown is how much figures have grown together.
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

// ofDisk is how fast one of the disk's counters has grown.
func (d *delta) ofDisk(counter func(*diskLook) float64) float64 {
	if math.IsNaN(d.busy) {
		return d.busy
	}
	return (counter(&d.now.disk) - counter(&d.before.disk)) / d.now.disk.at.Sub(d.before.disk.at).Seconds()
}

// mean is 0 where there was nothing to take it of.
func mean(sum, n float64) float64 {
	if n == 0 {
		return 0
	}
	return sum / n
}

// rates are what two looks say together.
type rates struct {
	values             map[string]float64 // by name; all of them, NaN where they are not known
	over               time.Duration      // between the looks; 0: there is one
	serverWhy, diskWhy string             // why there are none
}

// value returns NaN for a rate that is not known.
func (r rates) value(name string) float64 {
	if v, ok := r.values[name]; ok {
		return v
	}
	return math.NaN()
}

const (
	whyFirst     = "it is a rate, known from the second look on"
	whyRestarted = "MongoDB was started anew, its clock was set back, or another is primary now; known from the next look on"
)

func ratesBetween(before, now look) rates {
	r := rates{values: make(map[string]float64, len(rateRules))}
	if !before.at.IsZero() && now.at.After(before.at) {
		r.over = now.at.Sub(before.at)
	}
	d := delta{before: &before, now: &now, seconds: math.NaN()}
	switch {
	case now.server == nil || now.serverWhy != "":
		r.serverWhy = now.serverWhy
	case before.server == nil || r.over <= 0:
		r.serverWhy = whyFirst
	case !now.server.continues(before.server):
		r.serverWhy = whyRestarted
	default:
		d.seconds = r.over.Seconds()
	}
	d.busy, d.await, r.diskWhy = now.disk.since(before.disk)
	for i := range rateRules {
		r.values[rateRules[i].name] = rateRules[i].of(&d)
	}
	return r
}

// continues reports whether s is of the same process as before.
func (s *status) continues(before *status) bool {
	return s.host == before.host && s.pid == before.pid && s.uptime >= before.uptime
}
