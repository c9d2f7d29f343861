package timeseries

import (
	"bytes"
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/brim-telemetry/brim/internal/mongod"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/internal/store/storetest"
)

// removesAfter returns the collection's expiry in seconds.
func removesAfter(t *testing.T, db *mongo.Database) int64 {
	t.Helper()
	info, err := store.Collection{Database: db, Name: storetest.Stream}.Lookup(t.Context())
	require.NoError(t, err)
	return number(info.Options, "expireAfterSeconds")
}

func TestRetentionOfALiveTimeSeriesFollows(t *testing.T) {
	t.Parallel()
	db := connect(t)
	s := open(t, db, Config{Retention: time.Hour})
	require.EqualValues(t, 3600, removesAfter(t, db))
	for _, retention := range []time.Duration{2 * time.Hour, time.Minute, 0, 24 * time.Hour} {
		s.Change(Settings{Retention: retention})
		require.NoError(t, s.Prepare(t.Context()))
		assert.EqualValues(t, retention.Seconds(), removesAfter(t, db))
	}
	open(t, db, Config{Retention: 5 * time.Hour})
	assert.EqualValues(t, 5*3600, removesAfter(t, db), "by a start, too")
}

// TestGranularityMayChange: before 6.3 the server chooses its bucket spans, and
// the granularity only determines how Brim groups readings.
func TestGranularityMayChange(t *testing.T) {
	t.Parallel()
	db := connect(t)
	minutes := open(t, db, Config{Granularity: 5 * time.Minute})
	storetest.WriteAll(t, minutes, storetest.Pending(storetest.Batch(t, "s1", 1, storetest.Reading("a", 0, 1)), 5*time.Minute))
	for _, granularity := range []time.Duration{time.Hour, time.Minute} {
		s := open(t, db, Config{Granularity: granularity})
		assert.Len(t, storetest.ReadAll(t, s, "a"), 1)
	}
}

// TestSpanIsWidenedAndNeverNarrowed needs no server, since bucket spans cannot
// be set on all of them.
func TestSpanIsWidenedAndNeverNarrowed(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		span, rounding int64
		told           string
	}{
		"as it is":         {300, 300, ""},
		"wider":            {3600, 3600, "keeps the span"},
		"the server's own": {3600, 0, "keeps the span"},
	} {
		var log bytes.Buffer
		s := build(t, connect(t), Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		have, err := bson.Marshal(bson.D{{Key: "timeseries", Value: bson.D{{Key: "bucketMaxSpanSeconds", Value: tt.span}, {Key: "bucketRoundingSeconds", Value: tt.rounding}}}})
		require.NoError(t, err)
		require.NoError(t, s.span(t.Context(), have, true), name)
		assert.Contains(t, log.String(), tt.told, name)
		assert.Equal(t, tt.told == "", log.Len() == 0, name)
	}
}

// TestViewOfFormerBucketsIsDropped once the stream is a time series.
func TestViewOfFormerBucketsIsDropped(t *testing.T) {
	t.Parallel()
	db := connect(t)
	_, err := store.View{Database: db, Stream: storetest.Stream}.Ensure(t.Context())
	require.NoError(t, err)
	open(t, db, Config{})
	info, err := store.Collection{Database: db, Name: store.ViewName(storetest.Stream)}.Lookup(t.Context())
	require.NoError(t, err)
	assert.Nil(t, info)
}

// TestWithOwnMongod: tests that need a server setting, or a fail point that affects all
// clients.
func TestWithOwnMongod(t *testing.T) {
	t.Parallel()
	server := mongodtest.Start(t, mongod.Config{Parameters: map[string]string{"ttlMonitorSleepSecs": "1"}})
	c, err := store.Connect(store.ConnectionConfig{URI: server.URI(), Database: "brim", Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close(context.Background())) })
	s := open(t, c.Database(), Config{Retention: 2 * time.Hour, WriteConcern: store.WriteConcern{Members: 1}})

	// The server removes one of its buckets, which span an hour here, when all of its
	// readings are too old.
	for seq, age := range []time.Duration{5 * time.Hour, 90 * time.Minute, time.Minute} {
		r := storetest.Reading("old", 0, float64(seq))
		r.Time = time.Now().Add(-age).Truncate(time.Millisecond)
		storetest.WriteAll(t, s, storetest.Pending(storetest.Batch(t, "s1", uint64(seq+1), r), 5*time.Minute))
	}
	count := func() int64 {
		n, err := s.Majority.CountDocuments(t.Context(), bson.D{})
		require.NoError(t, err)
		return n
	}
	require.Eventually(t, func() bool { return count() == 2 }, time.Minute, 50*time.Millisecond)
	s.Change(Settings{Retention: 5 * time.Minute, WriteConcern: store.WriteConcern{Members: 1}})
	require.NoError(t, s.Prepare(t.Context()))
	require.Eventually(t, func() bool { return count() == 1 }, time.Minute, 50*time.Millisecond)

	// Answers include writes confirmed by fewer than a majority.
	_, err = s.Delete(t.Context(), "old")
	require.NoError(t, err)
	s.Change(Settings{WriteConcern: store.WriteConcern{Members: 1}})
	require.NoError(t, s.Prepare(t.Context()))
	require.NoError(t, c.Client().Database("admin").RunCommand(t.Context(),
		bson.D{{Key: "configureFailPoint", Value: "disableSnapshotting"}, {Key: "mode", Value: "alwaysOn"}}).Err())
	a, b := storetest.Reading("a", 0, 1), storetest.Reading("a", time.Second, 2)
	storetest.WriteAll(t, s, storetest.Pending(storetest.Batch(t, "s1", 10, a, b), 5*time.Minute))
	storetest.Answers(t, s, "a", a, b)
}
