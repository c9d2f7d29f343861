package load

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/scrape"
)

// fakeDaemon answers requests after a delay on a synctest clock.
type fakeDaemon struct {
	takes  time.Duration
	answer func(since time.Duration, r *Request) (Answer, error) // nil: accepted
	// Requests arriving during a stall are answered at its end.
	stallFrom, stallTo time.Duration

	began  time.Time
	mu     sync.Mutex
	seen   int
	opened int
	closed int
}

func (d *fakeDaemon) sender(context.Context) (Sender, error) {
	d.opened++
	return fakeSender{d}, nil
}

type fakeSender struct{ *fakeDaemon }

func (d fakeSender) Send(ctx context.Context, r *Request) (Answer, error) {
	since := time.Since(d.began)
	wait := d.takes
	if since >= d.stallFrom && since < d.stallTo {
		wait += d.stallTo - since
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return Answer{Failure: "canceled"}, ctx.Err()
	}
	d.mu.Lock()
	d.seen += len(r.Readings)
	d.mu.Unlock()
	if d.answer != nil {
		return d.answer(since, r)
	}
	return Answer{Accepted: len(r.Readings)}, nil
}

func (d fakeSender) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed++
	return nil
}

// play runs load against the fake, in fake time.
func play(t *testing.T, d *fakeDaemon, c Config, check func(*Result, error)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { check(d.run(t.Context(), c)) })
}

func (d *fakeDaemon) run(ctx context.Context, c Config) (*Result, error) {
	d.began = time.Now()
	c.Senders, c.timersOnly = d.sender, true
	if c.Stream.GranularitySeconds == 0 {
		c.Stream = Stream{Name: "readings", Storage: "memory", GranularitySeconds: 3600}
	}
	g, err := New(c)
	if err != nil {
		return nil, err
	}
	return g.Run(ctx)
}

// anHour is an hour of 167 sensors in a minute: 2,004 readings/s.
var anHour = Config{Sensors: 167, Interval: 5 * time.Second, Speedup: 60, Duration: time.Minute, Connections: 16}

func TestARunThatKeepsUp(t *testing.T) {
	t.Parallel()
	d := &fakeDaemon{takes: time.Millisecond}
	var told []Progress
	c := anHour
	c.Progress = func(p Progress) { told = append(told, p) }
	play(t, d, c, func(r *Result, err error) {
		require.NoError(t, err)
		assert.EqualValues(t, 120_240, r.Sent)
		assert.EqualValues(t, 120_240, r.Acked)
		assert.EqualValues(t, 120_240, r.Requests)
		assert.Zero(t, r.Dropped+r.Failed+r.Rejected)
		assert.InDelta(t, 2004, r.OfferedRate, 1e-6)
		assert.InEpsilon(t, 2004, r.AchievedRate, 0.001)
		assert.InDelta(t, 60, r.Seconds, 0.01)
		for _, q := range []float64{r.Response.P50, r.Response.P99, r.Response.Max, r.Service.P50, r.Service.Mean} {
			assert.InDelta(t, 0.001, q, 0.0001)
		}
		require.Len(t, r.ByFill, 10)
		for i, row := range r.ByFill {
			assert.InDelta(t, float64(i)/10, row.From, 1e-9)
			assert.InDelta(t, 12_024, row.Count, 200)
			assert.InDelta(t, 0.001, row.P99, 0.0001)
		}
		require.Len(t, r.Intervals, 60)
		for i, row := range r.Intervals {
			assert.InDelta(t, float64(i+1), row.Second, 0.01)
			assert.InDelta(t, 2004, row.Offered, 5)
			assert.InDelta(t, 2004, row.Achieved, 20)
			assert.InDelta(t, float64(i+1)/60, row.Fill, 0.001)
		}
		assert.EqualValues(t, 120_240, r.Curve[len(r.Curve)-1].Count)
		assert.InDelta(t, 100, r.Curve[len(r.Curve)-1].Percent, 1e-9)
		assert.Equal(t, 167, r.Setup.Sensors)
		assert.Equal(t, time.Hour, r.Setup.EventEnd.Sub(r.Setup.EventStart))
		assert.Zero(t, r.Setup.EventEnd.Minute(), "event time ends with a window")
		assert.False(t, r.Setup.EventEnd.After(time.Now()))
		assert.Empty(t, r.Setup.Rate)
	})
	assert.GreaterOrEqual(t, len(told), 59)
	assert.InDelta(t, 2004, told[10].Asked, 1e-6)
	assert.Equal(t, 16, d.closed)
}

