package main

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
)

// TestSensorsAreFoundAndDeletedByTags has two daemons of a database, with bucket documents and
// a time series, whose readings are waiting.
func TestSensorsAreFoundAndDeletedByTags(t *testing.T) {
	t.Parallel()
	for _, storage := range []string{"bucket", "timeseries"} {
		t.Run(storage, func(t *testing.T) {
			t.Parallel()
			db := mongodtest.Database(t)
			start := func(more ...string) *brimProcess {
				return startBrim(t, append([]string{
					"--mongo-uri", mongodtest.URI(t), "--database", db.Name(), "--data-dir", t.TempDir(), "--storage", storage,
					"--flush-interval", "1m", "--advertise-addr", "127.0.0.1:0",
				}, more...)...).awaitStorage()
			}
			b, other := start(), start()
			b.eventually("the daemons know each other", func() bool {
				_, metrics := b.admin(http.MethodGet, "/metrics")
				_, others := other.admin(http.MethodGet, "/metrics")
				return strings.Contains(metrics, `brim_peers{state="reachable"} 1`) && strings.Contains(others, `brim_peers{state="reachable"} 1`)
			})
			for _, body := range []string{
				`[{"sensorId":"a","ts":"2026-01-01T00:00:01Z","fields":{"t":1,"state":"on"},"tags":{"site":"north"}},{"sensorId":"b","ts":"2026-01-01T00:00:01Z","fields":{"t":1},"tags":{"site":"south"}}]`,
				`[{"sensorId":"m","ts":"2026-01-01T00:00:01Z","fields":{"t":1},"tags":{"site":"north"}},{"sensorId":"m","ts":"2026-01-01T00:05:02Z","fields":{"t":1},"tags":{"site":"south"}}]`,
			} {
				code, answer := b.post("/v1/readings", body)
				require.Equal(t, http.StatusOK, code, answer)
			}
			at := func(p *brimProcess, args ...string) string {
				t.Helper()
				got := runBrim(t, nil, append(args, "--url", "http://"+p.HTTP)...)
				require.NoError(t, got.err)
				return got.stdout
			}
			const north = `{"sensorId":"a","newest":"2026-01-01T00:00:01.000Z","tags":{"site":"north"},"fields":["t"],"textFields":["state"]}` + "\n" +
				`{"sensorId":"m","newest":"2026-01-01T00:05:02.000Z","tags":{"site":"south"},"otherTags":[{"site":"north"}],"fields":["t"]}` + "\n"
			query := []string{"query", "--sensors", "--tag", "site=north", "--output", "ndjson"}
			for _, p := range []*brimProcess{b, other} {
				p.awaitCatalog()
				assert.Equal(t, strings.Split(north, "\n"), strings.Split(at(p, query...), "\n"), "its readings wait")
			}
			b.eventually("its document is written", func() bool {
				n, err := db.Collection("readings.sensors").CountDocuments(t.Context(), bson.D{{Key: "pairs", Value: "site=south"}})
				return err == nil && n == 2
			})
			require.Empty(t, at(b, append(query, "--unstored", "off")...), "none is stored")

			assert.Contains(t, at(b, "delete", "--tag", "site=north"), "1 sensor; nothing was deleted")
			assert.Equal(t, "1 sensor\n", at(other, "delete", "--tag", "site=north", "--dry-run"))
			assert.Equal(t, "deleted 1 sensor with 1 readings\n", at(other, "delete", "--tag", "site=north", "--yes"), "m has moved")
			assert.Equal(t, "deleted 0 sensors with 0 readings\n", at(b, "delete", "--tag", "site=north", "--yes"))
			list := at(b, "query", "--sensors", "--output", "csv")
			assert.Equal(t, "sensorId,newest,fields,tags.site\nb,2026-01-01T00:00:01.000Z,t,south\nm,2026-01-01T00:05:02.000Z,t,south\n", list)

			code, answer := b.post("/v1/readings", `{"sensorId":"a","ts":"`+time.Now().UTC().Format(time.RFC3339)+`","fields":{"t":1}}`)
			require.Equal(t, http.StatusOK, code, answer)
			b.eventually("the sensor enters again", func() bool { return strings.Contains(at(other, "query", "--sensors", "--output", "csv"), "\na,") })
			assert.Contains(t, at(b, "delete", "b"), "deleted 1 sensor with 1 readings")
			assert.Equal(t, "deleted 2 sensors with 3 readings\n", at(b, "delete", "--tag", "site!=x", "--yes"))
		})
	}
}

func TestDeleteRefusesAnEmptySelection(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		want string
		args []string
	}{
		{"either a sensor id, or --prefix or --tag", nil},
		{"either a sensor id, or --prefix or --tag", []string{"a", "--prefix", "b"}},
		{"the sensor id is empty", []string{""}},
		{`--tag "x=": the value is empty`, []string{"--tag", "x=", "--yes"}},
		{"--dry-run and --yes cannot be used together", []string{"--prefix", "b", "--dry-run", "--yes"}},
		{`--tag "x": it must be NAME=VALUE`, []string{"--tag", "x"}},
		{"is not a regular expression", []string{"--tag", "x=~("}},
	} {
		got := runBrim(t, nil, append([]string{"delete"}, tt.args...)...)
		require.ErrorContains(t, got.err, tt.want)
	}
}
