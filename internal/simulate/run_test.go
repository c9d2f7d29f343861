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
