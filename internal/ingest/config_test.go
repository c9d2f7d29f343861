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
		{`default stream "cpu" is not configured; configured are: readings, mem`, func(c *Config) { c.DefaultStream = "cpu" }},
		{"--min-time 1960-01-01T00:00:00Z is before 1970", func(c *Config) { c.MinTime = time.Date(1960, 1, 1, 0, 0, 0, 0, time.UTC) }},
		{"--ack  is not available", func(c *Config) { c.Acks = nil }},
		{"--ack journaled is not available; allowed: stored", func(c *Config) { c.Ack, c.Acks = telemetry.Journaled, []telemetry.Ack{telemetry.Stored} }},
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
