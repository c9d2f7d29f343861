package settings

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/brim-telemetry/brim/internal/config"
	"github.com/brim-telemetry/brim/internal/doctor"
	"github.com/brim-telemetry/brim/internal/store"
)

// A rule finds what there is to say about one group of settings. A finding
// without a kind is of kind setting.
type rule struct {
	name string
	find func(*facts) []doctor.Finding
}

// rules are all that is examined, in the order in which it is shown. To add one,
// add a row.
var rules = []rule{
	{"history window", historyWindow},
	{"topology", topology},
	{"arbiters", arbiters},
	{"members", members},
	{"flow control", flowControl},
	{"voters", voters},
	{"default write concern", defaultConcern},
	{"majority without journal", majorityJournal},
	{"waits for the majority", majorityWaits},
	{"journal", journal},
	{"cache and memory", cacheAgainstMemory},
	{"cache and working set", cacheAgainstWork},
	{"second clock of checkpoints", secondClock},
	{"no checkpoints", noCheckpoints},
	{"parameter that is not obeyed", ignoredParameter},
	{"short checkpoint interval", shortInterval},
	{"long checkpoint interval", longInterval},
	{"compressor", compressor},
	{"indexes", indexes},
	{"unseen", unseen},
}

// historyWindow: a replica set keeps every version of a document that it replaces
// for as long as the window. An append to a bucket makes one.
func historyWindow(f *facts) []doctor.Finding {
	const name = "minSnapshotHistoryWindowInSeconds"
	window := f.number("getParameter", name)
	if f.kind != replicaSet || !f.hasBuckets() || !(window > 0) {
		return nil
	}
	evidence := fmt.Sprintf("it is %s s, so every append leaves the bucket's old version behind for as long", plain(window))
	if rate := f.span.rate("history_store_inserts_total"); !math.IsNaN(rate) {
		evidence += fmt.Sprintf("; %s old versions a second were written to the history store %s, whose file takes %s",
			amount(rate), f.span, size(f.look.value("history_store_bytes")))
	}
	return []doctor.Finding{{
		Name: "setting_history_window", Cause: "history window: " + name + " is " + plain(window) + ", which bucket streams pay for and do not need",
		Evidence: evidence,
		Action:   "in mongosh, on each member: db.adminCommand({setParameter: 1, " + name + ": 0}); and in mongod.conf, so that it stays: setParameter: {" + name + ": 0}",
		Cost: "no restart. Reads that ask for a snapshot of the past (readConcern snapshot with atClusterTime) no longer find it, " +
			"nor do snapshot reads that take longer than the server keeps history for itself; Brim makes none",
	}}
}

// topology: a MongoDB that is no replica set.
func topology(f *facts) []doctor.Finding {
	if f.kind != standalone {
		return nil
	}
	return []doctor.Finding{{
		Name: "setting_topology", Cause: "topology: a standalone server, no replica set",
		Evidence: "hello names no set. A majority is this one server, interrupted writes are not retried by the driver, and there are no change streams, " +
			"with which brim recompress and brim migrate follow live writes",
		Action: "in mongod.conf: replication: {replSetName: rs0}; restart; then once in mongosh: rs.initiate()",
		Cost: "a restart; disk for the oplog (5 % of the free space unless oplogSizeMB says less); each write goes to the oplog too: " +
			"two thirds of the appends a second, where it was measured. Set minSnapshotHistoryWindowInSeconds to 0 with it",
	}}
}

// voting returns the members that vote, and how many of them hold data.
func (f *facts) voting() (voters, holding int) {
	for _, m := range f.members {
		if m.Votes != 0 {
			voters++
			if !m.Arbiter {
				holding++
			}
		}
	}
	return voters, holding
}

