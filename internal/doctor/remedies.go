package doctor

import (
	"fmt"
	"math"
	"regexp"
	"strings"
)

// A remedy is an action and what it costs. `brim doctor` and the runbook have the
// same text; words in braces are filled in, or in capitals in the runbook:
//
//	{disk} its device and kind, {path} of MongoDB's files, {stream} the flag that
//	names the stream, {cache} the size to set, {has} and {memory} in MB
//
// A remedy is left out where its condition does not hold.
type remedy struct {
	action, cost string
	where        string // the condition in words, for the runbook; empty: always
	when         func(s *Seen) bool
}

// only returns the remedy with one more condition.
func (r remedy) only(where string, when func(s *Seen) bool) remedy {
	first := r.when
	r.where = join(" and ", r.where, where)
	r.when = func(s *Seen) bool { return (first == nil || first(s)) && when(s) }
	return r
}

func unless(when func(s *Seen) bool) func(s *Seen) bool {
	return func(s *Seen) bool { return !when(s) }
}

const restartOneByOne = "money, and a restart of MongoDB; on a replica set one member after the other"

// remedies are those shared by several diagnoses.
var remedies = map[string]remedy{
	"merge": {
		action: "merge more readings into one update: raise --flush-max of brim serve (5m by default), lower --flush-budget, and leave --max-readings-per-update at 0",
		cost:   costOfWaiting,
	},
	"smaller documents": {
		action: "append to smaller documents: a shorter --granularity of brim serve, like 1m, or a smaller --bucket-max-readings",
		cost:   "a restart of the daemons for --granularity; more documents, and a few percent more bytes",
	},
	"keep less": {
		action: "keep less: --retention of brim serve; what is deleted frees space inside the files, and brim compact gives it back, which needs some room itself",
		cost:   "older readings",
	},
	"compress": {
		action: "write fewer bytes: restart the daemons with --compressor zstd, which applies to what is written from then on; brim move STREAM compresses the rest, faster with --share 100%",
		cost:   "more CPU time at checkpoints and reads; brim move writes all that was stored before once more, which loads the disk and needs space on it while it runs",
	},
	"shared disk": {
		action: "find what else uses the disk: iostat -x 5 and pidstat -d 5, and the limits and neighbors of a virtual volume",
		cost:   "none",
	},
	"end readers": {
		action: "find long-running reads and end them: db.currentOp({secs_running: {$gt: 60}}) and db.killOp(OPID); open transactions and cursors with snapshot reads count",
		cost:   "the client must repeat its read",
	},
	"no history": {
		action: "keep no history: in mongosh, on each member, db.adminCommand({setParameter: 1, minSnapshotHistoryWindowInSeconds: 0}); and for the next start, in mongod.conf, setParameter: {minSnapshotHistoryWindowInSeconds: 0}",
		cost:   "no restart; reads of a snapshot of the past (readConcern snapshot with atClusterTime) no longer find it, nor do snapshot reads that take longer than the server keeps history for itself; Brim makes none",
	},
	"larger cache": {
		action: "give the engine more cache: " + setCache,
		cost:   "no restart; memory that other programs and the file system's cache lose",
		where:  "the machine has memory for it", when: (*Seen).cacheMayGrow,
	},
	"more memory": {
		action: "add memory to MongoDB's machine and give the engine's cache its share: the cache already has {has} MB of {memory} MB",
		cost:   restartOneByOne,
		where:  "it does not", when: unless((*Seen).cacheMayGrow),
	},
}

// setCache sets the size of the engine's cache.
const setCache = "db.adminCommand({setParameter: 1, wiredTigerEngineRuntimeConfig: \"cache_size={cache}\"}) now; for the next start storage.wiredTiger.engineConfig.cacheSizeGB in mongod.conf, or --mongod-cache-size of brim serve"

// setInterval sets the time between two checkpoints.
const (
	setInterval    = "in mongod.conf, on each member, storage: {syncPeriodSecs: {seconds}}, and a restart; MongoDB 7 and newer need no restart: in mongosh, db.adminCommand({setParameter: 1, syncdelay: {seconds}})"
	costOfInterval = "a restart of MongoDB before 7"
)

// Remedies for a saturated CPU depend on mongod's share of it.
var cpuRemedies = []remedy{
	{
		action: "find what runs on this host (top), and move what is not needed here: all processes together take {hostCPU} % of the CPU, and mongod's part is not known yet",
		cost:   "another host for it",
		where:  "mongod's part is unknown",
		when:   func(s *Seen) bool { return math.IsNaN(s.ownCPU()) && s.Rate(rateMachineBusy) >= foreign },
	},
	{
		action: "find what else runs on this host (top), and move what is not needed here: everything except mongod, including brim serve if it runs here, takes {otherCPU} % of the CPU, and mongod {ownCPU} %",
		cost:   "another host for it",
		where:  "others take a quarter of it or more",
		when:   func(s *Seen) bool { return s.Rate(rateMachineBusy)-s.ownCPU() >= foreign },
	},
	remedies["merge"].only("mongod takes a quarter of it or more", (*Seen).mongodNeedsCPU),
	remedies["smaller documents"].only("the same", (*Seen).mongodNeedsCPU),
	{action: "give MongoDB more CPUs: a larger host", cost: restartOneByOne},
}

