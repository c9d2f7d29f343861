package storetest

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// acknowledger stands in for a journal: readings are acknowledged, then written,
// then released.
type acknowledger struct {
	mu       sync.Mutex
	acked    int // readings, marked 1 to acked
	unstored []telemetry.Unstored
}

func (a *acknowledger) gather() (acked int, unstored []telemetry.Unstored) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.acked, append(unstored, a.unstored...)
}

// seenOnce reads while another writes: what was acknowledged when the reader
// gathered what is unstored is in its answer, and nothing is in it twice.
func seenOnce(t *testing.T, s Store) {
	const rounds, perRound = 60, 4
	session := batch.NewSession()
	var a acknowledger
	var group sync.WaitGroup
	group.Go(func() {
		for round := range rounds {
			var readings []telemetry.Reading
			for i := range perRound {
				mark := round*perRound + i + 1
				readings = append(readings, Reading("a", time.Duration(mark)*time.Second, float64(mark)))
			}
			b := Batch(t, session, uint64(round*perRound+1), readings...)
			a.mu.Lock()
			for i, r := range readings {
				a.unstored = append(a.unstored, telemetry.Unstored{Session: session, Sequence: b.FirstSeq + uint64(i), Granularity: 5 * time.Minute, Reading: r})
			}
			a.acked += perRound
			a.mu.Unlock()
			if round == rounds-1 {
				return // the last ones are never stored
			}
			WriteAll(t, s, Shares(b, 5*time.Minute))
			a.mu.Lock()
			a.unstored = a.unstored[perRound:]
			a.mu.Unlock()
		}
	})
	q := telemetry.Query{Sensor: "a", To: math.MaxInt64 / 2}
	for last := false; ; {
		acked, unstored := a.gather()
		q.Unstored = unstored
		times := make(map[float64]int)
		for _, r := range collect(t, s.Readings(t.Context(), q)) {
			times[r.Fields[0].Value.Float()]++
		}
		for mark, n := range times {
			require.Equal(t, 1, n, "reading %v", mark)
		}
		for mark := 1; mark <= acked; mark++ {
			require.Contains(t, times, float64(mark))
		}
		sums := collect(t, s.Summary(t.Context(), telemetry.SummaryQuery{Query: q}))
		if acked > 0 {
			require.Len(t, sums, 1)
			require.GreaterOrEqual(t, sums[0].Count, int64(acked))
			require.LessOrEqual(t, sums[0].Count, int64(rounds*perRound))
			r, found, err := s.Latest(t.Context(), "a", unstored)
			require.NoError(t, err)
			require.True(t, found)
			require.GreaterOrEqual(t, r.Fields[0].Value.Float(), float64(acked))
		}
		if last {
			break
		}
		last = acked == rounds*perRound
	}
	group.Wait()
}

func sensorsInOrder(t *testing.T, s Store) {
	ids := []string{
		" ", "!", "S", "a", "a ", "a!", "a\u007e", "a\ud7a3", "a\uf900", "a\U0001f600", "a\U0001f600b", "aa", "b", "\u00e9", "\uf900", "\U0001f600", "\U0001f600z", strings.Repeat("x", telemetry.MaxSensorBytes),
	}
	want := make(map[string]int64)
	var readings []telemetry.Reading
	for i, id := range ids {
		for j := range 3 {
			readings = append(readings, Reading(id, time.Duration(i)*time.Second+time.Duration(j-1)*time.Hour, 1))
		}
		want[id] = Base.Add(time.Duration(i)*time.Second + time.Hour).UnixMilli()
	}
	write(t, s, readings...)
	all := collect(t, s.Sensors(t.Context(), telemetry.SensorQuery{}))
	require.Len(t, all, len(ids))
	for i, seen := range all {
		if i > 0 {
			assert.Less(t, all[i-1].Sensor, seen.Sensor)
		}
		assert.Equal(t, want[seen.Sensor], seen.Newest, "%q", seen.Sensor)
	}
	for _, prefix := range append(ids, "a\u007e", "a\ud7a4", "zz", "x") {
		var some []telemetry.SensorSeen
		for _, seen := range all {
			if strings.HasPrefix(seen.Sensor, prefix) {
				some = append(some, seen)
			}
		}
		assert.Equal(t, some, collect(t, s.Sensors(t.Context(), telemetry.SensorQuery{Prefix: prefix})), "prefix %q", prefix)
	}
	for i, after := range all {
		got := collect(t, s.Sensors(t.Context(), telemetry.SensorQuery{After: after.Sensor, Limit: 2}))
		assert.Equal(t, append([]telemetry.SensorSeen(nil), all[i+1:min(i+3, len(all))]...), got, "after %q", after.Sensor)
	}
}

