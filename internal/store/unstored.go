package store

import (
	"cmp"
	"slices"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// Newer returns the newest of a stored reading, if one was found, and those that
// are unstored, of one time the last of these. What was stored since they were
// gathered is not newer than what was found.
func Newer(stored telemetry.Reading, found bool, unstored []telemetry.Unstored) (telemetry.Reading, bool) {
	for _, u := range unstored {
		if !found || !u.Reading.Time.Before(stored.Time) {
			stored, found = u.Reading, true
		}
	}
	return stored, found
}

// An Overlay merges what is unstored into stored readings that come in time
// order and tell their names, which are made of session and sequence.
type Overlay struct {
	waiting []telemetry.Unstored // in time order
	names   map[[12]byte]int     // places in waiting
	stored  []bool               // by place: it was met among the stored ones
	next    int
}

// NewOverlay takes what of q.Unstored lies in the span. name gives a reading's
// name.
func NewOverlay(q telemetry.Query, name func(session string, sequence uint64) [12]byte) *Overlay {
	o := &Overlay{}
	for _, u := range q.Unstored {
		if ms := u.Reading.Time.UnixMilli(); ms >= q.From && ms < q.To {
			o.waiting = append(o.waiting, u)
		}
	}
	slices.SortStableFunc(o.waiting, func(a, b telemetry.Unstored) int { return a.Reading.Time.Compare(b.Reading.Time) })
	o.names, o.stored = make(map[[12]byte]int, len(o.waiting)), make([]bool, len(o.waiting))
	for i, u := range o.waiting {
		o.names[name(u.Session, u.Sequence)] = i
	}
	return o
}

// Saw notes that the reading of that name is stored.
func (o *Overlay) Saw(name [12]byte) {
	if len(o.names) == 0 {
		return
	}
	if i, ok := o.names[name]; ok {
		o.stored[i] = true
	}
}

// Before returns the unstored readings that are older than ms and were not
// returned yet. All stored ones that are older must have been seen.
func (o *Overlay) Before(ms int64) []telemetry.Reading {
	if o.next == len(o.waiting) || cmp.Compare(o.waiting[o.next].Reading.Time.UnixMilli(), ms) >= 0 {
		return nil
	}
	var out []telemetry.Reading
	for ; o.next < len(o.waiting) && o.waiting[o.next].Reading.Time.UnixMilli() < ms; o.next++ {
		if !o.stored[o.next] {
			out = append(out, o.waiting[o.next].Reading)
		}
	}
	return out
}
