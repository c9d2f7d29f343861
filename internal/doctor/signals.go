package doctor

import (
	"encoding/json"
	"fmt"
	"math"
)

// A Class says how a signal stands.
type Class int

// The classes, with their values in brim_storage_health.
const (
	Unknown    Class = -1 // cannot be seen
	Healthy    Class = 0
	Degrading  Class = 1
	Bottleneck Class = 2
)

func (c Class) String() string {
	switch c {
	case Healthy:
		return "healthy"
	case Degrading:
		return "degrading"
	case Bottleneck:
		return "bottleneck"
	default:
		return "unknown"
	}
}

// MarshalText gives the class its name in JSON.
func (c Class) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// A Signal is one thing that may slow writes down, how it stands, and what it
// was held against.
type Signal struct {
	Name      string    `json:"name"`
	Title     string    `json:"title"`
	Value     float64   `json:"value"` // NaN, in JSON null, when it cannot be seen
	Unit      string    `json:"unit"`
	Class     Class     `json:"class"`
	Threshold Threshold `json:"threshold"`
	Source    string    `json:"source"`        // of the threshold
	Why       string    `json:"why,omitempty"` // it cannot be seen or is not healthy
}

// MarshalJSON writes a value that cannot be seen as null.
func (s Signal) MarshalJSON() ([]byte, error) {
	type plain Signal
	b, err := json.Marshal(struct {
		plain
		Value *float64 `json:"value"`
	}{plain: plain(s), Value: finite(s.Value)})
	if err != nil {
		return nil, fmt.Errorf("write signal %s: %w", s.Name, err)
	}
	return b, nil
}

// Describe says the threshold in words, as in "degrading from 50 %, bottleneck
// over 80 %".
func (s Signal) Describe() string {
	degrading, bottleneck := s.Bounds()
	return "degrading " + degrading + ", bottleneck " + bottleneck
}

// Bounds says in words where the signal degrades and where it is the
// bottleneck, as in "from 50 %" and "over 80 %".
func (s Signal) Bounds() (degrading, bottleneck string) {
	number := func(v float64) string { return plain(v) + " " + s.Unit }
	if s.Threshold.Below {
		return "under " + number(s.Threshold.Degrading), "at " + number(s.Threshold.Bottleneck) + " or less"
	}
	return "from " + number(s.Threshold.Degrading), "over " + number(s.Threshold.Bottleneck)
}

// signals classes all that a look says, by thresholds of which nil is the
// built-in ones.
func signals(now look, r rates, t *Thresholds) []Signal {
	out := t.blank(now.disk.kind)
	for i := range out {
		s := &out[i]
		m := measure(s, now, r)
		s.Value = m.value
		switch {
		case math.IsNaN(m.value):
			s.Class, s.Why = Unknown, m.unknown
		case m.harmless != "":
			s.Class, s.Why = Healthy, m.harmless
		default:
			s.Why = m.about
			if s.Class = s.Threshold.Class(m.value); s.Class != Healthy {
				s.Why = join("; ", rules[i].means, m.about)
			}
		}
	}
	return out
}

// measured is a signal's value with what is to be said of it.
type measured struct {
	value    float64
	unknown  string // why it is NaN
	harmless string // why it means nothing bad, whatever it is
	about    string // more about it, whatever its class
}

// known is a value of which there is nothing to say but why it is NaN.
func known(value float64, reason string) measured {
	return measured{value: value, unknown: whyNaN(value, reason)}
}

// measure returns the value of a signal that has none yet.
func measure(s *Signal, now look, r rates) measured {
	switch s.Name {
	case diskBusy:
		return known(r.value(rateDiskBusy), r.diskWhy)
	case diskAwait:
		return latency(r, s.Threshold)
	case processor:
		return processorShare(now, r)
	case cacheDirtyShare:
		return share(now, cacheDirty)
	case cacheUpdatesShare:
		return share(now, cacheUpdates)
	case cacheUsedShare:
		return share(now, cacheUsed)
	case applicationEvictions:
		return clientsEvictions(r)
	case checkpointDuration:
		v := now.server.value(checkpointLast)
		if now.server.value(checkpoints) == 0 {
			return known(v, whyNoCheckpoint)
		}
		return known(v, now.serverWhy)
	case historyStore:
		return known(r.value(rateHistory), r.serverWhy)
	case writeTickets:
		return ticketShare(now, writesAvailable, writesInUse, writesQueued)
	case readTickets:
		return ticketShare(now, readsAvailable, readsInUse, readsQueued)
	case fragmentation:
		return freeShare(now)
	case writeSlowdown:
		return now.path.measure()
	}
	return known(math.NaN(), "") // a test holds the rules to this list
}

