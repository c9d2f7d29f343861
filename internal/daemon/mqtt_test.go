package daemon

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/ingest"
)

func TestSubscriptionsInheritFromTheTopLevel(t *testing.T) {
	t.Parallel()
	text := "mqtt-url: mqtt://h\nmqtt-qos: 2\nmqtt:\n  b: {topic: 'b/{sensorId}', format: json}\n  a: {topic: 'spBv1.0/#', url: mqtts://other}\n"
	c, err := Sources{Path: writeConfig(t, text)}.Load()
	require.NoError(t, err)
	require.Len(t, c.Subscriptions, 2)
	a, b := c.Subscriptions[0], c.Subscriptions[1]
	assert.Equal(t, []any{"a", "mqtts://other", ingest.PayloadAuto, 2}, []any{a.Name, a.URL, a.Format, a.QoS})
	assert.Equal(t, []any{"b", "mqtt://h", ingest.PayloadJSON, 2}, []any{b.Name, b.URL, b.Format, b.QoS})

	printed, err := Sources{Path: writeConfig(t, c.Text())}.Load()
	require.NoError(t, err)
	assert.Equal(t, c.Subscriptions, printed.Subscriptions)
	assert.Len(t, c.Describe().MQTT, 2)

	one, err := Sources{Flags: map[string]string{"mqtt-url": "mqtt://h", "mqtt-topic": "{sensorId}"}}.Load()
	require.NoError(t, err)
	require.Len(t, one.Subscriptions, 1)
	assert.Equal(t, "default", one.Subscriptions[0].Name)
	none, err := Sources{}.Load()
	require.NoError(t, err)
	assert.Empty(t, none.Subscriptions)
}

func TestSubscriptionsChangeAtRestart(t *testing.T) {
	t.Parallel()
	load := func(text string) *Config {
		c, err := Sources{Path: writeConfig(t, "mqtt-url: mqtt://h\n"+text)}.Load()
		require.NoError(t, err)
		return c
	}
	now := load("mqtt:\n  a: {topic: a}\n  b: {topic: b}\n")
	assert.Empty(t, differences(now, load("mqtt:\n  b: {topic: b}\n  a: {topic: a}\n")))
	assert.Equal(t, []Difference{
		{Setting: "mqtt.a.topic", Now: "a", Wanted: "x", Why: takesRestart},
		{Setting: "mqtt.b", Now: "configured", Wanted: "removed", Why: takesRestart},
		{Setting: "mqtt.c", Now: "not configured", Wanted: "configured", Why: takesRestart},
	}, differences(now, load("mqtt:\n  a: {topic: x}\n  c: {topic: c}\n")))
}
