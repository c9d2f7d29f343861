package doctor

// Where a threshold comes from.
const (
	published = "published"
	bounds    = "WiredTiger's own bounds of eviction"
	ours      = "ours"
)

// A Threshold says from where on a signal degrades and from where on it is the
// bottleneck, in the signal's unit.
type Threshold struct {
	Degrading  float64 `json:"degrading"`
	Bottleneck float64 `json:"bottleneck"`
	Below      bool    `json:"below,omitempty"` // small values are the bad ones
}

// A rule is a signal without its value.
type rule struct {
	name, title, unit string
	threshold         Threshold
	source            string
	means             string // what it does to writes when it is not healthy
}

// Names of the signals: the closed label set of brim_storage_health.
const (
	diskBusy             = "disk_busy"
	diskAwait            = "disk_await"
	processor            = "processor"
	cacheDirtyShare      = "cache_dirty"
	cacheUpdatesShare    = "cache_updates"
	cacheUsedShare       = "cache_used"
	applicationEvictions = "application_evictions"
	checkpointDuration   = "checkpoint_duration"
	historyStore         = "history_store"
	writeTickets         = "write_tickets"
	readTickets          = "read_tickets"
	fragmentation        = "fragmentation"
	writeSlowdown        = "write_slowdown"
)

// leastSlowdown is from where on writes count as slow.
const leastSlowdown = 2

// rules are all signals, in the order in which they are shown.
var rules = []rule{
	{diskBusy, "Disk busy", "%", Threshold{Degrading: 50, Bottleneck: 80}, published,
		"the disk has work most of the time, so writes wait for each other"},
	{diskAwait, "Disk latency", "ms", Threshold{}, "", // by the kind of the disk, see awaits
		"each read and write takes long for a disk of this kind"},
	// Of a machine with two CPUs 70 % leaves half of one for what comes in
	// bursts; over 90 % whatever is to be done waits for a CPU first.
	{processor, "CPU busy", "%", Threshold{Degrading: 70, Bottleneck: 90}, ours,
		"little CPU time is left for what comes in bursts; over the bottleneck all work waits for a CPU first"},
	// WiredTiger has two bounds for each of the next three: at its target its own
	// threads begin to evict, at its trigger clients' threads must help. Dirty: 5
	// and 20 %; updates: 2.5 and 10 %; used: 80 and 95 %.
	{cacheDirtyShare, "Cache dirty", "%", Threshold{Degrading: 5, Bottleneck: 15}, published,
		"pages are changed faster than they are written: the engine evicts them from 5 % on, and at 20 % clients' threads must"},
	{cacheUpdatesShare, "Cache updates", "%", Threshold{Degrading: 2.5, Bottleneck: 10}, bounds + ": target and trigger",
		"appends gather faster than they are made part of pages: the engine does that from 2.5 % on, and at 10 % clients' threads must"},
	// A full cache rests at its target and is well there; what is amiss begins
	// between the two.
	{cacheUsedShare, "Cache used", "%", Threshold{Degrading: 90, Bottleneck: 95}, bounds + ": nearer to the trigger than to the target",
		"the engine cannot hold the cache at its target of 80 %, and at 95 % clients' threads must evict"},
	// A page now and then is chance; from one a second on clients feel it. At a
	// hundred a second, with about 1 ms a page, a tenth of a thread's time goes.
	{applicationEvictions, "Evictions by clients' threads", "pages/s", Threshold{Degrading: 1, Bottleneck: 100}, ours,
		"threads that serve clients must make room in the cache before they can go on"},
	{checkpointDuration, "Last checkpoint", "s", Threshold{Degrading: 5, Bottleneck: 15}, published,
		"a checkpoint writes so much that it competes with clients for the disk for long"},
	// Measured at 2,500 appends/s: under 100 when no history is kept, 2,000 to
	// 7,000 with the server's default of 300 s, which costs a quarter of what
	// the engine could do; ten thousand are most of what it does then.
	{historyStore, "History store", "inserts/s", Threshold{Degrading: 100, Bottleneck: 10_000}, ours,
		"old versions of documents are kept and written, as minSnapshotHistoryWindowInSeconds or a long-running read asks"},
	{writeTickets, "Write tickets available", "%", Threshold{Degrading: 20, Bottleneck: 5, Below: true}, ours,
		"the engine lets hardly any more writes in"},
	{readTickets, "Read tickets available", "%", Threshold{Degrading: 20, Bottleneck: 5, Below: true}, ours,
		"the engine lets hardly any more reads in"},
	{fragmentation, "Free space inside files", "%", Threshold{Degrading: 20, Bottleneck: 50}, ours,
		"much of a collection's file holds nothing, as after deletes; compact gives it back"},
	// A diagnosis of what is slow needs this signal and a resource at its limit.
	{writeSlowdown, "Write slowdown", "x usual", Threshold{Degrading: leastSlowdown, Bottleneck: 5}, ours,
		"updates take that many times as long as they usually do"},
}

// awaits are the thresholds of a disk's latency in ms by its kind. A disk of
// unknown kind is held against an SSD's: what is virtual mostly rests on one.
var awaits = map[diskKind]struct {
	threshold Threshold
	source    string
}{
	diskNVMe:    {Threshold{Degrading: 0.5, Bottleneck: 2}, published + ", for NVMe"},
	diskSSD:     {Threshold{Degrading: 2, Bottleneck: 10}, published + ", for an SSD"},
	diskHDD:     {Threshold{Degrading: 10, Bottleneck: 25}, ours + ", for a hard disk"},
	diskUnknown: {Threshold{Degrading: 2, Bottleneck: 10}, published + ", for an SSD: this disk's kind is unknown"},
}

// leastFragmented is the size in bytes from which on free space in a
// collection's file counts: a small one is mostly free after any checkpoint,
// and there is nothing to win.
const leastFragmented = 64 << 20

// Class says how a signal with a value stands.
func (t Threshold) Class(value float64) Class {
	if t.Below {
		switch {
		case value <= t.Bottleneck:
			return Bottleneck
		case value < t.Degrading:
			return Degrading
		}
		return Healthy
	}
	switch {
	case value > t.Bottleneck:
		return Bottleneck
	case value >= t.Degrading:
		return Degrading
	}
	return Healthy
}