// foreign is the share of a host's CPU in percent from which other processes
// are worth a look.
const foreign = 25

// ownCPU is mongod's share of the CPUs in percent.
func (s *Seen) ownCPU() float64 { return percent * s.Rate(rateProcessors) / s.Server.Processors }

func (s *Seen) mongodNeedsCPU() bool { return !(s.ownCPU() < foreign) }

// othersUseDisk reports whether most of a disk's traffic is not MongoDB's: a
// backup that copies files, another database, the daemon's journal.
func (s *Seen) othersUseDisk() bool {
	own, all := s.moved()
	return all > 2*own
}

func (s *Seen) isReplicaSet() bool { return s.Server.Topology != standalone }

// defaultCache is mongod's default cache size: half of the memory beyond 1 GiB,
// and at least 256 MiB.
func defaultCache(memory float64) float64 { return max((memory-1024*mebi)/2, 256*mebi) }

// leastHeadroom is the factor by which a cache must grow to be worth a change.
const leastHeadroom = 1.25

// wantedCache is the recommended cache size in bytes; 0: unknown.
func (s *Seen) wantedCache() float64 {
	if s.Server.MemoryBytes > 0 {
		return min(2*s.Server.CacheBytes, defaultCache(s.Server.MemoryBytes))
	}
	return 2 * s.Server.CacheBytes
}

func (s *Seen) cacheMayGrow() bool {
	return s.Server.CacheBytes <= 0 || s.wantedCache() >= leastHeadroom*s.Server.CacheBytes
}

// fill replaces the words in braces with what was seen.
func (r remedy) fill(s *Seen) string {
	cache, stream := "2G", ""
	if want := s.wantedCache(); want >= mebi {
		cache = fmt.Sprintf("%.0fM", want/mebi)
	}
	if name, _ := s.largestFree(); name != "" {
		stream = " --stream " + name
	}
	return strings.NewReplacer(
		"{disk}", s.Disk.Device+" ("+s.Disk.kindInWords()+")", "{path}", s.Disk.Path, " {stream}", stream, "{cache}", cache,
		"{has}", round(s.Server.CacheBytes/mega), "{memory}", round(s.Server.MemoryBytes/mega),
		"{hostCPU}", round(s.Rate(rateMachineBusy)), "{otherCPU}", round(s.Rate(rateMachineBusy)-s.ownCPU()), "{ownCPU}", round(s.ownCPU()),
	).Replace(r.action)
}

var inBraces = regexp.MustCompile(`\{\w+\}`)

// Runbook returns the runbook's chapters about the diagnoses and their remedies;
// a test in deploy/ compares RUNBOOK.md with them. A remedy shared by several
// diagnoses has its text in the second chapter.
func Runbook() string {
	uses := make(map[string]int)
	for i := range diagnoses {
		for _, r := range diagnoses[i].remedies {
			uses[r.action]++
		}
	}
	var findings, shared strings.Builder
	for i := range diagnoses {
		d := &diagnoses[i]
		fmt.Fprintf(&findings, "\n### %s\n- **Symptom:** %s\n- **Look:** %s\n- **Do:**\n", d.name, d.symptom, d.look)
		for n, r := range d.remedies {
			where := ""
			if r.where != "" {
				where = "if " + r.where + ", "
			}
			action := inBraces.ReplaceAllStringFunc(strings.ReplaceAll(r.action, "{stream}", "--stream {stream}"), func(word string) string { return strings.ToUpper(strings.Trim(word, "{}")) })
			if uses[r.action] == 1 {
				fmt.Fprintf(&findings, "  %d. %s%s. *Cost:* %s.\n", n+1, where, action, r.cost)
				continue
			}
			short, rest, _ := strings.Cut(action, ":")
			fmt.Fprintf(&findings, "  %d. %s[%s](#remedies).\n", n+1, where, short)
			if entry := fmt.Sprintf("- **%s:**%s. *Cost:* %s.\n", short, rest, r.cost); !strings.Contains(shared.String(), entry) {
				shared.WriteString(entry)
			}
		}
	}
	return findings.String() + "\n## Remedies\n\nThose of several findings, with what they cost.\n\n" + shared.String()
}
