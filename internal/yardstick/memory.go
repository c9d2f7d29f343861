package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/brim-telemetry/brim/internal/launch"
)

const (
	memoryHosts = 10_000
	memoryTime  = 20 * time.Second
	// A million sensors, each every 50 s: 20,000 readings a second, and the first
	// come again.
	millionTime  = 80 * time.Second
	millionFlags = "--sensors 1000000 --interval 50s --sensor-prefix s- --batch 1000"

	// millionPatience is how long what was taken may need to be stored after that.
	millionPatience = time.Minute

	mib = 1 << 20
)

// memory looks how much the daemon needs.
func (y *yardstick) memory(ctx context.Context) ([]row, error) {
	rate, err := y.memoryAtFullRate(ctx)
	if err != nil {
		return nil, err
	}
	million, err := y.memoryOfMillion(ctx)
	if err != nil {
		return nil, err
	}
	return []row{*rate, *million}, nil
}

func (y *yardstick) memoryAtFullRate(ctx context.Context) (came *row, err error) {
	y.note("memory at full rate, %d hosts, %v\n", memoryHosts, memoryTime)
	poster, err := newLinePoster(y.connections, newFleet(memoryHosts))
	if err != nil {
		return nil, err
	}
	r, err := y.newRig(ctx, "--granularity", hourly)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	w, stop := watchMemory(ctx, r.Pid())
	p, err := r.pass(ctx, poster, memoryTime)
	if err := errors.Join(err, stop()); err != nil {
		return nil, err
	}
	y.note("  %d MiB at %s lines/s\n", w.peak/mib, thousands(p.Rate, 0))
	one := newRow("RSS at full rate, 10,000 sensors, line protocol", "<= 256 MiB", "MiB", 0, []float64{float64(w.peak) / mib})
	one.remark("peak of the process (VmHWM); most seen every %v: %d MiB", memoryLook, w.most/mib)
	one.remark("%s lines/s until stored, for %v; merge factor %.1f", thousands(p.Rate, 0), memoryTime, p.Merged)
	return &one, nil
}

func (y *yardstick) memoryOfMillion(ctx context.Context) (came *row, err error) {
	y.note("memory of a million sensors, %v\n", millionTime)
	r, err := y.newRig(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	memory, stopMemory := watchMemory(ctx, r.Pid())
	lag, stopLag := watchLag(ctx, r)
	start := time.Now()
	result, err := y.load(ctx, r, fields(millionFlags, "--duration", millionTime.String())...)
	var left backlog
	if err == nil {
		left, err = r.waitStored(ctx, millionPatience)
	}
	took := time.Since(start)
	if err := errors.Join(err, stopLag(), stopMemory()); err != nil {
		return nil, err
	}
	lags := lag.until(millionTime)
	if len(lags) == 0 {
		return nil, errors.New("the daemon told nothing while a million sensors reported")
	}
	end := lags[len(lags)-1]
	stored, err := r.storedOf(ctx, result.Acked, left)
	if err != nil {
		return nil, err
	}
	y.note("  %d MiB; %s of %s readings/s stored\n", memory.peak/mib, thousands(float64(stored)/took.Seconds(), 0), thousands(result.OfferedRate, 0))
	one := newRow("RSS with 1,000,000 active sensors at 20,000 readings/s, four fields", "<= 1 GiB", "MiB", 0, []float64{float64(memory.peak) / mib})
	one.remark("peak of the process (VmHWM); most seen every %v: %d MiB", memoryLook, memory.most/mib)
	one.remark("taken at %s readings/s for %v; stored at %s readings/s over %.0f s", thousands(result.AchievedRate, 0), millionTime, thousands(float64(stored)/took.Seconds(), 0), took.Seconds())
	if left.pending > 0 {
		one.remark("**%s readings were still not stored** %v after the load", thousands(left.pending, 0), millionPatience)
	}
	one.remark("at the end of the load the oldest reading that waited was %.1f s old, %s waited", end.oldest, thousands(end.pending, 0))
	if loss := lossRemark(result); loss != "" {
		one.remark("%s", loss)
	}
	return &one, nil
}

// A backlog is what was not stored in time.
type backlog struct{ pending float64 } // readings

// waitStored returns when all is stored, or when the time is over.
func (r *rig) waitStored(ctx context.Context, most time.Duration) (left backlog, err error) {
	if err := r.Flush(ctx, most); !errors.Is(err, launch.ErrNotInTime) {
		return left, err
	}
	look, err := r.Look(ctx)
	left.pending = look.Value(pendingMetric, nil)
	return left, err
}

// storedOf returns how many of the readings taken are stored: all but the
// backlog, which MongoDB is asked for where there is none.
func (r *rig) storedOf(ctx context.Context, taken int64, left backlog) (int64, error) {
	if left.pending > 0 {
		return taken - int64(left.pending), nil
	}
	stored, err := r.stored(ctx)
	if err == nil && stored != taken {
		err = fmt.Errorf("MongoDB has %d readings of %d that were acknowledged", stored, taken)
	}
	return stored, err
}
