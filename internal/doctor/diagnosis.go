package doctor

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/brim-telemetry/brim/internal/scrape"
)

// A Finding is one thing that the doctor reports. Findings are in the order in
// which to act on them; a cause with several actions has one finding each.
type Finding struct {
	Name     string `json:"name"` // of the cause, a heading of the runbook; the same in every version
	Kind     Kind   `json:"kind"`
	Class    Class  `json:"class"`    // how bad it is; a setting that costs performance needlessly is degrading
	Cause    string `json:"cause"`    // in a few words, as in "history store: …"
	Evidence string `json:"evidence"` // what was measured, with figures
	Action   string `json:"action"`   // with the command or the setting
	Cost     string `json:"cost"`     // of the action: restart, disk, latency, readings that wait
}

// A Kind says what a finding is about.
type Kind string

// The kinds of findings.
const (
	Slow    Kind = "slow"    // something slows writes down now; counts towards the class of the whole
	Setting Kind = "setting" // a setting costs performance needlessly, even when nothing is slow; does not count
	Unseen  Kind = "unseen"  // something could not be measured; does not count
)

// Names of the diagnoses: headings of the runbook.
const (
	foundAway       = "unresponsive"
	foundDiskFull   = "disk_full"
	foundDiskSpace  = "disk_space"
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
	foundLate       = "late"
	foundFragmented = "fragmented"
	foundUnsealed   = "unsealed"
)

// A diagnosis is one thing that may slow writes down, and what to do about it.
type diagnosis struct {
	name    string
	cause   string   // in a few words
	because []string // diagnoses that explain this one where they hold
	// holds returns how bad it is; if Healthy or Unknown, the diagnosis does
	// not hold.
	holds func(s *Seen) Class

	// The evidence: the known signals and rates, and further details.
	signals, rates []string
	why            func(s *Seen) string // nil: nothing

	symptom  string   // for the runbook, like look
	look     string   // where to look
	remedies []remedy // the cheapest that helps first

	aside  bool // it costs disk but hardly any write time: comes last, however bad it is
	alone  bool // it explains most of a write's time: resources at their limit do not matter
	always bool // it holds whether writes are slow or not, even while MongoDB does not answer
}

// evidence is what was measured.
func (d *diagnosis) evidence(s *Seen) string {
	why := ""
	if d.why != nil {
		why = d.why(s)
	}
	return join("; ", s.tell(d.signals...), s.count(d.rates...), why)
}

