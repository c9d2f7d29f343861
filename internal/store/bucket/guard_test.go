package bucket

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/store/storetest"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// Each test fails without one part of the guarded update.

func seconds(n int) []telemetry.Reading {
	readings := make([]telemetry.Reading, n)
	for i := range readings {
		readings[i] = storetest.Reading("a", time.Duration(i)*time.Second, float64(i))
	}
	return readings
}

// someRows returns a write of the given rows by a lane without earlier state.
func someRows(b *batch.Batch, from, to int) []*batch.Pending {
	writes := storetest.Pending(b, window)
	writes[0].Rows = writes[0].Rows[from:to]
	return writes
}

// TestGuardIsOnTheFirstReading repeats readings together with new ones, as when
// a batch is cut differently the second time.
func TestGuardIsOnTheFirstReading(t *testing.T) {
	t.Parallel()
	s := open(t, connect(t), Config{})
	readings := seconds(12)
	b := storetest.Batch(t, "s1", 1, readings...)
	storetest.WriteAll(t, s, someRows(b, 0, 7))
	storetest.WriteAll(t, s, someRows(b, 3, 12))
	assert.Equal(t, readings, storetest.ReadAll(t, s, "a"))
	assert.InDelta(t, 4, testutil.ToFloat64(s.Metrics.Duplicates), 0)
}

// TestDelayedUpdateCannotEnterAClosedPart: the update was stuck in a socket
// while its readings moved on to the next part.
func TestDelayedUpdateCannotEnterAClosedPart(t *testing.T) {
	t.Parallel()
	db := connect(t)
	s := open(t, db, Config{})
	readings := seconds(4)
	b := storetest.Batch(t, "s1", 1, readings...)
	storetest.WriteAll(t, s, someRows(b, 0, 2))
	delayed, ok := s.cut(someRows(b, 2, 4)[0], &part{})
	require.True(t, ok)
	model := model(delayed)

	moved := someRows(b, 2, 4)
	require.True(t, s.closePart(t.Context(), moved[0], partOf(moved[0])))
	storetest.WriteAll(t, s, moved)
	_, err := s.Majority.BulkWrite(t.Context(), []mongo.WriteModel{model})
	require.True(t, mongo.IsDuplicateKeyError(err), "%v", err)
	assert.Equal(t, readings, storetest.ReadAll(t, s, "a"))
	assert.Len(t, documents(t, db), 2)
}

// TestClosingAPartFindsADelayedUpdate that arrives just before the part is
// closed.
func TestClosingAPartFindsADelayedUpdate(t *testing.T) {
	t.Parallel()
	s := open(t, connect(t), Config{})
	readings := seconds(4)
	b := storetest.Batch(t, "s1", 1, readings...)
	storetest.WriteAll(t, s, someRows(b, 0, 2))
	storetest.WriteAll(t, s, someRows(b, 2, 4))
	again := someRows(b, 2, 4)
	require.True(t, s.closePart(t.Context(), again[0], partOf(again[0])))
	assert.Empty(t, again[0].Rows)
	assert.Equal(t, batch.Stored, again[0].Verdict)
	assert.Equal(t, readings, storetest.ReadAll(t, s, "a"))
}

// TestDatabaseEnforcesTheCap: two daemons fill a part without knowing of each
// other's readings.
func TestDatabaseEnforcesTheCap(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]Config{"readings": {MaxReadings: 7}, "bytes": {MaxBytes: 1 << 10}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := connect(t)
			one, other := open(t, db, cfg), open(t, db, cfg)
			readings := seconds(120)
			a := storetest.Pending(storetest.Batch(t, "s1", 1, readings[:60]...), window)[0]
			b := storetest.Pending(storetest.Batch(t, "s2", 1, readings[60:]...), window)[0]
			rowsA, rowsB := a.Rows, b.Rows
			a.Rows, b.Rows = nil, nil
			for at := 0; at < 60; at += 5 {
				a.Rows, b.Rows = append([]batch.Ref(nil), rowsA[at:at+5]...), append([]batch.Ref(nil), rowsB[at:at+5]...)
				storetest.WriteAll(t, one, []*batch.Pending{a})
				storetest.WriteAll(t, other, []*batch.Pending{b})
			}
			assert.ElementsMatch(t, readings, storetest.ReadAll(t, one, "a"))
			for i, d := range documents(t, db) {
				if cfg.MaxReadings > 0 {
					assert.LessOrEqual(t, d["count"], int32(cfg.MaxReadings), "part %d", i)
				} else {
					assert.LessOrEqual(t, d["bytes"], int32(cfg.MaxBytes), "part %d", i)
				}
			}
		})
	}
}

