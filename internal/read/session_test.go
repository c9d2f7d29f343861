package read

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/access"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

func TestSessionsReadStoredAndWaitingReadings(t *testing.T) {
	t.Parallel()
	j := openJournal(t)
	journaled(t, j, readingsOf("readings", 1, "b", "c"))
	r := newReader(t, fakeSource{readings: []telemetry.Reading{reading("a", 0, 7), reading("b", 0, 8)}}, func(_ *Config, s *Stored) { s.Backlog = backlogOf(j, new(atomic.Uint64)) })
	ctx, s, err := r.Begin(t.Context(), SessionConfig{})
	require.NoError(t, err)
	defer s.End()
	assert.Equal(t, "readings", s.Stream())
	assert.InDelta(t, 1, r.slots.used(), 0)

	var sensors []string
	for one, err := range s.Find(ctx, telemetry.SensorQuery{}) {
		require.NoError(t, err)
		sensors = append(sensors, one.ID)
	}
	assert.Equal(t, []string{"a", "b", "c"}, sensors)
	n := 0
	for one, err := range s.Readings(ctx, telemetry.Query{Sensor: "b", To: maxTime}) {
		require.NoError(t, err)
		assert.Equal(t, "b", one.Sensor)
		n++
	}
	assert.Equal(t, 2, n, "one is stored, one waits")
	for one, err := range s.Summary(ctx, telemetry.SummaryQuery{Query: telemetry.Query{Sensor: "b", To: maxTime, Limit: 1}}) {
		require.NoError(t, err)
		assert.EqualValues(t, 2, one.Count)
	}
	_, found, err := s.latest(ctx, "c")
	require.NoError(t, err)
	assert.True(t, found)
	assert.Empty(t, s.Missing())
}

func TestSessionsListAllSensorsInPages(t *testing.T) {
	t.Parallel()
	var all []telemetry.Reading
	for i := range 2*sensorPage + 10 {
		all = append(all, reading(fmt.Sprintf("s-%05d", i), time.Duration(i)*time.Millisecond, 1))
	}
	r := newReader(t, fakeSource{readings: all})
	ctx, s, err := r.Begin(t.Context(), SessionConfig{})
	require.NoError(t, err)
	defer s.End()
	for limit, want := range map[int]int{0: len(all), 3: 3, sensorPage + 1: sensorPage + 1} {
		n := 0
		for one, err := range s.Find(ctx, telemetry.SensorQuery{Limit: limit}) {
			require.NoError(t, err)
			require.Equal(t, all[n].Sensor, one.ID)
			n++
		}
		assert.Equal(t, want, n)
	}
}

func TestSessionsApplyLimitsAndAccess(t *testing.T) {
	t.Parallel()
	r := newReader(t, fakeSource{readings: []telemetry.Reading{reading("a-1", 0, 1), reading("b-1", 0, 1)}, cost: 2 << 20},
		func(c *Config, _ *Stored) { c.MaxBytes, c.MaxQueries = 1<<20, 1 })
	guard, token := guardFor(t, "read", "a-")
	who, err := guard.Identify(access.Credentials{Secret: token})
	require.NoError(t, err)
	ctx, s, err := r.Begin(access.With(t.Context(), who), SessionConfig{})
	require.NoError(t, err)

	for one, err := range s.Find(ctx, telemetry.SensorQuery{}) {
		require.NoError(t, err)
		assert.True(t, strings.HasPrefix(one.ID, "a-"), one.ID)
	}
	for _, err := range s.Readings(ctx, telemetry.Query{Sensor: "b-1", To: maxTime}) {
		assert.Equal(t, telemetry.Forbidden, telemetry.KindOf(err))
	}
	for _, err := range s.Readings(ctx, telemetry.Query{Sensor: "a-1", To: maxTime}) {
		assert.ErrorContains(t, err, telemetry.CodeTooCostly)
	}
	_, _, err = r.Begin(t.Context(), SessionConfig{})
	require.ErrorContains(t, err, "queries_too_many")
	s.End()
	require.Error(t, ctx.Err())
	assert.Zero(t, r.slots.used())
	_, _, err = r.Begin(t.Context(), SessionConfig{Stream: "other"})
	assert.Equal(t, telemetry.NotFound, telemetry.KindOf(err))
}

// TestASessionThatAskedNothingDoesNotBlameMongoDB: it may have waited for a slot.
func TestASessionThatAskedNothingDoesNotBlameMongoDB(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newReader(t, fakeSource{asked: func(ctx context.Context) { <-ctx.Done() }})
		ctx, s, err := r.Begin(t.Context(), SessionConfig{})
		require.NoError(t, err)
		defer s.End()
		<-ctx.Done()
		require.ErrorContains(t, s.Explain(ctx), "the answer took longer than 30s")
		for _, err := range s.Readings(ctx, telemetry.Query{Sensor: "a", To: maxTime}) {
			require.ErrorContains(t, err, "MongoDB sent nothing within 30s")
		}
		require.ErrorContains(t, s.Explain(ctx), "MongoDB sent nothing within 30s")
	})
}
