package doctor

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"
)

// A Class says how bad a signal is.
type Class int

// The classes, with their values in brim_storage_health.
const (
	Unknown    Class = -1
	Healthy    Class = 0
	Degrading  Class = 1
	Bottleneck Class = 2
)

func (c Class) String() string {
	return [...]string{"unknown", "healthy", "degrading", "bottleneck"}[c-Unknown]
}

// MarshalText gives the class its name in JSON.
func (c Class) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// A Threshold is where a signal becomes degrading and where it becomes a
// bottleneck, in the signal's unit.
type Threshold struct {
	Degrading  float64 `json:"degrading"`
	Bottleneck float64 `json:"bottleneck"`
	Below      bool    `json:"below,omitempty"` // lower values are worse
}

// Class returns the class of a value.
func (t Threshold) Class(value float64) Class {
	switch {
	case t.Below && value <= t.Bottleneck, !t.Below && value > t.Bottleneck:
		return Bottleneck
	case t.Below && value < t.Degrading, !t.Below && value >= t.Degrading:
		return Degrading
	default:
		return Healthy
	}
}

// A Signal is one thing that may slow writes down: its value, its class and the
// threshold behind the class.
type Signal struct {
	Name      string    `json:"name"`
	Title     string    `json:"title"`
	Value     float64   `json:"value"` // NaN, in JSON null, when it is unknown
	Unit      string    `json:"unit"`
	Class     Class     `json:"class"`
	Threshold Threshold `json:"threshold"`
	Source    string    `json:"source"`        // of the threshold
	Why       string    `json:"why,omitempty"` // why it is unknown or not healthy
}

// MarshalJSON writes an unknown value as null.
func (s Signal) MarshalJSON() ([]byte, error) {
	type plain Signal
	return json.Marshal(struct {
		plain
		Value *float64 `json:"value"`
	}{plain(s), finite(s.Value)})
}

// Describe returns the threshold in words, as in "degrading from 50 %,
// bottleneck over 80 %".
func (s Signal) Describe() string {
	degrading, bottleneck := s.Bounds()
	return "degrading " + degrading + ", bottleneck " + bottleneck
}

// Bounds returns the two halves of the threshold in words, as in "from 50 %" and
// "over 80 %".
func (s Signal) Bounds() (degrading, bottleneck string) {
	d, b := plain(s.Threshold.Degrading)+" "+s.Unit, plain(s.Threshold.Bottleneck)+" "+s.Unit
	if s.Threshold.Below {
		return "under " + d, "at " + b + " or less"
	}
	return "from " + d, "over " + b
}

// Text is the value with its unit, as in "81.5 %".
func (s Signal) Text() string { return withUnit(s.Value, s.Unit) }

