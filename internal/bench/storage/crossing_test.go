package storage

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/bench/shape"
	"github.com/brim-telemetry/brim/internal/doctor"
)

// signal makes a signal of a class, with a matching value.
func signal(name string, class doctor.Class) doctor.Signal {
	s := doctor.Signal{
		Name: name, Title: "Title of " + name, Unit: "%", Class: class, Threshold: doctor.Threshold{Degrading: 50, Bottleneck: 80},
		Source: "published", Value: 10 + 40*float64(class),
	}
	if class == doctor.Unknown {
		s.Value, s.Why = math.NaN(), "it is far away"
	}
	return s
}

const cacheDirty = "cache_dirty"

// rampOf makes a ramp with a sample each second, the first two idle, from each signal's
// classes; p99 reaches its bound after that many seconds, -1: never.
func rampOf(reached int, classes map[string][]doctor.Class) *ramp {
	r := &ramp{idle: 2 * time.Second, bound: 0.1, reached: time.Duration(reached) * time.Second, checkpoint: signal(checkpointDuration, doctor.Healthy), traffic: &shape.Traffic{}}
	for i := range classes[diskBusy] {
		one := sample{at: time.Duration(i+1) * time.Second, p99: 0.01}
		for _, name := range []string{diskBusy, diskAwait, cacheDirty, "cache_updates"} {
			class := doctor.Healthy
			if of := classes[name]; of != nil {
				class = of[i]
			}
			one.Signals = append(one.Signals, signal(name, class))
		}
		r.samples = append(r.samples, one)
	}
	return r
}

func TestOrderOfCrossings(t *testing.T) {
	t.Parallel()
	const h, d, b = doctor.Healthy, doctor.Degrading, doctor.Bottleneck
	r := rampOf(6, map[string][]doctor.Class{
		diskBusy:        {h, h, d, h, h, d, b, b}, // once, and again too late
		diskAwait:       {h, h, h, h, d, d, h, h},
		cacheDirty:      {h, h, h, d, h, b, b, b}, // counts though it recovered
		"cache_updates": {d, d, d, d, d, d, d, d},
	})
	all := r.crossings()
	require.Len(t, all, 4)
	assert.True(t, math.IsNaN(all[0].degrading), "one sample alone is chance")
	assert.Zero(t, all[0].rank)
	assert.Equal(t, 5., all[1].degrading)
	assert.Equal(t, 3, all[1].rank)
	assert.Equal(t, 4., all[2].degrading)
	assert.Equal(t, 2, all[2].rank)
	assert.Equal(t, 90., all[2].worst)
	assert.Equal(t, b, all[2].signal.Class)
	assert.True(t, all[3].already)
	assert.True(t, all[3].crossed())
	assert.Equal(t, 1, all[3].rank)
}

func TestRampThatNeverReachesItsBound(t *testing.T) {
	t.Parallel()
	const h, d = doctor.Healthy, doctor.Degrading
	r := rampOf(-1, map[string][]doctor.Class{diskBusy: {h, h, h, d, d}})
	assert.Equal(t, 4, r.boundSample())
	assert.Equal(t, 1, r.crossings()[0].rank)
	assert.Empty(t, (&ramp{}).crossings())
}
