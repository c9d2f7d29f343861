package bucket

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/store/storetest"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// TestHangingWriteIsFound: an open transaction locks some documents of a command. Only
// those are given up, and are stored once when the lock is released.
func TestHangingWriteIsFound(t *testing.T) {
	t.Parallel()
	for name, locked := range map[string][]int{"one": {0}, "several": {3, 20, 41, 59}, "most": inARow(10, 40)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := connect(t)
			s := open(t, db, Config{})
			const sensors = 60
			readings := func(value float64) []telemetry.Reading {
				var out []telemetry.Reading
				for i := range sensors {
					out = append(out, storetest.Reading(fmt.Sprintf("s-%02d", i), time.Duration(value)*time.Second, value))
				}
				return out
			}
			storetest.WriteAll(t, s, storetest.Pending(storetest.Batch(t, "s1", 1, readings(0)...), window))
			var names bson.A
			for _, i := range locked {
				names = append(names, fmt.Sprintf("s-%02d", i))
			}
			ctx := context.Background()
			session, err := db.Client().StartSession()
			require.NoError(t, err)
			defer session.EndSession(ctx)
			require.NoError(t, session.StartTransaction())
			_, err = db.Collection(storetest.Stream).UpdateMany(mongo.NewSessionContext(ctx, session),
				bson.D{{Key: "sensorId", Value: bson.D{{Key: "$in", Value: names}}}}, bson.D{{Key: "$set", Value: bson.D{{Key: "note", Value: 1}}}})
			require.NoError(t, err)

			writes := storetest.Pending(storetest.Batch(t, "s1", sensors+1, readings(1)...), window)
			began := time.Now()
			s.Write(t.Context(), writes)
			if len(locked) > divideWorkers {
				assert.Less(t, time.Since(began), time.Duration(len(locked))*minPatience, "they are waited for concurrently")
			}
			hang := 0
			var others []*batch.Pending
			for _, pending := range writes {
				switch {
				case pending.Verdict == batch.Hangs:
					hang++
					assert.Contains(t, names, pending.Sensor)
					assert.ErrorIs(t, pending.Err, errHangs)
				case len(pending.Rows) == 0:
					assert.NotContains(t, names, pending.Sensor)
				case slices.Contains(names, any(pending.Sensor)): // there was not enough time for all
					assert.ErrorIs(t, pending.Err, errNotTried)
				default:
					others = append(others, pending)
				}
			}
			storetest.WriteAll(t, s, others) // while the lock is held
			assert.GreaterOrEqual(t, hang, min(len(locked), divideWorkers))
			require.NoError(t, session.AbortTransaction(ctx))
			storetest.WriteAll(t, s, writes)
			for i := range sensors {
				sensor := fmt.Sprintf("s-%02d", i)
				assert.Len(t, storetest.ReadAll(t, s, sensor), 2, sensor)
			}
		})
	}
}

// inARow returns n consecutive numbers.
func inARow(from, n int) (row []int) {
	for i := range n {
		row = append(row, from+i)
	}
	return row
}

// TestPatienceFollowsASlowMongoDB: all commands take longer than the initial timeout,
// which soon adapts.
func TestPatienceFollowsASlowMongoDB(t *testing.T) {
	t.Parallel()
	s := unconnected(Settings{})
	one := []operation{{pending: &batch.Pending{}}}
	assert.Equal(t, minPatience, s.patience(one))
	s.answered(3 * time.Second)
	assert.Equal(t, 12*time.Second, s.patience(one), "longer than a write may take at all")
	for range 100 {
		s.answered(time.Millisecond)
	}
	assert.Equal(t, minPatience, s.patience(one), "that is over")
	one[0].pending.Hung = 2
	assert.Equal(t, 4*minPatience, s.patience(one), "a bucket that hung is given more time, for it may only be slow")
	one[0].pending.Hung = 50
	assert.Equal(t, maxPatience, s.patience(one))
}
