package doctor

import (
	"fmt"
	"math"
)

// mergeMore helps with most that has to do with writing.
func mergeMore() remedy {
	return remedy{
		"merge more readings into one update: raise --flush-interval of brim serve (1s to 4s), and leave --max-readings-per-update at 0",
		"a restart of the daemon; readings are stored, and can be read back, that much later (they are journaled at once as before)",
	}
}

// smallerDocuments make each append write, and each page hold, less.
func smallerDocuments() remedy {
	return remedy{
		"append to smaller documents: brim migrate --granularity 1m, or a smaller --bucket-max-readings of brim serve",
		"more documents, and a few percent more bytes; the migration copies the collection while it is being written, which loads the disk",
	}
}

func compressMore() remedy {
	return remedy{
		"write fewer bytes: brim recompress --to zstd",
		"more CPU time at checkpoints and reads; a copy of the collection while it runs, so free disk for it",
	}
}

func remedyHistory(s *Seen) []remedy {
	return append([]remedy{{
		"keep no history: db.adminCommand({setParameter: 1, minSnapshotHistoryWindowInSeconds: 0}) on every member, and setParameter.minSnapshotHistoryWindowInSeconds: 0 in mongod.conf for the next start",
		"no restart; reads with read concern snapshot at a time in the past are no longer possible, which Brim does not use",
	}}, remedyReaders(s)[0])
}

func remedyReaders(s *Seen) []remedy {
	out := []remedy{{
		"look for what reads for long, and end it: db.currentOp({secs_running: {$gt: 60}}) and db.killOp(OPID); open transactions and cursors with snapshot reads count",
		"whoever read must ask again",
	}}
	if s.Server.Topology != standalone {
		out = append(out, remedy{"see that no member of the set lags behind: rs.printSecondaryReplicationInfo()", "none"})
	}
	return out
}

// whoShares finds what else uses the disk.
func whoShares() remedy {
	return remedy{"look for who shares the disk: iostat -x 5 beside pidstat -d 5, and the volume's limits and neighbours where it is virtual", "none"}
}

func remedyLatency(s *Seen) []remedy {
	return []remedy{
		whoShares(),
		mergeMore(),
		{
			"move MongoDB's files, its journal first, to a faster disk than " + s.Disk.Device + " (" + s.Disk.kindInWords() + ")",
			"a new volume or disk, and a restart of MongoDB; on a replica set one member after the other without a stop",
		},
	}
}

func remedyThroughput(s *Seen) []remedy {
	var out []remedy
	if others(s.moved()) {
		out = append(out, whoShares())
	}
	return append(out,
		mergeMore(),
		compressMore(),
		smallerDocuments(),
		remedy{"give MongoDB a disk, or a volume, with more MB/s", "money, and a restart of MongoDB; on a replica set one member after the other"})
}

func remedyIOPS(s *Seen) []remedy {
	var out []remedy
	if others(s.moved()) {
		out = append(out, whoShares())
	}
	out = append(out, mergeMore())
	if s.Rate(rateDiskReads) > s.Rate(rateDiskWrites) {
		out = append(out, largerCache(s))
	}
	return append(out,
		smallerDocuments(),
		remedy{"give MongoDB a disk, or a volume, with more operations/s", "money, and a restart of MongoDB; on a replica set one member after the other"})
}

// DefaultCache is what mongod takes for its cache of so many bytes of memory
// unless it is told: half of what is beyond 1 GiB, and at least 256 MiB.
func DefaultCache(memory float64) float64 { return max((memory-1024*mebi)/2, 256*mebi) }

// LeastHeadroom is how many times as large a cache must become for it to be
// worth a change.
const LeastHeadroom = 1.25

// largerCache is what helps a cache that is too small. It can be had without
// a restart where the machine has the memory for it.
func largerCache(s *Seen) remedy {
	have, memory := s.Server.CacheBytes, s.Server.MemoryBytes
	want := 2 * have
	if memory > 0 {
		want = min(want, DefaultCache(memory))
	}
	more := "2G"
	switch {
	case have > 0 && want < LeastHeadroom*have:
		return remedy{
			fmt.Sprintf("give MongoDB's machine more memory, and the engine's cache its part of it: the cache has %s MB already of the %s MB that are there", round(have/mega), round(memory/mega)),
			"money, and a restart of MongoDB; on a replica set one member after the other",
		}
	case want >= mebi:
		more = fmt.Sprintf("%.0fM", want/mebi)
	}
	return remedy{
		fmt.Sprintf("give the engine more cache: db.adminCommand({setParameter: 1, wiredTigerEngineRuntimeConfig: \"cache_size=%s\"}) now; for the next start storage.wiredTiger.engineConfig.cacheSizeGB in mongod.conf, or --mongod-cache-size of brim serve", more),
		"no restart; memory that other programs and the file system's cache lose",
	}
}