// TestAStallIsSeenByAllThatWereDue stops the daemon for a second: every request due meanwhile
// waited, though few were in flight.
func TestAStallIsSeenByAllThatWereDue(t *testing.T) {
	t.Parallel()
	c := Config{Sensors: 100, Interval: time.Second, Duration: 10 * time.Second, Connections: 4}
	stalled := &fakeDaemon{takes: time.Millisecond, stallFrom: 4 * time.Second, stallTo: 5 * time.Second}
	play(t, stalled, c, func(r *Result, err error) {
		require.NoError(t, err)
		assert.InDelta(t, 0.8, r.Response.P99, 0.15)
		assert.InDelta(t, 1, r.Response.Max, 0.01)
		assert.InDelta(t, 0.001, r.Service.P99, 0.0001)
		assert.InDelta(t, 1, r.Intervals[4].P99+r.Intervals[5].P99, 0.05)
		assert.EqualValues(t, 1000, r.Acked)
	})
}

func TestWhatIsTooMuchIsDroppedAndCounted(t *testing.T) {
	t.Parallel()
	c := Config{Rate: Rate{1000, 1000}, Batch: 10, Duration: 10 * time.Second, Connections: 2, MaxInFlight: 20}
	play(t, &fakeDaemon{takes: 100 * time.Millisecond}, c, func(r *Result, err error) {
		require.NoError(t, err)
		// Two at a time, ten times a second, ten readings each: 200 a second. The 20 still
		// queued at the end took another second.
		assert.InDelta(t, 220, r.AchievedRate, 5)
		assert.InDelta(t, 1, r.DrainSeconds, 0.1)
		assert.InDelta(t, 11, r.Seconds, 0.1)
		assert.EqualValues(t, 1000, r.OfferedRate)
		assert.EqualValues(t, 10_000, r.Sent+r.Dropped)
		assert.Greater(t, r.Dropped, int64(7000))
		assert.InDelta(t, 1, r.Response.P99, 0.15, "20 are in line at most")
		assert.Equal(t, "1000", r.Setup.Rate)
		assert.LessOrEqual(t, r.Intervals[5].InFlight, 20)
		assert.InDelta(t, 800, r.Intervals[5].Dropped, 30)
	})
}

