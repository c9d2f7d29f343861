// Package bench is the ground that experiments stand on. An experiment checks
// what was published about MongoDB as a store of telemetry on the machine at
// hand; each is a package beneath this one:
//
//	             ┌ MongoDB   a mongod of its own in a scratch folder, or a scratch database of the user's ┐
//	Config ─▶ Lab┤                                                                                        ├─▶ Result ─▶ report
//	             └ Daemon    brim serve on that MongoDB, and brim load                                    ┘
//
// A Result has rows, each of which holds a published figure against the
// measured one with a verdict; tables of all that was measured; and plots.
package bench

import (
	"context"
	"time"
)

// An Experiment answers one question.
type Experiment struct {
	Name     string // as in `brim bench NAME`
	Question string // that it answers, in one sentence
	// Full and Quick are how long it takes, about.
	Full, Quick time.Duration
	// Restarts says which part needs a mongod of its own, which settings are
	// tried on; empty: none. With a user's MongoDB that part is left out.
	Restarts string
	// Cells are the parts that can be chosen, in the order of their running.
	Cells []Cell
	// Run measures and tells the result what came. What it returns is why it could
	// not go on; what was told until then is kept.
	Run func(ctx context.Context, lab *Lab, r *Result) error
}

// A Cell is a part of an experiment that can be run without the others.
type Cell struct {
	Name string // as in --cells
	What string // it measures
	// Slow is why it is left out of a quick run, unless it is asked for; empty: it
	// is in it.
	Slow string
}
