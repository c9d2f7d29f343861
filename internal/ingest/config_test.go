package ingest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		message string
		change  func(*Config)
	}{
		{"no stream is configured", func(c *Config) { c.Streams = nil }},
		{"a stream has no name", func(c *Config) { c.Streams[0].Name = "" }},
		{"stream mem is configured twice", func(c *Config) { c.Streams[0].Name = "mem" }},
		{"negative granularity, cap or retention", func(c *Config) { c.Streams[1].Retention = -time.Second }},
		{`default stream "cpu" is not configured; there are: readings, mem`, func(c *Config) { c.DefaultStream = "cpu" }},
		{"--max-body-bytes 1023 is out of range", func(c *Config) { c.MaxBodyBytes = 1023 }},
		{"--max-body-bytes -1 is out of range", func(c *Config) { c.MaxBodyBytes = -1 }},
		{"--max-inflated-bytes 2048 is out of range", func(c *Config) { c.MaxInflatedBytes = 2048 }},
		{"--max-readings-per-request -1 is out of range", func(c *Config) { c.MaxReadings = -1 }},
		{"--max-readings-per-request 1000001 is out of range", func(c *Config) { c.MaxReadings = 1_000_001 }},
		{"--max-future -1s is negative", func(c *Config) { c.MaxFuture = -time.Second }},
		{"no level of acknowledgement", func(c *Config) { c.Acks = nil }},
		{"--ack journaled cannot be had; allowed: stored", func(c *Config) { c.Ack, c.Acks = telemetry.Journaled, []telemetry.Ack{telemetry.Stored} }},
		{"--map-dots", func(c *Config) { c.MapDots = '.' }},
		{"--map-dots", func(c *Config) { c.MapDots = '$' }},
		{"--map-dots", func(c *Config) { c.MapDots = '\n' }},
		{"--map-dots", func(c *Config) { c.MapDots = 0x80 }},
		{"line_protocol.sensor_tag", func(c *Config) { c.SensorTag = string(make([]byte, 129)) }},
	} {
		config := testConfig()
		c.change(&config)
		_, err := New(config, &fakeJournal{})
		assert.ErrorContains(t, err, c.message)
	}
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	d, err := New(Config{Streams: []Stream{{Name: "a"}}, DefaultStream: "a", Acks: []telemetry.Ack{telemetry.Stored}}, &fakeJournal{})
	require.NoError(t, err)
	assert.EqualValues(t, 8<<20, d.config.MaxBodyBytes)
	assert.EqualValues(t, 64<<20, d.config.MaxInflatedBytes)
	assert.Equal(t, 10_000, d.config.MaxReadings)
	assert.Equal(t, 10*time.Minute, d.config.MaxFuture)
	assert.Equal(t, telemetry.Stored, d.config.Ack)
	assert.Equal(t, 204, post(t, d, "/write", "", "m t=1").Code)
}

func TestListsOfStreamsStayShort(t *testing.T) {
	t.Parallel()
	streams := make([]Stream, 25)
	for i := range streams {
		streams[i].Name = string(rune('a' + i))
	}
	assert.Equal(t, "a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, and 5 more", listStreams(streams))
}