func TestFailuresAreCountedByReason(t *testing.T) {
	t.Parallel()
	d := &fakeDaemon{takes: time.Millisecond, answer: func(since time.Duration, r *Request) (Answer, error) {
		switch {
		case since > 8*time.Second:
			return Answer{Failure: "503"}, errors.New("the journal is full")
		case since > 6*time.Second:
			return Answer{Failure: "timeout"}, fmt.Errorf("no answer in time at %s", since.Round(100*time.Millisecond))
		default:
			return Answer{Accepted: len(r.Readings) - 1, Rejected: 1}, nil
		}
	}}
	reg := prometheus.NewPedanticRegistry()
	c := Config{Rate: Rate{100, 100}, Batch: 5, Duration: 10 * time.Second, Connections: 3, Registerer: reg}
	play(t, d, c, func(r *Result, err error) {
		require.NoError(t, err)
		assert.EqualValues(t, 1000, r.Sent)
		assert.EqualValues(t, 1000, r.Acked+r.Rejected+r.Failed)
		assert.InDelta(t, 120, r.Rejected, 3)
		assert.InDelta(t, 40, r.Failures["503"], 2)
		assert.InDelta(t, 40, r.Failures["timeout"], 2)
		assert.Equal(t, r.Failed, 5*(r.Failures["503"]+r.Failures["timeout"]))
		require.Len(t, r.FirstErrors, 2, "one of each reason")
		assert.Contains(t, r.FirstErrors, "the journal is full")
		assert.Contains(t, strings.Join(r.FirstErrors, ""), "no answer in time at 6")
		look, err := scrape.Gather(reg)
		require.NoError(t, err)
		for name, want := range map[string]int64{
			"offered": 1000, "sent": 1000, "acked": r.Acked, "rejected": r.Rejected, "failed": r.Failed, "dropped": 0,
		} {
			assert.EqualValues(t, want, look.Value("brim_load_"+name+"_readings_total", nil), name)
		}
		requests := func(result string) float64 {
			return look.Value("brim_load_requests_total", scrape.Labels{"result": result})
		}
		assert.Zero(t, requests("ok"))
		assert.EqualValues(t, r.Failed/5, requests("failed"))
		assert.EqualValues(t, 200, requests("failed")+requests("partial"))
		assert.EqualValues(t, 200, look.Histogram("brim_load_response_seconds", nil).Count, "also of those that failed")
		assert.Equal(t, requests("partial"), look.Histogram("brim_load_service_seconds", nil).Count)
		assert.InDelta(t, 0.001, look.Histogram("brim_load_service_seconds", nil).Quantile(0.5), 0.0002)
		assert.Zero(t, look.Value("brim_load_offered_rate", nil), "it is over")
		assert.Zero(t, look.Value("brim_load_in_flight", nil))
		assert.Greater(t, look.Value("brim_load_window_ratio", nil), 0.0)
	})
	problems, err := testutil.GatherAndLint(reg)
	require.NoError(t, err)
	assert.Empty(t, problems)
}

func TestARunThatIsInterruptedReports(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 3500*time.Millisecond)
		defer cancel()
		r, err := (&fakeDaemon{takes: 5 * time.Millisecond}).run(ctx, anHour)
		require.NoError(t, err)
		assert.True(t, r.Interrupted)
		assert.InDelta(t, 3.5, r.Setup.DurationSeconds, 0.01)
		assert.InDelta(t, 210, r.Setup.EventEnd.Sub(r.Setup.EventStart).Seconds(), 1, "event time ended too")
		assert.InDelta(t, 3.5, r.Seconds, 0.02)
		assert.InDelta(t, 2004, r.OfferedRate, 2)
		assert.InDelta(t, 2004*3.5, r.Acked, 150)
		assert.Len(t, r.Intervals, 4)
	})
}

// TestAnswersThatDoNotComeAreFailures has a daemon that takes an hour: requests in flight fail
// when the grace period is over, waiting ones are never sent.
func TestAnswersThatDoNotComeAreFailures(t *testing.T) {
	t.Parallel()
	c := Config{Rate: Rate{10, 10}, Duration: 2 * time.Second, Connections: 3}
	play(t, &fakeDaemon{takes: time.Hour}, c, func(r *Result, err error) {
		require.NoError(t, err)
		assert.EqualValues(t, 3, r.Failed)
		assert.Equal(t, map[string]int64{"canceled": 3}, r.Failures)
		assert.EqualValues(t, 17, r.Dropped)
		assert.Zero(t, r.Acked)
		assert.InDelta(t, 32, r.Response.Max, 0.04, "the first was due 32 s before it was given up")
		assert.InDelta(t, 31, r.Response.P50, 0.1)
		assert.EqualValues(t, 20, r.Curve[len(r.Curve)-1].Count)
		filled := int64(0)
		for _, row := range r.ByFill {
			filled += row.Count
		}
		assert.EqualValues(t, 20, filled)
		assert.Zero(t, r.Service)
		assert.Equal(t, &Quantiles{}, r.Strict)
		assert.InDelta(t, 32, r.Seconds, 0.01)
		assert.InDelta(t, 30, r.DrainSeconds, 0.01)
		assert.False(t, r.Interrupted)
		assert.Len(t, r.Intervals, 32)
	})
}