// diagnoses is the table of all diagnoses. To add one, add a row: RUNBOOK.md is
// generated from it. How they depend on each other: old versions of documents
// fill the cache and are written; a slow disk makes checkpoints long and leaves
// the cache dirty; a full cache costs CPU time and makes application threads
// evict; and whatever delays operations in the engine holds its tickets.
var diagnoses = []diagnosis{
	{
		name: foundDiskFull, cause: "disk full: MongoDB cannot write its files",
		holds: diskFull, why: (*Seen).diskSpace, always: true,
		symptom: "less than 200 MB are free under MongoDB's files. MongoDB exits when it cannot write.",
		look:    "`df` and `du -x` on that host; `brim_disk_free_bytes`.",
		remedies: []remedy{
			{action: "make room on the file system of {path}, then start MongoDB if it has exited: a larger volume, or delete other files (du -x)", cost: "acknowledged readings wait in the daemon's journal"},
			remedies["keep less"],
		},
	},
	{
		name: foundAway, cause: "unresponsive: MongoDB does not answer",
		because: []string{foundDiskFull}, always: true,
		holds: func(s *Seen) Class {
			if s.Server.Answered || s.Server.Away == "" {
				return Healthy
			}
			return Bottleneck
		},
		why:     func(s *Seen) string { return s.Server.Away },
		symptom: "MongoDB answers none of several pings within 2 s, or is gone. `/readyz` reports it within 3 s; readings wait in the journal.",
		look:    "`ps -o pid,stat,wchan:20,args -C mongod` on its host; the end of mongod's log.",
		remedies: []remedy{
			{action: "check the process on MongoDB's host, ps -o pid,stat,wchan:20,args -C mongod: state T is a stopped one (kill -CONT PID), D one that waits for its disk; none: start it, and read the end of its log", cost: "none; acknowledged readings wait in the daemon's journal"},
			{action: "if the process is healthy, check what is between: firewall, proxy, DNS", cost: "none"},
		},
	},
	{
		name: foundNetwork, cause: "network-bound: most of a write's time is the round trip to MongoDB",
		holds: networkBound, rates: []string{rateWriteTime}, why: func(s *Seen) string { return "a ping takes " + round(*s.Server.RoundTripSeconds/millis) + " ms" }, alone: true,
		symptom: "most of a write's time is the round trip to MongoDB, as a ping shows; MongoDB itself is quick.",
		look:    "\"Write latency\" far above \"Operation latency\".",
		remedies: []remedy{
			{action: "check the path to MongoDB (mtr, ss -ti): loss, a proxy, a VPN, another region", cost: "none"},
			remedies["merge"],
			{action: "run brim serve closer to MongoDB's primary", cost: "another host for the daemon"},
		},
	},
	{
		name: foundHistory, cause: "history-store-bound: old versions of documents are kept",
		signals: []string{historyStore}, rates: []string{rateWrites},
		holds: func(s *Seen) Class {
			if s.keepsNoHistory() {
				return Healthy
			}
			return s.worst(historyStore)
		},
		why: func(s *Seen) string {
			if window := s.Server.HistoryWindowSeconds; window != nil {
				return fmt.Sprintf("minSnapshotHistoryWindowInSeconds is %s, so every version of a document is kept for that many seconds", round(*window))
			}
			return "each is a version of a document that a read may still need"
		},
		symptom: "each update of a bucket leaves its former version behind. Writes cost more of everything: cache, disk, CPU time; measured, a quarter of the engine's throughput.",
		look:    "\"History store\" for inserts and growth; `db.adminCommand({getParameter: 1, minSnapshotHistoryWindowInSeconds: 1})`, 300 by default.",
		remedies: []remedy{
			remedies["no history"], remedies["end readers"],
		},
	},
	{
		name: foundLatency, cause: "latency-bound: the disk answers slowly though it is not busy",
		because: []string{foundHistory}, holds: diskIs(foundLatency), signals: []string{diskBusy, diskAwait}, rates: diskRates, why: (*Seen).diskOperations,
		symptom: "the disk answers slowly though it is not busy. Each write waits for a sync of the journal, so all are slow alike.",
		look:    "\"Disk await\" compared with \"Disk busy\" and \"Disk traffic\": slow with little work is the volume's own fault: a limit, a neighbor, a failing disk.",
		remedies: []remedy{
			remedies["shared disk"],
			remedies["merge"],
			{
				action: "move MongoDB's files, its journal first, to a faster disk than {disk}",
				cost:   "a new volume or disk, and a restart of MongoDB; on a replica set one member after the other without downtime",
			},
		},
	},
	{
		name: foundThroughput, cause: "throughput-bound: the disk moves as many bytes as it can",
		because: []string{foundHistory}, holds: diskIs(foundThroughput), signals: []string{diskBusy, diskAwait}, rates: diskRates, why: (*Seen).diskOperations,
		symptom: "the disk moves as many bytes as it can; checkpoints take long, and writes wait behind them.",
		look:    "\"Disk traffic\", \"Block manager\", \"Bytes written per reading\": far more than a reading's size means that documents are rewritten again and again.",
		remedies: []remedy{
			remedies["shared disk"].only("most of the bytes are not MongoDB's", (*Seen).othersUseDisk),
			remedies["merge"], remedies["compress"], remedies["smaller documents"],
			{action: "give MongoDB a disk, or a volume, with more MB/s", cost: restartOneByOne},
		},
	},
	{
		name: foundIOPS, cause: "IOPS-bound: the disk is busy with many small operations",
		because: []string{foundHistory}, holds: diskIs(foundIOPS), signals: []string{diskBusy, diskAwait}, rates: diskRates, why: (*Seen).diskOperations,
		symptom: "the disk is busy with many small operations.",
		look:    "\"Disk operations\": more reads than writes: buckets that are appended to fell out of the cache. \"Readings per update\": 1 means that nothing is merged.",
		remedies: []remedy{
			remedies["shared disk"].only("most of the bytes are not MongoDB's", (*Seen).othersUseDisk),
			remedies["merge"],
			remedies["larger cache"].only("most operations are reads", (*Seen).diskMostlyReads),
			remedies["more memory"].only("most operations are reads", (*Seen).diskMostlyReads),
			remedies["smaller documents"],
			{action: "give MongoDB a disk, or a volume, with more operations/s", cost: restartOneByOne},
		},
	},
	{
		name: foundCache, cause: "cache-bound: the engine's cache holds more than it can write out",
		because: []string{foundHistory, foundLatency, foundThroughput, foundIOPS}, holds: (*Seen).cacheClass,
		signals: []string{cacheUsedShare, cacheDirtyShare, cacheUpdatesShare}, rates: []string{rateEvictions, rateCacheRead},
		why: func(s *Seen) string {
			return join("; ", s.spilled(), "the cache has "+round(s.Server.CacheBytes/mega)+" MB")
		},
		symptom: "the cache holds more than the engine can write out. Soon application threads must evict before they write.",
		look:    "\"Cache used\" over 80 %, \"Cache dirty\", \"Cache updates\", \"Cache traffic\". Dirty pages and updates that rise and fall with each checkpoint are normal while \"Application evictions\" is 0.",
		remedies: []remedy{
			remedies["merge"],
			remedies["larger cache"].only("the cache is full", (*Seen).cacheIsFull),
			remedies["more memory"].only("the cache is full", (*Seen).cacheIsFull),
			remedies["smaller documents"], {
				action: "let more of the engine's own threads evict: db.adminCommand({setParameter: 1, wiredTigerEngineRuntimeConfig: \"eviction=(threads_min=4,threads_max=8)\"})",
				cost:   "no restart; CPU time and disk operations",
			},
			remedies["larger cache"].only("the cache is not full", unless((*Seen).cacheIsFull)),
			remedies["more memory"].only("the cache is not full", unless((*Seen).cacheIsFull)),
		},
	},
	{
		name: foundEviction, cause: "eviction-bound: application threads must make room in the cache",
		because: []string{foundHistory, foundLatency, foundThroughput, foundIOPS, foundCache},
		holds:   func(s *Seen) Class { return s.worst(applicationEvictions) },
		signals: []string{applicationEvictions, cacheUsedShare, cacheDirtyShare, cacheUpdatesShare}, rates: []string{rateAppEvictionTime},
		why: func(s *Seen) string {
			if s.worst(cacheUsedShare, cacheDirtyShare, cacheUpdatesShare) >= Degrading {
				return "" // the cache's finding has it
			}
			return s.spilled()
		},
		symptom:  "threads that should serve writes make room in the cache first. Their time is part of the write latency.",
		look:     "\"Application evictions\" next to \"Write latency\"; which of used, dirty and updates is at its limit.",
		remedies: []remedy{remedies["merge"], remedies["larger cache"], remedies["more memory"], remedies["smaller documents"]},
	},
	{
		name: foundProcessor, cause: "CPU-bound: host CPU saturated, most of it by mongod",
		because: []string{foundHistory, foundCache, foundEviction}, holds: cpuIs(foundProcessor), signals: []string{processor}, why: (*Seen).cpuUse,
		symptom:  "host CPU saturated, most of it by mongod, and writes are slower than usual.",
		look:     "\"CPU busy\" next to \"mongod\"; `db.currentOp({active: true})` for what else it does. zstd costs CPU time, so do not change to it here.",
		remedies: cpuRemedies,
	},
	{
		name: foundHostCPU, cause: "CPU-bound: host CPU saturated, most of it by other processes than mongod",
		holds: cpuIs(foundHostCPU), signals: []string{processor}, why: (*Seen).cpuUse,
		symptom:  "host CPU saturated, most of it by other processes than mongod, and writes are slower than usual; Brim's answers too if it runs there.",
		look:     "\"CPU busy\" next to \"mongod\"; `top`.",
		remedies: cpuRemedies,
	},
	{
		name: foundCheckpoint, cause: "checkpoint-bound: checkpoints take long",
		because: []string{foundHistory, foundLatency, foundThroughput, foundIOPS, foundProcessor, foundHostCPU},
		holds:   func(s *Seen) Class { return s.worst(checkpointDuration) },
		signals: []string{checkpointDuration, diskBusy, cacheDirtyShare}, rates: []string{rateCheckpointShare, rateCheckpointBytes},
		symptom: "checkpoints take long, and latency rises while one runs.",
		look:    "\"Checkpoints\", \"Write latency during checkpoints\", \"Block manager\".",
		remedies: []remedy{
			remedies["merge"], remedies["smaller documents"], remedies["compress"],
			{
				action: "take checkpoints more often, so that each writes less: " + strings.ReplaceAll(setInterval, "{seconds}", "30"),
				cost:   costOfInterval + "; pages that are appended to again and again are written more often: more bytes in all",
			},
		},
	},
	{
		name: foundTickets, cause: "ticket-bound: operations wait to enter the engine",
		because: []string{foundHistory, foundLatency, foundThroughput, foundIOPS, foundCache, foundEviction, foundProcessor, foundHostCPU, foundCheckpoint},
		holds:   func(s *Seen) Class { return s.worst(writeTickets, readTickets) },
		signals: []string{writeTickets, readTickets}, rates: []string{rateWrites, rateWriteTime, rateReads},
		symptom: "operations wait to enter the engine. This is almost always a symptom: tickets run out because operations take long. Fix whatever else is found first.",
		look:    "\"Tickets\", \"Queued operations\"; what else was found.",
		remedies: []remedy{
			{action: "find operations that hold tickets for long: db.currentOp({active: true, secs_running: {$gt: 1}})", cost: "none"},
			remedies["merge"],
			{action: "run fewer updates at once: a smaller --lanes of brim serve (4 a stream)", cost: "a restart of the daemon; less concurrency where the engine could use it"},
		},
	},
	{
		name: foundReaders, cause: "history-store-bound: old versions of documents are kept though no history is configured",
		because: []string{foundLatency, foundThroughput, foundIOPS, foundProcessor, foundHostCPU, foundCheckpoint}, holds: readersBound,
		signals: []string{historyStore}, rates: []string{rateWrites},
		why: func(s *Seen) string {
			if s.Server.Topology == standalone {
				return "a standalone server keeps no history, so there is a long-running read, or updates are slow during a checkpoint"
			}
			return "minSnapshotHistoryWindowInSeconds is 0, so there is a long-running read, a member of the set lags, or updates are slow during a checkpoint"
		},
		symptom: "as history_store, though the history window is 0: a read takes long, or a member of the set lags, and what it may still need must be kept.",
		look:    "open transactions and cursors; `rs.printSecondaryReplicationInfo()`; \"History store\".",
		remedies: []remedy{
			remedies["end readers"],
			{action: "check that no member of the set lags: rs.printSecondaryReplicationInfo()", cost: "none", where: "it is a replica set", when: (*Seen).isReplicaSet},
		},
	},
	{
		name: foundLate, cause: "late: updates are not stored when they should be",
		because: []string{foundDiskFull, foundAway, foundNetwork, foundHistory, foundLatency, foundThroughput, foundIOPS, foundCache, foundEviction, foundProcessor, foundHostCPU, foundCheckpoint, foundTickets, foundReaders},
		// Same bounds as the alerts BrimLagHigh and BrimJournalExposed in
		// deploy/prometheus/alerts.yml.
		holds: func(s *Seen) Class {
			return Threshold{Degrading: 10, Bottleneck: 60}.Class(s.WritePath.writes.Overdue)
		},
		rates: []string{rateWrites, rateWriteTime}, always: true,
		why: func(s *Seen) string {
			return "the most overdue update is " + round(s.WritePath.writes.Overdue) + " s late"
		},
		symptom: "an update is more than 10 s late. It is due when a client waits for it, when its bucket has `--merge-readings` readings, or when they have waited for `--flush-max`. Nothing is lost while the journal has room.",
		look:    "\"Past due\", \"Rate\" (is less stored than arrives?), \"Outcomes\" (retries), \"Set aside\"; `brim_queue_past_due_seconds`.",
		remedies: []remedy{
			{action: "check whether it is falling: after an outage of MongoDB, Brim is storing the readings that accumulated", cost: "none"},
			remedies["merge"].only("updates carry fewer than 5 readings", (*Seen).mergesLittle),
			{action: "write more at once: raise --lanes of brim serve (4 a stream)", cost: "a restart of the daemon; more load on MongoDB"},
		},
	},
	{
		name: foundFragmented, cause: "fragmented: much of a collection's file is empty",
		holds: func(s *Seen) Class { return s.worst(fragmentation) }, signals: []string{fragmentation}, aside: true,
		why: func(s *Seen) string {
			const harmless = "it costs disk space and hardly affects writes"
			if stream, c := s.largestFree(); c.free > 0 {
				return fmt.Sprintf("%s of the %s MB of stream %s are empty; %s", round(c.free/mega), round(c.storage/mega), stream, harmless)
			}
			return harmless
		}, always: true,
		symptom: "much of a collection's file is empty, as after deletes. Writes hardly suffer; disk space is short, and backups take long.",
		look:    "\"Free space inside the files\" for which stream; with `--retention` some is normal, since new documents use it again.",
		remedies: []remedy{
			{action: "reclaim the space: brim compact {stream}, on one member after the other", cost: "load on the disk while it runs; writes go on. Otherwise the free space is used again by the next writes"},
		},
	},
	{
		name: foundDiskSpace, cause: "disk space: the disk under MongoDB's files fills up",
		// Slows nothing down until space runs out: see disk_full.
		holds: func(s *Seen) Class {
			if s.Signal(diskFree).Class < Bottleneck || diskFull(s) == Bottleneck {
				return Healthy
			}
			return Degrading
		},
		signals: []string{diskFree}, why: (*Seen).diskSpace, aside: true, always: true,
		symptom: "10 % or less of the file system under MongoDB's files is free. Nothing is slow yet. MongoDB exits when it cannot write.",
		look:    "\"Disk space\", \"Collection sizes\": does a collection grow, or is it free space inside the files? The alert BrimDiskFullSoon says by when it will be full.",
		remedies: []remedy{
			remedies["keep less"], remedies["compress"],
			{action: "enlarge the volume of {path}, or delete other files on it (du -x)", cost: "money"},
		},
	},
	{
		name: foundUnsealed, cause: "unsealed: windows that have ended are not sealed when they should be",
		because: []string{foundDiskFull, foundAway, foundLate}, aside: true, always: true,
		// Passes start at most 5 minutes apart, so an hour is not chance. After a day the
		// unsealed windows may need more space than the disk has.
		holds: func(s *Seen) Class {
			return Threshold{Degrading: 3600, Bottleneck: 24 * 3600}.Class(s.WritePath.writes.SealLag)
		},
		why: func(s *Seen) string {
			return "some may have been due for " + round(s.WritePath.writes.SealLag/3600) + " h; until they are sealed, they take more space"
		},
		symptom: "windows have been due to be sealed for more than an hour. Readings are stored and read as usual, but take more space. Where the stream has rollups, they do not expire until then.",
		look:    "\"Sealing is behind\", \"Sealed parts\"; the daemon's log (\"sealing waits for other daemons\", \"sealing was interrupted\"); `/status` has the progress and its last error.",
		remedies: []remedy{
			{action: "check whether it is falling: a first pass over many sensors takes hours, and sealing slows down while updates are late", cost: "none"},
			{action: "upgrade or stop daemons of earlier releases, which cannot read sealed windows: the log says if sealing waits for them", cost: "a restart of these daemons"},
			{action: "let a window hold more: a longer --granularity of brim serve means fewer parts to seal", cost: "larger documents"},
		},
	},
}