const (
	whyMissing      = "this MongoDB does not tell it"
	whyNoCheckpoint = "no checkpoint was taken yet"
)

// whyNaN is the reason for a value that is NaN.
func whyNaN(value float64, reason string) string {
	if !math.IsNaN(value) {
		return ""
	}
	if reason == "" {
		return whyMissing
	}
	return reason
}

// leastBusy is the share of the time in percent from which on a disk has
// anything to do: the few operations of an idle machine may each take long, as
// the first after a rest does, and hold nobody up.
const leastBusy = 5

// muchBusy is the share of the time in percent up to which a disk has time for
// more.
const muchBusy = 50

// largeOperation is the mean size from which on operations are those of a
// disk that moves bytes: pages of the engine are 4 to 32 KiB on the disk, and what is
// read ahead or written in a row is put together to 64 KiB and more.
const largeOperation = 64 << 10

// latency is how long a read or write of the disk took in the mean, in ms. Large
// ones, as of an import, take long by nature and wait for each other. As long as
// the disk has time left and syncs of the journal, which are what writes wait
// for, are quick, they hold nobody up.
func latency(r rates, t Threshold) measured {
	m := known(r.value(rateDiskAwait), r.diskWhy)
	busy, size, sync := r.value(rateDiskBusy), r.operationSize(), r.value(rateJournalSyncTime)
	switch {
	case m.value > 0 && busy < leastBusy:
		m.harmless = fmt.Sprintf("the disk has next to nothing to do (busy %s %%), so that this holds nobody up", round(busy))
	case t.Class(m.value) >= Degrading && busy < muchBusy && size >= largeOperation && sync > 0 && t.Class(sync) < Bottleneck:
		m.harmless = fmt.Sprintf("operations are large (%s KiB each) and take long by nature; the disk has time left (busy %s %%), and syncs of the journal, which writes wait for, take %s ms",
			round(size/1024), round(busy), round(sync))
	}
	return m
}

// fewPages are chance, as a server that has just begun has clients evict some;
// they are what makes a page a second in the usual ten.
const fewPages = 10

// clientsEvictions is how many pages a second clients' threads evict.
func clientsEvictions(r rates) measured {
	m := known(r.value(rateAppEvictions), r.serverWhy)
	if pages := m.value * r.over.Seconds(); m.value > 0 && pages < fewPages {
		m.harmless = fmt.Sprintf("%.0f in all, which may be chance", pages)
	}
	return m
}

// operationSize is how many bytes a read or write of the disk had in the mean;
// NaN: not known.
func (r rates) operationSize() float64 {
	operations := r.value(rateDiskReads) + r.value(rateDiskWrites)
	return (r.value(rateDiskReadBytes) + r.value(rateDiskWritten)) * mega / math.Max(operations, 1e-9)
}

// share is what a part of the cache is of the whole, in percent.
func share(now look, part key) measured {
	return known(100*now.server.value(part)/now.server.value(cacheMax), now.serverWhy)
}

// ticketShare is what of the tickets is available, in percent. Since MongoDB 7
// their number follows the load and is small when there is little, so that
// none being left means nothing unless somebody waits.
func ticketShare(now look, available, inUse, queued key) measured {
	left := now.server.value(available)
	m := known(100*left/(left+now.server.value(inUse)), now.serverWhy)
	if now.server != nil && now.server.probing && now.server.value(queued) == 0 && m.value < leastTickets {
		m.harmless = "nobody waits for one; since MongoDB 7 their number follows the load"
	}
	return m
}

// leastTickets is where few tickets begin to mean something.
const leastTickets = 20

// freeShare is the largest share of a collection's file that is free, in
// percent, among the files that are large enough for it to matter. Where none
// is, it is that of the small ones, and harmless.
func freeShare(now look) measured {
	nan := math.NaN()
	large, small, unknown := nan, nan, whyNoCollection
	most := func(most *float64, v float64) {
		if !(*most >= v) {
			*most = v
		}
	}
	for _, c := range now.collections {
		switch {
		case c.why != "":
			unknown = c.why
		case c.storage >= leastFragmented:
			most(&large, 100*c.free/c.storage)
		case c.storage > 0:
			most(&small, 100*c.free/c.storage)
		default:
			most(&small, 0)
		}
	}
	switch {
	case !math.IsNaN(large):
		return measured{value: large}
	case small > 0:
		return measured{value: small, harmless: fmt.Sprintf("no file has %d MiB, and so small ones are not worth compacting", leastFragmented>>20)}
	}
	return measured{value: small, unknown: unknown}
}

const whyNoCollection = "no stream has a collection"
