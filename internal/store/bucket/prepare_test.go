package bucket

import (
	"bytes"
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/internal/store/storetest"
)

// build returns a store without preparing it.
func build(t *testing.T, db *mongo.Database, cfg Config) *Store {
	t.Helper()
	cfg.Database, cfg.Stream, cfg.Registerer = db, storetest.Stream, prometheus.NewRegistry()
	if cfg.Granularity == 0 {
		cfg.Granularity = 5 * time.Minute
	}
	if cfg.MaxReadings == 0 {
		cfg.MaxReadings, cfg.MaxBytes = 1000, 256<<10
	}
	s, err := New(cfg)
	require.NoError(t, err)
	return s
}

// expiry returns the age at which the collection's documents are removed.
func expiry(t *testing.T, db *mongo.Database) time.Duration {
	t.Helper()
	after, _, err := store.Collection{Database: db, Name: storetest.Stream}.Expiry(t.Context())
	require.NoError(t, err)
	return after
}

// TestUnsuitableCollectionIsRefused: each case is a change that a start cannot
// make, or something that another program left behind.
func TestUnsuitableCollectionIsRefused(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		made  *options.CreateCollectionOptionsBuilder
		index bson.D
		cfg   Config
		want  string
	}{
		"another compressor": {
			options.CreateCollection().SetStorageEngine(store.Zstd.StorageEngine()), nil, Config{Compressor: store.Snappy},
			"start with --compressor zstd",
		},
		"a time series": {
			options.CreateCollection().SetTimeSeriesOptions(options.TimeSeries().SetTimeField("ts")), nil, Config{},
			"start with --storage timeseries, or choose another stream name or database",
		},
		"capped":       {options.CreateCollection().SetCapped(true).SetSizeInBytes(4096), nil, Config{}, "with capped true, the stream asks for false"},
		"a collation":  {options.CreateCollection().SetCollation(&options.Collation{Locale: "de", Strength: 1}), nil, Config{}, "with collation de, the stream asks for simple"},
		"index in way": {options.CreateCollection(), bson.D{{Key: "bucketStart", Value: 1}}, Config{Retention: time.Hour}, `db.getCollection("readings").dropIndex({bucketStart: 1})`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := connect(t)
			require.NoError(t, db.CreateCollection(t.Context(), storetest.Stream, tt.made))
			if tt.index != nil {
				_, err := db.Collection(storetest.Stream).Indexes().CreateOne(t.Context(), mongo.IndexModel{Keys: tt.index})
				require.NoError(t, err)
			}
			err := build(t, db, tt.cfg).Prepare(t.Context())
			var mismatch *store.MismatchError
			require.ErrorAs(t, err, &mismatch)
			assert.ErrorContains(t, err, tt.want)
		})
	}
}

