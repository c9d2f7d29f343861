package storage

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/doctor"
)

const h, d = doctor.Healthy, doctor.Degrading

// pretend runs the experiment with known figures.
func pretend(t *testing.T, fill func(lab *bench.Lab)) (r *bench.Result, verdicts map[string]bench.Verdict) {
	t.Helper()
	e := Experiment()
	e.Run = func(_ context.Context, lab *bench.Lab) { fill(lab) }
	r, err := bench.Run(t.Context(), e, bench.Config{Hasty: true, Dir: t.TempDir()})
	require.NoError(t, err)
	verdicts = make(map[string]bench.Verdict)
	for _, row := range r.Rows {
		verdicts[row.Claim] = row.Verdict
	}
	return r, verdicts
}

func ramps(t *testing.T, cache string, all ...*ramp) (*bench.Result, map[string]bench.Verdict) {
	t.Helper()
	return pretend(t, func(lab *bench.Lab) {
		for i, r := range all {
			r.plan = schedule{{idleRate, time.Minute}}
			r.add(lab, cache, i == 0)
		}
	})
}

const with = ", with the ordinary cache"

func TestDiskFirstConfirmsTheClaims(t *testing.T) {
	t.Parallel()
	r, got := ramps(t, ordinary, rampOf(5, map[string][]doctor.Class{diskBusy: {h, h, d, d, d}, cacheDirty: {h, h, h, d, d}}))
	assert.Equal(t, map[string]bench.Verdict{
		"the disk is the first to show that writes become slow" + with: bench.Confirmed,
		"disk busy warns before p99 is ten times idle" + with:          bench.Confirmed,
		"disk await warns before p99 is ten times idle" + with:         bench.NotSeen,
		"cache dirty warns before p99 is ten times idle" + with:        bench.Confirmed,
	}, got)
	assert.InDelta(t, 50, r.Table("signals, "+ordinary).Median(diskBusy, "worst until then"), 1e-9)
}

func TestMajorityOfRampsDecides(t *testing.T) {
	t.Parallel()
	ramp := func(busy bool) *ramp {
		if busy {
			return rampOf(5, map[string][]doctor.Class{diskBusy: {h, h, d, d, d}})
		}
		return rampOf(5, map[string][]doctor.Class{diskBusy: {h, h, h, h, h}, cacheDirty: {h, h, d, d, d}})
	}
	r, got := ramps(t, ordinary, ramp(false), ramp(true), ramp(false))
	assert.Equal(t, bench.NotSeen, got["the disk is the first to show that writes become slow"+with])
	assert.Equal(t, bench.NotSeen, got["disk busy warns before p99 is ten times idle"+with])
	assert.Equal(t, bench.Confirmed, got["cache dirty warns before p99 is ten times idle"+with])
	assert.Equal(t, bench.Samples{2, 1, 2}, r.Table("signals, "+ordinary).Samples(diskFirst, placeOf))
}

func TestUnknownDiskSignalsAreLeftOut(t *testing.T) {
	t.Parallel()
	u := doctor.Unknown
	r, got := ramps(t, small, rampOf(-1, map[string][]doctor.Class{diskBusy: {u, u, u, u}, diskAwait: {u, u, u, u}, cacheDirty: {d, d, d, d}}))
	require.Len(t, r.LeftOut, 1)
	assert.Contains(t, r.LeftOut[0].Why, "cannot be seen")
	assert.Equal(t, map[string]bench.Verdict{"cache dirty warns before p99 is ten times idle, with the small cache": bench.Confirmed}, got)
}

func TestCompactionIsComparedWithWhatWasPublished(t *testing.T) {
	t.Parallel()
	_, got := pretend(t, func(lab *bench.Lab) {
		lab.Add("compact", scattered, leftOf, 0.5)
		lab.Add("compact", contiguous, leftOf, 0.8)
		lab.Add("compact", bothPatterns, p99Before, 0.01, 0.01)
		lab.Add("compact", bothPatterns, p99Later, 0.01, 0.01)
		lab.Add("status", fullForm+idle, "p50", 6e-4, 7e-4)
	})
	assert.Equal(t, map[string]bench.Verdict{
		"compaction takes the file to 0.77x after deleting " + scattered:  bench.SizeDiffers,
		"compaction takes the file to 0.77x after deleting " + contiguous: bench.Confirmed,
		"write p99 falls when a collection was compacted":                 bench.NotSeen,
		"serverStatus takes less than 1 ms (p50, idle)":                   bench.Confirmed,
	}, got)
	// 0.95x is close to 0.77x, but gives back only a fifth of what was published.
	_, got = pretend(t, func(lab *bench.Lab) { lab.Add("compact", contiguous, leftOf, 0.95) })
	assert.Equal(t, bench.SizeDiffers, got["compaction takes the file to 0.77x after deleting "+contiguous])
}
