package bucket

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/brim-telemetry/brim/internal/mongod"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/internal/store/storetest"
)

// TestMongoDBRemovesWhatIsOlderThanTheRetention by its own clock, with a
// monitor that looks every second.
func TestMongoDBRemovesWhatIsOlderThanTheRetention(t *testing.T) {
	t.Parallel()
	server := mongodtest.Start(t, mongod.Config{Parameters: map[string]string{"ttlMonitorSleepSecs": "1"}})
	c, err := store.Connect(store.ConnectionConfig{URI: server.URI(), Database: "brim", Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close(context.Background())) })

	// The oldest readings that may stay are in the middle of a window.
	const window = time.Hour
	now := time.Now()
	retention := (2*window + now.Sub(now.Truncate(window)) - window/2).Truncate(time.Second)
	s := open(t, c.Database(), Config{Granularity: window, Retention: retention})
	put := func(sensor string, seq uint64, age time.Duration) {
		r := storetest.Reading(sensor, 0, float64(seq))
		r.Time = now.Add(-age).Truncate(time.Millisecond)
		storetest.WriteAll(t, s, storetest.Shares(storetest.Batch(t, "s1", seq, r), window))
	}
	there := func() (sensors []string) {
		for _, d := range documents(t, c.Database()) {
			sensors = append(sensors, d["sensorId"].(string))
		}
		return sensors
	}
	removed := func() bool {
		return !assert.ObjectsAreEqual([]string{"old"}, there()[:min(1, len(there()))]) && len(there()) == 3
	}
	put("edge", 1, retention+time.Minute) // in one bucket with
	put("edge", 2, retention-time.Minute) // this one, which may stay
	put("middle", 3, retention-window)    //
	put("young", 4, time.Minute)          //
	put("old", 5, retention+2*window)     // its whole window is too old
	require.Eventually(t, removed, time.Minute, 50*time.Millisecond)
	assert.Equal(t, []string{"edge", "middle", "young"}, there())
	docs := documents(t, c.Database())
	assert.EqualValues(t, 2, docs[0]["count"], "a bucket goes as a whole, with its youngest reading")

	// A reading whose bucket is gone with its guard is not known to have been
	// stored. What is sent again is stored again, and goes again.
	put("old", 5, retention+2*window)
	require.Eventually(t, removed, time.Minute, 50*time.Millisecond)

	// Inside the retention, a removed bucket is created again.
	_, err = s.Majority.DeleteMany(t.Context(), bson.D{{Key: "sensorId", Value: "middle"}})
	require.NoError(t, err)
	put("middle", 6, retention-window-time.Second)
	docs = documents(t, c.Database())
	require.Len(t, docs, 3)
	assert.EqualValues(t, 1, docs[1]["count"])
}