// arbiters vote and hold no data: with one of three, a majority needs every
// member that holds data.
func arbiters(f *facts) []doctor.Finding {
	var names []string
	for _, m := range f.members {
		if m.Arbiter {
			names = append(names, m.Host)
		}
	}
	if len(names) == 0 {
		return nil
	}
	voters, holding := f.voting()
	majority := voters/2 + 1
	effect := fmt.Sprintf("%d more than a majority can be away", holding-majority)
	if holding <= majority {
		effect = "when one of them is away no write is acknowledged by a majority, and history is kept until it is back, which fills the cache"
	}
	return []doctor.Finding{{
		Name: "setting_topology", Cause: "topology: an arbiter in place of a member that holds data",
		Evidence: fmt.Sprintf("%s holds nothing; a majority is %d of %d votes, and %d members hold data: %s", list(names), majority, voters, holding, effect),
		Action:   fmt.Sprintf("add a member that holds data: in mongosh rs.remove(%q), then rs.add(\"HOST:PORT\")", names[0]),
		Cost:     "a machine with the disk for all data; the first copy reads all of it from another member; no restart",
	}}
}

// leastLag is where a member starts to lag. Members of an idle set hear of each
// other every two seconds and write something every ten.
const leastLag = 30 * time.Second

// members that are away or behind.
func members(f *facts) []doctor.Finding {
	const primary, secondary, arbiter = 1, 2, 7 // states
	var newest time.Time
	for _, m := range f.states {
		if m.State == primary {
			newest = m.Applied
		}
	}
	var behind []string
	for _, m := range f.states {
		var delay time.Duration // on purpose
		if i := slices.IndexFunc(f.members, func(c member) bool { return c.Host == m.Name }); i >= 0 {
			delay = time.Duration(f.members[i].Delay * float64(time.Second))
		}
		switch lag := newest.Sub(m.Applied); {
		case m.State == primary, m.State == arbiter && m.Health > 0:
		case m.Health == 0:
			behind = append(behind, m.Name+" is away")
		case m.State != secondary:
			behind = append(behind, m.Name+" is "+strings.ToLower(m.Text))
		case !newest.IsZero() && lag-delay >= leastLag:
			behind = append(behind, m.Name+" is "+config.FormatDuration(coarse(lag))+" behind")
		}
	}
	if len(behind) == 0 {
		return nil
	}
	return []doctor.Finding{{
		Name: "setting_topology", Cause: "topology: members are away or behind",
		Evidence: list(behind) + ". Writes wait for the majority, and what a majority does not have yet is kept as history, which fills the cache",
		Action:   "on that member: check that mongod runs, and brim doctor --mongo-uri mongodb://MEMBER/?directConnection=true; in mongosh: rs.printSecondaryReplicationInfo()",
		Cost:     "none to check; a member further behind than the oplog reaches must copy all data again",
	}}
}

// leastHeldBack is for how many seconds in a second writes must have waited: less
// is the cost of taking a ticket.
const leastHeldBack = 0.05

// flowControl: the primary admits few writes while the majority is behind. No
// signal of its own engine or disk shows that.
func flowControl(f *facts) []doctor.Finding {
	waited := f.span.ownGrowth("flowControl", "timeAcquiringMicros") / 1e6 / f.span.seconds
	if f.kind != replicaSet || !(waited >= leastHeldBack) {
		return nil
	}
	return []doctor.Finding{{
		Name: "setting_topology", Cause: "topology: the primary holds writes back until the majority has caught up (flow control)",
		Evidence: fmt.Sprintf("writes waited for %s ms in each second to be admitted, all of them added up, %s; it lets in %s a second now",
			amount(1000*waited), f.span, amount(f.look.own("flowControl", "targetRateLimit"))),
		Action: "find the member that is behind, and why: rs.printSecondaryReplicationInfo() in mongosh, and brim doctor --mongo-uri mongodb://MEMBER/?directConnection=true; " +
			"its disk and CPUs have to keep up with the primary's",
		Cost: "none to check. Switching it off (enableFlowControl: false) lets history gather in the primary's cache instead",
	}}
}

// voters in an even number survive no more failures than one fewer.
func voters(f *facts) []doctor.Finding {
	voters, _ := f.voting()
	if voters == 0 || voters%2 != 0 {
		return nil
	}
	majority := voters/2 + 1
	bears := "none can be away"
	if voters > 2 {
		bears = fmt.Sprintf("%d can be away, as with %d", voters-majority, voters-1)
	}
	return []doctor.Finding{{
		Name: "setting_topology", Cause: "topology: an even number of votes",
		Evidence: fmt.Sprintf("%d members vote, a majority is %d: %s", voters, majority, bears),
		Action: "add a member that holds data: in mongosh rs.add(\"HOST:PORT\"); or take one's vote: " +
			"cfg = rs.conf(); cfg.members[N].votes = 0; cfg.members[N].priority = 0; rs.reconfig(cfg)",
		Cost: "a machine for the further member; or a member that cannot become primary. No restart",
	}}
}

