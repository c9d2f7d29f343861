package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/brim-telemetry/brim/internal/load"
)

// fields splits flags at spaces, and appends more.
func fields(flags string, more ...string) []string { return append(strings.Fields(flags), more...) }

// fillFlags make 2,004 readings a second and 720 of each sensor in an hour of
// event time, which passes in a minute.
const fillFlags = "--sensors 167 --interval 5s --speedup 60 --duration 60s"

// fillRuns is how often that is measured, unless told otherwise.
const fillRuns = 3

// fill compares writes into full and into empty buckets.
func (y *yardstick) fill(ctx context.Context) ([]row, error) {
	runs := make([]*load.Result, y.fillRuns)
	for i := range runs {
		y.note("fill %d of %d, a minute\n", i+1, len(runs))
		var err error
		if runs[i], err = y.fillRun(ctx); err != nil {
			return nil, err
		}
		y.note("  p99 %.2f ms in the first tenth, %.2f ms in the last\n", 1e3*runs[i].StoreByFill[0].P99, 1e3*runs[i].StoreByFill[9].P99)
	}
	mid := func(value func(r **load.Result) float64) float64 { return median(apply(runs, value)) }
	r := newRow("`store_write_seconds` p99 in the last tenth of an hourly bucket against the first: 720 readings a bucket, 2,004 readings/s, default settings", "<= 1.25x", "x", 2,
		apply(runs, func(r **load.Result) float64 { return (*r).StoreByFill[9].P99 / (*r).StoreByFill[0].P99 }))
	r.remark("p99 %.2f ms and %.2f ms, p50 %.2f ms and %.2f ms",
		1e3*mid(func(r **load.Result) float64 { return (*r).StoreByFill[0].P99 }), 1e3*mid(func(r **load.Result) float64 { return (*r).StoreByFill[9].P99 }),
		1e3*mid(func(r **load.Result) float64 { return (*r).StoreByFill[0].P50 }), 1e3*mid(func(r **load.Result) float64 { return (*r).StoreByFill[9].P50 }))
	return []row{r}, nil
}

func (y *yardstick) fillRun(ctx context.Context) (result *load.Result, err error) {
	r, err := y.newRig(ctx, "--granularity", hourly)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	if err := r.settle(ctx); err != nil {
		return nil, err
	}
	if result, err = y.load(ctx, r, fields(fillFlags, "--admin", r.Admin)...); err != nil {
		return nil, err
	}
	if len(result.StoreByFill) != 10 || result.StoreByFill[0].Count == 0 || result.StoreByFill[9].Count == 0 {
		return nil, errors.New("the daemon tells of no writes in the first or the last tenth")
	}
	return result, nil
}

const (
	prefilledSensors  = 10_000
	prefilledInterval = 5 * time.Second
	prefilledTime     = 30 * time.Second
	prefilledFlags    = "--sensors 10000 --interval 5s --sensor-prefix " + prefilledPrefix // 2,000 readings/s
	prefilledPrefix   = "p-"
)

// prefilled writes into hourly buckets that were filled beforehand.
func (y *yardstick) prefilled(ctx context.Context) ([]row, error) {
	var low, high *load.FillRow
	for _, part := range []struct {
		percent int
		came    **load.FillRow
	}{{5, &low}, {95, &high}} {
		y.note("prefilled to %d %%\n", part.percent)
		var err error
		if *part.came, err = y.prefilledRun(ctx, part.percent); err != nil {
			return nil, err
		}
		y.note("  p50 %.2f ms, p99 %.2f ms\n", 1e3*(*part.came).P50, 1e3*(*part.came).P99)
	}
	r := newRow("the same p99 for 10,000 sensors whose buckets were filled beforehand, to 95 % against to 5 %, 2,000 readings/s", "reported", "x", 2, []float64{high.P99 / low.P99})
	r.remark("at 5 %%: p50 %.2f ms, p99 %.2f ms; at 95 %%: p50 %.2f ms, p99 %.2f ms; one run of %v each", 1e3*low.P50, 1e3*low.P99, 1e3*high.P50, 1e3*high.P99, prefilledTime)
	return []row{r}, nil
}

func (y *yardstick) prefilledRun(ctx context.Context, percent int) (tenth *load.FillRow, err error) {
	r, err := y.newRig(ctx, "--granularity", hourly)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	window := time.Now().Add(-2 * time.Hour).Truncate(time.Hour)
	rows := percent * int(time.Hour/prefilledInterval) / 100
	if err := prefill(ctx, r, window, rows); err != nil {
		return nil, fmt.Errorf("fill buckets to %d %%: %w", percent, err)
	}
	if err := r.settle(ctx); err != nil {
		return nil, err
	}
	start := window.Add(time.Duration(rows) * prefilledInterval).UTC().Format(time.RFC3339)
	result, err := y.load(ctx, r, fields(prefilledFlags, "--start", start, "--duration", prefilledTime.String(), "--admin", r.Admin)...)
	if err != nil {
		return nil, err
	}
	if len(result.StoreByFill) != 10 {
		return nil, errors.New("the daemon tells nothing of its writes")
	}
	tenth = &result.StoreByFill[percent/10]
	if tenth.Count == 0 {
		return nil, fmt.Errorf("the daemon tells of no writes into buckets filled to %d %%", percent)
	}
	return tenth, nil
}