// latestOfAll writes into a window of an hour, and then into a shorter one that
// begins later and holds older readings.
func latestOfAll(t *testing.T, s Store) {
	session := batch.NewSession()
	WriteAll(t, s, Shares(Batch(t, session, 1, Reading("a", 50*time.Minute, 1), Reading("a", 2*time.Minute, 2)), time.Hour))
	WriteAll(t, s, Shares(Batch(t, session, 3, Reading("a", 40*time.Minute, 3), Reading("a", 5*time.Minute, 4)), time.Minute))
	r, found, err := s.Latest(t.Context(), "a", nil)
	require.NoError(t, err)
	require.True(t, found)
	assert.Equal(t, Reading("a", 50*time.Minute, 1), r)
	seen := collect(t, s.Sensors(t.Context(), telemetry.SensorQuery{}))
	assert.Equal(t, []telemetry.SensorSeen{{Sensor: "a", Newest: r.Time.UnixMilli()}}, seen)

	late := []telemetry.Unstored{
		{Session: session, Sequence: 5, Granularity: time.Minute, Reading: Reading("a", 50*time.Minute, 5)},
		{Session: session, Sequence: 6, Granularity: time.Minute, Reading: Reading("a", 49*time.Minute, 6)},
	}
	r, found, err = s.Latest(t.Context(), "a", late)
	require.NoError(t, err)
	require.True(t, found)
	assert.Equal(t, late[0].Reading, r, "of one time, what is not stored came last")
}

func deleted(t *testing.T, s Store) {
	ids := []string{"s", "s ", "s!", "s1", "S", "r\U0001f600"}
	var readings []telemetry.Reading
	for _, id := range ids {
		for i := range 7 {
			readings = append(readings, Reading(id, time.Duration(i)*7*time.Minute, float64(i)))
		}
	}
	write(t, s, readings...)
	n, err := s.Delete(t.Context(), "s")
	require.NoError(t, err)
	assert.EqualValues(t, 7, n)
	assert.Empty(t, ReadAll(t, s, "s"))
	for _, id := range ids[1:] {
		assert.Len(t, ReadAll(t, s, id), 7, "%q", id)
	}
	assert.Len(t, collect(t, s.Sensors(t.Context(), telemetry.SensorQuery{})), len(ids)-1)
	n, err = s.Delete(t.Context(), "s")
	require.NoError(t, err)
	assert.Zero(t, n)
	write(t, s, Reading("s", time.Second, 1))
	assert.Len(t, ReadAll(t, s, "s"), 1, "what comes afterwards is kept")
}

// exactIntegers has integers that are one double.
func exactIntegers(t *testing.T, s Store) {
	const large = 1 << 53
	var readings []telemetry.Reading
	for i, v := range []int64{large + 1, large, large + 2, math.MaxInt64, math.MaxInt64 - 1, math.MinInt64 + 1, math.MinInt64} {
		r := Reading("a", time.Duration(i)*time.Minute, 0)
		r.Fields = []telemetry.Field{{Name: "v", Value: telemetry.IntValue(v)}}
		readings = append(readings, r)
	}
	write(t, s, readings...)
	got := collect(t, s.Summary(t.Context(), telemetry.SummaryQuery{
		Query: telemetry.Query{Sensor: "a", To: Base.Add(time.Hour).UnixMilli()}, Every: 180_000,
	}))
	require.Len(t, got, 3)
	for i, want := range []telemetry.FieldSummary{
		{Name: "v", N: 3, Min: telemetry.IntValue(large), Max: telemetry.IntValue(large + 2), Sum: 3 * large},
		{Name: "v", N: 3, Min: telemetry.IntValue(math.MinInt64 + 1), Max: telemetry.IntValue(math.MaxInt64), Sum: 1 << 63},
		{Name: "v", N: 1, Min: telemetry.IntValue(math.MinInt64), Max: telemetry.IntValue(math.MinInt64), Sum: -1 << 63},
	} {
		require.Len(t, got[i].Fields, 1)
		assert.InEpsilon(t, want.Sum, got[i].Fields[0].Sum, 1e-15, "a sum is a double")
		want.Sum = got[i].Fields[0].Sum
		assert.Equal(t, want, got[i].Fields[0])
	}
}

