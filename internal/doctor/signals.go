package doctor

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
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
	out := struct {
		plain
		Value *float64 `json:"value"`
	}{plain: plain(s)}
	if !math.IsNaN(s.Value) && !math.IsInf(s.Value, 0) {
		out.Value = &s.Value
	}
	b, err := json.Marshal(out)
	if err != nil {
		return nil, fmt.Errorf("write signal %s: %w", s.Name, err)
	}
	return b, nil
}

// Describe says the threshold in words, as in "from 50 %, over 80 %": where
// the signal degrades and where it is the bottleneck.
func (s Signal) Describe() string {
	number := func(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) + " " + s.Unit }
	if s.Threshold.Below {
		return "degrading under " + number(s.Threshold.Degrading) + ", bottleneck at " + number(s.Threshold.Bottleneck) + " or less"
	}
	return "degrading from " + number(s.Threshold.Degrading) + ", bottleneck over " + number(s.Threshold.Bottleneck)
}

// rates are what two looks say together; NaN where they do not.
type rates struct {
	applicationEvictions float64 // pages/s
	historyInserts       float64 // inserts/s
	busy                 float64 // share of the time, 0 to 1
	await                float64 // seconds per read or write
	serverWhy, diskWhy   string  // why there are none
}

const (
	whyFirst     = "it is a rate, known from the second look on"
	whyRestarted = "MongoDB was started anew or another is primary now; known from the next look on"
)

func ratesBetween(before, now look) rates {
	nan := math.NaN()
	r := rates{applicationEvictions: nan, historyInserts: nan, busy: nan, await: nan}
	seconds := now.at.Sub(before.at).Seconds()
	switch {
	case now.server == nil || now.serverWhy != "":
		r.serverWhy = now.serverWhy
	case before.server == nil || seconds <= 0:
		r.serverWhy = whyFirst
	case !now.server.continues(before.server):
		r.serverWhy = whyRestarted
	default:
		r.applicationEvictions = (now.server.value(appEvictions) - before.server.value(appEvictions)) / seconds
		r.historyInserts = (now.server.value(historyInserts) - before.server.value(historyInserts)) / seconds
	}
	r.busy, r.await, r.diskWhy = now.disk.since(before.disk)
	return r
}

// continues reports whether s is of the same process as before.
func (s *status) continues(before *status) bool {
	return s.host == before.host && s.pid == before.pid && s.uptime >= before.uptime
}

// signals classes all that a look says.
func signals(now look, r rates) []Signal {
	out := make([]Signal, len(rules))
	for i, rule := range rules {
		s := Signal{Name: rule.name, Title: rule.title, Unit: rule.unit, Threshold: rule.threshold, Source: rule.source}
		if rule.name == diskAwait {
			s.Threshold, s.Source = awaits[now.disk.kind].threshold, awaits[now.disk.kind].source
		}
		var note string
		s.Value, note = measure(rule.name, now, r)
		switch {
		case math.IsNaN(s.Value):
			s.Class, s.Why = Unknown, note
		case note != "":
			s.Class, s.Why = Healthy, note
		default:
			if s.Class = s.Threshold.class(s.Value); s.Class != Healthy {
				s.Why = rule.means
			}
		}
		out[i] = s
	}
	return out
}

// measure returns a signal's value; a note says why it is NaN, or why it means
// nothing bad whatever it is.
func measure(name string, now look, r rates) (value float64, note string) {
	switch name {
	case diskBusy:
		return 100 * r.busy, r.diskWhy
	case diskAwait:
		return 1000 * r.await, r.diskWhy
	case cacheDirtyShare:
		return share(now, cacheDirty)
	case cacheUpdatesShare:
		return share(now, cacheUpdates)
	case cacheUsedShare:
		return share(now, cacheUsed)
	case applicationEvictions:
		return r.applicationEvictions, whyNaN(r.applicationEvictions, r.serverWhy)
	case checkpointDuration:
		v := now.server.value(checkpointLast)
		if now.server.value(checkpoints) == 0 {
			return v, "no checkpoint was taken yet"
		}
		return v, whyNaN(v, now.serverWhy)
	case historyStore:
		return r.historyInserts, whyNaN(r.historyInserts, r.serverWhy)
	case writeTickets:
		return ticketShare(now, writesAvailable, writesInUse, writesQueued)
	case readTickets:
		return ticketShare(now, readsAvailable, readsInUse, readsQueued)
	case fragmentation:
		return freeShare(now)
	}
	return math.NaN(), "" // a test holds the rules to this list
}

const whyMissing = "this MongoDB does not tell it"

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

// share is what a part of the cache is of the whole, in percent.
func share(now look, part key) (value float64, note string) {
	v := 100 * now.server.value(part) / now.server.value(cacheMax)
	return v, whyNaN(v, now.serverWhy)
}

// ticketShare is what of the tickets is available, in percent. Since MongoDB 7
// their number follows the load and is small when there is little, so that
// none being left means nothing unless somebody waits.
func ticketShare(now look, available, inUse, queued key) (value float64, note string) {
	left := now.server.value(available)
	v := 100 * left / (left + now.server.value(inUse))
	if note = whyNaN(v, now.serverWhy); note != "" {
		return v, note
	}
	if now.server.probing && now.server.value(queued) == 0 && v < leastTickets {
		return v, "nobody waits for one; since MongoDB 7 their number follows the load"
	}
	return v, ""
}

// leastTickets is where few tickets begin to mean something.
const leastTickets = 20

// freeShare is the largest share of a collection's file that is free, in
// percent.
func freeShare(now look) (value float64, note string) {
	value, note = math.NaN(), whyNoCollection
	for _, c := range now.collections {
		switch {
		case c.why != "":
			if math.IsNaN(value) {
				note = c.why
			}
		case c.storage < leastFragmented:
			if math.IsNaN(value) {
				value, note = 0, ""
			}
		default:
			v := 100 * c.free / c.storage
			if math.IsNaN(value) || v > value {
				value, note = v, ""
			}
		}
	}
	return value, note
}

const whyNoCollection = "no stream has a collection"