func remedyCache(s *Seen) []remedy {
	evict := remedy{
		"let more of the engine's own threads evict: db.adminCommand({setParameter: 1, wiredTigerEngineRuntimeConfig: \"eviction=(threads_min=4,threads_max=8)\"})",
		"no restart; CPU time, and operations of the disk",
	}
	if s.Signal(cacheUsedShare).Class >= Degrading {
		return []remedy{mergeMore(), largerCache(s), smallerDocuments(), evict}
	}
	return []remedy{mergeMore(), smallerDocuments(), evict, largerCache(s)}
}

func remedyEviction(s *Seen) []remedy {
	return []remedy{mergeMore(), largerCache(s), smallerDocuments()}
}

// foreign is the share of a machine's processors in percent from which on what
// else runs there is worth a look.
const foreign = 25

func remedyProcessor(s *Seen) []remedy {
	own := percent * s.Rate(rateProcessors) / s.Server.Processors
	var out []remedy
	if all := s.Rate(rateMachineBusy); math.IsNaN(own) && all >= foreign {
		out = append(out, remedy{
			fmt.Sprintf("look at what runs on this machine (top), and move away what is not needed here: all together takes %s %% of the CPU, and what of it is mongod's is not known yet", round(all)),
			"another machine for it",
		})
	}
	if others := s.Rate(rateMachineBusy) - own; others >= foreign {
		out = append(out, remedy{
			fmt.Sprintf("look at what else runs on this machine (top), and move away what is not needed here: everything beside mongod together, brim serve too if it runs here, takes %s %% of the CPU, and mongod %s %%", round(others), round(own)),
			"another machine for it",
		})
	}
	if !(own < foreign) { // else there is little to save
		out = append(out, mergeMore(), smallerDocuments())
	}
	return append(out, remedy{"give MongoDB more CPUs", "money, and a restart of MongoDB; on a replica set one member after the other"})
}

func remedyAway(*Seen) []remedy {
	return []remedy{
		{
			"look at the process on MongoDB's host, ps -o pid,stat,wchan:20,args -C mongod: state T is a stopped one (kill -CONT PID), D one that waits for its disk; none: start it, and read the end of its log",
			"none; what is taken waits in the daemon's journal",
		},
		{"where the process is well, look at what is between: firewall, proxy, DNS", "none"},
	}
}

func remedyDiskFull(s *Seen) []remedy {
	return []remedy{
		{"make room on the file system of " + s.Disk.Path + ", then start MongoDB if it has ended: a larger volume, or files of others (du -x)", "what is taken waits in the daemon's journal"},
		{"keep less: --retention of brim serve; what is deleted frees space inside the files, and brim compact gives it back, which needs some room itself", "older readings"},
	}
}

func remedyNetwork(*Seen) []remedy {
	return []remedy{
		{"look at the way to MongoDB (mtr, ss -ti): loss, a proxy, a VPN, another region", "none"},
		mergeMore(),
		{"run brim serve nearer to MongoDB's primary", "another host for the daemon"},
	}
}

func remedyCheckpoint(s *Seen) []remedy {
	oftener := remedy{
		"take checkpoints more often, so that each writes less: storage.syncPeriodSecs: 30 in mongod.conf",
		"a restart of MongoDB; pages that are appended to again and again are written more often: more bytes in all",
	}
	if majorOf(s.Server.Version) >= ObeysSyncDelay {
		oftener = remedy{
			oftener.action + ", and db.adminCommand({setParameter: 1, syncdelay: 30}) now",
			"no restart; pages that are appended to again and again are written more often: more bytes in all",
		}
	}
	return []remedy{mergeMore(), smallerDocuments(), compressMore(), oftener}
}

// ObeysSyncDelay is the first major version that obeys the parameter syncdelay
// while it runs: an older one tells it, and goes on as it was started.
const ObeysSyncDelay = 7

func remedyTickets(*Seen) []remedy {
	return []remedy{
		{
			"look for operations that hold tickets for long: db.currentOp({active: true, secs_running: {$gt: 1}})",
			"none",
		},
		mergeMore(),
		{"let fewer updates run side by side: a smaller --lanes of brim serve (4 a stream)", "a restart of the daemon; less goes on at once where the engine could do it"},
	}
}

func remedyFragmented(s *Seen) []remedy {
	stream := ""
	if c, ok := s.largestFree(); ok {
		stream = " --stream " + c.Stream
	}
	return []remedy{{
		"have the bytes back: brim compact" + stream + ", on one member after the other",
		"load on the disk while it runs; writes go on. Without it the free space is used again by what is written next",
	}}
}