// Diagnose returns what slows writes down as findings of kind slow, one per
// action: causes before their effects, otherwise the worst first, and what
// costs only disk last. There are none if nothing is wrong. Findings of kind
// unseen follow, for what could not be measured.
func Diagnose(s Seen) []Finding {
	return append(diagnoseWith(&s, diagnoses), unseen(&s)...)
}

// A held diagnosis is one that holds, and how bad it is.
type held struct {
	*diagnosis
	class    Class
	evidence string
}

// diagnoseWith applies a table of diagnoses. Writes are slowed down by a resource at
// its limit if they are also slower than usual, and the finding has the milder class
// of the two:
//
//	writes        resource at its limit    finding
//	as usual      any                      none
//	slow          no                       none; the note says so
//	slow          yes                      the milder class of the two
//	unknown       yes                      the class of the resource; the evidence says so
func diagnoseWith(s *Seen, table []diagnosis) []Finding {
	var found []held
	slow := s.Signal(writeSlowdown)
	for i := range table {
		d := &table[i]
		if !d.always && (!s.Server.Answered || slow.Class == Healthy) {
			continue
		}
		class := d.holds(s)
		if class < Degrading {
			continue
		}
		evidence := d.evidence(s)
		switch {
		case d.always:
		case slow.Class == Unknown:
			evidence += "; whether writes are slower than usual is unknown"
		default:
			class = min(class, slow.Class)
			evidence += "; " + s.WritePath.String()
		}
		found = append(found, held{diagnosis: d, class: class, evidence: evidence})
	}
	if slices.ContainsFunc(found, func(h held) bool { return h.alone }) {
		found = slices.DeleteFunc(found, func(h held) bool { return !h.alone && !h.always })
	}
	slices.SortStableFunc(found, func(a, b held) int {
		last := func(h held) int { return map[bool]int{true: 1}[h.aside] }
		return cmp.Or(last(a)-last(b), int(b.class-a.class))
	})
	var out []Finding
	done := make(map[string]bool)
	var put func(h held) // causes first
	put = func(h held) {
		if done[h.name] {
			return
		}
		done[h.name] = true
		var causes []string
		for _, cause := range found {
			if slices.Contains(h.because, cause.name) {
				put(cause)
				short, _, _ := strings.Cut(cause.cause, ":")
				causes = append(causes, short)
			}
		}
		if len(causes) > 0 {
			h.evidence += ". It may follow from what stands above: " + join(", ", causes...)
		}
		for _, r := range h.remedies {
			if r.when == nil || r.when(s) {
				out = append(out, Finding{Name: h.name, Kind: Slow, Class: h.class, Cause: h.cause, Evidence: h.evidence, Action: r.fill(s), Cost: r.cost})
			}
		}
	}
	for _, h := range found {
		put(h)
	}
	return out
}