// TestLostRepliesInRandomOrder simulates a lane that loses replies, has updates
// delayed, and forgets its state, while a second daemon writes the same bucket.
func TestLostRepliesInRandomOrder(t *testing.T) {
	t.Parallel()
	s := open(t, connect(t), Config{MaxReadings: 7})
	const runs, readings = 12, 40
	for run := range runs {
		rnd := rand.New(rand.NewPCG(uint64(run), 1))
		sensor := fmt.Sprintf("sensor-%d", run)
		var want []telemetry.Reading
		var lanes []*batch.Pending
		for daemon := range 2 {
			var of []telemetry.Reading
			for i := range readings {
				of = append(of, storetest.Reading(sensor, time.Duration(i)*time.Second, float64(daemon*readings+i)))
			}
			want = append(want, of...)
			lanes = append(lanes, storetest.Pending(storetest.Batch(t, fmt.Sprintf("s%d", daemon), 1, of...), window)[0])
		}
		playLanes(t, s, lanes, rnd)
		assert.ElementsMatch(t, want, storetest.ReadAll(t, s, sensor), "seed %d", run)
	}
}

func playLanes(t *testing.T, s *Store, lanes []*batch.Pending, rnd *rand.Rand) {
	t.Helper()
	var network []mongo.WriteModel
	for step := 0; len(lanes[0].Rows)+len(lanes[1].Rows) > 0; step++ {
		require.Less(t, step, 5000, "the lanes do not finish")
		pending := lanes[rnd.IntN(2)]
		if len(pending.Rows) == 0 {
			continue
		}
		switch fate := rnd.Float64(); {
		case fate < 0.3: // the update is delayed for long, or its reply is lost
			some := *pending
			some.Rows = pending.Rows[:1+rnd.IntN(len(pending.Rows))]
			p := *partOf(pending)
			if op, ok := s.cut(&some, &p); ok {
				network = append(network, model(op))
			}
		case fate < 0.5 && len(network) > 0: // and finally arrives
			at := rnd.IntN(len(network))
			_, err := s.Majority.BulkWrite(t.Context(), network[at:at+1])
			require.True(t, err == nil || mongo.IsDuplicateKeyError(err), "%v", err)
		case fate < 0.6: // the daemon restarts
			pending.State, pending.Recovered = nil, true
		default:
			s.Write(t.Context(), []*batch.Pending{pending})
			require.NotEqual(t, batch.Poison, pending.Verdict)
		}
	}
	for _, late := range network {
		_, err := s.Majority.BulkWrite(t.Context(), []mongo.WriteModel{late})
		require.True(t, err == nil || mongo.IsDuplicateKeyError(err), "%v", err)
	}
}

// TestLookupGoesOnFromTheCurrentPart: after the sensor's deletion, another daemon created parts
// before this daemon's current one.
func TestLookupGoesOnFromTheCurrentPart(t *testing.T) {
	t.Parallel()
	at := func(number int32, count int64, full bool) stored {
		d := stored{Count: count, Full: full}
		d.ID.Part = number
		return d
	}
	for _, tt := range []struct {
		name  string
		parts []stored
		want  part
	}{
		{"it was closed by another daemon, and an earlier one is open", []stored{at(0, 9, true), at(1, 2, false), at(6, 9, true)}, part{number: 7}},
		{"the one behind it is open", []stored{at(1, 2, false), at(6, 9, true), at(7, 3, false)}, part{number: 7, count: 3}},
		{"it is open", []stored{at(1, 2, false), at(6, 4, false)}, part{number: 6, count: 4}},
		{"a lagging majority has only earlier ones", []stored{at(4, 9, true), at(5, 2, false)}, part{number: 6, count: 5}},
	} {
		pending := &batch.Pending{State: &part{number: 6, count: 5}}
		new(Store).learn(pending, tt.parts)
		got := *partOf(pending)
		got.tags = nil
		assert.Equal(t, tt.want, got, tt.name)
	}
}
