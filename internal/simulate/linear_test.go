package simulate

import (
	"fmt"
	"math"
	"strings"

	"github.com/anishathalye/porcupine"
)

// This file checks that the answers of a run are linearizable: that each reading appears once
// and for good, at one moment between its request and the acknowledgement, until it is
// deleted. Histories that consist of separate objects are linearizable if that of each object
// is, so each reading has a history of its own, which is small.

// A touch is what a request does to a reading, or sees of it.
type touch struct {
	what     effect
	from, to int // on the clock of the run
}

// never is when a request ends whose outcome is unknown: it may take effect at any time, or
// not at all.
const never = math.MaxInt

type effect int

const (
	adds effect = iota
	sees
	misses
	removes
	mayRemove
)

var effectNames = [...]string{"written", "seen", "not seen", "deleted", "perhaps deleted"}

// note adds to the history of a reading.
func (r *reading) note(what effect, from, to int) {
	r.history = append(r.history, touch{what, from, to})
}

// The states of a reading; a set of them is what may be the case.
const (
	absent  = 1
	present = 2
)

var register = porcupine.Model{
	Init: func() any { return absent },
	Step: func(state, input, _ any) (bool, any) {
		may := state.(int)
		switch input.(effect) {
		case adds:
			return true, present
		case sees:
			return may&present != 0, present
		case misses:
			return may&absent != 0, absent
		case removes:
			return true, absent
		default:
			return true, may | absent
		}
	},
}

// linearizable checks the histories of all readings.
func (w *world) linearizable() {
	for _, one := range w.ledger.readings {
		if one.bad || one.forgiven || one.mayReturn() || w.shownTwice(one.stream) || w.buried(one.mark) {
			continue
		}
		if !one.isLinearizable() {
			w.violate("reading %v of %s cannot have been there and gone as these say: %s", one.mark, one.sensor, one.told())
			return
		}
	}
}

func (r *reading) isLinearizable() bool {
	acked := never
	if r.ackedAt > 0 {
		acked = r.ackedAt
	}
	history := append([]touch{{adds, r.sentAt, acked}}, r.history...)
	ops := make([]porcupine.Operation, len(history))
	for i, t := range history {
		ops[i] = porcupine.Operation{ClientId: i, Input: t.what, Call: int64(t.from), Return: int64(t.to)}
	}
	return porcupine.CheckOperations(register, ops)
}

// told is the history in words.
func (r *reading) told() string {
	acked := "not acknowledged"
	if r.ackedAt > 0 {
		acked = fmt.Sprintf("acknowledged at %d", r.ackedAt)
	}
	out := []string{fmt.Sprintf("written at %d, %s", r.sentAt, acked)}
	for _, t := range r.history {
		end := "later"
		if t.to != never {
			end = fmt.Sprint(t.to)
		}
		out = append(out, fmt.Sprintf("%s between %d and %s", effectNames[t.what], t.from, end))
	}
	return strings.Join(out, "; ")
}
