package doctor

import (
	"fmt"
	"math"

	"github.com/brim-telemetry/brim/internal/scrape"
)

// Names of the diagnoses: headings of the runbook.
const (
	foundAway       = "unresponsive"
	foundDiskFull   = "disk_full"
	foundNetwork    = "network"
	foundHostCPU    = "host_cpu"
	foundHistory    = "history_store"
	foundLatency    = "disk_latency"
	foundThroughput = "disk_throughput"
	foundIOPS       = "disk_iops"
	foundCache      = "cache"
	foundEviction   = "eviction"
	foundProcessor  = "processor"
	foundCheckpoint = "checkpoint"
	foundTickets    = "tickets"
	foundReaders    = "history_readers"
	foundFragmented = "fragmented"
)

// diagnoses are all that can be found. What follows from what: old versions of
// documents fill the cache and are written; a slow disk makes checkpoints long
// and leaves the cache dirty; a cache that is full costs processor time and
// makes clients' threads evict; and whatever holds operations up in the engine
// keeps its tickets.
var diagnoses = []diagnosis{
	{
		name: foundDiskFull, cause: "disk full: MongoDB cannot write its files",
		find: findDiskFull, remedies: remedyDiskFull, always: true,
	},
	{
		name: foundAway, cause: "unresponsive: MongoDB does not answer",
		because: []string{foundDiskFull},
		find:    findAway, remedies: remedyAway, always: true,
	},
	{
		name: foundNetwork, cause: "network-bound: most of a write's time is the round trip to MongoDB",
		find: findNetwork, remedies: remedyNetwork, alone: true,
	},
	{
		name: foundHistory, cause: "history-store-bound: old versions of documents are kept",
		find: findHistory, remedies: remedyHistory,
	},
	{
		name: foundLatency, cause: "latency-bound: the disk answers slowly though it could do more",
		because: []string{foundHistory},
		find:    func(s *Seen) (Class, string) { return findDisk(s, foundLatency) }, remedies: remedyLatency,
	},
	{
		name: foundThroughput, cause: "throughput-bound: the disk moves as many bytes as it can",
		because: []string{foundHistory},
		find:    func(s *Seen) (Class, string) { return findDisk(s, foundThroughput) }, remedies: remedyThroughput,
	},
	{
		name: foundIOPS, cause: "IOPS-bound: the disk is busy with many small operations",
		because: []string{foundHistory},
		find:    func(s *Seen) (Class, string) { return findDisk(s, foundIOPS) }, remedies: remedyIOPS,
	},
	{
		name: foundCache, cause: "cache-bound: the engine's cache holds more than it can work off",
		because: []string{foundHistory, foundLatency, foundThroughput, foundIOPS},
		find:    findCache, remedies: remedyCache,
	},
	{
		name: foundEviction, cause: "eviction-bound: clients' threads must make room in the cache",
		because: []string{foundHistory, foundLatency, foundThroughput, foundIOPS, foundCache},
		find:    findEviction, remedies: remedyEviction,
	},
	{
		name: foundProcessor, cause: "CPU-bound: host CPU saturated, most of it by mongod",
		because: []string{foundHistory, foundCache, foundEviction},
		find:    func(s *Seen) (Class, string) { return findCPU(s, foundProcessor) }, remedies: remedyProcessor,
	},
	{
		name: foundHostCPU, cause: "CPU-bound: host CPU saturated, most of it by other processes than mongod",
		find: func(s *Seen) (Class, string) { return findCPU(s, foundHostCPU) }, remedies: remedyProcessor,
	},
	{
		name: foundCheckpoint, cause: "checkpoint-bound: checkpoints write for long",
		because: []string{foundHistory, foundLatency, foundThroughput, foundIOPS, foundProcessor, foundHostCPU},
		find:    findCheckpoint, remedies: remedyCheckpoint,
	},
	{
		name: foundTickets, cause: "ticket-bound: operations wait to be let into the engine",
		because: []string{foundHistory, foundLatency, foundThroughput, foundIOPS, foundCache, foundEviction, foundProcessor, foundHostCPU, foundCheckpoint},
		find:    findTickets, remedies: remedyTickets,
	},
	{
		name: foundReaders, cause: "history-store-bound: old versions of documents are kept though no history is asked for",
		because: []string{foundLatency, foundThroughput, foundIOPS, foundProcessor, foundHostCPU, foundCheckpoint},
		find:    findReaders, remedies: remedyReaders,
	},
	{
		name: foundFragmented, cause: "fragmented: much of a collection's file holds nothing",
		find: findFragmented, remedies: remedyFragmented, aside: true, always: true,
	},
}

