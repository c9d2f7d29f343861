package shape

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/load"
	"github.com/brim-telemetry/brim/internal/store/memory"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

var base = time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)

func sensors(t *testing.T, count int) *load.Sensors {
	t.Helper()
	s, err := load.NewSensors(load.SensorsConfig{Count: count, Seed: 1, Prefix: "s-"})
	require.NoError(t, err)
	return s
}

// readingsOf returns readings of count sensors, every 5 s.
func readingsOf(t *testing.T, count int) Readings {
	t.Helper()
	return Readings{Source: sensors(t, count), Sensors: count, Begin: base, Interval: 5 * time.Second}
}

// laneOf returns a lane writing 5-minute buckets into a store.
func laneOf(t *testing.T, store shareStore, count int) *lane {
	t.Helper()
	return newLane(store, "readings", 5*time.Minute, readingsOf(t, count))
}

// A recorder is a store that accepts everything and records it.
type recorder struct {
	writes [][]taken
	answer func(write int, shares []*batch.Pending) // nil: all is stored
}

// taken is a share as received.
type taken struct {
	sensor   string
	start    time.Time
	state    any
	seqs     []uint64
	requests int // distinct batches among the rows
}

func (r *recorder) Write(_ context.Context, shares []*batch.Pending) {
	var all []taken
	for _, s := range shares {
		x := taken{sensor: s.Sensor, start: time.UnixMilli(s.Start).UTC(), state: s.State}
		requests := make(map[*batch.Batch]bool)
		for _, row := range s.Rows {
			x.seqs = append(x.seqs, row.Seq())
			requests[row.Batch] = true
		}
		x.requests = len(requests)
		all = append(all, x)
	}
	r.writes = append(r.writes, all)
	if r.answer != nil {
		r.answer(len(r.writes), shares)
		return
	}
	for _, s := range shares {
		s.State = fmt.Sprint(s.Sensor, " after write ", len(r.writes))
		s.Verdict = batch.Stored
		s.Drop(len(s.Rows))
	}
}

func TestReadingsAreThoseOfTheSource(t *testing.T) {
	t.Parallel()
	st, err := memory.New(memory.Config{Stream: "readings", Granularity: 5 * time.Minute, Registerer: prometheus.NewRegistry()})
	require.NoError(t, err)
	c := readingsOf(t, 3)
	l := laneOf(t, st, 3)
	for _, portions := range [][]Portion{{{0, 0, 1}, {2, 0, 70}}, {{0, 1, 69}}, {{1, 5, 3}, {0, 70, 2}}} {
		require.NoError(t, bench.Try(func() { l.Write(t.Context(), portions) }))
	}
	for sensor, span := range map[int][2]uint64{0: {0, 72}, 1: {5, 8}, 2: {0, 70}} {
		k := span[0]
		for got, err := range st.Readings(t.Context(), telemetry.Query{Sensor: c.Source.ID(sensor), From: base.UnixMilli(), To: base.Add(time.Hour).UnixMilli()}) {
			require.NoError(t, err)
			at := base.Add(time.Duration(k) * c.Interval) //nolint:gosec // small
			assert.True(t, at.Equal(got.Time), "%d of %d", k, sensor)
			assert.Equal(t, c.Source.AppendFields(nil, sensor, k, at), got.Fields)
			assert.ElementsMatch(t, c.Source.Tags(sensor), got.Tags)
			k++
		}
		assert.Equal(t, span[1], k, "all of sensor %d", sensor)
	}
}

func TestEachReadingOfAnUpdateComesFromItsOwnRequest(t *testing.T) {
	t.Parallel()
	r := &recorder{}
	updates := laneOf(t, r, 3).Write(t.Context(), []Portion{{0, 0, 3}, {1, 0, 1}, {2, 0, 2}})
	assert.Equal(t, 3, updates)
	require.Len(t, r.writes, 1)
	assert.Equal(t, []taken{
		{"s-1", base, nil, []uint64{1, 4, 6}, 3},
		{"s-2", base, nil, []uint64{2}, 1},
		{"s-3", base, nil, []uint64{3, 5}, 2},
	}, r.writes[0], "each request has the next reading of all that have one")
}

