package doctor

import (
	"fmt"
	"math"
)

// Names of the diagnoses: headings of the runbook.
const (
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
		name: foundProcessor, cause: "processor-bound: there is no processor time left",
		because: []string{foundHistory, foundCache, foundEviction},
		find:    findProcessor, remedies: remedyProcessor,
	},
	{
		name: foundCheckpoint, cause: "checkpoint-bound: checkpoints write for long",
		because: []string{foundHistory, foundLatency, foundThroughput, foundIOPS, foundProcessor},
		find:    findCheckpoint, remedies: remedyCheckpoint,
	},
	{
		name: foundTickets, cause: "ticket-bound: operations wait to be let into the engine",
		because: []string{foundHistory, foundLatency, foundThroughput, foundIOPS, foundCache, foundEviction, foundProcessor, foundCheckpoint},
		find:    findTickets, remedies: remedyTickets,
	},
	{
		name: foundReaders, cause: "history-store-bound: old versions of documents are kept though no history is asked for",
		because: []string{foundLatency, foundThroughput, foundIOPS, foundProcessor, foundCheckpoint},
		find:    findReaders, remedies: remedyReaders,
	},
	{
		name: foundFragmented, cause: "fragmented: much of a collection's file holds nothing",
		find: findFragmented, remedies: remedyFragmented, aside: true,
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
	if !s.keepsNoHistory() || s.worst(cacheUsedShare, cacheDirtyShare, cacheUpdatesShare, applicationEvictions) >= Degrading {
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
	class := s.worst(diskBusy, diskAwait)
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

// findCache leaves out what is normal: before each checkpoint dirty pages have
// gathered, and while nothing else suffers from that nothing is wrong.
func findCache(s *Seen) (Class, string) {
	class := s.worst(cacheUsedShare, cacheDirtyShare, cacheUpdatesShare)
	if s.normalBeforeCheckpoint() {
		return Healthy, ""
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

// normalBeforeCheckpoint reports whether the cache is dirty over its published
// threshold, but not over its bottleneck, while nothing else of the engine
// suffers. Old versions that leave though nobody asks for them are such a sign.
func (s *Seen) normalBeforeCheckpoint() bool {
	return s.Signal(cacheDirtyShare).Class == Degrading && (!s.keepsNoHistory() || s.worst(historyStore) < Degrading) &&
		s.worst(cacheUsedShare, cacheUpdatesShare, applicationEvictions, checkpointDuration, writeTickets, readTickets) < Degrading
}

// Excused returns what is over its threshold though nothing is wrong, with why;
// empty if there is nothing of the kind.
func (s *Seen) Excused() string {
	dirty, holes := "", ""
	if s.normalBeforeCheckpoint() {
		dirty = s.tell(cacheDirtyShare) + " is over its threshold, which is normal before a checkpoint: nothing else suffers from it"
	}
	if one := s.Signal(fragmentation); one.Class == Healthy && one.Threshold.Class(one.Value) >= Degrading {
		holes = s.tell(fragmentation) + ": " + one.Why
	}
	return join("; ", dirty, holes)
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

func findProcessor(s *Seen) (Class, string) {
	one := s.Signal(processor)
	evidence := s.tell(processor)
	if n := s.Server.Processors; n > 0 {
		evidence += " of " + round(n)
		if used := s.Rate(rateProcessors); used > 0 {
			evidence += fmt.Sprintf("; mongod keeps %s of them busy", round(used))
		}
	}
	if machine := s.Rate(rateMachineBusy); machine > 0 {
		evidence += fmt.Sprintf(", and everything on this machine %s %%", round(machine))
	}
	return one.Class, evidence
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