// findHistory is where old versions are kept because that is asked for, or
// where it is not known what is.
func findHistory(s *Seen) (Class, string) {
	if s.keepsNoHistory() {
		return Healthy, ""
	}
	why := "each is a version of a document that somebody may still ask for"
	if window := s.Server.HistoryWindowSeconds; window != nil {
		why = fmt.Sprintf("minSnapshotHistoryWindowInSeconds is %s, so that every version of a document is kept for as many seconds", round(*window))
	}
	return s.worst(historyStore), s.inserts() + "; " + why
}

// findReaders is where old versions are kept though none are asked for. It leaves
// out what only follows from the cache: pages that must leave a full one take
// along the versions that somebody who is reading or writing just then still needs.
func findReaders(s *Seen) (Class, string) {
	if !s.keepsNoHistory() || max(s.cacheClass(), s.worst(applicationEvictions)) >= Degrading {
		return Healthy, ""
	}
	why := "minSnapshotHistoryWindowInSeconds asks for none of them, so that something reads for long, a member of the set lags behind, or updates are slow while a checkpoint is taken"
	if s.Server.Topology == standalone {
		why = "a server that is alone keeps none for their own sake, so that something reads for long, or updates are slow while a checkpoint is taken"
	}
	return s.worst(historyStore), s.inserts() + "; " + why
}

// inserts tells of the history store beside what is written.
func (s *Seen) inserts() string {
	out := s.tell(historyStore)
	if writes := s.Rate(rateWrites); writes > 0 {
		out += " with " + round(writes) + " write operations/s"
	}
	return out
}

// keepsNoHistory reports whether the server is known to keep no old versions
// of documents for their own sake.
func (s *Seen) keepsNoHistory() bool {
	return s.Server.HistoryWindowSeconds != nil && *s.Server.HistoryWindowSeconds == 0
}

// findDisk returns the one of three kinds that a slow disk is of. Moderate is
// less than the signal's bottleneck: there is time in which the disk has nothing
// to do, so that not their number makes operations slow. Large ones take long by
// nature.
func findDisk(s *Seen, kind string) (Class, string) {
	busy, await := s.Signal(diskBusy), s.Signal(diskAwait)
	class := Healthy
	if s.waitsForDisk() {
		class = await.Class
	}
	if busy.Class == Bottleneck { // a share of the time, as for the CPU
		class = Bottleneck
	}
	operations := s.Rate(rateDiskReads) + s.Rate(rateDiskWrites)
	size := (s.Rate(rateDiskReadBytes) + s.Rate(rateDiskWritten)) * mega / math.Max(operations, 1e-9)
	is := foundIOPS
	switch {
	case class < Degrading:
		return class, ""
	case busy.Class < Degrading, await.Class == Bottleneck && busy.Class < Bottleneck && size < largeOperation:
		is = foundLatency
	case size >= largeOperation:
		is = foundThroughput
	}
	if is != kind {
		return Healthy, ""
	}
	evidence := s.tell(diskBusy, diskAwait) + "; " + join(", ", s.count(rateDiskReads, rateDiskWrites, rateDiskReadBytes, rateDiskWritten),
		round(size/1024)+" KiB an operation")
	if await.Class < Degrading {
		evidence += "; its latency is still healthy, so that writes hardly feel it yet"
	}
	if own, all := s.moved(); others(own, all) {
		evidence += fmt.Sprintf("; of the %s MB/s MongoDB itself moved %s, the rest is of others, or was written before", round(all), round(own))
	}
	return class, fmt.Sprintf("%s (%s, %s)", evidence, s.Disk.Device, s.Disk.kindInWords())
}

// waitsForDisk reports whether a disk's latency can be a quarter of what updates
// take longer than usual: each waits for a sync of the journal, which is some
// operations of the disk. A latency of 3 ms does not explain one of 500.
func (s *Seen) waitsForDisk() bool {
	late := (s.WritePath.Seconds - s.WritePath.usual()) / millis
	return !(s.Signal(diskAwait).Value < late/16) || s.Rate(rateJournalSyncTime) >= late/4
}