func TestPrepareCreatesWhatIsMissing(t *testing.T) {
	t.Parallel()
	db := connect(t)
	require.NoError(t, db.CreateCollection(t.Context(), storetest.Stream,
		options.CreateCollection().SetValidator(bson.D{{Key: "$jsonSchema", Value: bson.D{{Key: "required", Value: bson.A{"count"}}}}})))
	var log bytes.Buffer
	s := build(t, db, Config{Retention: 2 * time.Hour, View: true, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	require.NoError(t, s.Prepare(t.Context()))
	assert.Contains(t, log.String(), "has a validator")
	assert.Equal(t, 2*time.Hour+5*time.Minute, expiry(t, db))
	require.NoError(t, db.Collection(storetest.Stream).Indexes().DropAll(t.Context()))
	require.NoError(t, db.Collection(store.ViewName(storetest.Stream)).Drop(t.Context()))
	require.NoError(t, s.Prepare(t.Context()))
	assert.Equal(t, 2*time.Hour+5*time.Minute, expiry(t, db))
	storetest.WriteAll(t, s, storetest.Pending(storetest.Batch(t, "s1", 1, storetest.Reading("a", 0, 1)), 5*time.Minute))
	n, err := db.Collection(store.ViewName(storetest.Stream)).CountDocuments(t.Context(), bson.D{})
	require.NoError(t, err)
	assert.EqualValues(t, 1, n)
}

// TestRetentionOutlastsTheLongestBuckets: MongoDB counts from a bucket's start,
// and an earlier granularity may have left longer buckets.
func TestRetentionOutlastsTheLongestBuckets(t *testing.T) {
	t.Parallel()
	db := connect(t)
	hourly := open(t, db, Config{Granularity: time.Hour, Retention: 24 * time.Hour})
	storetest.WriteAll(t, hourly, storetest.Pending(storetest.Batch(t, "s1", 1, storetest.Reading("a", 0, 1)), time.Hour))
	require.Equal(t, 25*time.Hour, expiry(t, db))

	open(t, db, Config{Granularity: time.Minute, Retention: 24 * time.Hour})
	assert.Equal(t, 25*time.Hour, expiry(t, db), "or an hourly bucket would go with readings that are 23 h old")
	short := open(t, db, Config{Granularity: time.Minute, Retention: 12 * time.Hour})
	assert.Equal(t, 13*time.Hour, expiry(t, db))
	_, err := db.Collection(storetest.Stream).DeleteMany(t.Context(), bson.D{})
	require.NoError(t, err)
	require.NoError(t, short.Prepare(t.Context()))
	assert.Equal(t, 12*time.Hour+time.Minute, expiry(t, db), "the last hourly bucket is gone")
	open(t, db, Config{Granularity: time.Hour, Retention: 12 * time.Hour})
	assert.Equal(t, 13*time.Hour, expiry(t, db))
	open(t, db, Config{Granularity: time.Minute})
	assert.Zero(t, expiry(t, db), "for ever")
}

// TestLoweredCapsCloseFullParts without losing readings; raised caps apply from the next
// update on.
func TestLoweredCapsCloseFullParts(t *testing.T) {
	t.Parallel()
	db := connect(t)
	s := open(t, db, Config{MaxReadings: 100})
	seq := uint64(1)
	write := func(s *Store, n int) {
		for range n {
			storetest.WriteAll(t, s, storetest.Pending(storetest.Batch(t, "s1", seq, storetest.Reading("a", time.Duration(seq)*time.Millisecond, float64(seq))), 5*time.Minute))
			seq++
		}
	}
	write(s, 7)
	settings := Settings{MaxReadings: 3, MaxBytes: 256 << 10, MaxReadingsPerUpdate: 1}
	require.NoError(t, s.Change(settings))
	require.Error(t, s.Change(Settings{MaxReadings: 0, MaxBytes: 1 << 10}), "and nothing changes")
	write(s, 4)
	settings.MaxReadings = 5
	require.NoError(t, s.Change(settings))
	write(s, 6)
	var counts []int32
	total := int32(0)
	for _, d := range documents(t, db) {
		counts = append(counts, d["count"].(int32))
		total += d["count"].(int32)
		assert.Len(t, d["measurements"], int(d["count"].(int32)))
	}
	assert.Equal(t, int32(17), total)
	assert.Equal(t, []int32{7, 3, 5, 2}, counts)
}

// TestWriteConcernsOfCommands checks the commands sent to the server.
func TestWriteConcernsOfCommands(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		concern store.WriteConcern
		want    bson.D
	}{
		{store.WriteConcern{}, bson.D{{Key: "w", Value: "majority"}, {Key: "j", Value: true}}},
		{store.WriteConcern{Members: 1}, bson.D{{Key: "w", Value: int32(1)}, {Key: "j", Value: true}}},
		{store.WriteConcern{Unjournaled: true}, bson.D{{Key: "w", Value: "majority"}, {Key: "j", Value: false}}},
		{store.WriteConcern{Members: 1, Unjournaled: true}, bson.D{{Key: "w", Value: int32(1)}, {Key: "j", Value: false}}},
	} {
		t.Run(tt.concern.String(), func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			seen := make(map[string]bson.Raw) // the last write concern, by command
			db := mongodtest.Database(t)
			client, err := mongo.Connect(options.Client().ApplyURI(mongodtest.URI(t)).SetMonitor(&event.CommandMonitor{
				Started: func(_ context.Context, e *event.CommandStartedEvent) {
					mu.Lock()
					defer mu.Unlock()
					concern, _ := e.Command.Lookup("writeConcern").DocumentOK()
					seen[e.CommandName] = bytes.Clone(concern)
				},
			}))
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, client.Disconnect(context.Background())) })
			journaled := true
			with := client.Database(db.Name(), options.Database().SetReadConcern(readconcern.Majority()).
				SetWriteConcern(&writeconcern.WriteConcern{W: writeconcern.WCMajority, Journal: &journaled}))

			s := open(t, with, Config{MaxReadings: 2, WriteConcern: tt.concern})
			storetest.WriteAll(t, s, storetest.Pending(storetest.Batch(t, "s1", 1, storetest.Reading("a", 0, 1)), 5*time.Minute))
			pending := storetest.Pending(storetest.Batch(t, "s1", 2, storetest.Reading("a", 0, 1)), 5*time.Minute)[0]
			require.True(t, s.closePart(t.Context(), pending, partOf(pending)))
			mu.Lock()
			defer mu.Unlock()
			var update, fence bson.D
			require.NoError(t, bson.Unmarshal(seen["update"], &update))
			require.NoError(t, bson.Unmarshal(seen["findAndModify"], &fence))
			assert.ElementsMatch(t, tt.want, update)
			assert.ElementsMatch(t, bson.D{{Key: "w", Value: "majority"}, {Key: "j", Value: true}}, fence, "a fence that can be rolled back is none")
		})
	}
}

func TestImpossibleWriteConcernIsRefused(t *testing.T) {
	t.Parallel()
	err := build(t, connect(t), Config{WriteConcern: store.WriteConcern{Members: 2}}).Prepare(t.Context())
	var concern *store.ConcernError
	require.ErrorAs(t, err, &concern)
	assert.ErrorContains(t, err, "allowed: majority and 1 to 1")
}