// mostSevere returns the worst class of the findings of kind slow; Healthy if there
// are none.
func mostSevere(findings []Finding) Class {
	worst := Healthy
	for i := range findings {
		if findings[i].Kind == Slow {
			worst = max(worst, findings[i].Class)
		}
	}
	return worst
}

// Excused explains signals over their thresholds when nothing is wrong; empty
// if there are none.
func (s *Seen) Excused() string {
	var out, over []string
	slow := s.Signal(writeSlowdown).Class
	for i := range s.Signals {
		one := &s.Signals[i]
		switch {
		case one.Name == fragmentation:
			if one.Class == Healthy && one.Threshold.Class(one.Value) >= Degrading { // free space in small files
				out = append(out, s.tell(fragmentation)+": "+one.Why)
			}
		case !s.Server.Answered, one.Name == diskFree && one.Class == Bottleneck: // those have a finding
		case slow == Healthy && one.Class >= Degrading:
			degrading, bottleneck := one.Bounds()
			over = append(over, fmt.Sprintf("%s %s (%s)", lower(one.Title), one.Text(),
				map[Class]string{Degrading: "degrading " + degrading, Bottleneck: "bottleneck " + bottleneck}[one.Class]))
		case slow != Healthy && slices.Contains(gathering, one.Name) && s.gathers(one.Name):
			out = append(out, s.tell(one.Name)+" is over its threshold, which is normal before a checkpoint: application threads are not evicting")
		}
	}
	if len(over) > 0 {
		out = append(out, join(", ", over...)+", but writes are not slower than usual: "+s.WritePath.String())
	}
	if s.Server.Answered && slow >= Degrading && mostSevere(diagnoseWith(s, diagnoses)) == Healthy {
		out = append(out, fmt.Sprintf("writes are slower than usual (%s), and no resource is at its limit: look for locks and slow operations with db.currentOp({active: true, secs_running: {$gt: 1}})", s.WritePath))
	}
	return join("; ", out...)
}

