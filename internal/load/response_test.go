package load

import (
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/scrape"
)

// TestWhatFailsWaitedToo has a daemon that stalls for two of ten seconds and accepts nothing
// that came meanwhile: its response time counts nevertheless.
func TestWhatFailsWaitedToo(t *testing.T) {
	t.Parallel()
	d := &fakeDaemon{takes: time.Millisecond, stallFrom: 4 * time.Second, stallTo: 6 * time.Second}
	d.answer = func(since time.Duration, r *Request) (Answer, error) {
		if since >= d.stallFrom && since < d.stallTo {
			return Answer{Failure: "timeout"}, errors.New("no answer in time")
		}
		return Answer{Accepted: len(r.Readings)}, nil
	}
	reg := prometheus.NewPedanticRegistry()
	c := Config{Rate: Rate{100, 100}, Duration: 10 * time.Second, Connections: 1000, Registerer: reg, Stream: Stream{GranularitySeconds: 10}}
	play(t, d, c, func(r *Result, err error) {
		require.NoError(t, err)
		assert.EqualValues(t, 200, r.Failed)
		assert.EqualValues(t, 800, r.Acked)
		assert.InDelta(t, 1.9, r.Response.P99, 0.02)
		assert.InDelta(t, 2, r.Response.Max, 0.02)
		assert.InDelta(t, 0.001, r.Service.Max, 0.0001, "of what was taken")
		assert.InDelta(t, 1.9, r.Curve[len(r.Curve)-1].Seconds, 0.2)
		assert.InDelta(t, 1.98, r.Intervals[5].P99+r.Intervals[6].P99, 0.05)
		assert.InDelta(t, 1.99, r.ByFill[4].P99, 0.05)
		assert.InDelta(t, 0.001, r.ByFill[7].P99, 0.0001)
		require.NotNil(t, r.Strict)
		assert.InDelta(t, 0.001, r.Strict.P50, 0.0001)
		assert.Zero(t, r.Strict.P90, "a fifth failed")
		look, err := scrape.Gather(reg)
		require.NoError(t, err)
		response := look.Histogram("brim_load_response_seconds", nil)
		assert.EqualValues(t, 1000, response.Count)
		assert.InDelta(t, 1.9, response.Quantile(0.99), 0.2)
		assert.InDelta(t, 0.001, look.Histogram("brim_load_service_seconds", nil).Quantile(0.99), 0.0002)
	})
}

// TestByFillAndMetricsCountFromWhenARequestWasDue has a stall and one connection too few, so
// that response and service time differ widely.
func TestByFillAndMetricsCountFromWhenARequestWasDue(t *testing.T) {
	t.Parallel()
	d := &fakeDaemon{takes: time.Millisecond, stallFrom: 4 * time.Second, stallTo: 5 * time.Second}
	reg := prometheus.NewPedanticRegistry()
	c := Config{Rate: Rate{100, 100}, Duration: 10 * time.Second, Connections: 1, Registerer: reg, Stream: Stream{GranularitySeconds: 10}}
	play(t, d, c, func(r *Result, err error) {
		require.NoError(t, err)
		assert.InDelta(t, 0.5, r.ByFill[4].P50, 0.1)
		assert.InDelta(t, 0.001, r.ByFill[6].P50, 0.0001)
		assert.InDelta(t, 0.001, r.Service.P99, 0.0001)
		assert.Nil(t, r.Strict)
		look, err := scrape.Gather(reg)
		require.NoError(t, err)
		assert.InDelta(t, 0.8, look.Histogram("brim_load_response_seconds", nil).Quantile(0.98), 0.3)
		assert.InDelta(t, 0.001, look.Histogram("brim_load_service_seconds", nil).Quantile(0.98), 0.0002)
	})
}

// TestStrictQuantiles has ten of a thousand requests fail at once: the p99 lies among them,
// though none took long.
func TestStrictQuantiles(t *testing.T) {
	t.Parallel()
	for failing, want := range map[time.Duration]Quantiles{
		9 * 10 * time.Millisecond:  {P50: 0.001, P90: 0.001, P99: 0.091},
		10 * 10 * time.Millisecond: {P50: 0.001, P90: 0.001},
	} {
		d := &fakeDaemon{takes: time.Millisecond, stallFrom: 5 * time.Second, stallTo: 5*time.Second + 100*time.Millisecond}
		d.answer = func(since time.Duration, r *Request) (Answer, error) {
			if since < failing {
				return Answer{Failure: "503"}, errors.New("the journal is full")
			}
			return Answer{Accepted: len(r.Readings)}, nil
		}
		c := Config{Rate: Rate{100, 100}, Duration: 10 * time.Second, Connections: 100}
		play(t, d, c, func(r *Result, err error) {
			require.NoError(t, err)
			require.NotNil(t, r.Strict)
			assert.InDelta(t, want.P50, r.Strict.P50, 0.0001)
			assert.InDelta(t, want.P90, r.Strict.P90, 0.0001)
			assert.InDelta(t, want.P99, r.Strict.P99, 0.003)
			assert.Zero(t, r.Strict.P999+r.Strict.Max+r.Strict.Mean)
			assert.Positive(t, r.Response.P99)
		})
	}
}
