package access

import (
	"hash/maphash"
	"slices"
	"sync"
	"time"
)

const (
	// activeMinutes is how long a sensor is remembered after its last reading.
	activeMinutes = 60
	// maxRemembered bounds what is remembered of an identity's sensors, at some 20
	// bytes each. Those beyond it are new every time.
	maxRemembered = 1_000_000
	// keepScratch is the most hashes for which scratch space is kept.
	keepScratch = 1 << 14
)

// seed of the hashes. It is of this process alone, so that nobody can choose ids
// that collide; two sensors in 64 bits collide among a million with a chance of
// one in 37 million, and then count as one.
var seed = maphash.MakeSeed() //nolint:gochecknoglobals // it never changes

// sensors are those that an identity has sent for in the last hour, as hashes
// with the minute of the last time. They are counted by that minute, so that none
// needs to be visited to know how many are active.
type sensors struct {
	last    map[uint64]int64 // minute by hash; some may be older than an hour
	minutes [activeMinutes]int
	now     int64 // the minute up to which minutes tell
	active  int   // sum of minutes
}

func minuteOf(t time.Time) int64 { return max(0, t.Unix()/60) }

// sort brings the count to the minute, and puts the sensors of a request in order:
// in s.fresh those that are new, in s.stale those that were heard of in an earlier
// minute. Nothing else is changed.
func (a *sensors) sort(s *scratch, minute int64) {
	a.advance(minute)
	s.fresh, s.stale = s.fresh[:0], s.stale[:0]
	for _, h := range s.all {
		switch last, ok := a.last[h]; {
		case !ok || last <= a.now-activeMinutes:
			s.fresh = append(s.fresh, h)
		case last < a.now:
			s.stale = append(s.stale, h)
		}
	}
	s.fresh, s.stale = unique(s.fresh), unique(s.stale)
}

func unique(hashes []uint64) []uint64 {
	if len(hashes) < 2 {
		return hashes
	}
	slices.Sort(hashes)
	return slices.Compact(hashes)
}

// advance forgets in the count what is an hour old. A clock that is set back
// changes nothing.
func (a *sensors) advance(minute int64) {
	if a.last == nil || minute-a.now >= activeMinutes {
		*a = sensors{last: make(map[uint64]int64), now: minute}
	}
	for a.now < minute {
		a.now++
		n := &a.minutes[a.now%activeMinutes] // of an hour ago
		a.active -= *n
		*n = 0
	}
}

// note takes the sensors of a request that was sorted.
func (a *sensors) note(s *scratch) {
	current := &a.minutes[a.now%activeMinutes]
	for _, h := range s.stale {
		a.minutes[a.last[h]%activeMinutes]--
		a.last[h] = a.now
	}
	*current += len(s.stale)
	if len(s.fresh) > 0 && len(a.last) > a.active {
		a.sweep()
	}
	for _, h := range s.fresh {
		if len(a.last) >= maxRemembered {
			return
		}
		a.last[h] = a.now
		*current++
		a.active++
	}
}

// sweep rids the memory of what is old, before more comes. So it never holds more
// than the quota of active sensors. That something is old happens once a minute at
// most, and a million take some 20 ms.
func (a *sensors) sweep() {
	for h, last := range a.last {
		if last <= a.now-activeMinutes {
			delete(a.last, h)
		}
	}
}

// leave returns how long it takes until so many active sensors are not any more,
// if nothing comes from them.
func (a *sensors) leave(n int, now time.Time) time.Duration {
	for minute := max(0, a.now-activeMinutes+1); minute <= a.now; minute++ {
		n -= a.minutes[minute%activeMinutes]
		if n <= 0 {
			return max(time.Second, time.Unix((minute+activeMinutes)*60, 0).Sub(now))
		}
	}
	return longestWait
}

// A scratch is room for the sensors of one request.
type scratch struct {
	add               func(sensor string) bool // takes one; made once, for a function that is made anew needs memory
	all, fresh, stale []uint64
	before            string // the sensor that came last
}

// scratches are lent out, one for each request that is at it.
var scratches = sync.Pool{New: func() any { //nolint:gochecknoglobals // a store of memory, that no one sees a difference of
	s := &scratch{}
	s.add = func(sensor string) bool {
		if len(s.all) == 0 || sensor != s.before {
			s.all, s.before = append(s.all, maphash.String(seed, sensor)), sensor
		}
		return true
	}
	return s
}}

func borrow() *scratch { return scratches.Get().(*scratch) }

func (s *scratch) giveBack() {
	s.before = ""
	if cap(s.all) > keepScratch {
		s.all, s.fresh, s.stale = nil, nil, nil
	}
	s.all = s.all[:0]
	scratches.Put(s)
}