// leastFree is the free disk space in bytes below which MongoDB cannot go on:
// its journal preallocates files of 100 MB.
const leastFree = 200e6

func diskFull(s *Seen) Class {
	if s.Disk.Size <= 0 || s.Disk.Free >= leastFree {
		return Healthy
	}
	return Bottleneck
}

func (s *Seen) diskSpace() string {
	return fmt.Sprintf("of the %s MB under %s %s MB are free", round(s.Disk.Size/mega), s.Disk.Path, round(s.Disk.Free/mega))
}

// FullDisk tells from a daemon's metrics whether the disk under MongoDB's files is
// full. A MongoDB that exited because of it cannot report that itself. It returns
// "" if the disk is not full, or unknown.
func FullDisk(l scrape.Sample) string {
	s := Seen{Disk: Disk{Size: orZero(l.Value("brim_disk_size_bytes", nil)), Free: l.Value("brim_disk_free_bytes", nil), Path: "its files"}}
	if diskFull(&s) < Bottleneck {
		return ""
	}
	return s.diskSpace()
}

// leastRoundTrip is the round trip in seconds from which a network is worth
// naming: within a site it is below 1 ms, or several if a host has no free CPU.
const (
	leastRoundTrip = 0.01
	busyRoundTrip  = 0.05 // if CPUs are busy, or neither CPU nor writes are known yet
)

