package journal_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/faulttest"
)

// A later process knows which sensors are stored ahead of others, even after a power
// failure.
func TestTrimmedSensorsAreRemembered(t *testing.T) {
	t.Parallel()
	disk := faulttest.NewFiles(1)
	cfg := config("/j", "s1")
	cfg.Files = disk
	j := open(t, cfg)
	durable, err := j.TrimSensor("readings", "a", 100)
	require.NoError(t, err)
	require.True(t, durable)
	durable, err = j.TrimSensor("events", "a", 50)
	require.NoError(t, err)
	require.True(t, durable)

	cfg.Session, cfg.Files = "s2", disk.PowerCut()
	j = open(t, cfg)
	assert.True(t, j.Trimmed("readings", "a", 99))
	assert.False(t, j.Trimmed("readings", "a", 100))
	assert.True(t, j.Trimmed("events", "a", 49))
	assert.False(t, j.Trimmed("events", "a", 50))
	assert.False(t, j.Trimmed("readings", "b", 0))
}

func TestTrimmedSensorsAreBounded(t *testing.T) {
	t.Parallel()
	cfg := config("/j", "s1")
	cfg.Files = faulttest.NewFiles(1)
	j := open(t, cfg)
	for i := range 1000 {
		durable, err := j.TrimSensor("readings", fmt.Sprint(i), 100)
		require.NoError(t, err)
		require.True(t, durable)
	}
	durable, err := j.TrimSensor("readings", "one more", 200)
	require.NoError(t, err)
	assert.False(t, durable)
	durable, err = j.TrimSensor("readings", "7", 150)
	require.NoError(t, err)
	assert.True(t, durable, "it is known")
	assert.True(t, j.Trimmed("readings", "7", 149))
	j.Trim(100)
	durable, err = j.TrimSensor("readings", "one more", 200)
	require.NoError(t, err)
	assert.True(t, durable, "the others are not needed any more")
	assert.False(t, j.Trimmed("readings", "8", 99))
	assert.True(t, j.Trimmed("readings", "7", 149))
}
