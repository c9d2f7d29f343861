package journal_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/faulttest"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A later process knows which sensors are stored ahead of others, even after a power
// failure.
func TestTrimmedSensorsAreRemembered(t *testing.T) {
	t.Parallel()
	disk := faulttest.NewFiles(1)
	cfg := config("/j", "s1")
	cfg.Files = disk
	j := open(t, cfg)
	_, err := j.Append(t.Context(), makeBatch("readings", 0, 10), batch.Request{Want: telemetry.Journaled})
	require.NoError(t, err)
	require.Greater(t, j.End(), uint64(100))
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

// An entry is dropped when the mark says as much, and only then.
func TestTrimmedSensorsOutliveAnOlderMark(t *testing.T) {
	t.Parallel()
	disk := faulttest.NewFiles(1)
	cfg := config("/j", "s1")
	cfg.Files = disk
	j := open(t, cfg)
	var ends []uint64
	for n := range 2 {
		_, err := j.Append(t.Context(), makeBatch("readings", n*10, 10), batch.Request{Want: telemetry.Journaled})
		require.NoError(t, err)
		ends = append(ends, j.End())
	}
	for n, sensor := range []string{"a", "b"} {
		durable, err := j.TrimSensor("readings", sensor, ends[n])
		require.NoError(t, err)
		require.True(t, durable)
		j.Trim(ends[0])
	}
	cfg.Session, cfg.Files = "s2", disk.PowerCut()
	j = open(t, cfg)
	assert.True(t, j.Oldest() >= ends[0] || j.Trimmed("readings", "a", 0), "a reading of a would be stored again")
	assert.True(t, j.Trimmed("readings", "b", ends[0]))
}

// A journal whose segments were removed begins again; what was trimmed says nothing about it.
func TestTrimmedSensorsOfAnotherJournalAreForgotten(t *testing.T) {
	t.Parallel()
	cfg := config("/j", "s1")
	cfg.Files = faulttest.NewFiles(1)
	j := open(t, cfg)
	_, err := j.TrimSensor("readings", "a", 1000)
	require.NoError(t, err)
	require.NoError(t, j.Close())
	cfg.Session = "s2"
	assert.False(t, open(t, cfg).Trimmed("readings", "a", 1), "position 1000 does not exist yet")
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