// asks is what Brim asks for, whatever the defaults are.
const asks = "Brim asks for w: majority and j: true itself"

// defaultConcern: what writes promise that name no write concern.
func defaultConcern(f *facts) []doctor.Finding {
	const command = "getDefaultRWConcern"
	if f.answers[command] == nil {
		return nil
	}
	w := "1" // a set with an arbiter that makes a majority hard to have reports none
	if v, ok := doctor.LookUp(f.answers[command], "defaultWriteConcern", "w"); ok {
		if w, ok = v.StringValueOK(); !ok {
			w = plain(f.number(command, "defaultWriteConcern", "w"))
		}
	}
	if w == "majority" {
		return nil
	}
	source := "the server's own, since with its arbiters a majority cannot be had when one member is away"
	if f.text(command, "defaultWriteConcernSource") == "global" {
		source = "set for the whole set (setDefaultRWConcern)"
	}
	return []doctor.Finding{{
		Name: "setting_write_concern", Cause: "write concern: writes that name none are acknowledged with w: " + w,
		Evidence: fmt.Sprintf("the default is %s. %s, so its readings are safe; what other programs write to this MongoDB may be lost with one member%s", source, asks, f.waited()),
		Action:   `in mongosh: db.adminCommand({setDefaultRWConcern: 1, defaultWriteConcern: {w: "majority"}})`,
		Cost:     "other programs' writes wait for a majority; no restart; it holds for the whole set",
	}}
}

// majorityJournal: a majority that need not have written to its journal.
func majorityJournal(f *facts) []doctor.Finding {
	if !f.isFalse("replSetGetConfig", "config", "writeConcernMajorityJournalDefault") {
		return nil
	}
	return []doctor.Finding{{
		Name: "setting_write_concern", Cause: "write concern: writeConcernMajorityJournalDefault is false: a majority may lose what it has acknowledged",
		Evidence: fmt.Sprintf("members acknowledge what is only in their memory; one power failure of several takes it away. %s, so its readings are safe; other programs' writes are not%s",
			asks, f.waited()),
		Action: "in mongosh: cfg = rs.conf(); cfg.writeConcernMajorityJournalDefault = true; rs.reconfig(cfg)",
		Cost:   "other programs' majority writes wait for a sync of the journal, some half a millisecond where it was measured; no restart",
	}}
}

// waits are the writes that waited for other members, and for how many ms each.
func (s span) waits() (number, each float64) {
	number = s.ownGrowth("metrics", "getLastError", "wtime", "num")
	if number <= 0 {
		return 0, 0
	}
	return number, s.ownGrowth("metrics", "getLastError", "wtime", "totalMillis") / number
}

// waited describes how long writes waited for others.
func (f *facts) waited() string {
	number, each := f.span.waits()
	if number == 0 {
		return ""
	}
	return fmt.Sprintf("; %s writes waited for others %s, %s ms each", amount(number), f.span, amount(each))
}

const (
	// longWait in ms is where waiting for the majority is most of a write: a sync of
	// the journal there and a round trip take a few milliseconds.
	longWait = 50
	// fewWaits say nothing: a starting server waits for the others to start.
	fewWaits = 100
)

// majorityWaits: writes that wait long for the other members.
func majorityWaits(f *facts) []doctor.Finding {
	number, each := f.span.waits()
	if f.kind != replicaSet || number < fewWaits || each < longWait {
		return nil
	}
	others := "the other members"
	if len(f.members) == 1 {
		others = "this server's own journal, since it is the only member"
	}
	return []doctor.Finding{{
		Name: "setting_write_concern", Cause: "write concern: writes wait long for their acknowledgement",
		Evidence: fmt.Sprintf("%s writes waited %s ms each for %s %s; Brim's acks of stored wait for it, those of journaled do not", amount(number), amount(each), others, f.span),
		Action:   "check the members' disks and the network between them (brim doctor at each); place members near each other; or let the daemon acknowledge earlier: --ack journaled",
		Cost:     "with --ack journaled a reading is on the daemon's own disk, and not yet with a majority, when the sensor gets its answer",
	}}
}

