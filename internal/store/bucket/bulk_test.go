package bucket

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/internal/store/storetest"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// longReadings are several sensors' readings, some 25 KB per sensor.
func longReadings(sensors int) []telemetry.Reading {
	var out []telemetry.Reading
	for i := range sensors * 24 {
		r := storetest.Reading(fmt.Sprint("s", i/24), time.Duration(i%24)*time.Second, float64(i))
		r.Fields = append(r.Fields, telemetry.Field{Name: "x", Value: telemetry.TextValue(strings.Repeat(string(rune('a'+i%26)), telemetry.MaxTextBytes))})
		out = append(out, r)
	}
	return out
}

func TestManyOperationsGoInSeveralCommands(t *testing.T) {
	t.Parallel()
	const sensors = 100
	s := open(t, connect(t), Config{})
	readings := longReadings(sensors)
	writes := storetest.Pending(storetest.Batch(t, "s1", 1, readings...), window)

	storetest.GivesUp(t, s, writes, 24)
	unknown := testutil.ToFloat64(s.Metrics.Unknown)
	assert.Positive(t, unknown)
	assert.Less(t, unknown, float64(sensors)/2, "what was not sent has no unknown outcome")

	storetest.WriteAll(t, s, writes)
	for i := range sensors {
		require.Equal(t, readings[i*24:(i+1)*24], storetest.ReadAll(t, s, fmt.Sprint("s", i)))
	}
}

// TestTimedOutWriteHoldsNoMemory: a command hangs in the server while the next
// ones are encoded in the same memory.
func TestTimedOutWriteHoldsNoMemory(t *testing.T) {
	t.Parallel()
	db := mongodtest.Database(t)
	conn, err := store.Connect(store.ConnectionConfig{
		URI: mongodtest.URI(t) + "&appName=hanging", Database: db.Name(), Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close(context.Background())) })
	s := open(t, conn.Database(), Config{WriteTimeout: 300 * time.Millisecond})
	readings := longReadings(8)
	hung := storetest.Pending(storetest.Batch(t, "s1", 1, readings[:4*24]...), window)
	next := storetest.Pending(storetest.Batch(t, "s1", 1000, readings[4*24:]...), window)

	require.NoError(t, db.Client().Database("admin").RunCommand(t.Context(), bson.D{
		{Key: "configureFailPoint", Value: "failCommand"}, {Key: "mode", Value: bson.D{{Key: "times", Value: 1}}},
		{Key: "data", Value: bson.D{
			{Key: "failCommands", Value: bson.A{"update"}}, {Key: "appName", Value: "hanging"},
			{Key: "blockConnection", Value: true}, {Key: "blockTimeMS", Value: 900},
		}},
	}).Err())
	s.Write(t.Context(), hung)
	for _, pending := range hung {
		require.Equal(t, batch.Wait, pending.Verdict)
		require.ErrorIs(t, pending.Err, context.DeadlineExceeded)
	}
	s.WriteTimeout = 10 * time.Second
	storetest.WriteAll(t, s, next)
	storetest.WriteAll(t, s, hung)
	for i := range 8 {
		require.Equal(t, readings[i*24:(i+1)*24], storetest.ReadAll(t, s, fmt.Sprint("s", i)))
	}
}
