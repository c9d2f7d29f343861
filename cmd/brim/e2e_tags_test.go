package main

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/brim-telemetry/brim/internal/brimtest"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
)

// fetch returns the answer to a GET.
func fetch(t *testing.T, url, accept string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	require.NoError(t, err)
	req.Header.Set("Accept", accept)
	code, answer, err := brimtest.CarryOut(req)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, code, answer)
	return answer
}

// TestTagsAreReadBackAsTheyWereSent reads a sensor's readings with differing tags in every
// possible way, before and after they are stored.
func TestTagsAreReadBackAsTheyWereSent(t *testing.T) {
	t.Parallel()
	for _, storage := range []string{"bucket", "timeseries", "memory"} {
		t.Run(storage, func(t *testing.T) {
			t.Parallel()
			db := mongodtest.Database(t)
			b := startBrim(t, append(onShared(t, db), "--storage", storage, "--ack", "journaled", "--flush-interval", "1h")...).awaitStorage()
			reading := func(i int) string {
				tags := []string{`,"tags":{"site":"north"}`, `,"tags":{"site":"south"}`, ``}[i]
				return fmt.Sprintf(`{"sensorId":"s","ts":"2026-11-20T10:00:0%d.000Z","fields":{"t":%d}%s}`, i, i, tags)
			}
			code, answer := b.post("/v1/readings", reading(0)+"\n"+reading(1)+"\n"+reading(2)+"\n")
			require.Equal(t, http.StatusOK, code, answer)
			require.Contains(t, answer, `"accepted":3`)
			check := func(when string) {
				base := "http://" + b.HTTP + "/v1/sensors/s"
				span := "?from=2026-11-20T10:00:00Z&to=2026-11-20T11:00:00Z"
				for i, line := range strings.Split(strings.TrimSpace(fetch(t, base+"/readings"+span, "application/x-ndjson")), "\n") {
					assert.JSONEq(t, reading(i), line, when)
				}
				assert.Contains(t, fetch(t, base+"/readings"+span, "application/json"), reading(0)+",\n"+reading(1)+",\n"+reading(2), when)
				assert.Contains(t, fetch(t, base+"/latest", "application/json"), reading(2), when)
				assert.NotContains(t, fetch(t, base+"/summary"+span, "application/json"), "sensor\"", when)
				got := runBrim(t, nil, "query", "s", "--url", "http://"+b.HTTP, "--from", "2026-11-20T10:00:00Z", "--to", "2026-11-20T11:00:00Z", "--output", "csv")
				require.NoError(t, got.err)
				assert.Equal(t, "sensorId,ts,t,tags.site\ns,2026-11-20T10:00:00.000Z,0,north\ns,2026-11-20T10:00:01.000Z,1,south\ns,2026-11-20T10:00:02.000Z,2,\n",
					got.stdout, when)
			}
			check("before they are stored")
			code, answer = b.admin(http.MethodPost, "/flush")
			require.Equal(t, http.StatusOK, code, answer)
			check("stored")
			if storage != "bucket" {
				return
			}
			cursor, err := db.Collection("readings.flat").Find(t.Context(), bson.D{})
			require.NoError(t, err)
			var shown []bson.M
			require.NoError(t, cursor.All(t.Context(), &shown))
			require.Len(t, shown, 3)
			for i, want := range []any{bson.D{{Key: "site", Value: "north"}}, bson.D{{Key: "site", Value: "south"}}, nil} {
				assert.Equal(t, want, shown[i]["tags"], "the view")
			}
		})
	}
}