func TestBucketHasOneUpdateInFlight(t *testing.T) {
	t.Parallel()
	r := &recorder{}
	updates := laneOf(t, r, 2).Write(t.Context(), []Portion{{0, 0, 2}, {1, 0, 1}, {0, 2, 2}, {1, 1, 1}})
	assert.Equal(t, 4, updates)
	require.Len(t, r.writes, 2)
	assert.Equal(t, []uint64{1, 3}, r.writes[0][0].seqs)
	assert.Equal(t, []uint64{4, 6}, r.writes[1][0].seqs)
}

func TestStateOfABucketIsHandedBack(t *testing.T) {
	t.Parallel()
	r := &recorder{}
	l := laneOf(t, r, 1)
	for _, p := range []Portion{{0, 58, 1}, {0, 59, 2}, {0, 61, 1}} { // a window has 60
		l.Write(t.Context(), []Portion{p})
	}
	require.Len(t, r.writes, 3)
	require.Len(t, r.writes[1], 2, "a portion across a boundary has two windows")
	assert.Equal(t, "s-1 after write 1", r.writes[1][0].state)
	assert.Nil(t, r.writes[1][1].state)
	assert.Equal(t, base.Add(5*time.Minute), r.writes[1][1].start)
	assert.Equal(t, "s-1 after write 2", r.writes[2][0].state)
}

func TestWritesAreSplitIntoCommands(t *testing.T) {
	t.Parallel()
	const count = 2*mostShares + 1
	r := &recorder{}
	portions := make([]Portion, count)
	for i := range portions {
		portions[i] = Portion{Sensor: i, Count: 1}
	}
	portions[count-1].Count = mostRows + 1
	updates := laneOf(t, r, count).Write(t.Context(), portions)
	require.Len(t, r.writes, 3)
	assert.Len(t, r.writes[0], mostShares)
	windows := (mostRows + 1 + 59) / 60
	assert.Equal(t, 2*mostShares+windows, updates)
	assert.Len(t, r.writes[2], windows)
	assert.Equal(t, []int{mostShares, mostShares, 333, 1}, []int{PerCommand(1), PerCommand(20), PerCommand(60), PerCommand(mostRows + 1)})
}

func TestUnstoredReadingsAreWrittenAgain(t *testing.T) {
	t.Parallel()
	r := &recorder{answer: func(_ int, shares []*batch.Pending) {
		for _, s := range shares {
			s.Drop(1)
			s.Verdict = batch.Again
		}
	}}
	updates := laneOf(t, r, 2).Write(t.Context(), []Portion{{0, 0, 3}, {1, 0, 1}})
	assert.Equal(t, 4, updates)
	require.Len(t, r.writes, 3)
	assert.Equal(t, []uint64{4}, r.writes[2][0].seqs)
}

func TestWriteFailsWhenTheStoreRefuses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		refused := errors.New("no primary")
		r := &recorder{answer: func(_ int, shares []*batch.Pending) { shares[0].Verdict, shares[0].Err = batch.Wait, refused }}
		err := bench.Try(func() { laneOf(t, r, 1).Write(t.Context(), []Portion{{0, 0, 1}}) })
		require.ErrorIs(t, err, errStuck)
		require.ErrorIs(t, err, refused)
		assert.Len(t, r.writes, mostWaits+1)

		poison := &recorder{answer: func(_ int, shares []*batch.Pending) { shares[0].Verdict, shares[0].Err = batch.Poison, refused }}
		err = bench.Try(func() { laneOf(t, poison, 1).Write(t.Context(), []Portion{{0, 0, 1}}) })
		require.ErrorIs(t, err, refused)
		assert.Len(t, poison.writes, 1)
	})
}

func TestWriteEndsOnCancellation(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	r := &recorder{answer: func(write int, shares []*batch.Pending) {
		if shares[0].Verdict = batch.Wait; write == 2 {
			cancel()
		}
	}}
	err := bench.Try(func() { laneOf(t, r, 1).Write(ctx, []Portion{{0, 0, 1}}) })
	require.ErrorIs(t, err, context.Canceled)
	assert.Len(t, r.writes, 2)
}