// journal: whether there is one, and how often it is synced on its own.
func journal(f *facts) []doctor.Finding {
	if f.isFalse("getCmdLineOpts", "parsed", "storage", "journal", "enabled") {
		return []doctor.Finding{{
			Name: "setting_journal", Cause: "journal: it is switched off (storage.journal.enabled: false)",
			Evidence: "the options of the running server say so: after a crash all writes since the last checkpoint are lost, and it refuses j: true, which Brim asks for",
			Action:   "in mongod.conf: leave storage.journal.enabled out; restart",
			Cost:     "a restart; the journal's writes to the disk",
		}}
	}
	const commitInterval = 100 // MongoDB's own, in ms
	ms := f.number("getParameter", "journalCommitInterval")
	if math.IsNaN(ms) || ms == commitInterval {
		return nil
	}
	effect := "which writes with j: true do not wait for: " + asks
	if ms > commitInterval {
		effect = "so other programs' writes without j: true lose up to " + plain(ms) + " ms in a crash; " + asks
	}
	evidence := "it is " + plain(ms) + " ms, " + effect
	if rate := f.span.rate("journal_syncs_total"); !math.IsNaN(rate) {
		evidence += fmt.Sprintf("; the journal was synced %s times a second %s", amount(rate), f.span)
	}
	return []doctor.Finding{{
		Name: "setting_journal", Cause: fmt.Sprintf("journal: commitIntervalMs is %s, MongoDB's own is %d", plain(ms), commitInterval),
		Evidence: evidence,
		Action: fmt.Sprintf("in mongosh, on each member: db.adminCommand({setParameter: 1, journalCommitInterval: %d}); and in mongod.conf leave storage.journal.commitIntervalMs out",
			commitInterval),
		Cost: "no restart",
	}}
}

// mostCache is the share of the memory above which a cache leaves too little for
// connections, sorts, the file system, and other programs.
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
	cache, memory := f.look.value("cache_max_bytes"), f.memory()
	if memory == 0 || !(cache > mostCache*memory) {
		return nil
	}
	return []doctor.Finding{{
		Name: "setting_cache", Cause: "cache: larger than the machine's memory allows",
		Evidence: fmt.Sprintf("the cache may grow to %s of the %s that there are (%s used now), and mongod uses %s in all: when it is full the system swaps, or kills mongod",
			size(cache), size(memory), size(f.look.value("cache_used_bytes")), size(f.look.value("resident_bytes"))),
		Action: cacheSizeAction(doctor.DefaultCache(memory)),
		Cost:   "no restart; buckets that are appended to and no longer fit are read from the disk again",
	}}
}

// Bounds from which on a cache is too small for the work.
const (
	fullCache    = 0.75    // of it is used: the engine evicts from 80 % on
	muchRead     = 1 << 20 // bytes/s
	muchEvicted  = 10.0    // pages/s
	clientsEvict = 1.0     // pages/s by application threads
	chanceEvict  = 100.0   // pages in all: so many are chance
	settled      = 10.0    // s after its start a server has read what it starts with
)

// CauseSmallCache is the cause of the finding that a cache is too small, which a
// diagnosis of the cache finds as well.
const CauseSmallCache = "cache: too small for what is worked on"

