package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/brim-telemetry/brim/internal/load"
)

const (
	singleTime   = time.Minute
	singleRate   = 15_000
	singleEnough = 0.995 // of the rate
	singleFlags  = "--sensors 1000 --interval 1s --speedup 15 --batch 1 --connections 64 --ack journaled"
)

// A singleRun is what came of requests with one reading.
type singleRun struct {
	result *load.Result
	lag    trend // of the seconds from receipt to stored
	oldest trend // of the seconds since the receipt of the oldest that is not stored
}

// reached is whether a run kept up with what was offered: at least 99.5 % of it
// was acknowledged in time, and nothing was left out. The generator offers the
// rate of the bar exactly, so not all of it can come in the minute.
func (r *singleRun) reached() bool {
	return r.result.AchievedRate >= singleEnough*singleRate && r.result.Dropped == 0
}

// grows is whether what waits gets older, or what is stored comes later.
func (r *singleRun) grows() bool { return r.oldest.grows() || r.lag.grows() }

// single sends single readings at the rate that is promised.
func (y *yardstick) single(ctx context.Context) ([]row, error) {
	runs := make([]singleRun, y.singleRuns)
	for i := range runs {
		y.note("single readings %d of %d, %v\n", i+1, len(runs), singleTime)
		if err := y.singleRun(ctx, &runs[i]); err != nil {
			return nil, err
		}
	}
	return []row{singleRow(runs)}, nil
}

func singleRow(runs []singleRun) row {
	mid := func(value func(r *singleRun) float64) float64 { return median(apply(runs, value)) }
	r := newRow(fmt.Sprintf("single-reading JSON requests, open loop, 64 connections, 1,000 sensors, for %v", singleTime), ">= 15,000/s, queue lag not growing", "/s", 0,
		apply(runs, func(r *singleRun) float64 { return r.result.AchievedRate }))
	reached, growing := 0, 0
	for i := range runs {
		if runs[i].reached() {
			reached++
		}
		if runs[i].grows() {
			growing++
		}
	}
	r.remark("%s: exactly 15,000/s are offered, which count as reached from 99.5 %% on, nothing dropped", verdict(reached, len(runs), "reached"))
	r.remark("response p50 %.2f ms, p99 %.2f ms", 1e3*mid(func(r *singleRun) float64 { return r.result.Response.P50 }), 1e3*mid(func(r *singleRun) float64 { return r.result.Response.P99 }))
	oldest := trend{first: mid(func(r *singleRun) float64 { return r.oldest.first }), last: mid(func(r *singleRun) float64 { return r.oldest.last })}
	late := trend{first: mid(func(r *singleRun) float64 { return r.lag.first }), last: mid(func(r *singleRun) float64 { return r.lag.last })}
	r.remark("queue lag %s; first third to last: oldest reading that waits %v, receipt to stored %v (growing: > 1.25x and 0.5 s)", verdict(growing, len(runs), "growing"), oldest, late)
	for i := range runs {
		if loss := lossRemark(runs[i].result); loss != "" {
			r.remark("run %d: %s", i+1, loss)
		}
	}
	return r
}

// verdict says whether something is so, of several runs in how many.
func verdict(n, of int, word string) string {
	switch n {
	case 0:
		return "not " + word
	case of:
		return word
	}
	return fmt.Sprintf("%s in %d of %d runs", word, n, of)
}

func (y *yardstick) singleRun(ctx context.Context, s *singleRun) (err error) {
	r, err := y.newRig(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	if err := r.settle(ctx); err != nil {
		return err
	}
	w, stop := watchLag(ctx, r)
	s.result, err = y.load(ctx, r, fields(singleFlags, "--duration", singleTime.String(), "--admin", r.Admin)...)
	if err := errors.Join(err, stop()); err != nil {
		return err
	}
	lags := w.until(singleTime)
	s.lag = trendOf(apply(lags, (*lag).seconds))
	s.oldest = trendOf(apply(lags, func(l *lag) float64 { return l.oldest }))
	y.note("  %s/s of %d; p50 %.2f ms, p99 %.2f ms; oldest that waits %v; lag %v\n", thousands(s.result.AchievedRate, 0), singleRate,
		1e3*s.result.Response.P50, 1e3*s.result.Response.P99, s.oldest, s.lag)
	return nil
}