// Names of the signals: the label values of brim_storage_health.
const (
	diskBusy             = "disk_busy"
	diskAwait            = "disk_await"
	diskFree             = "disk_free"
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

// Sources of thresholds.
const (
	published = "published"
	bounds    = "WiredTiger's own bounds of eviction"
	ours      = "ours"
)

// leastSlowdown is where writes start to count as slow.
const leastSlowdown = 2

// A signalRule is a row of the table of signals.
type signalRule struct {
	name, title, unit string
	threshold         Threshold
	source            string
	means             string // effect on writes when it is not healthy
	measure           func(now *sample, r rates, t Threshold) measured
}

// signalRules are all signals in display order. To add one, add a row;
// diagnosis.go says what a signal may be the cause of.
var signalRules = []signalRule{
	{
		diskBusy, "Disk busy", "%", Threshold{Degrading: 50, Bottleneck: 80}, published,
		"the disk has work most of the time, so writes wait for each other",
		func(_ *sample, r rates, _ Threshold) measured { return known(r.value(rateDiskBusy), r.diskWhy) },
	},
	{
		diskAwait, "Disk latency", "ms", Threshold{}, "", // by kind of disk: see awaits
		"each read and write takes long for a disk of this kind",
		diskLatency,
	},
	{
		// MongoDB exits when it cannot write. Copying a collection, or a checkpoint of
		// one that is rewritten, also needs room.
		diskFree, "Disk space free", "%", Threshold{Degrading: 20, Bottleneck: 10, Below: true}, ours + ", as alert BrimDiskFillsUp",
		"the file system of MongoDB's files fills up; MongoDB exits when it cannot write",
		func(now *sample, _ rates, _ Threshold) measured {
			return known(percent*now.disk.free/now.disk.size, now.disk.why)
		},
	},
	{
		// With two CPUs, 70 % leaves more than half a CPU for bursts; over 90 %, all
		// work waits for a CPU first.
		processor, "CPU busy", "%", Threshold{Degrading: 70, Bottleneck: 90}, ours,
		"little CPU time is left for bursts; above the bottleneck threshold, work queues for a CPU",
		cpuBusy,
	},
	// WiredTiger has two bounds for each of the next three: at the target its own
	// threads start to evict, at the trigger application threads must help. Dirty: 5
	// and 20 %; updates: 2.5 and 10 %; used: 80 and 95 %.
	{
		cacheDirtyShare, "Cache dirty", "%", Threshold{Degrading: 5, Bottleneck: 15}, published,
		"pages are changed faster than they are written: the engine evicts them from 5 % on, and at 20 % application threads must",
		func(now *sample, _ rates, _ Threshold) measured { return cacheShare(now, cacheDirty) },
	},
	{
		cacheUpdatesShare, "Cache updates", "%", Threshold{Degrading: 2.5, Bottleneck: 10}, bounds + ": target and trigger",
		"appends gather faster than they are merged into pages: the engine does that from 2.5 % on, and at 10 % application threads must",
		func(now *sample, _ rates, _ Threshold) measured { return cacheShare(now, cacheUpdates) },
	},
	{
		// A full cache stays at its target and is healthy there; trouble starts between
		// the two.
		cacheUsedShare, "Cache used", "%", Threshold{Degrading: 90, Bottleneck: 95}, bounds + ": nearer to the trigger than to the target",
		"the engine cannot hold the cache at its target of 80 %, and at 95 % application threads must evict",
		func(now *sample, _ rates, _ Threshold) measured { return cacheShare(now, cacheUsed) },
	},
	{
		// An occasional page is chance; clients feel one per second. At a hundred
		// per second, about 1 ms each, a tenth of a thread's time is gone.
		applicationEvictions, "Application evictions", "pages/s", Threshold{Degrading: 1, Bottleneck: 100}, ours,
		"threads that serve clients must make room in the cache before they can go on",
		evictions,
	},
	{
		checkpointDuration, "Last checkpoint", "s", Threshold{Degrading: 5, Bottleneck: 15}, published,
		"a checkpoint writes so much that it competes with clients for the disk for long",
		func(now *sample, _ rates, _ Threshold) measured {
			if now.server.value(checkpoints) == 0 {
				return known(now.server.value(checkpointLast), whyNoCheckpoint)
			}
			return known(now.server.value(checkpointLast), now.serverWhy)
		},
	},
	{
		// Measured at 2,500 appends/s: under 100 without history, 2,000 to 7,000 with
		// the server's default of 300 s, which costs a quarter of the engine's
		// throughput; 10,000 take most of it.
		historyStore, "History store", "inserts/s", Threshold{Degrading: 100, Bottleneck: 10_000}, ours,
		"old versions of documents are kept and written, because of minSnapshotHistoryWindowInSeconds or a long-running read",
		func(_ *sample, r rates, _ Threshold) measured { return known(r.value(rateHistory), r.serverWhy) },
	},
	{
		writeTickets, "Write tickets available", "%", Threshold{Degrading: leastTickets, Bottleneck: 5, Below: true}, ours,
		"the engine admits hardly any more writes",
		func(now *sample, _ rates, _ Threshold) measured {
			return ticketShare(now, writesAvailable, writesInUse, writesQueued)
		},
	},
	{
		readTickets, "Read tickets available", "%", Threshold{Degrading: leastTickets, Bottleneck: 5, Below: true}, ours,
		"the engine admits hardly any more reads",
		func(now *sample, _ rates, _ Threshold) measured {
			return ticketShare(now, readsAvailable, readsInUse, readsQueued)
		},
	},
	{
		fragmentation, "Free space inside files", "%", Threshold{Degrading: 20, Bottleneck: 50}, ours,
		"much of a collection's file is empty, as after deletes; compact gives it back",
		freeShare,
	},
	{
		// Diagnoses of slow writes need this signal and a resource at its limit.
		writeSlowdown, "Write slowdown", "x usual", Threshold{Degrading: leastSlowdown, Bottleneck: 5}, ours,
		"updates take that many times as long as they usually do",
		func(now *sample, _ rates, _ Threshold) measured { return now.path.measure() },
	},
}

// awaits are the latency thresholds in ms by kind of disk. An unknown kind
// counts as an SSD, which most virtual disks are on.
var awaits = map[diskKind]struct {
	threshold Threshold
	source    string
}{
	diskNVMe:    {Threshold{Degrading: 0.5, Bottleneck: 2}, published + ", for NVMe"},
	diskSSD:     {Threshold{Degrading: 2, Bottleneck: 10}, published + ", for an SSD"},
	diskHDD:     {Threshold{Degrading: 10, Bottleneck: 25}, ours + ", for a hard disk"},
	diskUnknown: {Threshold{Degrading: 2, Bottleneck: 10}, published + ", for an SSD: this disk's kind is unknown"},
}

// signals measures all signals; t nil: against the built-in thresholds.
func signals(now sample, r rates, t *Thresholds) []Signal {
	out := t.unmeasured(now.disk.kind)
	for i := range out {
		s := &out[i]
		m := signalRules[i].measure(&now, r, s.Threshold)
		s.Value = m.value
		switch {
		case math.IsNaN(m.value):
			s.Why = m.unknown
		case m.harmless != "":
			s.Class, s.Why = Healthy, m.harmless
		default:
			s.Why = m.about
			if s.Class = s.Threshold.Class(m.value); s.Class != Healthy {
				s.Why = join("; ", signalRules[i].means, m.about)
			}
		}
	}
	return out
}

// measured is a signal's value, annotated.
type measured struct {
	value    float64
	unknown  string // why it is NaN
	harmless string // why it is healthy whatever its value
	about    string // further details, whatever its class
}

const (
	whyMissing      = "this MongoDB does not report it"
	whyNoCheckpoint = "no checkpoint was taken yet"
	whyNoCollection = "no stream has a collection"
)

// known returns the value, with the reason if it is NaN.
func known(value float64, reason string) measured {
	return measured{value: value, unknown: whyNaN(value, reason)}
}

func whyNaN(value float64, reason string) string {
	if !math.IsNaN(value) {
		return ""
	}
	return cmp.Or(reason, whyMissing)
}

const (
	// leastBusy in percent is where a disk has any load: the few operations of an
	// idle machine may take long without delaying anything.
	leastBusy = 5
	// muchBusy in percent is where a disk stops having time to spare.
	muchBusy = 50
	// largeOperation is the mean operation size of a disk that moves bulk data: the
	// engine's pages are 4 to 32 KiB on disk; readahead and sequential writes are
	// merged to 64 KiB and more.
	largeOperation = 64 << 10
)

// diskLatency is the mean time of a read or write in ms. Large operations, as
// of an import, take long by nature and queue behind each other. They delay
// nothing while the disk has idle time and syncs of the journal, which writes
// wait for, are quick.
func diskLatency(_ *sample, r rates, t Threshold) measured {
	m := known(r.value(rateDiskAwait), r.diskWhy)
	busy, size, sync := r.value(rateDiskBusy), r.operationSize(), r.value(rateJournalSyncTime)
	switch {
	case m.value > 0 && busy < leastBusy:
		m.harmless = fmt.Sprintf("the disk is nearly idle (busy %s %%), so this delays nothing", round(busy))
	case t.Class(m.value) >= Degrading && busy < muchBusy && size >= largeOperation && sync > 0 && t.Class(sync) < Bottleneck:
		m.harmless = fmt.Sprintf("operations are large (%s KiB each) and take long by nature; the disk has time left (busy %s %%), and syncs of the journal, which writes wait for, take %s ms",
			round(size/1024), round(busy), round(sync))
	}
	return m
}

// fewPages are chance: application threads evict some on a server that has just
// started.
const fewPages = 10

// evictions is the pages per second that application threads evict.
func evictions(_ *sample, r rates, _ Threshold) measured {
	m := known(r.value(rateAppEvictions), r.serverWhy)
	if pages := m.value * r.over.Seconds(); m.value > 0 && pages < fewPages {
		m.harmless = fmt.Sprintf("%.0f in all, which may be chance", pages)
	}
	return m
}

// cpuBusy is mongod's share of the CPUs in percent, or that of all processes if
// the host is this one and they use more.
func cpuBusy(now *sample, r rates, _ Threshold) measured {
	host := r.value(rateMachineBusy)
	own, why := percent*r.value(rateProcessors)/now.cores, r.serverWhy
	if now.cores <= 0 {
		own = math.NaN()
		if why == "" {
			why = now.coresWhy
		}
	}
	switch {
	case math.IsNaN(own) && math.IsNaN(host):
		return known(own, why)
	case math.IsNaN(own):
		return measured{value: host, about: "counts all processes on the host; mongod's own share is unknown: " + whyNaN(own, why)}
	case host > own:
		return measured{value: host, about: fmt.Sprintf("counts all processes on the host; mongod's own share is %.0f %%", own)}
	default:
		return measured{value: own}
	}
}

// cacheShare is a part of the cache in percent.
func cacheShare(now *sample, part key) measured {
	return known(percent*now.server.value(part)/now.server.value(cacheMax), now.serverWhy)
}

// leastTickets in percent is the level above which a shortage is not worth a
// look.
const leastTickets = 20

// ticketShare is the share of tickets available, in percent. Since MongoDB 7
// their number follows the load and is small at low load, so a low share means
// nothing unless operations wait.
func ticketShare(now *sample, available, inUse, queued key) measured {
	left := now.server.value(available)
	m := known(percent*left/(left+now.server.value(inUse)), now.serverWhy)
	if now.server != nil && now.server.probing() && now.server.value(queued) == 0 && m.value < leastTickets {
		m.harmless = "no operation waits for one; since MongoDB 7 their number follows the load"
	}
	return m
}

// leastFragmented is the file size in bytes from which free space counts: small
// files are mostly free after any checkpoint, and there is nothing to gain.
const leastFragmented = 64 << 20

// freeShare is the largest free share of a collection's file, in percent, among
// files large enough to matter. If there are none, the small ones are used, and
// it is harmless.
func freeShare(now *sample, _ rates, _ Threshold) measured {
	large, small, unknown := math.NaN(), math.NaN(), whyNoCollection
	for _, c := range now.collections {
		most, share := &small, 0.0
		switch {
		case c.why != "":
			unknown = c.why
			continue
		case c.storage >= leastFragmented:
			most, share = &large, percent*c.free/c.storage
		case c.storage > 0:
			share = percent * c.free / c.storage
		}
		if !(*most >= share) {
			*most = share
		}
	}
	switch {
	case !math.IsNaN(large):
		return measured{value: large}
	case small > 0:
		return measured{value: small, harmless: fmt.Sprintf("no file is larger than %d MiB, and smaller ones are not worth compacting", leastFragmented>>20)}
	}
	return measured{value: small, unknown: unknown}
}

// finite returns nil for values that JSON cannot express.
func finite(v float64) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return &v
}

// plain formats a number for a configuration file.
func plain(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

func withUnit(v float64, unit string) string {
	if math.IsNaN(v) {
		return "unknown"
	}
	return join(" ", round(v), unit)
}

// round formats a number with its significant digits.
func round(v float64) string {
	size := math.Abs(v)
	switch {
	case size >= 100:
		return humanize.Comma(int64(math.Round(v)))
	case size >= 10:
		return strings.TrimSuffix(strconv.FormatFloat(v, 'f', 1, 64), ".0")
	case size > 0 && size < 0.01:
		return "< 0.01"
	}
	text := strconv.FormatFloat(v, 'f', 2, 64)
	return strings.TrimSuffix(strings.TrimRight(text, "0"), ".")
}

// Signed formats a change with its sign, as in "+1.5".
func Signed(v float64) string {
	if v > 0 {
		return "+" + round(v)
	}
	return "-" + round(-v)
}

// join joins the non-empty parts.
func join(between string, parts ...string) string {
	return strings.Join(slices.DeleteFunc(slices.Clone(parts), func(p string) bool { return p == "" }), between)
}
