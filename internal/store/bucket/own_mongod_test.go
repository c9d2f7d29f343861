package bucket

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/mongod"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/internal/store/storetest"
)

// TestWithOwnMongod: tests that need a server setting, or a fail point that affects all
// clients.
func TestWithOwnMongod(t *testing.T) {
	t.Parallel()
	server := mongodtest.Start(t, mongod.Config{Parameters: map[string]string{"ttlMonitorSleepSecs": "1"}})
	database := func() *mongo.Database {
		name := mongodtest.DatabaseAt(t, server.URI()).Name()
		c, err := store.Connect(store.ConnectionConfig{URI: server.URI(), Database: name, Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, c.Close(context.Background())) })
		return c.Database()
	}
	removedByRetention(t, database())
	notShownByMajority(t, database())
}

// removedByRetention uses the server's clock, and a monitor that runs every second.
func removedByRetention(t *testing.T, db *mongo.Database) {
	t.Helper()
	// The retention ends in the middle of a window.
	const window = time.Hour
	now := time.Now()
	retention := (2*window + now.Sub(now.Truncate(window)) - window/2).Truncate(time.Second)
	s := open(t, db, Config{Granularity: window, Retention: retention})
	put := func(sensor string, seq uint64, age time.Duration) {
		r := storetest.Reading(sensor, 0, float64(seq))
		r.Time = now.Add(-age).Truncate(time.Millisecond)
		storetest.WriteAll(t, s, storetest.Pending(storetest.Batch(t, "s1", seq, r), window))
	}
	there := func() (sensors []string) {
		for _, d := range documents(t, db) {
			sensors = append(sensors, d["sensorId"].(string))
		}
		return sensors
	}
	removed := func() bool {
		return !assert.ObjectsAreEqual([]string{"old"}, there()[:min(1, len(there()))]) && len(there()) == 3
	}
	put("edge", 1, retention+time.Minute) // shares a bucket
	put("edge", 2, retention-time.Minute) // with this one, which may stay
	put("middle", 3, retention-window)
	put("young", 4, time.Minute)
	put("old", 5, retention+2*window) // its whole window is too old
	require.Eventually(t, removed, time.Minute, 50*time.Millisecond)
	assert.Equal(t, []string{"edge", "middle", "young"}, there())
	docs := documents(t, db)
	assert.EqualValues(t, 2, docs[0]["count"], "a bucket is removed as a whole, after its newest reading expires")

	// Once a bucket is removed together with its guard, its readings are no longer known to
	// have been stored. If sent again, they are stored again, and removed again.
	put("old", 5, retention+2*window)
	require.Eventually(t, removed, time.Minute, 50*time.Millisecond)

	// Inside the retention, a removed bucket is created again.
	_, err := s.Majority.DeleteMany(t.Context(), bson.D{{Key: "sensorId", Value: "middle"}})
	require.NoError(t, err)
	put("middle", 6, retention-window-time.Second)
	docs = documents(t, db)
	require.Len(t, docs, 3)
	assert.EqualValues(t, 1, docs[1]["count"])
}

// notShownByMajority: with w:1 a reading may be on the primary, its outcome unknown, and
// not yet visible to a majority read. It is sent again, refused by the guard, and kept
// until the lookup shows it.
func notShownByMajority(t *testing.T, db *mongo.Database) {
	t.Helper()
	s := open(t, db, Config{WriteConcern: store.WriteConcern{Members: 1}})
	lag := func(mode string) {
		require.NoError(t, db.Client().Database("admin").RunCommand(t.Context(),
			bson.D{{Key: "configureFailPoint", Value: "disableSnapshotting"}, {Key: "mode", Value: mode}}).Err())
	}
	writes := func() []*batch.Pending {
		return storetest.Pending(storetest.Batch(t, "s1", 1, storetest.Reading("a", 0, 1), storetest.Reading("a", time.Second, 2)), 5*time.Minute)
	}
	lag("alwaysOn")
	storetest.WriteAll(t, s, writes())
	storetest.Answers(t, s, "a", storetest.Reading("a", 0, 1), storetest.Reading("a", time.Second, 2))
	again := writes() // as after a lost reply
	for range 3 {
		s.Write(t.Context(), again)
		require.Equal(t, batch.Wait, again[0].Verdict)
		require.ErrorIs(t, again[0].Err, errConflict)
		require.Len(t, again[0].Rows, 2, "nothing is known to be stored")
	}
	lag("off")
	_, err := db.Client().Database("other").Collection("c").InsertOne(t.Context(), bson.D{}) // otherwise the majority snapshot does not advance for 10 s
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		s.Write(t.Context(), again)
		return again[0].Verdict == batch.Stored
	}, time.Minute, 10*time.Millisecond)
	docs := documents(t, db)
	require.Len(t, docs, 1)
	assert.EqualValues(t, 2, docs[0]["count"])
	assert.Len(t, docs[0]["measurements"], 2)
}