// cacheAgainstWork: pages that are evicted only to be read again.
func cacheAgainstWork(f *facts) []doctor.Finding {
	if f.span.before == nil && f.span.seconds < settled {
		return nil
	}
	cache, used, memory := f.look.value("cache_max_bytes"), f.look.value("cache_used_bytes"), f.memory()
	read, evicted := f.span.rate("cache_read_bytes_total"), f.span.rate("cache_application_evictions_total")
	own := doctor.DefaultCache(memory)
	mayGrow := memory > 0 && own >= doctor.LeastHeadroom*cache
	// Where appends make pages dirty faster than they are written, they are evicted,
	// and read again, long before a small cache is full.
	short := used/cache >= fullCache ||
		mayGrow && f.span.rate("cache_evicted_pages_total modified")+f.span.rate("cache_evicted_pages_total unmodified") >= muchEvicted
	helps := evicted >= clientsEvict && f.span.growth("cache_application_evictions_total") > chanceEvict
	if !(short && read >= muchRead) && !helps {
		return nil
	}
	out := doctor.Finding{
		Name: "setting_cache", Cause: CauseSmallCache,
		Evidence: fmt.Sprintf("%s of %s are used (%s %%); %s a second were read into it again and application threads evicted %s pages a second %s",
			size(used), size(cache), amount(100*used/cache), size(read), amount(evicted), f.span),
		Action: "give the machine more memory; or keep the working set smaller: a shorter --granularity, so that open buckets are smaller, or more readings per update (--flush-interval)",
		Cost:   "memory; or more documents, or readings that are stored later",
	}
	switch {
	case memory == 0:
		out.Action = "set storage.wiredTiger.engineConfig.cacheSizeGB to half of the machine's memory less 1 GiB, if it is smaller; or " + out.Action
	case mayGrow:
		out.Evidence += fmt.Sprintf("; the machine has %s, of which mongod would take %s by itself", size(memory), size(own))
		out.Action = cacheSizeAction(own)
		out.Cost = size(own-cache) + " of memory that other programs on the machine then lack; no restart"
	default:
		out.Evidence += fmt.Sprintf("; the machine's %s allow no more", size(memory))
	}
	return []doctor.Finding{out}
}

const (
	ownInterval  = 60.0  // s from one checkpoint to the next, by default
	mostInterval = 300.0 // the longest that is published as sensible
)

// interval is the time from one checkpoint to the next in s that is in force; NaN:
// unknown.
func (f *facts) interval() float64 {
	if f.major >= doctor.ObeysSyncDelay {
		if delay := f.number("getParameter", "syncdelay"); !(delay < 0) {
			return delay
		}
		return ownInterval
	}
	seconds := f.number("getCmdLineOpts", "parsed", "storage", "syncPeriodSecs")
	if math.IsNaN(seconds) && f.answers["getCmdLineOpts"] != nil {
		return ownInterval
	}
	return seconds
}

// checkpoints is a finding about the interval, with what sets it to some seconds.
func (f *facts) checkpoints(seconds float64, cause, evidence, cost string) []doctor.Finding {
	action, restart := "in mongod.conf: storage: {syncPeriodSecs: "+plain(seconds)+"}", "no restart"
	if f.major >= doctor.ObeysSyncDelay {
		action = "in mongosh, on each member: db.adminCommand({setParameter: 1, syncdelay: " + plain(seconds) + "}); and so that it stays, " + action
	} else {
		action, restart = action+" on each member, and restart (this version does not obey setParameter syncdelay)", "a restart"
	}
	return []doctor.Finding{{Name: "setting_checkpoint", Cause: "checkpoints: " + cause, Evidence: evidence, Action: action, Cost: restart + cost}}
}

// checkpointsSeen describes the checkpoints that were counted.
func (f *facts) checkpointsSeen() string {
	n := f.span.growth("checkpoints_total")
	if math.IsNaN(n) {
		return ""
	}
	text := fmt.Sprintf("; %s checkpoints were taken %s", amount(n), f.span)
	if n > 0 {
		text += fmt.Sprintf(", the last took %s s", amount(f.look.value("checkpoint_last_seconds")))
	}
	return text
}