// networkBound compares an update's round trip with that of a ping, which does
// not need the engine.
func networkBound(s *Seen) Class {
	trip, least := s.Server.RoundTripSeconds, leastRoundTrip
	switch cpu := s.worst(processor); {
	case cpu == Bottleneck, cpu == Unknown && s.Signal(writeSlowdown).Class == Unknown:
		least = busyRoundTrip
	}
	if trip == nil || *trip < least || *trip < s.WritePath.Seconds/2 {
		return Healthy
	}
	return Bottleneck
}

// readersBound finds old versions that are kept although no history is configured. It
// ignores side effects of a full cache: evicted pages move versions that a concurrent
// read or write still needs to the history store.
func readersBound(s *Seen) Class {
	if !s.keepsNoHistory() || max(s.cacheClass(), s.worst(applicationEvictions)) >= Degrading {
		return Healthy
	}
	return s.worst(historyStore)
}

// keepsNoHistory reports whether the server is known to keep old versions of
// documents no longer than operations need them.
func (s *Seen) keepsNoHistory() bool {
	return s.Server.HistoryWindowSeconds != nil && *s.Server.HistoryWindowSeconds == 0
}

// diskIs finds a slow disk of one of three kinds. If the disk is not a
// bottleneck, it has idle time, so the number of operations is not what makes
// them slow. Large operations take long by nature.
func diskIs(kind string) func(s *Seen) Class {
	return func(s *Seen) Class {
		busy, await := s.Signal(diskBusy), s.Signal(diskAwait)
		class := Healthy
		if s.waitsForDisk() {
			class = await.Class
		}
		if busy.Class == Bottleneck { // a share of the time, like the CPU's
			class = Bottleneck
		}
		large := s.Rates.operationSize() >= largeOperation
		is := foundIOPS
		switch {
		case busy.Class < Degrading, await.Class == Bottleneck && busy.Class < Bottleneck && !large:
			is = foundLatency
		case large:
			is = foundThroughput
		}
		if is != kind {
			return Healthy
		}
		return class
	}
}

