package bucket

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/brim-telemetry/brim/internal/store/storetest"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// TestStatisticsEqualThoseOfUpdates computes statistics and bytes of a part's
// readings a second time, out of its document.
func TestStatisticsEqualThoseOfUpdates(t *testing.T) {
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
	raw, err := db.Collection(storetest.Stream).FindOne(t.Context(), bson.D{}).Raw()
	require.NoError(t, err)
	measurements, err := raw.Lookup("measurements").Array().Values()
	require.NoError(t, err)
	require.Len(t, measurements, 5)

	var stats Statistics
	weight := int64(0)
	for _, m := range measurements {
		require.NoError(t, stats.Add(m.Document()))
		weight += ReadingSize(m.Document())
	}
	assert.Equal(t, raw.Lookup("bytes").AsInt64(), weight)
	made := bson.Raw(end(stats.Append([]byte{0, 0, 0, 0}), 0))
	for _, key := range []string{"first", "last"} {
		assert.Equal(t, raw.Lookup(key), made.Lookup(key), key)
	}
	var want, have bson.M
	require.NoError(t, bson.Unmarshal(raw.Lookup("stats").Document(), &want))
	require.NoError(t, bson.Unmarshal(made.Lookup("stats").Document(), &have))
	for name, of := range want {
		assert.ElementsMatch(t, of, have[name], name)
	}
	assert.Len(t, have, len(want))
}

func TestStatisticsNeedATime(t *testing.T) {
	t.Parallel()
	document, err := bson.Marshal(bson.D{{Key: "t", Value: 1.5}})
	require.NoError(t, err)
	var stats Statistics
	assert.ErrorContains(t, stats.Add(document), "has no ts")
}
