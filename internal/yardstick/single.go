package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/brim-telemetry/brim/internal/load"
)

const (
	singleTime  = time.Minute
	singleRate  = 15_000
	singleFlags = "--sensors 1000 --interval 1s --speedup 15 --batch 1 --connections 64 --ack journaled"
)

// A singleRun is what came of requests with one reading.
type singleRun struct {
	result *load.Result
	lag    trend // of the seconds from receipt to stored
	oldest trend // of the seconds since the receipt of the oldest that is not stored
}

// single sends single readings at the rate that is promised.
func (y *yardstick) single(ctx context.Context) ([]row, error) {
	runs := make([]singleRun, y.pairs)
	for i := range runs {
		y.note("single readings %d of %d, %v\n", i+1, y.pairs, singleTime)
		if err := y.singleRun(ctx, &runs[i]); err != nil {
			return nil, err
		}
	}
	mid := func(value func(r *singleRun) float64) float64 { return median(apply(runs, value)) }
	r := newRow(fmt.Sprintf("single-reading JSON requests, open loop, 64 connections, 1,000 sensors, for %v", singleTime), ">= 15,000/s, queue lag not growing", "/s", 0,
		apply(runs, func(r *singleRun) float64 { return r.result.AchievedRate }))
	r.remark("response p50 %.2f ms, p99 %.2f ms", 1e3*mid(func(r *singleRun) float64 { return r.result.Response.P50 }), 1e3*mid(func(r *singleRun) float64 { return r.result.Response.P99 }))
	lag := trend{
		first: mid(func(r *singleRun) float64 { return r.lag.first }),
		last:  mid(func(r *singleRun) float64 { return r.lag.last }),
		slope: mid(func(r *singleRun) float64 { return r.lag.slope }),
	}
	r.remark("lag from receipt to stored %s: %.2f s in the first third, %.2f s in the last, slope %+.1f ms/s; oldest reading that waits: %.2f s, %.2f s", lag.word(), lag.first, lag.last, 1e3*lag.slope,
		mid(func(r *singleRun) float64 { return r.oldest.first }), mid(func(r *singleRun) float64 { return r.oldest.last }))
	for i := range runs {
		if loss := lossRemark(runs[i].result); loss != "" {
			r.remark("run %d: %s", i+1, loss)
		}
	}
	return []row{r}, nil
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
	s.lag = trendOf(apply(lags, func(l *lag) float64 { return l.mean }))
	s.oldest = trendOf(apply(lags, func(l *lag) float64 { return l.oldest }))
	y.note("  %s/s of %d; p50 %.2f ms, p99 %.2f ms; lag %.2f s, then %.2f s\n", thousands(s.result.AchievedRate, 0), singleRate,
		1e3*s.result.Response.P50, 1e3*s.result.Response.P99, s.lag.first, s.lag.last)
	return nil
}
