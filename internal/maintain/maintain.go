// Package maintain repairs and reshapes the collection of a stream while
// daemons go on writing to it: compact gives free space back, a move copies it
// into another form and swaps the two by name.
//
//	source ──▶ copy, group by group ──▶ follow what changed ──▶ verify ──▶ fence ──▶ follow, verify ──▶ swap
//	   │                                                                     │                         │
//	   └────── daemons write ────────────────────────────────────────────────┘ they wait, and journal  └▶ daemons write
//
// How far a move is stands in MongoDB itself, so that one which was killed goes
// on where it was.
package maintain

import "time"

// A Progress is how far something is.
type Progress struct {
	Phase       string        // what is being done, as in "copy"
	Done, Total int64         // bytes before compression, or 0
	Documents   int64         // that were written so far
	Behind      time.Duration // what is written lags behind the source; 0 while that is not known
	Note        string        // what else there is to say, as in "waits for …"
}
