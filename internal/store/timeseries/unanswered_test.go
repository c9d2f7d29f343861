package timeseries

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/faulttest"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/internal/store/storetest"
)

// TestDelayedInsertIsRefused holds inserts back in the network until their
// readings have been looked up and inserted again.
func TestDelayedInsertIsRefused(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		before func(pending *batch.Pending) // the second write
	}{
		{"by the same pending rows", func(*batch.Pending) {}},
		{"by rows that were set aside", func(s *batch.Pending) { s.State, s.Recovered = nil, true }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			db := mongodtest.Database(t)
			proxy, err := faulttest.NewProxy(options.Client().ApplyURI(mongodtest.URI(t)).Hosts[0])
			require.NoError(t, err)
			t.Cleanup(func() { assert.NoError(t, proxy.Close()) })
			c, err := store.Connect(store.ConnectionConfig{
				URI: "mongodb://" + proxy.Addr() + "/?directConnection=true", Database: db.Name(), Logger: slog.New(slog.DiscardHandler),
			})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, c.Close(context.Background())) })
			s := open(t, c.Database(), Config{WriteTimeout: time.Second})
			writes := storetest.Pending(storetest.Batch(t, "s1", 1, storetest.Reading("a", 0, 1), storetest.Reading("b", time.Second, 2)), 5*time.Minute)
			proxy.Set(faulttest.Faults{Decide: func(c faulttest.Command) faulttest.Fate {
				if c.Name == "insert" && strings.HasPrefix(c.Body.Lookup("insert").String(), `"`+storetest.Stream) {
					return faulttest.Hold
				}
				return faulttest.Pass
			}})
			s.Write(t.Context(), writes)
			for _, pending := range writes {
				require.Equal(t, batch.Wait, pending.Verdict)
				tt.before(pending)
			}
			proxy.Set(faulttest.Faults{})
			storetest.WriteAll(t, s, writes)
			require.Positive(t, proxy.Release(rand.New(rand.NewPCG(1, 1))))

			assert.Len(t, storetest.ReadAll(t, s, "a"), 1)
			assert.Len(t, storetest.ReadAll(t, s, "b"), 1)
			assert.Zero(t, testutil.ToFloat64(s.Metrics.Duplicates), "the insert had not arrived when its readings were looked for")
			assert.Empty(t, s.unanswered.of)
		})
	}
}
