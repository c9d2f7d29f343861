package client

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// script is a transport with scripted outcomes and no network.
type script struct {
	attempts []attempt
	at       []time.Duration // of each attempt, relative to the first
	to       []int
	start    time.Time
}

func (s *script) try(_ context.Context, to int, w *write) attempt {
	if s.start.IsZero() {
		s.start = time.Now()
	}
	s.at, s.to = append(s.at, time.Since(s.start)), append(s.to, to)
	a := s.attempts[min(len(s.at), len(s.attempts))-1]
	a.result.Accepted = len(w.readings)
	return a
}

func (s *script) close() error { return nil }

// scripted returns a client with two addresses whose attempts end as given; the
// last outcome repeats forever.
func scripted(t *testing.T, change func(*Config), attempts ...attempt) (*Client, *script) {
	t.Helper()
	config := Config{Addresses: []string{"http://a", "http://b"}}
	change(&config)
	c, err := New(config)
	require.NoError(t, err)
	s := &script{attempts: attempts}
	c.transport = s
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	return c, s
}

var (
	errAway = errors.New("away")
	away    = attempt{err: errAway, again: true}
	unknown = attempt{err: errAway, again: true, unknown: true}
)

func TestRepetitionsBackOffWithFullJitter(t *testing.T) {
	t.Parallel()
	early, late := 0, 0
	for range 200 {
		synctest.Test(t, func(t *testing.T) {
			c, s := scripted(t, func(c *Config) { c.RetryFor = time.Minute }, unknown)
			_, err := c.Write(t.Context(), weather("s", 1)...)
			require.ErrorIs(t, err, errAway)
			for i := 1; i < len(s.at); i++ {
				wait, most := s.at[i]-s.at[i-1], min(defaultBackoffMin<<(i-1), defaultBackoffMax)
				assert.LessOrEqual(t, wait, most, i)
				if i == 5 && wait < most/2 {
					early++
				} else if i == 5 {
					late++
				}
			}
			assert.LessOrEqual(t, s.at[len(s.at)-1], time.Minute)
			assert.Greater(t, len(s.at), 7)
		})
	}
	assert.Greater(t, early, 50)
	assert.Greater(t, late, 50)
}

func TestRetryAfterIsHonoured(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		full := attempt{err: &telemetry.Error{Kind: telemetry.Unavailable, RetryAfter: 7 * time.Second}, again: true, after: 7 * time.Second}
		c, s := scripted(t, func(c *Config) { c.Addresses = c.Addresses[:1] }, full, full, attempt{})
		_, err := c.Write(t.Context(), weather("s", 1)...)
		require.NoError(t, err)
		assert.GreaterOrEqual(t, s.at[1], 7*time.Second)
		assert.Less(t, s.at[1], 8*time.Second)
		assert.GreaterOrEqual(t, s.at[2], 14*time.Second)
	})
}

func TestADeadlineThatCannotBeMetIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, s := scripted(t, func(c *Config) { c.Addresses = c.Addresses[:1] }, attempt{err: errAway, again: true, after: time.Minute})
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		start := time.Now()
		_, err := c.Write(ctx, weather("s", 1)...)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, errAway)
		assert.Zero(t, time.Since(start))
		assert.Len(t, s.at, 1)
	})
}

func TestWhereAndHowLongRequestsAreRepeated(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		change   func(*Config)
		attempts []attempt
		to       []int // of the first attempts
		until    time.Duration
		unknown  bool
	}{
		"what is not taken goes to both by turns, without waiting for the second": {
			change: func(*Config) {}, attempts: []attempt{away}, to: []int{0, 1, 0, 1, 0, 1}, until: defaultRetryFor,
		},
		"what may be taken stays": {
			change: func(*Config) {}, attempts: []attempt{away, unknown, away}, to: []int{0, 1, 1, 1, 1, 1}, until: defaultRetryFor, unknown: true,
		},
		"for as long as its key is known": {
			change: func(c *Config) { c.RetryFor = Forever }, attempts: []attempt{unknown}, to: []int{0, 0, 0, 0, 0, 0}, until: defaultKeyLife, unknown: true,
		},
		"or for less, where a daemon forgets it earlier": {
			change: func(c *Config) { c.RetryFor, c.KeyLife = Forever, 200*time.Second }, attempts: []attempt{unknown}, to: []int{0, 0, 0}, until: 200 * time.Second, unknown: true,
		},
		"at least once, it goes everywhere": {
			change: func(c *Config) { c.AtLeastOnce, c.RetryFor = true, time.Hour }, attempts: []attempt{unknown}, to: []int{0, 1, 0, 1, 0, 1}, until: time.Hour, unknown: true,
		},
		"never": {change: func(c *Config) { c.RetryFor = Never }, attempts: []attempt{away}, to: []int{0}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c, s := scripted(t, row.change, row.attempts...)
				_, err := c.Write(t.Context(), weather("s", 1)...)
				var failed *Error
				require.ErrorAs(t, err, &failed)
				assert.Equal(t, row.unknown, failed.Unknown)
				assert.Equal(t, len(s.at), failed.Attempts)
				require.GreaterOrEqual(t, len(s.to), len(row.to))
				assert.Equal(t, row.to, s.to[:len(row.to)])
				assert.LessOrEqual(t, s.at[len(s.at)-1], row.until)
				assert.GreaterOrEqual(t, s.at[len(s.at)-1], row.until-defaultBackoffMax)
			})
		})
	}
}

func TestRetryAfterIsRead(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"": 0, "2": 2 * time.Second, "-1": 0, "x": 0, "1.5": 0,
		"99999999999999999999": maxRetryAfter, "4000000000": maxRetryAfter,
		noon.Add(5 * time.Second).Format(http.TimeFormat): 5 * time.Second,
		noon.Add(-time.Hour).Format(http.TimeFormat):      0,
		noon.AddDate(200, 0, 0).Format(http.TimeFormat):   maxRetryAfter,
	} {
		assert.Equal(t, want, parseRetryAfter(text, noon), text)
		assert.Equal(t, want, parseRetryAfter(" "+text+"\t", noon), text)
	}
}

// pastDeadline is a context whose deadline has passed, but whose timer is late.
type pastDeadline struct{ context.Context }

func (pastDeadline) Deadline() (time.Time, bool) { return time.Now().Add(-time.Nanosecond), true }

func TestAnAnswerAtTheDeadlineIsTimeout(t *testing.T) {
	t.Parallel()
	noOutcome := &telemetry.Error{Kind: telemetry.UnknownOutcome, Code: "outcome_unknown", Message: "the request ended"}
	for name, ctx := range map[string]context.Context{"the timer is late": pastDeadline{t.Context()}, "in time": t.Context()} {
		c, _ := scripted(t, func(*Config) {}, wayOf(noOutcome))
		_, err := c.send(ctx, Request{Readings: weather("s", 1)}, Never, nil)
		require.ErrorIs(t, err, noOutcome, name)
		assert.Equal(t, name != "in time", errors.Is(err, context.DeadlineExceeded), name)
	}
	c, _ := scripted(t, func(*Config) {}, wayOf(&telemetry.Error{Kind: telemetry.Conflict, Code: "conflict", Message: "another one"}))
	_, err := c.send(pastDeadline{t.Context()}, Request{Readings: weather("s", 1)}, Never, nil)
	assert.NotErrorIs(t, err, context.DeadlineExceeded, "an answer that is final is not a timeout")
}