var diskRates = []string{rateDiskReads, rateDiskWrites, rateDiskReadBytes, rateDiskWritten}

// diskOperations describes the disk's operations, except how many there are.
func (s *Seen) diskOperations() string {
	out := fmt.Sprintf("%s KiB per operation (%s, %s)", round(s.Rates.operationSize()/1024), s.Disk.Device, s.Disk.kindInWords())
	if s.Signal(diskAwait).Class < Degrading {
		out += "; its latency is still healthy, so it hardly affects writes yet"
	}
	if own, all := s.moved(); s.othersUseDisk() {
		out += fmt.Sprintf("; MongoDB itself moved %[2]s of the %[1]s MB/s, the rest is other programs', or was written before", round(all), round(own))
	}
	return out
}

// waitsForDisk reports whether the disk may account for a quarter of the delay
// of updates. Each waits for a sync of the journal, which takes several disk
// operations; a latency of 3 ms does not explain an update of 500 ms.
func (s *Seen) waitsForDisk() bool {
	late := (s.WritePath.Seconds - s.WritePath.usual()) / millis
	return !(s.Signal(diskAwait).Value < late/16) || s.Rate(rateJournalSyncTime) >= late/4
}

// moved returns the MB/s that MongoDB read and wrote itself, and those of the
// disk. Pages read count with their size in the cache, which is larger than on
// disk.
func (s *Seen) moved() (own, all float64) {
	return s.Rate(rateBlockBytes) + s.Rate(rateJournalBytes) + s.Rate(rateCacheRead), s.Rate(rateDiskReadBytes) + s.Rate(rateDiskWritten)
}

func (s *Seen) diskMostlyReads() bool { return s.Rate(rateDiskReads) > s.Rate(rateDiskWrites) }

func (s *Seen) cacheIsFull() bool { return s.Signal(cacheUsedShare).Class >= Degrading }

// spilled describes the history store where it only grows because of the cache.
func (s *Seen) spilled() string {
	if !s.keepsNoHistory() || s.worst(historyStore) < Degrading {
		return ""
	}
	return "evicted pages move old versions to the history store, " + s.tell(historyStore) + " (the history window is 0)"
}

// gathering lists the signals of what builds up between checkpoints.
var gathering = []string{cacheDirtyShare, cacheUpdatesShare}

// cacheClass ignores what is normal: dirty pages and updates build up before
// each checkpoint, and below its triggers the engine copes without help.
//
//	                 to its bottleneck                  over it
//	used             counts                             counts
//	dirty, updates   if application threads must evict  counts
func (s *Seen) cacheClass() Class {
	class := s.worst(cacheUsedShare)
	for _, name := range gathering {
		if !s.gathers(name) {
			class = max(class, s.Signal(name).Class)
		}
	}
	return class
}

// gathers reports whether a signal is degrading only as usual before a
// checkpoint, with application threads not evicting. Even a few evictions count
// if old versions are written although no history is configured.
func (s *Seen) gathers(name string) bool {
	few := s.Rate(rateAppEvictions) > 0 && s.keepsNoHistory() && s.worst(historyStore) >= Degrading
	return s.Signal(name).Class == Degrading && s.worst(applicationEvictions) < Degrading && !few
}

// cpuIs tells a mongod that takes most of the CPU from other processes that do.
// CPU time runs out only at the bottleneck: below it, every thread finds a free
// CPU.
func cpuIs(kind string) func(s *Seen) Class {
	return func(s *Seen) Class {
		one := s.Signal(processor)
		is := foundHostCPU
		if s.ownCPU() >= one.Value/2 {
			is = foundProcessor
		}
		if one.Class < Bottleneck || is != kind {
			return Healthy
		}
		return one.Class
	}
}

// cpuUse says which processes use the CPU, where known.
func (s *Seen) cpuUse() string {
	var own, host string
	if used := s.Rate(rateProcessors); used > 0 && s.Server.Processors > 0 {
		own = fmt.Sprintf("mongod uses %s of %s CPUs", round(used), round(s.Server.Processors))
	}
	if busy := s.Rate(rateMachineBusy); busy > 0 {
		host = "all processes on this host " + round(busy) + " %"
	}
	return join(", and ", own, host)
}

// largestFree returns the stream whose file has the largest share of free space, among
// files large enough to matter; empty if there is none.
func (s *Seen) largestFree() (stream string, most collection) {
	for _, name := range slices.Sorted(maps.Keys(s.collections)) {
		if c := s.collections[name]; c.storage >= leastFragmented && (stream == "" || c.free/c.storage > most.free/most.storage) {
			stream, most = name, c
		}
	}
	return stream, most
}

