package main

import (
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/access"
	"github.com/brim-telemetry/brim/internal/brimtest"
	"github.com/brim-telemetry/brim/internal/brimtest/mosquitto"
)

// TestMQTT is the quick start of docs/mqtt.md, with a refused message and a broker that
// disappears: the daemon stays ready, and reports it.
func TestMQTT(t *testing.T) {
	t.Parallel()
	broker := mosquitto.Start(t)
	dir := t.TempDir()
	b := startBrim(t, "--storage", "memory", "--data-dir", dir, "--mqtt-url", broker.URL(), "--mqtt-topic", "site/{site}/{sensorId}/{field}").awaitReady()
	b.awaitLog("subscribed to the MQTT broker")
	publisher, err := broker.Publisher(t.Context(), "sensors")
	require.NoError(t, err)
	for _, payload := range []string{"21.5", "nan", "22"} {
		require.NoError(t, publisher.Publish(t.Context(), "site/north/s-1/temperature", payload, 1))
	}
	publisher.Close()
	b.eventually("two readings", func() bool {
		_, body, err := brimtest.Ask(http.MethodGet, "http://"+b.HTTP+"/v1/sensors/s-1/summary", "")
		return err == nil && strings.Contains(body, `"n":2`)
	})
	b.eventually("the refused message", func() bool {
		got := runBrim(t, nil, "deadletter", "list", "--messages", "--data-dir", dir, "--output", "json")
		return got.err == nil && strings.Contains(got.stdout, `"topic": "site/north/s-1/temperature"`) && strings.Contains(got.stdout, `"payload": "bmFu"`) && strings.Contains(got.stdout, "no_value")
	})
	got := runBrim(t, nil, "deadletter", "list", "--messages", "--data-dir", dir)
	assert.Contains(t, got.stdout, `"nan"`)
	broker.Kill()
	b.awaitReadiness(http.StatusOK, "not subscribed at "+broker.Address)
}

// TestMQTTQuota publishes far more than an identity's quota: excess messages wait at the
// broker, and all arrive.
func TestMQTTQuota(t *testing.T) {
	t.Parallel()
	broker := mosquitto.Start(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "access.yaml")
	require.NoError(t, os.WriteFile(file, []byte("identities:\n  - name: meters\n    hash: "+access.HashOf("brim_meters")+
		"\n    scopes: [ingest, read]\n    sensor_prefix: m-\n    quota: {readings_per_second: 4}\n"), 0o600))
	b := startBrim(t, "--storage", "memory", "--data-dir", dir, "--access-file", file, "--mqtt-url", broker.URL(), "--mqtt-topic", "{sensorId}",
		"--mqtt-identity", "meters", "--mqtt-receive-maximum", "10").awaitReady()
	b.awaitLog("subscribed to the MQTT broker")
	publisher, err := broker.Publisher(t.Context(), "sensors")
	require.NoError(t, err)
	defer publisher.Close()
	require.NoError(t, publisher.Publish(t.Context(), "other-1", "1", 1))
	for n := range 40 {
		require.NoError(t, publisher.Publish(t.Context(), "m-1", strconv.Itoa(n), 1))
	}
	b.eventually("all readings", func() bool {
		got := runBrim(t, []string{"BRIM_TOKEN=brim_meters"}, "query", "m-1", "--url", "http://"+b.HTTP, "--output", "json", "--limit", "100")
		return strings.Count(got.stdout, `"ts"`) == 40
	})
	b.eventually("the refused message", func() bool {
		got := runBrim(t, nil, "deadletter", "list", "--messages", "--data-dir", dir)
		return strings.Contains(got.stdout, "sensor_forbidden")
	})
	assert.Contains(t, b.awaitLog("failed, retrying")["err"], "quota_readings")
}
