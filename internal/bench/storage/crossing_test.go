package storage

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/doctor"
)

// signal makes one of a class; its value follows from that.
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

// rampOf makes a ramp with a look each second, of which the first two are idle,
// from the classes of signals at each look; p99 reaches its bound at a moment.
func rampOf(reached number, classes map[string][]doctor.Class) *ramp {
	r := &ramp{CacheMiB: 1024, Idle: 2, IdleP99: 0.01, Bound: 0.1, Reached: reached, Checkpoint: signal(checkpoint, doctor.Healthy)}
	for i := range classes[diskBusy] {
		l := look{At: number(i + 1), P99: 0.01, sight: sight{Processors: 1}}
		for _, name := range []string{diskBusy, diskAwait, cacheDirty, "cache_updates"} {
			class := doctor.Healthy
			if of := classes[name]; of != nil {
				class = of[i]
			}
			l.Signals = append(l.Signals, signal(name, class))
		}
		r.Looks = append(r.Looks, l)
	}
	return r
}

func TestOrderOfCrossings(t *testing.T) {
	t.Parallel()
	const h, d, b = doctor.Healthy, doctor.Degrading, doctor.Bottleneck
	r := rampOf(6, map[string][]doctor.Class{
		diskBusy:        {h, h, d, h, h, d, b, b}, // once, and again when it is too late
		diskAwait:       {h, h, h, h, d, d, h, h},
		cacheDirty:      {h, h, h, d, h, b, b, b}, // a share counts though it came back
		"cache_updates": {d, d, d, d, d, d, d, d},
	})
	all := r.crossings()
	require.Len(t, all, 4)
	assert.False(t, all[0].Degrading.known(), "one look alone is chance")
	assert.Zero(t, all[0].Place)
	assert.Equal(t, number(5), all[1].Degrading)
	assert.Equal(t, 3, all[1].Place)
	assert.Equal(t, number(4), all[2].Degrading)
	assert.False(t, all[2].Bottleneck.known(), "until p99 was over its bound it was so once")
	assert.Equal(t, 2, all[2].Place)
	assert.Equal(t, number(90), all[2].Worst)
	assert.Equal(t, b, all[2].Signal.Class)
	assert.True(t, all[3].Already)
	assert.True(t, all[3].crossed())
	assert.Equal(t, 1, all[3].Place)
	assert.Equal(t, "Title of cache_updates, already before the load rose", first(all))
	assert.Equal(t, "Title of cache_dirty", first([]crossing{{Place: 2}, {Place: 1, Signal: all[2].Signal}}))
	assert.Equal(t, []string{"–", "3", "2", "before"}, []string{all[0].order(), all[1].order(), all[2].order(), all[3].order()})
}

func TestARampThatNeverReachesItsBoundIsLookedAtToItsEnd(t *testing.T) {
	t.Parallel()
	const h, d = doctor.Healthy, doctor.Degrading
	r := rampOf(unknown(), map[string][]doctor.Class{diskBusy: {h, h, h, d, d}})
	assert.Equal(t, 4, r.boundLook())
	assert.Equal(t, 1, r.crossings()[0].Place)
	assert.Empty(t, (&ramp{}).crossings())
}

func TestPressureIsOneAtTheBottleneck(t *testing.T) {
	t.Parallel()
	assert.InDelta(t, 0.5, pressure(doctor.Signal{Value: 40, Threshold: doctor.Threshold{Bottleneck: 80}}), 1e-9)
	assert.InDelta(t, 0.05, pressure(doctor.Signal{Value: 100, Threshold: doctor.Threshold{Bottleneck: 5, Below: true}}), 1e-9)
	assert.True(t, math.IsNaN(pressure(doctor.Signal{Value: 1})))
}
