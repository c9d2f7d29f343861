package machine

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestProcessTimeAndMemory(t *testing.T) {
	t.Parallel()
	before, err := CPU(os.Getpid())
	require.NoError(t, err)
	var used time.Duration
	for began := time.Now(); used < 2*10*time.Millisecond && time.Since(began) < time.Minute; {
		after, err := CPU(os.Getpid())
		require.NoError(t, err)
		used = after - before
	}
	assert.GreaterOrEqual(t, used, 20*time.Millisecond, "a busy process uses time")

	now, most, err := Memory(os.Getpid())
	require.NoError(t, err)
	assert.Greater(t, now, int64(1<<20), "in bytes")
	assert.Less(t, most, int64(1<<40))
	assert.GreaterOrEqual(t, most, now)

	_, err = CPU(-1)
	assert.ErrorContains(t, err, "CPU time of -1")
	_, _, err = Memory(-1)
	assert.ErrorContains(t, err, "memory of -1")
}