// TestAnInterruptedRunDoesNotWaitForTheGrace has a daemon that never answers.
func TestAnInterruptedRunDoesNotWaitForTheGrace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		c := Config{Rate: Rate{10, 10}, Duration: time.Minute, Connections: 3}
		r, err := (&fakeDaemon{takes: 24 * time.Hour}).run(ctx, c)
		require.NoError(t, err)
		assert.True(t, r.Interrupted)
		assert.InDelta(t, interruptGrace.Seconds(), r.DrainSeconds, 0.01)
		assert.EqualValues(t, 3, r.Failed)
		assert.InDelta(t, 27, r.Dropped, 1)
	})
}

// TestEventTimeEndsWithTheSchedule has a late last answer: rows of the drain do not advance in
// the window.
func TestEventTimeEndsWithTheSchedule(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewPedanticRegistry()
	c := Config{Rate: Rate{10, 10}, Duration: 6 * time.Second, Connections: 100, Stream: Stream{GranularitySeconds: 10}, Registerer: reg}
	c.Start = time.UnixMilli(0).UTC()
	play(t, &fakeDaemon{takes: 3 * time.Second}, c, func(r *Result, err error) {
		require.NoError(t, err)
		require.Len(t, r.Intervals, 9)
		assert.InDelta(t, 0.5, r.Intervals[4].Fill, 0.01)
		for _, row := range r.Intervals[5:] {
			assert.InDelta(t, 0.6, row.Fill, 0.001)
		}
		assert.Zero(t, r.Intervals[8].InFlight)
		look, err := scrape.Gather(reg)
		require.NoError(t, err)
		assert.Zero(t, look.Value("brim_load_in_flight", nil))
	})
}

// TestWhatIsNotSentIsNotInFlight gives up requests that wait at the end.
func TestWhatIsNotSentIsNotInFlight(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewPedanticRegistry()
	c := Config{Rate: Rate{10, 10}, Duration: 2 * time.Second, Connections: 1, Registerer: reg}
	play(t, &fakeDaemon{takes: time.Hour}, c, func(r *Result, err error) {
		require.NoError(t, err)
		assert.EqualValues(t, 19, r.Dropped)
		look, err := scrape.Gather(reg)
		require.NoError(t, err)
		assert.Zero(t, look.Value("brim_load_in_flight", nil))
		assert.Zero(t, r.Intervals[len(r.Intervals)-1].InFlight)
		assert.EqualValues(t, 20, look.Histogram("brim_load_response_seconds", nil).Count)
	})
}

func TestARampIsFollowed(t *testing.T) {
	t.Parallel()
	c := Config{Rate: Rate{100, 1000}, Steps: 10, Interval: time.Second, Duration: 10 * time.Second}
	play(t, &fakeDaemon{}, c, func(r *Result, err error) {
		require.NoError(t, err)
		for i, row := range r.Intervals {
			assert.InDelta(t, 100*(i+1), row.Offered, 2)
		}
		assert.Equal(t, "100..1000", r.Setup.Rate)
		assert.Equal(t, 1000, r.Setup.Sensors)
		assert.InDelta(t, 550, r.OfferedRate, 0.2)
	})
}

func TestWithoutConnectionsNothingBegins(t *testing.T) {
	t.Parallel()
	d := &fakeDaemon{}
	c := Config{Stream: Stream{GranularitySeconds: 60}, Connections: 3, Senders: func(ctx context.Context) (Sender, error) {
		if d.opened == 2 {
			return nil, errors.New("refused")
		}
		return d.sender(ctx)
	}}
	g, err := New(c)
	require.NoError(t, err)
	_, err = g.Run(t.Context())
	assert.ErrorContains(t, err, "open a connection: refused")
	assert.Equal(t, 2, d.closed)
}
