package bucket

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/internal/store/storetest"
)

// connect returns a new database with production's concerns.
func connect(t *testing.T) *mongo.Database {
	t.Helper()
	db := mongodtest.Database(t)
	c, err := store.Connect(store.ConnectionConfig{URI: mongodtest.URI(t), Database: db.Name(), Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close(context.Background())) })
	return c.Database()
}

func TestMain(m *testing.M) { mongodtest.Main(m) }

// open returns a prepared store; cfg's defaults are production's.
func open(t *testing.T, db *mongo.Database, cfg Config) *Store {
	t.Helper()
	cfg.Database, cfg.Stream, cfg.Registerer = db, storetest.Stream, prometheus.NewRegistry()
	if cfg.Granularity == 0 {
		cfg.Granularity = 5 * time.Minute
	}
	if cfg.MaxReadings == 0 {
		cfg.MaxReadings = 1000
	}
	if cfg.MaxBytes == 0 {
		cfg.MaxBytes = 256 << 10
	}
	s, err := New(cfg)
	require.NoError(t, err)
	require.NoError(t, s.Prepare(t.Context()))
	return s
}

// unconnected returns a store that can encode updates but not send them.
func unconnected(c Settings) *Store {
	s := &Store{Base: &store.Base{}}
	s.Live.Store(&store.Live{Settings: c})
	return s
}

// documents returns all of the stream's documents in key order.
func documents(t require.TestingT, db *mongo.Database) []bson.M {
	cursor, err := db.Collection(storetest.Stream).Aggregate(context.Background(), bson.A{bson.D{{Key: "$sort", Value: bson.D{{Key: "_id", Value: 1}}}}})
	require.NoError(t, err)
	var docs []bson.M
	require.NoError(t, cursor.All(context.Background(), &docs))
	return docs
}

// model encodes an operation on its own, to be sent later.
func model(op operation) *mongo.UpdateOneModel {
	var enc encoder
	update, err := enc.update(nil, &op)
	if err != nil {
		panic(err)
	}
	return mongo.NewUpdateOneModel().SetFilter(bson.Raw(enc.filter(nil, &op))).SetUpdate(bson.Raw(update)).SetUpsert(true)
}
