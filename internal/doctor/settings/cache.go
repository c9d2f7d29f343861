package settings

import (
	"fmt"
	"math"

	"github.com/brim-telemetry/brim/internal/doctor"
)

// mostCache is the share of the memory from which on a cache leaves too little
// for connections, sorts, the file system, and whatever else runs there.
const mostCache = 0.8

// cacheSizeAction sets the cache's size now and for the next start.
func cacheSizeAction(bytes float64) string {
	mib := math.Floor(bytes / (1 << 20))
	return fmt.Sprintf(`in mongosh: db.adminCommand({setParameter: 1, wiredTigerEngineRuntimeConfig: "cache_size=%sM"}); and in mongod.conf: `+
		`storage: {wiredTiger: {engineConfig: {cacheSizeGB: %s}}}; for a daemon's own mongod: brim serve --mongod-cache-size %sMiB`,
		plain(mib), plain(math.Round(mib/1024*100)/100), plain(mib))
}

// cacheAgainstMemory: a cache for which the machine is too small.
func cacheAgainstMemory(f *facts) []doctor.Finding {
	cache := f.look.value("cache_max_bytes")
	if math.IsNaN(cache) || math.IsNaN(f.memory) || cache <= mostCache*f.memory {
		return nil
	}
	return advice{
		name:  "setting_cache",
		cause: "cache: larger than the machine's memory allows",
		evidence: fmt.Sprintf("the cache may grow to %s of the %s that there are (%s used now), and mongod holds %s in all: when it is full the system swaps, or ends mongod",
			size(cache), size(f.memory), size(f.look.value("cache_used_bytes")), size(f.look.value("resident_bytes"))),
		action: cacheSizeAction(doctor.DefaultCache(f.memory)),
		cost:   "no restart; buckets that are appended to and no longer fit are read from the disk again",
	}.alone()
}

// Bounds from which on a cache is too small for the work.
const (
	fullCache    = 0.75    // of it is used: the engine evicts from 80 % on
	muchRead     = 1 << 20 // bytes/s
	muchEvicted  = 10.0    // pages/s
	clientsEvict = 1.0     // pages/s by threads that serve clients
	chanceEvict  = 100.0   // pages in all: so many are chance
	settled      = 10.0    // s after its start a server has read what it begins with
)

// CauseSmallCache is the cause of the finding that a cache is too small, which
// is what a diagnosis of the cache comes to as well.
const CauseSmallCache = "cache: too small for what is worked on"

// cacheAgainstWork: pages that are evicted only to be read again.
func cacheAgainstWork(f *facts) []doctor.Finding {
	if f.span.before == nil && f.span.seconds < settled {
		return nil
	}
	cache, used := f.look.value("cache_max_bytes"), f.look.value("cache_used_bytes")
	read, evicted := f.span.rate("cache_read_bytes_total"), f.span.rate("cache_application_evictions_total")
	own := doctor.DefaultCache(f.memory)
	short := used/cache >= fullCache
	if !short && own >= doctor.LeastHeadroom*cache {
		// Where appends make pages dirty faster than they are written, they are
		// evicted, and read again, long before a small cache is full.
		short = f.span.rate("cache_evicted_pages_total modified")+f.span.rate("cache_evicted_pages_total unmodified") >= muchEvicted
	}
	helps := evicted >= clientsEvict && f.span.growth("cache_application_evictions_total") > chanceEvict
	if !(short && read >= muchRead) && !helps {
		return nil
	}
	out := advice{
		name:  "setting_cache",
		cause: CauseSmallCache,
		evidence: fmt.Sprintf("%s of %s are used (%s %%); %s a second were read into it again and clients' threads evicted %s pages a second %s",
			size(used), size(cache), amount(100*used/cache), size(read), amount(evicted), f.span),
		action: "give the machine more memory; or make less be worked on: a shorter --granularity, so that open buckets are smaller, or more readings per update (--flush-interval)",
		cost:   "memory; or more documents, or readings that are stored later",
	}
	switch {
	case math.IsNaN(f.memory):
		out.action = "set storage.wiredTiger.engineConfig.cacheSizeGB to half of the machine's memory less 1 GiB, if it is smaller; or " + out.action
	case own >= doctor.LeastHeadroom*cache:
		out.evidence += fmt.Sprintf("; the machine has %s, of which mongod would take %s by itself", size(f.memory), size(own))
		out.action = cacheSizeAction(own)
		out.cost = size(own-cache) + " of memory that other programs on the machine then lack; no restart"
	default:
		out.evidence += fmt.Sprintf("; the machine's %s allow no more", size(f.memory))
	}
	return out.alone()
}
