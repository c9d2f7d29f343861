package store_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/internal/store/bucket"
	"github.com/brim-telemetry/brim/internal/store/storetest"
	"github.com/brim-telemetry/brim/internal/store/timeseries"
)

// onBoth tests a store of each kind, each with a new database.
func onBoth(t *testing.T, test func(t *testing.T, kind store.Storage, database string, s storetest.Store)) {
	t.Helper()
	for _, kind := range []store.Storage{store.Bucket, store.TimeSeries} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			database := mongodtest.Database(t).Name()
			test(t, kind, database, open(t, kind, database))
		})
	}
}

// open returns a prepared store in a database.
func open(t *testing.T, kind store.Storage, database string) storetest.Store {
	t.Helper()
	conn, err := store.Connect(store.ConnectionConfig{URI: mongodtest.URI(t), Database: database, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close(context.Background())) })
	cfg := store.Config{
		Database: conn.Database(), Stream: storetest.Stream, Granularity: 5 * time.Minute,
		MaxReadings: 1000, MaxBytes: 256 << 10, Registerer: prometheus.NewRegistry(),
	}
	var s storetest.Store
	if kind == store.TimeSeries {
		s, err = timeseries.New(cfg)
	} else {
		s, err = bucket.New(cfg)
	}
	require.NoError(t, err)
	require.NoError(t, s.Prepare(t.Context()))
	return s
}

func TestCommandNeedsAPermit(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, _ store.Storage, _ string, s storetest.Store) {
		writes := storetest.Pending(storetest.Batch(t, "s1", 1, storetest.Reading("a", 0, 1)), 5*time.Minute)
		errLost := errors.New("lost")
		s.Write(store.WithPermit(t.Context(), func() error { return errLost }), writes)
		assert.Equal(t, batch.Unsent, writes[0].Verdict)
		require.ErrorIs(t, writes[0].Err, errLost)
		assert.Len(t, writes[0].Rows, 1)
	})
}

// TestWriteOnTooFewMembersIsNotStored: the write is applied but cannot be confirmed.
// A majority lookup finds it, but more than a majority was required.
func TestWriteOnTooFewMembersIsNotStored(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, kind store.Storage, database string, s storetest.Store) {
		settings := store.Settings{MaxReadings: 1000, MaxBytes: 256 << 10, WriteConcern: store.WriteConcern{Members: 3}} // Prepare refuses this
		switch s := s.(type) {
		case *bucket.Store:
			require.NoError(t, s.Change(settings))
		case *timeseries.Store:
			s.Change(settings)
		}
		writes := storetest.Pending(storetest.Batch(t, "s1", 1, storetest.Reading("a", 0, 1), storetest.Reading("a", time.Second, 2)), 5*time.Minute)
		for range 4 {
			s.Write(t.Context(), writes)
			require.Equal(t, batch.Wait, writes[0].Verdict)
			require.Len(t, writes[0].Rows, 2)
			require.ErrorContains(t, writes[0].Err, "Not enough data-bearing nodes")
		}
		other := open(t, kind, database)
		storetest.WriteAll(t, other, writes)
		assert.Len(t, storetest.ReadAll(t, other, "a"), 2, "each is there once")
	})
}

// TestDroppedCollectionIsNoticedWithoutAWrite, like a replaced one.
func TestDroppedCollectionIsNoticedWithoutAWrite(t *testing.T) {
	t.Parallel()
	type checker interface {
		CheckPrepared(ctx context.Context) error
	}
	onBoth(t, func(t *testing.T, kind store.Storage, database string, s storetest.Store) {
		c, err := store.Connect(store.ConnectionConfig{URI: mongodtest.URI(t), Database: database, Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, c.Close(context.Background())) })
		check := func(s storetest.Store) error { return s.(checker).CheckPrepared(t.Context()) }
		require.NoError(t, check(s))
		require.NoError(t, c.Database().Collection(storetest.Stream).Drop(t.Context()))
		require.ErrorIs(t, check(s), store.ErrNotPrepared)
		require.NoError(t, s.Prepare(t.Context()))
		require.NoError(t, check(s))
		require.NoError(t, c.Database().Collection(storetest.Stream).Drop(t.Context()))
		other := open(t, kind, database)
		require.ErrorIs(t, check(s), store.ErrNotPrepared)
		require.NoError(t, s.Prepare(t.Context()))
		require.NoError(t, check(other))
	})
}
