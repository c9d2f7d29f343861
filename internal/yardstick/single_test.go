package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/brim-telemetry/brim/internal/load"
)

func TestSingleRateIsReachedFrom995PerMilleOnWithNothingDropped(t *testing.T) {
	t.Parallel()
	run := func(rate float64, dropped int64) *singleRun {
		return &singleRun{result: &load.Result{AchievedRate: rate, Dropped: dropped}}
	}
	assert.True(t, run(14_998, 0).reached())
	assert.True(t, run(14_925, 0).reached())
	assert.False(t, run(14_924, 0).reached())
	assert.False(t, run(14_998, 1).reached())
}

func TestSingleRowSaysWhichRunsGrow(t *testing.T) {
	t.Parallel()
	fine := singleRun{result: &load.Result{AchievedRate: 14_998}, lag: trend{first: 1, last: 1}, oldest: trend{first: 1, last: 1}}
	old := fine
	old.oldest.last = 2
	late := fine
	late.lag.last = 2
	remarks := func(runs ...singleRun) string { r := singleRow(runs); return strings.Join(r.Remarks, "; ") }
	assert.Contains(t, remarks(fine), "queue lag not growing")
	assert.Contains(t, remarks(old), "queue lag growing;")
	assert.Contains(t, remarks(fine, late, fine), "queue lag growing in 1 of 3 runs")
	assert.True(t, strings.HasPrefix(remarks(fine), "reached: "))
}
