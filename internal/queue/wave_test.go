package queue

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// at makes a batch with one reading of each sensor, each with its own time.
func at(when func(sensor int) time.Time, sensors []string) *batch.Batch {
	b := known.Builder(time.Now())
	for i, sensor := range sensors {
		b.Begin(stream, i, telemetry.TimeRange{Newest: math.MaxInt64})
		b.Sensor([]byte(sensor))
		b.Time(when(i).UnixMilli())
		b.Int([]byte("v"), int64(i))
		if refusal := b.End(); refusal != nil {
			panic(refusal)
		}
	}
	return b.Batch()
}

// However a thousand sensors send, their updates are spread evenly and are in time.
func TestUpdatesComeInNoWave(t *testing.T) {
	t.Parallel()
	const (
		sensors = 1000
		most    = time.Minute
		runs    = 4 * time.Minute
	)
	all := names(sensors)
	steady := func(sensor int) time.Time { return time.Now().Add(-time.Duration(sensor) * time.Millisecond) }
	// evenly sends a hundredth of the readings every 50 ms.
	evenly := func(when func(sensor int) time.Time, more func(q *line)) func(q *line) {
		return func(q *line) {
			for i := range 100 {
				group := all[i*sensors/100:][:sensors/100]
				q.add(at(when, group), nil)
				more(q)
				pass(50 * time.Millisecond)
			}
		}
	}
	nothing := func(*line) {}
	for name, cycle := range map[string]func(q *line){
		"evenly": evenly(steady, nothing),
		"one sensor sends 1,000 a second": evenly(steady, func(q *line) {
			q.add(at(steady, slices.Repeat([]string{"fast"}, 50)), nil)
		}),
		"at the same millisecond": func(q *line) {
			now := time.Now()
			q.add(at(func(int) time.Time { return now }, all), nil)
			pass(20 * time.Second)
		},
		"with clocks that are hours off": evenly(func(sensor int) time.Time {
			return time.Now().Add(time.Duration(sensor%10-5) * 47 * time.Minute)
		}, nothing),
		// Each late reading is alone in its window.
		"late": evenly(func(sensor int) time.Time {
			tick := time.Now().UnixMilli() / 50
			if (tick+int64(sensor))%20 > 0 {
				return time.Now()
			}
			return time.Now().Add(-time.Duration(tick%288) * 5 * time.Minute)
		}, nothing),
	} {
		for _, budget := range []float64{-1, 0.002} {
			t.Run(fmt.Sprint(name, ", budget ", budget), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					store := newFakeStore(t)
					w := watch(store)
					q := start(t, store, withPolicy(Policy{Budget: budget, Max: most}))
					for began := time.Now(); time.Since(began) < runs; {
						cycle(q)
						require.Zero(t, q.Status().PastDue)
					}
					t.Logf("%d updates, at most %d in a second, %v waited at most", len(w.rows), w.most(), w.waited)
					assert.LessOrEqual(t, w.most(), sensors/6, "updates in a second")
					assert.LessOrEqual(t, w.waited, most+time.Second)
					q.Close(cancelled())
				})
			})
		}
	}
}

// So many buckets become due that one write cannot carry those of an interval.
func TestVeryManyUpdatesAreInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore(t)
		w := watch(store)
		const sensors = 30 * maxFlushBuckets
		q := start(t, store, withPolicy(Policy{Budget: -1, Max: time.Minute}))
		all := names(sensors)
		for i := range 30 {
			q.add(mixed(i, all[i*sensors/30:][:sensors/30]...), nil)
		}
		pass(65 * time.Second)
		assert.Equal(t, sensors, store.count())
		assert.LessOrEqual(t, w.waited, 61*time.Second)
		assert.LessOrEqual(t, w.most(), sensors/10, "updates in a second")
		q.Close(cancelled())
	})
}

// Readings are still merged if the journal stays nearly full because a bucket in it cannot
// be written.
func TestAJournalThatStaysShortStillMerges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore(t)
		w := watch(store)
		q := start(t, store, withPolicy(Policy{Budget: -1}))
		q.short = true
		for i := range 600 {
			q.add(mixed(i, "a", "b"), nil)
			pass(50 * time.Millisecond)
		}
		assert.LessOrEqual(t, w.most(), 4, "updates in a second, of two buckets")
		assert.LessOrEqual(t, w.waited, 1100*time.Millisecond)
		q.Close(cancelled())
	})
}
