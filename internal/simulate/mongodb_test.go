package simulate_test

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/brim-telemetry/brim/internal/simulate"
	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/internal/store/bucket"
	"github.com/brim-telemetry/brim/internal/store/storetest"
	"github.com/brim-telemetry/brim/internal/store/timeseries"
)

// connect returns a database of the model, with the concerns of production.
func connect(t testing.TB, m *simulate.MongoDB, client string) *mongo.Database {
	t.Helper()
	c, err := mongo.Connect(options.Client().ApplyURI(m.URI()).SetDialer(m.Dialer(client)).SetTimeout(0).SetHeartbeatInterval(time.Second))
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = c.Disconnect(context.Background())
		m.Close()
	})
	journaled := true
	return c.Database("brim", options.Database().SetReadConcern(readconcern.Majority()).
		SetWriteConcern(&writeconcern.WriteConcern{W: writeconcern.WCMajority, Journal: &journaled}))
}

func storeOn(t testing.TB, kind store.Storage, db *mongo.Database) storetest.Store {
	t.Helper()
	cfg := store.Config{
		Database: db, Stream: storetest.Stream, Granularity: 5 * time.Minute,
		MaxReadings: 1000, MaxBytes: 256 << 10, Registerer: prometheus.NewRegistry(), View: true,
	}
	var s storetest.Store
	var err error
	if kind == store.TimeSeries {
		s, err = timeseries.New(cfg)
	} else {
		s, err = bucket.New(cfg)
	}
	require.NoError(t, err)
	require.NoError(t, s.Prepare(t.Context()))
	return s
}

func TestStoresWorkOnTheModel(t *testing.T) {
	t.Parallel()
	for _, kind := range []store.Storage{store.Bucket, store.TimeSeries} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			storetest.Run(t, func(t *testing.T) storetest.Store {
				t.Helper()
				m := simulate.NewMongoDB("a.example:27017", "b.example:27017")
				m.Immediately()
				return storeOn(t, kind, connect(t, m, "test"))
			})
		})
	}
}
