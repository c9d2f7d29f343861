package bucket

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/internal/store/storetest"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// TestCopiesAreLikeWhatUpdatesWrite copies a part whose readings came in several updates.
func TestCopiesAreLikeWhatUpdatesWrite(t *testing.T) {
	t.Parallel()
	db := connect(t)
	s := open(t, db, Config{MaxReadingsPerUpdate: 2})
	reading := func(at time.Duration, fields ...telemetry.Field) telemetry.Reading {
		return telemetry.Reading{Sensor: "s-1", Time: storetest.Base.Add(at), Fields: fields}
	}
	field := func(name string, v telemetry.Value) telemetry.Field { return telemetry.Field{Name: name, Value: v} }
	b := storetest.Batch(t, "s1", 1,
		reading(10*time.Second, field("t", telemetry.FloatValue(23.5)), field("h", telemetry.IntValue(1<<60+1))),
		reading(5*time.Second, field("t", telemetry.IntValue(-3)), field("on", telemetry.BoolValue(true))),
		reading(7*time.Second, field("t", telemetry.FloatValue(0.25)), field("note", telemetry.TextValue("x")), field("h", telemetry.IntValue(1<<60))),
		reading(7*time.Second, field("t", telemetry.IntValue(24))),
		reading(9*time.Second, field("note", telemetry.TextValue("y"))),
	)
	storetest.WriteAll(t, s, storetest.Pending(b, window))
	n, err := s.CopyReadings(t.Context(), store.Origin{Collection: "former", Number: 2}, "s-1", s.Readings(t.Context(), telemetry.Query{Sensor: "s-1", To: math.MaxInt64}))
	require.NoError(t, err)
	require.EqualValues(t, 5, n)
	docs := documents(t, db)
	require.Len(t, docs, 2)
	made, raw := docs[0], docs[1]
	for _, key := range []string{"count", "bytes", "first", "last", "sensorId", "bucketStart"} {
		assert.EqualValues(t, raw[key], made[key], key)
	}
	want, have := raw["stats"].(bson.D), made["stats"].(bson.D) //nolint:forcetypeassert // otherwise the test fails
	require.Len(t, have, len(want))
	for _, of := range want {
		for _, other := range have {
			if of.Key == other.Key {
				assert.ElementsMatch(t, of.Value, other.Value, of.Key)
				have = slices.DeleteFunc(have, func(e bson.E) bool { return e.Key == of.Key })
				break
			}
		}
	}
	assert.Empty(t, have)
}