// tell lists the known ones of some signals with their values, as in "disk busy 92
// %, disk latency 7.1 ms".
func (s *Seen) tell(signals ...string) string {
	var out []string
	for _, name := range signals {
		if one := s.Signal(name); one.Class != Unknown {
			out = append(out, lower(one.Title)+" "+one.Text())
		}
	}
	return join(", ", out...)
}

// count lists rates with their values, except those that are unknown or 0.
func (s *Seen) count(rates ...string) string {
	var out []string
	for _, r := range s.Rates {
		if slices.Contains(rates, r.Name) && r.Value > 0 {
			out = append(out, lower(r.Title)+" "+r.Text())
		}
	}
	return join(", ", out...)
}

// lower writes a title in lower case for use within a sentence, except
// abbreviations.
func lower(title string) string {
	if title == "" || strings.HasPrefix(title, "CPU") {
		return title
	}
	return string(title[0]|0x20) + title[1:]
}

// worst returns the worst class of some signals.
func (s *Seen) worst(names ...string) Class {
	worst := Unknown
	for _, name := range names {
		worst = max(worst, s.Signal(name).Class)
	}
	return worst
}

// unseen returns a finding for each reason why signals are unknown.
func unseen(s *Seen) []Finding {
	var reasons []string
	titles := make(map[string][]string)
	for _, one := range s.Signals {
		if one.Class != Unknown {
			continue
		}
		if !slices.Contains(reasons, one.Why) {
			reasons = append(reasons, one.Why)
		}
		titles[one.Why] = append(titles[one.Why], lower(one.Title))
	}
	var out []Finding
	for _, why := range reasons {
		h, evidence := helpFor(why), why
		if sync := s.Rate(rateJournalSyncTime); s.Disk.Why == why && sync > 0 {
			evidence += "; what is known of it: a sync of MongoDB's journal, which writes wait for, took " + round(sync) + " ms on average"
		}
		out = append(out, Finding{
			Name: h.name, Kind: Unseen, Class: Unknown, Cause: "not measured: " + strings.Join(titles[why], ", "),
			Evidence: evidence, Action: h.action, Cost: h.cost,
		})
	}
	return out
}

// A help says how to make something measurable; name is its finding's.
type help struct{ name, action, cost string }

const (
	grantMonitor = `db.getSiblingDB("admin").grantRolesToUser(USER, ["clusterMonitor"])`
	mayReadStats = "the user may read the server's statistics, and no data"
)

// helps are by reason. For a disk there are more reasons, see helpFor.
var helps = map[string]help{
	whyNoWrites:     {"unseen_rate", "sample again after a minute of writes", "none"},
	whyFewAtFirst:   {"unseen_rate", "sample again after a minute of writes", "none"},
	whyFirst:        {"unseen_rate", "sample twice: brim doctor --over 10s, or --watch", "the time between the samples"},
	whyNoSample:     {"unseen_rate", "sample twice: brim doctor --over 10s, or --watch", "the time between the samples"},
	whyRestarted:    {"unseen_rate", "sample again", "none"},
	whyNoPath:       {"unseen_permission", grantMonitor + "; or name the folder of its files by --disk, if it runs on this machine", mayReadStats},
	whyNotPermitted: {"unseen_permission", grantMonitor, mayReadStats},
	whyNoHostInfo:   {"unseen_permission", grantMonitor, mayReadStats},
	whyNoRead:       {"unseen_permission", "grant the user the role read on the database of the streams", "the user may read the readings"},
	whyElsewhere:    {"unseen_disk", "run brim doctor on the machine of MongoDB's primary; if this is it, name the folder of its files by --disk PATH", "none"},
	whyRefused:      {"unseen_server", "check the user, the password and authSource of --mongo-uri", "none"},
	whyAway:         {"unseen_server", "sample again when MongoDB answers", "none"},
	whyUnasked:      {"unseen_server", "sample again when MongoDB answers", "none"},
	whyCoresUnasked: {"unseen_server", "sample again when MongoDB answers", "none"},
	whyMongos:       {"unseen_mongos", "name a shard's replica set by --mongo-uri, one after the other", "none"},
	whyNoCollection: {"unseen_collection", "name the database and the stream by --database and --stream, or the daemon by --admin", "none"},
	whyNoCheckpoint: {"unseen_checkpoint", "sample again in a minute, after the next checkpoint", "none"},
}

func helpFor(why string) help {
	if h, ok := helps[why]; ok {
		return h
	}
	for _, disk := range []string{"names no disk", "cannot be examined", "/proc"} {
		if strings.Contains(why, disk) {
			return help{"unseen_disk", "run brim doctor outside the container, or name a folder on the disk of MongoDB's files by --disk PATH", "none"}
		}
	}
	return help{"unseen_other", "none is known", "none"}
}
