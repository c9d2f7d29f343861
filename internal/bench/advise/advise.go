// Package advise goes from a user's own numbers to settings: it measures on the
// machine at hand what each choice costs those numbers, in short forms of the
// experiments, and chooses by a cost that everybody can work out again.
//
//	Needs ─▶ candidates ─▶ measure ─▶ Figures ─┬─▶ cost of each candidate ─▶ choose ─▶ Advice ─▶ Text, JSON
//	                       (a Lab)             └─ all that was measured, none of it a constant
//
// Follow then does what the advice says, with a daemon and its load, and holds
// what came against what was predicted.
package advise

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/brim-telemetry/brim/internal/bench"
)

// About how long measuring takes, and following the advice.
const (
	fullTime   = 80 * time.Second
	quickTime  = 40 * time.Second
	followTime = 45 * time.Second
)

// Config says what to advise on, and how.
type Config struct {
	Needs Needs
	Bench bench.Config
	// Follow has the advice followed, and fills Advice.Followed.
	Follow bool
}

// Run measures and advises. What it starts and makes is gone when it returns.
func Run(ctx context.Context, c Config) (*Advice, error) {
	n, err := c.Needs.complete()
	if err != nil {
		return nil, err
	}
	var advice *Advice
	e := &bench.Experiment{
		Name: "advise", Question: "Which settings suit these sensors and queries?", Full: fullTime, Quick: quickTime,
		Run: func(ctx context.Context, lab *bench.Lab, _ *bench.Result) (err error) {
			advice, err = run(ctx, lab, n, c.Follow)
			return err
		},
	}
	if c.Follow {
		e.Full, e.Quick = e.Full+followTime, e.Quick+followTime
	}
	r, err := bench.Run(ctx, e, c.Bench)
	if advice == nil {
		return nil, err
	}
	advice.Environment, advice.TookSeconds, advice.Quick = r.Environment, r.TookSeconds, r.Quick
	advice.warnProcessors()
	return advice, err
}

func run(ctx context.Context, lab *bench.Lab, n Needs, follow bool) (_ *Advice, err error) {
	m, err := lab.Start(ctx, bench.Setting{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	s := newSession(lab, m, n)
	lab.Steps(s.steps(follow))
	figures, err := s.measure(ctx)
	if err != nil {
		return nil, fmt.Errorf("measure: %w", err)
	}
	advice, err := Choose(n, figures)
	if err != nil || !follow {
		return advice, err
	}
	if err := m.Drop(ctx); err != nil {
		return advice, err
	}
	if advice.Followed, err = s.follow(ctx, advice); err != nil {
		return advice, fmt.Errorf("follow the advice: %w", err)
	}
	return advice, nil
}
