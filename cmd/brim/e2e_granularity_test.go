package main

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
)

// TestGranularityChangesWhileAnotherDaemonReads: restarts make a daemon's windows longer and
// shorter, and another daemon returns all readings at any time.
func TestGranularityChangesWhileAnotherDaemonReads(t *testing.T) {
	t.Parallel()
	db := mongodtest.Database(t)
	flags := []string{"--mongo-uri", mongodtest.URI(t), "--database", db.Name(), "--bucket-format", "columns", "--advertise-addr", "127.0.0.1:0"}
	reader := startBrim(t, append([]string{"--data-dir", t.TempDir(), "--granularity", "1m"}, flags...)...).awaitStorage()
	noon, dir, n := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC), t.TempDir(), 0
	for _, granularity := range []string{"5m", "24h", "1h", "80m"} {
		writer := startBrim(t, append([]string{"--data-dir", dir, "--granularity", granularity}, flags...)...).awaitStorage()
		for _, at := range []time.Duration{-12 * time.Hour, -30 * time.Minute, 0, 5 * time.Hour} {
			body := fmt.Sprintf(`{"sensorId":"a","ts":%d,"fields":{"v":%d}}`, noon.Add(at).Add(time.Duration(n)*time.Second).UnixMilli(), n)
			code, answer := writer.post("/v1/readings?ack=stored", body)
			require.Equal(t, http.StatusOK, code, answer)
			n++
		}
		for from, want := range map[time.Duration]int{-12 * time.Hour: n, -time.Hour: n / 4 * 3, 0: n / 2, 4 * time.Hour: n / 4} {
			code, answer, err := reader.ask(fmt.Sprintf("/v1/sensors/a/readings?from=%d&to=%d", noon.Add(from).UnixMilli(), noon.Add(11*time.Hour).UnixMilli()))
			require.NoError(t, err)
			require.Equal(t, http.StatusOK, code, answer)
			assert.Equal(t, want, strings.Count(answer, `"ts"`), "%s, from %v: %s", granularity, from, answer)
			_, answer, err = reader.ask(fmt.Sprintf("/v1/sensors/a/summary?from=%d&to=%d", noon.Add(from).UnixMilli(), noon.Add(11*time.Hour).UnixMilli()))
			require.NoError(t, err)
			assert.Contains(t, answer, fmt.Sprintf(`"count":%d`, want))
		}
		_, answer, err := reader.ask("/v1/sensors/a/latest")
		require.NoError(t, err)
		assert.Contains(t, answer, fmt.Sprintf(`"v":%d`, n-1))
		writer.stop()
	}
	stored, err := db.Collection("readings").CountDocuments(t.Context(), bson.D{{Key: "_id.g", Value: 86_400}, {Key: "sensorId", Value: "a"}})
	require.NoError(t, err)
	assert.EqualValues(t, 1, stored, "a day has one document")
}