// secondClock: the storage engine can be told to take checkpoints by itself,
// beside those that mongod takes.
func secondClock(f *facts) []doctor.Finding {
	out := doctor.Finding{
		Name:   "setting_checkpoint",
		Action: "take checkpoint=(…) out of storage.wiredTiger.engineConfig.configString and restart; the one clock is storage.syncPeriodSecs",
		Cost:   "a restart",
	}
	where, clock := "storage.wiredTiger.engineConfig.configString", engineClock(f.text("getCmdLineOpts", "parsed", "storage", "wiredTiger", "engineConfig", "configString"))
	if clock == "" {
		where, clock = "the parameter wiredTigerEngineRuntimeConfig", engineClock(f.text("getParameter", "wiredTigerEngineRuntimeConfig"))
		out.Action = `in mongosh: db.adminCommand({setParameter: 1, wiredTigerEngineRuntimeConfig: "checkpoint=(wait=0,log_size=0)"})`
		out.Cost = "no restart"
	}
	if clock == "" {
		return nil
	}
	every := ""
	if s := f.interval(); !math.IsNaN(s) {
		every = ", every " + plain(s) + " s"
	}
	out.Cause = "checkpoints: a second clock takes them, checkpoint=(" + clock + ")"
	out.Evidence = "it is set in " + where + "; mongod's own clock goes on beside it" + every + f.checkpointsSeen()
	return []doctor.Finding{out}
}

// engineClock is what is inside checkpoint=(…) of the engine's settings if it
// makes the engine take checkpoints: after a time, or so many bytes of journal.
func engineClock(config string) string {
	_, inside, ok := strings.Cut(config, "checkpoint=(")
	if !ok {
		return ""
	}
	inside, _, _ = strings.Cut(inside, ")")
	for part := range strings.SplitSeq(inside, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		digits := strings.TrimRight(value, "BKMGTPbkmgtp")
		if n, err := strconv.ParseFloat(digits, 64); err == nil && n > 0 && (name == "wait" || name == "log_size") {
			return inside
		}
	}
	return ""
}

// noCheckpoints: an interval of 0 switches them off.
func noCheckpoints(f *facts) []doctor.Finding {
	if f.interval() != 0 {
		return nil
	}
	evidence := "the journal is kept since the last one and is replayed after a crash; the cache fills with changes" + f.checkpointsSeen()
	if rate := f.span.rate("journal_written_bytes_total"); !math.IsNaN(rate) {
		evidence += fmt.Sprintf("; the journal grew by %s a second %s", size(rate), f.span)
	}
	return f.checkpoints(ownInterval, "the interval is 0, so there are none but those that are asked for", evidence, "; the checkpoints' writes")
}

// ignoredParameter: before MongoDB 7 the parameter is reported and not obeyed.
func ignoredParameter(f *facts) []doctor.Finding {
	set, interval := f.number("getParameter", "syncdelay"), f.interval()
	if f.major >= doctor.ObeysSyncDelay || math.IsNaN(set) || math.IsNaN(interval) || set == interval {
		return nil
	}
	out := f.checkpoints(set, "the parameter syncdelay says "+plain(set)+" s, and this version does not obey it",
		fmt.Sprintf("in force are %s s, from storage.syncPeriodSecs or by default%s", plain(interval), f.checkpointsSeen()), "; or none")
	out[0].Action += "; or reset the parameter: db.adminCommand({setParameter: 1, syncdelay: " + plain(interval) + "})"
	return out
}

// Bounds from which on an interval is too short.
const (
	mostOfTheTime = 1.0 / 3 // of it a checkpoint is running
	muchWritten   = 1 << 20 // bytes/s by checkpoints
	rewritten     = 2.0     // times the journal's bytes
)

// shortInterval: checkpoints that run most of the time, or that write the same
// pages again and again.
func shortInterval(f *facts) []doctor.Finding {
	interval := f.interval()
	if interval == 0 {
		return nil
	}
	each := f.look.value("checkpoint_last_seconds")
	if n := f.span.growth("checkpoints_total"); n >= 2 {
		each = f.span.growth("checkpoint_seconds_total") / n
	}
	if share := each / (each + interval); share >= mostOfTheTime {
		longer := min(max(math.Ceil(4*each/30)*30, ownInterval), mostInterval)
		if longer <= interval {
			return nil // it is the disk or the CPU, and not the interval
		}
		return f.checkpoints(longer, "the interval is too short, one is under way most of the time",
			fmt.Sprintf("one takes %s s and begins %s s after the last one ended, so it runs %s %% of the time%s",
				amount(each), plain(interval), amount(100*share), f.checkpointsSeen()),
			fmt.Sprintf("; after a crash the journal of up to %s s is replayed, and each checkpoint writes more at once", plain(longer)))
	}
	written, logged := f.span.rate("block_checkpoint_written_bytes_total"), f.span.rate("journal_written_bytes_total")
	if !(interval < ownInterval && written >= muchWritten && written >= rewritten*logged) {
		return nil
	}
	return f.checkpoints(ownInterval, "the interval is short, the same pages are written again and again",
		fmt.Sprintf("every %s s; checkpoints wrote %s a second, %s times what the journal did, %s: each writes every bucket that got an append",
			plain(interval), size(written), amount(written/logged), f.span),
		fmt.Sprintf("; after a crash the journal of up to %s s is replayed", plain(ownInterval)))
}