// moved returns how many MB/s MongoDB read and wrote itself, and how many
// the disk did. Pages are counted as they are in the cache, where they are larger.
func (s *Seen) moved() (own, all float64) {
	return s.Rate(rateBlockBytes) + s.Rate(rateJournalBytes) + s.Rate(rateCacheRead), s.Rate(rateDiskReadBytes) + s.Rate(rateDiskWritten)
}

// others reports whether most of what a disk moves is not MongoDB's: a backup
// that copies files, another database, the daemon's journal.
func others(own, all float64) bool { return all > 2*own }

func (d Disk) kindInWords() string {
	switch diskKind(d.Kind) {
	case diskNVMe:
		return "NVMe"
	case diskSSD:
		return "SSD"
	case diskHDD:
		return "hard disk"
	default:
		return "of unknown kind"
	}
}

func findCache(s *Seen) (Class, string) {
	class := s.cacheClass()
	if class < Degrading {
		return class, ""
	}
	evidence := join("; ", s.tell(cacheUsedShare, cacheDirtyShare, cacheUpdatesShare), s.count(rateEvictions, rateCacheRead))
	if s.Server.CacheBytes > 0 {
		evidence += fmt.Sprintf("; the cache has %s MB", round(s.Server.CacheBytes/mega))
	}
	return class, evidence + s.spilled()
}

// spilled tells of the history store where it only follows from the cache.
func (s *Seen) spilled() string {
	if !s.keepsNoHistory() || s.worst(historyStore) < Degrading {
		return ""
	}
	return "; pages that leave the cache take old versions along, " + s.tell(historyStore) + " (no history is kept for its own sake)"
}

// gathering are the signals of what gathers between checkpoints.
var gathering = []string{cacheDirtyShare, cacheUpdatesShare}

// cacheClass leaves out what is normal: dirty pages and updates gather before each
// checkpoint, and up to its triggers the engine works them off by itself.
//
//	                 to its bottleneck                over it
//	used             counts                           counts
//	dirty, updates   if clients' threads must evict   counts
func (s *Seen) cacheClass() Class {
	class := s.worst(cacheUsedShare)
	for _, name := range gathering {
		if !s.gathers(name) {
			class = max(class, s.Signal(name).Class)
		}
	}
	return class
}

// gathers reports whether a signal is over its threshold only as is normal before a
// checkpoint: clients' threads do not have to evict. The few pages that may be
// chance count where old versions leave as well though nobody asks for them.
func (s *Seen) gathers(name string) bool {
	few := s.Rate(rateAppEvictions) > 0 && s.keepsNoHistory() && s.worst(historyStore) >= Degrading
	return s.Signal(name).Class == Degrading && s.worst(applicationEvictions) < Degrading && !few
}

// Excused returns what is over its threshold though it is not held to be wrong,
// with why; empty if there is nothing of the kind.
func (s *Seen) Excused() string {
	var out []string
	slow, found := s.Signal(writeSlowdown), diagnoseWith(s, diagnoses)
	switch {
	case !s.Server.Answered:
	case slow.Class != Healthy:
		for _, name := range gathering {
			if s.gathers(name) {
				out = append(out, s.tell(name)+" is over its threshold, which is normal before a checkpoint: clients' threads do not have to evict")
			}
		}
	default:
		var over []string
		for i := range s.Signals {
			if one := &s.Signals[i]; one.Class >= Degrading && one.Name != fragmentation {
				over = append(over, one.Name)
			}
		}
		if len(over) > 0 {
			out = append(out, s.tell(over...)+", over the threshold, but writes are not slower than usual: "+s.WritePath.String())
		}
	}
	if s.Server.Answered && slow.Class >= Degrading && WorstOf(found) == Healthy {
		out = append(out, fmt.Sprintf("writes are slower than usual (%s), and no resource is at its limit: look for locks and slow operations, db.currentOp({active: true, secs_running: {$gt: 1}})", s.WritePath))
	}
	if one := s.Signal(fragmentation); one.Class == Healthy && one.Threshold.Class(one.Value) >= Degrading {
		out = append(out, s.tell(fragmentation)+": "+one.Why)
	}
	return join("; ", out...)
}

func findEviction(s *Seen) (Class, string) {
	evidence := s.tell(applicationEvictions)
	if share := s.Rate(rateAppEvictionTime); share > 0 {
		evidence += fmt.Sprintf(", which takes %s %% of a thread's time", round(share))
	}
	evidence = join("; ", evidence, s.tell(cacheUsedShare, cacheDirtyShare, cacheUpdatesShare))
	if s.worst(cacheUsedShare, cacheDirtyShare, cacheUpdatesShare) < Degrading {
		evidence += s.spilled() // else it stands with the cache
	}
	return s.worst(applicationEvictions), evidence
}

