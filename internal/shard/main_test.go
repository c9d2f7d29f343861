package shard

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
	"github.com/brim-telemetry/brim/internal/store"
)

// The clusters of these tests answer as MongoDB's documentation says, see
// package mongostest; no mongos can be had here.
func TestMain(m *testing.M) { mongodtest.Main(m, mongodtest.NoLeaks()) }

// database connects as the daemon does.
func database(t *testing.T, uri string) *mongo.Database {
	t.Helper()
	c, err := store.Connect(store.ConnectionConfig{URI: uri, Database: "brim", Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close(context.Background())) })
	return c.Database()
}

func readings() Stream {
	return Stream{Name: "readings", Storage: store.Bucket, Granularity: 5 * time.Minute, Compressor: store.Snappy}
}

func series() Stream {
	return Stream{Name: "machines", Storage: store.TimeSeries, Granularity: 5 * time.Minute, Compressor: store.Zstd, Retention: 24 * time.Hour}
}
