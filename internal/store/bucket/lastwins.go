package bucket

import (
	"slices"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// With store.LastWins, readings with the same time become one reading, which has the last value of
// each field and the tags of the last reading:
//
//	key     fields             left after sealing
//	1       t: 20  h: 60       t: 20
//	2       h: 61              –
//	3       h: 62  p: 1013     h: 62  p: 1013
//	        ────────────────
//	        t: 20  h: 62  p: 1013
//
// Sealing removes only values that a later reading replaces, so the remaining readings give the
// same result, even if readings with earlier keys are stored afterwards.

// sameTime returns the first of some readings, which must be sorted, and those with the same time.
func sameTime(all []orderedReading) []orderedReading {
	n := 1
	for n < len(all) && all[n].Time.Equal(all[0].Time) {
		n++
	}
	return all[:n]
}

// dropOverwrittenFields sorts readings with the same time by key, and removes fields that a later
// reading also has. Readings without a key come first, in their original order.
func dropOverwrittenFields(of []orderedReading) []orderedReading {
	slices.SortStableFunc(of, func(a, b orderedReading) int { return a.key.Compare(b.key) })
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
		of[i].Fields = left // a new slice, because an unstored reading shares the old one
	}
	return of
}

// mergeLastWins merges readings with the same time into one.
func mergeLastWins(of []orderedReading) telemetry.Reading {
	r := of[len(of)-1].Reading
	if len(of) == 1 {
		return r
	}
	of = dropOverwrittenFields(of)
	r = of[len(of)-1].Reading
	r.Fields = nil
	for i := range of {
		r.Fields = append(r.Fields, of[i].Fields...)
	}
	return r
}