// findCPU tells a mongod that takes most of the CPU from others that do. A share
// of the time is at its limit only over its bottleneck: below that whatever has to
// run finds a free CPU.
func findCPU(s *Seen, kind string) (Class, string) {
	one := s.Signal(processor)
	if one.Class < Bottleneck {
		return Healthy, ""
	}
	own := percent * s.Rate(rateProcessors) / s.Server.Processors
	is := foundHostCPU
	if own >= one.Value/2 {
		is = foundProcessor
	}
	if is != kind {
		return Healthy, ""
	}
	evidence := s.tell(processor)
	if n := s.Server.Processors; n > 0 {
		evidence += fmt.Sprintf(" of %s CPUs", round(n))
		if used := s.Rate(rateProcessors); used > 0 {
			evidence += fmt.Sprintf("; mongod uses %s of them", round(used))
		}
	}
	if machine := s.Rate(rateMachineBusy); machine > 0 {
		evidence += fmt.Sprintf(", and all processes of this host %s %%", round(machine))
	}
	return one.Class, evidence
}

// leastFree are the bytes of a disk with which MongoDB cannot go on: its journal
// takes files of 100 MB, one ahead.
const leastFree = 200e6

func findDiskFull(s *Seen) (Class, string) {
	d := &s.Disk
	if d.Size <= 0 || d.Free >= leastFree {
		return Healthy, ""
	}
	return Bottleneck, fmt.Sprintf("of the %s MB under %s %s MB are free", round(d.Size/mega), d.Path, round(d.Free/mega))
}

// FullDisk tells of a daemon's metrics whether the disk of MongoDB's files is full,
// which a MongoDB that it has ended does not tell any more; "": it is not, or is not
// known to be.
func FullDisk(l scrape.Look) string {
	s := Seen{Disk: Disk{Size: orZero(l.Value("brim_disk_size_bytes", nil)), Free: l.Value("brim_disk_free_bytes", nil), Path: "its files"}}
	_, evidence := findDiskFull(&s)
	return evidence
}

func findAway(s *Seen) (Class, string) {
	if s.Server.Answered || s.Server.Away == "" {
		return Healthy, ""
	}
	return Bottleneck, s.Server.Away
}

// leastRoundTrip in seconds is what a network has to take before it is worth
// naming: within a site it is below 1 ms, and a host without a free CPU makes it
// several.
const (
	leastRoundTrip = 0.01
	busyRoundTrip  = 0.05 // on such a host
)

// findNetwork holds the round trip of a ping, which needs nothing of the engine,
// against that of an update.
func findNetwork(s *Seen) (Class, string) {
	trip := s.Server.RoundTripSeconds
	least := leastRoundTrip
	if s.worst(processor) == Bottleneck {
		least = busyRoundTrip
	}
	if trip == nil || *trip < least || *trip < s.WritePath.Seconds/2 {
		return Healthy, ""
	}
	evidence := fmt.Sprintf("a ping takes %s ms", round(*trip/millis))
	if inside := s.Rate(rateWriteTime); inside > 0 {
		evidence += fmt.Sprintf("; MongoDB itself spends %s ms on a write operation", round(inside))
	}
	return Bottleneck, evidence
}

func findCheckpoint(s *Seen) (Class, string) {
	return s.worst(checkpointDuration), join("; ", s.tell(checkpointDuration), s.count(rateCheckpointShare, rateCheckpointBytes), s.tell(diskBusy, cacheDirtyShare))
}

func findTickets(s *Seen) (Class, string) {
	return s.worst(writeTickets, readTickets), join("; ", s.tell(writeTickets, readTickets), s.count(rateWrites, rateWriteTime, rateReads))
}

func findFragmented(s *Seen) (Class, string) {
	evidence := s.tell(fragmentation)
	if c, ok := s.largestFree(); ok && c.Free > 0 {
		evidence += fmt.Sprintf(": of the %s MB of stream %s, %s MB hold nothing", round(c.Storage/mega), c.Stream, round(c.Free/mega))
	}
	return s.worst(fragmentation), evidence + "; it costs disk, and writes hardly feel it"
}