// longInterval: so long that recovery from a crash takes long.
func longInterval(f *facts) []doctor.Finding {
	interval := f.interval()
	if !(interval > mostInterval) {
		return nil
	}
	evidence := "it is " + plain(interval) + " s" + f.checkpointsSeen()
	if rate := f.span.rate("journal_written_bytes_total"); !math.IsNaN(rate) {
		evidence += fmt.Sprintf("; the journal grew by %s a second, so up to %s are replayed after a crash, during which nothing is stored", size(rate), size(rate*interval))
	}
	return f.checkpoints(ownInterval, "the interval is so long that recovery from a crash takes long", evidence,
		"; pages that are changed again and again are written more often")
}

// leastUnused is how long an index must have been unused: a daily query has had
// its turn.
const leastUnused = 24 * time.Hour

// needed are indexes that Brim makes, and MongoDB's own.
var needed = map[string]bool{"_id_": true, "brim_retention": true, "brim_sensor_time": true}

// indexes that nothing has used.
func indexes(f *facts) []doctor.Finding {
	var out []doctor.Finding
	for i := range f.streams {
		s := &f.streams[i]
		for _, use := range s.indexes {
			idle := f.now.Sub(use.since)
			if needed[use.name] || use.bound || use.used > 0 || use.since.IsZero() || idle < leastUnused {
				continue
			}
			collection := fmt.Sprintf("db.getCollection(%q)", s.Collection)
			action := fmt.Sprintf("in mongosh: %s.hideIndex(%q); and when nothing has got slower in some days: %s.dropIndex(%q)", collection, use.name, collection, use.name)
			if use.hidden {
				action = fmt.Sprintf("it is hidden already; in mongosh: %s.dropIndex(%q)", collection, use.name)
			}
			out = append(out, doctor.Finding{
				Name: "setting_index", Cause: fmt.Sprintf("index: nothing uses %s of stream %s", use.name, s.Name),
				Evidence: fmt.Sprintf("used 0 times in %s, since %s; it takes %s, and %s",
					config.FormatDuration(coarse(idle)), use.since.UTC().Format("2006-01-02 15:04"), size(s.sizes.indexes[use.name]), s.upkeep(use)),
				Action: action,
				Cost: "hiding needs no restart and is undone by unhideIndex; once dropped it must be built again from all documents. " +
					"Use is counted on this member since its start: queries of other members do not show",
			})
		}
	}
	return out
}

// appended are the fields of a bucket's document that an append changes.
var appended = map[string]bool{"count": true, "bytes": true, "last": true, "first": true, "measurements": true, "stats": true, "w": true, "full": true}

// upkeep describes what an index costs each write.
func (s *streamFacts) upkeep(use indexUse) string {
	if s.Storage != store.Bucket {
		return "each new bucket of the collection is entered in it"
	}
	for _, field := range use.key {
		if first, _, _ := strings.Cut(field, "."); appended[first] {
			return "each append changes " + first + ", so its entries are written again with each"
		}
	}
	return "each new document is entered in it; appends leave it alone"
}

// size writes bytes, as in 1.5 GiB.
func size(bytes float64) string {
	if math.IsNaN(bytes) || bytes < 0 {
		return "an unknown number of bytes"
	}
	return humanize.IBytes(uint64(bytes))
}

// amount writes a number of any size: 12,345 or 1.2.
func amount(v float64) string {
	switch {
	case math.IsNaN(v):
		return "unknown"
	case math.Abs(v) >= 100:
		return humanize.Comma(int64(math.Round(v)))
	default:
		return plain(math.Round(v*10) / 10)
	}
}

// plain writes a number as a configuration file has it.
func plain(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }
