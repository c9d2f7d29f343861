package bucket

import (
	"slices"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// With store.LastWins, readings of one time become one reading, which has the last value of
// each field and the tags of the last reading:
//
//	key     fields             left after sealing
//	1       t: 20  h: 60       t: 20
//	2       h: 61              –
//	3       h: 62  p: 1013     h: 62  p: 1013
//	        ────────────────
//	        t: 20  h: 62  p: 1013
//
// Sealing removes only what a later reading replaces, so the remaining readings have the same
// result, also together with readings that are stored later, whatever their keys.

// winners sorts readings of one time by their keys, and takes away the fields that a later one
// has, too. Readings without a key come first, in their order. The last one keeps all.
func winners(of []due) []due {
	slices.SortStableFunc(of, func(a, b due) int { return a.key.Compare(b.key) })
	later := make(map[string]struct{}, len(of[len(of)-1].Fields))
	for i := len(of) - 1; i >= 0; i-- {
		var left []telemetry.Field
		for _, f := range of[i].Fields {
			if _, replaced := later[f.Name]; !replaced {
				left = append(left, f)
			}
		}
		for _, f := range left {
			later[f.Name] = struct{}{}
		}
		of[i].Fields = left // an unstored reading has the list, too
	}
	return of
}

// lastWins returns the reading that readings of one time become.
func lastWins(of []due) telemetry.Reading {
	r := of[len(of)-1].Reading
	if len(of) == 1 {
		return r
	}
	of = winners(of)
	r = of[len(of)-1].Reading
	r.Fields = nil
	for i := range of {
		r.Fields = append(r.Fields, of[i].Fields...)
	}
	return r
}
