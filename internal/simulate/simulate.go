// Package simulate runs daemons in a simulation: the real write path, with the real MongoDB
// driver, on a clock, a disk and a MongoDB that one seeded scheduler controls.
//
//	            clients: writes, repeats, queries, flushes
//	               │ requests
//	         ┌─────▼──────┐ ┌────────────┐
//	disk ◀───┤ daemon A   ├─┤ daemon B   ├──▶ disk       journal.Files: faulttest.Files
//	         └─────┬──────┘ └─────┬──────┘
//	               │ wire protocol│
//	            ┌──▼──────────────▼──┐
//	            │ MongoDB, the model │
//	            └────────────────────┘
//
// Everything runs in a testing/synctest bubble. After each choice the scheduler waits until
// all goroutines are idle. Then it lists what could happen next: a command is executed
// or answered, an operation of a disk succeeds or fails, a client sends something, a process
// is killed, the power goes, time passes. The seed chooses. Each seed also draws how likely
// each kind of event is, so that some runs have many failures of one kind and others none.
//
// At the end all faults are healed, and everything must become idle: each acknowledged
// reading is stored once, documents describe their readings, and queries return them.
//
// world.go has the scheduler, daemon.go the daemons, clients.go the clients and what answers
// must say, ledger.go what clients know of their readings, story.go the trace of a run;
// mongodb.go and the files beside it are the model of MongoDB.
package simulate

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// A Result is what a run of one seed found.
type Result struct {
	Seed     uint64
	Violated string // the first thing that went wrong; empty: nothing did
	Story    string // the trace: what happened, as a sequence diagram
	Hash     uint64 // of the story
	Steps    int
	Readings int
	Took     time.Duration // of simulated time
}

// String returns the trace, and what went wrong.
func (r Result) String() string {
	return fmt.Sprintf("%s\nseed %d: %s\n", r.Story, r.Seed, r.Violated)
}

// Run runs the simulation of a seed in a bubble of t. A verbose trace describes commands.
func Run(t *testing.T, seed uint64, verbose bool) (result Result) {
	t.Helper()
	synctest.Test(t, func(*testing.T) {
		w := newWorld(seed)
		w.verbose = verbose
		w.run()
		result = Result{
			Seed: seed, Violated: w.violated, Story: w.story.String(), Hash: w.story.hash(), Steps: w.steps, Readings: len(w.ledger.readings),
			Took: time.Since(w.story.began),
		}
	})
	return result
}