func endedByContext(t *testing.T, s Store) {
	for i := range 20 {
		write(t, s, Reading("a", time.Duration(i)*10*time.Minute, 1))
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	q := telemetry.Query{Sensor: "a", To: math.MaxInt64 / 2}
	_, err := last(s.Readings(ended, q))
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, `"a"`)
	_, err = last(s.Summary(ended, telemetry.SummaryQuery{Query: q}))
	require.ErrorIs(t, err, context.Canceled)
	_, err = last(s.Sensors(ended, telemetry.SensorQuery{}))
	require.ErrorIs(t, err, context.Canceled)

	midway, cancel := context.WithCancel(t.Context())
	defer cancel()
	n := 0
	for _, err := range s.Readings(midway, q) {
		if cancel(); err != nil {
			require.ErrorIs(t, err, context.Canceled)
			break
		}
		n++
	}
	assert.LessOrEqual(t, n, 20)
}

func last[T any](seq func(func(T, error) bool)) (out T, err error) {
	for v, e := range seq {
		if e != nil {
			return out, e
		}
		out = v
	}
	return out, nil
}

func nothingThere(t *testing.T, s Store) {
	q := telemetry.Query{Sensor: "none", To: math.MaxInt64 / 2}
	assert.Empty(t, collect(t, s.Readings(t.Context(), q)))
	assert.Empty(t, collect(t, s.Summary(t.Context(), telemetry.SummaryQuery{Query: q, Every: 1000})))
	assert.Empty(t, collect(t, s.Sensors(t.Context(), telemetry.SensorQuery{})))
	_, found, err := s.Latest(t.Context(), "none", nil)
	require.NoError(t, err)
	assert.False(t, found)
	// What is acknowledged is there before anything is stored.
	for i := range 3 {
		q.Unstored = append(q.Unstored, telemetry.Unstored{
			Session: "s1", Sequence: uint64(i + 1), Granularity: 5 * time.Minute, Reading: Reading("none", time.Duration(2-i)*time.Hour, float64(i)),
		})
	}
	got := collect(t, s.Readings(t.Context(), q))
	require.Len(t, got, 3)
	for i, r := range got {
		assert.Equal(t, Reading("none", time.Duration(i)*time.Hour, float64(2-i)), r, fmt.Sprint(i))
	}
	r, found, err := s.Latest(t.Context(), "none", q.Unstored)
	require.NoError(t, err)
	assert.True(t, found)
	assert.Equal(t, q.Unstored[0].Reading, r)
}

// farSpans asks for spans that end, or begin, where a database may count seconds
// in 32 bits, and beyond.
func farSpans(t *testing.T, s Store) {
	r := Reading("a", 0, 1)
	write(t, s, r)
	at, second := Base.UnixMilli(), time.Second.Milliseconds()
	early := []int64{-1 << 53, -(1<<32 + 1) * second, -(1 << 31) * second, -1, 0}
	late := []int64{1 << 31 * second, 1<<32*second - 1, 1 << 32 * second, (1<<32 + 1) * second, (1<<32 + at/second) * second, 253402300800000, 1 << 53, math.MaxInt64}
	for _, from := range append(early, at) {
		for _, to := range append(late, at+1) {
			q := telemetry.Query{Sensor: "a", From: from, To: to}
			assert.Equal(t, []telemetry.Reading{r}, collect(t, s.Readings(t.Context(), q)), "readings from %d to %d", from, to)
			sums := collect(t, s.Summary(t.Context(), telemetry.SummaryQuery{Query: q}))
			if assert.Len(t, sums, 1, "summary from %d to %d", from, to) {
				assert.EqualValues(t, 1, sums[0].Count)
			}
		}
		assert.Empty(t, collect(t, s.Readings(t.Context(), telemetry.Query{Sensor: "a", From: from, To: at})))
	}
	for _, from := range late[:len(late)-1] {
		assert.Empty(t, collect(t, s.Readings(t.Context(), telemetry.Query{Sensor: "a", From: from, To: math.MaxInt64})), "from %d", from)
	}
}
