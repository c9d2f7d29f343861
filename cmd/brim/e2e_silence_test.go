package main

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/brimtest"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
)

// awaitSensors waits for these numbers of known and silent sensors in the metrics.
func (b *brimProcess) awaitSensors(known, silent int) {
	b.t.Helper()
	want := []string{
		fmt.Sprintf("brim_sensors_known{stream=%q} %d\n", "readings", known), fmt.Sprintf("brim_sensors_silent{stream=%q} %d\n", "readings", silent),
	}
	b.eventually(fmt.Sprintf("%d sensors, %d silent", known, silent), func() bool {
		_, metrics := b.admin(http.MethodGet, "/metrics")
		return strings.Contains(metrics, want[0]) && strings.Contains(metrics, want[1])
	})
}

func TestSilentSensorsAreCounted(t *testing.T) {
	t.Parallel()
	db := mongodtest.Database(t)
	flags := []string{"--mongo-uri", mongodtest.URI(t), "--database", db.Name(), "--data-dir", t.TempDir(), "--silent-after", "1s"}
	b := startBrim(t, flags...).awaitStorage()
	code, answer := b.post("/v1/readings", `[{"sensorId":"a","fields":{"v":1}},{"sensorId":"b","fields":{"v":1}}]`)
	require.Equal(t, http.StatusOK, code, answer)
	code, answer = b.admin(http.MethodPost, "/flush?timeout=30s")
	require.Equal(t, http.StatusOK, code, answer)
	require.Zero(t, b.stop())

	b = startBrim(t, flags...).awaitStorage()
	b.awaitSensors(2, 2)
	b.awaitCatalog()
	got := runBrim(t, nil, "query", "--silent-for", "1ms", "--url", "http://"+b.HTTP, "--output", "csv")
	require.NoError(t, got.err)
	assert.Regexp(t, `^sensorId,newest,fields\na,\S+Z,v\nb,\S+Z,v\n$`, got.stdout)
	code, answer, err := brimtest.Ask(http.MethodDelete, "http://"+b.HTTP+"/v1/sensors/a", "")
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, code, answer)
	b.awaitSensors(1, 1)
	got = runBrim(t, nil, "query", "b", "--every", "1h", "--from", time.Now().Add(-time.Hour).Format(time.RFC3339), "--url", "http://"+b.HTTP, "--output", "ndjson")
	require.NoError(t, got.err)
	assert.Contains(t, got.stdout, `"count":1`)
	assert.Zero(t, b.stop())
}
