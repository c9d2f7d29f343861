package main

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/brimtest"
	"github.com/brim-telemetry/brim/internal/mqtt/mqtttest"
)

// TestMQTT is the quick start of docs/mqtt.md, with a message that is refused, and a broker
// that goes away: the daemon stays ready, and says so.
func TestMQTT(t *testing.T) {
	t.Parallel()
	broker := mqtttest.Start(t)
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
