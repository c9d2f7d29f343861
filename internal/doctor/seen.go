package doctor

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
)

// Seen is what the last two looks say: what a diagnosis is made of.
type Seen struct {
	At          time.Time     // of the last look; zero before the first
	Over        time.Duration // since the look before; 0: there was one look only
	Signals     []Signal      // always all, in the same order
	Rates       []Rate        // likewise
	Server      Server
	Disk        Disk
	WritePath   WritePath
	Collections []Collection // by stream
}

// Server is what MongoDB said of itself.
type Server struct {
	Answered   bool    `json:"answered"` // if only that it must not tell
	Version    string  `json:"version,omitempty"`
	Topology   string  `json:"topology,omitempty"`  // standalone, replica_set or sharded
	Secondary  bool    `json:"secondary,omitempty"` // it is a member that takes no writes: what is slow is to be looked for at the primary
	Engine     string  `json:"engine,omitempty"`
	Host       string  `json:"host,omitempty"`        // as the server calls itself
	Here       bool    `json:"here"`                  // it runs on this machine
	Processors float64 `json:"processors,omitempty"`  // that it may use; 0: not known
	CacheBytes float64 `json:"cache_bytes,omitempty"` // size of the engine's cache; 0: not known
	// MemoryBytes is what the server's machine, or its container, has; 0: not known.
	MemoryBytes float64 `json:"memory_bytes,omitempty"`
	// HistoryWindowSeconds is for how long old versions of documents are kept;
	// nil: not known.
	HistoryWindowSeconds *float64 `json:"history_window_seconds"`
	Why                  string   `json:"why,omitempty"` // why the storage engine cannot be seen
	// RoundTripSeconds is that of a ping; nil: not known.
	RoundTripSeconds *float64 `json:"round_trip_seconds"`
	// Away is what was seen of a server that does not answer.
	Away string `json:"away,omitempty"`
}

// Disk is the one beneath MongoDB's files.
type Disk struct {
	Device string  `json:"device,omitempty"`
	Kind   string  `json:"kind"` // nvme, ssd, hdd or unknown
	Path   string  `json:"path,omitempty"`
	Size   float64 `json:"size_bytes,omitempty"` // of the file system; 0: not known
	Free   float64 `json:"free_bytes,omitempty"`
	Why    string  `json:"why,omitempty"` // why its counters cannot be seen
}

// Collection is a stream's.
type Collection struct {
	Stream  string
	Storage float64 // bytes of its file; NaN: not known
	Free    float64 // bytes of it that hold nothing; NaN: not known
}

// Seen returns what the last look and the one before it say. That MongoDB has
// stopped answering since is told, too.
func (m *Monitor) Seen() Seen {
	s := m.seen.Load().shown()
	if err := m.away(); err != nil && s.Server.Answered {
		s.Server.Answered, s.Server.Why, s.Server.Away = false, whyAway, err.Error()
	}
	return s
}

// Signal returns one by its name; its class is unknown if there is none of
// that name.
func (s *Seen) Signal(name string) Signal {
	for i := range s.Signals {
		if s.Signals[i].Name == name {
			return s.Signals[i]
		}
	}
	return Signal{Name: name, Value: math.NaN(), Class: Unknown}
}

// Rate returns one by its name, NaN if it is not known.
func (s *Seen) Rate(name string) float64 {
	for i := range s.Rates {
		if s.Rates[i].Name == name {
			return s.Rates[i].Value
		}
	}
	return math.NaN()
}

// Worst returns the worst class of the signals that are known, Unknown if none
// is.
func Worst(signals []Signal) Class {
	worst := Unknown
	for i := range signals {
		worst = max(worst, signals[i].Class)
	}
	return worst
}

// shown is what a view tells others.
func (v *view) shown() Seen {
	last := &v.last
	s := Seen{
		At: last.at, Over: v.rates.over, Signals: slices.Clone(v.signals),
		Server: Server{
			Answered: last.answered, Version: v.info.version, Topology: v.info.topology, Engine: v.info.engine,
			Here: last.machine.total > 0, Processors: last.cores, CacheBytes: orZero(last.server.value(cacheMax)),
			MemoryBytes: last.memory, Why: last.serverWhy,
		},
		Disk: Disk{
			Device: last.disk.device, Kind: string(last.disk.kind), Path: last.disk.path,
			Size: orZero(last.disk.size), Free: orZero(last.disk.free), Why: last.disk.why,
		},
	}
	s.Server.HistoryWindowSeconds = finite(last.historyWindow)
	s.Server.RoundTripSeconds, s.Server.Away, s.WritePath = finite(last.roundTrip), last.away, last.path
	if last.server != nil {
		s.Server.Host, s.Server.Secondary = last.server.host, last.server.secondary
	}
	for i := range rateRules {
		r := &rateRules[i]
		s.Rates = append(s.Rates, Rate{Name: r.name, Title: r.title, Value: v.rates.value(r.name), Unit: r.unit})
	}
	for _, stream := range slices.Sorted(maps.Keys(last.collections)) {
		c := last.collections[stream]
		s.Collections = append(s.Collections, Collection{Stream: stream, Storage: c.storage, Free: c.free})
	}
	return s
}

func orZero(v float64) float64 {
	if math.IsNaN(v) {
		return 0
	}
	return v
}

// Text is a signal's value with its unit, as in "81.5 %".
func (s Signal) Text() string { return withUnit(s.Value, s.Unit) }

// Text is a rate's value with its unit, as in "1,240 ops/s".
func (r Rate) Text() string { return withUnit(r.Value, r.Unit) }

func withUnit(v float64, unit string) string {
	if math.IsNaN(v) {
		return "unknown"
	}
	return join(" ", round(v), unit)
}

// round writes a number with as many digits as mean something.
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

// join puts together what is not empty.
func join(between string, parts ...string) string {
	return strings.Join(slices.DeleteFunc(slices.Clone(parts), func(p string) bool { return p == "" }), between)
}

// largestFree returns the collection of which the largest share is free, among
// those that are large enough for it to matter.
func (s *Seen) largestFree() (Collection, bool) {
	large := slices.DeleteFunc(slices.Clone(s.Collections), func(c Collection) bool { return !(c.Storage >= leastFragmented) })
	if len(large) == 0 {
		return Collection{}, false
	}
	return slices.MaxFunc(large, func(a, b Collection) int { return cmp.Compare(a.Free/a.Storage, b.Free/b.Storage) }), true
}

// newSeen is what two looks say; t nil: by the built-in thresholds.
func newSeen(before, now look, t *Thresholds) Seen {
	return newView(now, *newView(before, view{}, t), t).shown()
}

// Signed writes a change with its sign, as in "+1.5".
func Signed(v float64) string {
	if v > 0 {
		return "+" + round(v)
	}
	return "-" + round(-v)
}
