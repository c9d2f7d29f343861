package launch_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/launch"
)

func TestLoadReturnsResult(t *testing.T) {
	t.Setenv("BRIM_MONGO_URI", "mongodb://elsewhere")
	d := &launch.Daemon{HTTP: "127.0.0.1:1"}
	came, err := launch.Load(t.Context(), itself(t), d, "--sensors", "3")
	require.NoError(t, err)
	assert.EqualValues(t, 7, came.Sent)
	assert.Equal(t, []string{"load --target http://127.0.0.1:1 --output json --sensors 3 uri= alone=true"}, came.FirstErrors,
		"it has no settings of ours, and a terminal's Ctrl-C is not for it")
}

func TestFailedLoadIsAnError(t *testing.T) {
	t.Parallel()
	d := &launch.Daemon{HTTP: "127.0.0.1:1"}
	_, err := launch.Load(t.Context(), itself(t), d, "fails")
	require.ErrorContains(t, err, "run brim load fails: exit status 1\nno such stream")
	_, err = launch.Load(t.Context(), itself(t), d, "babbles")
	require.ErrorContains(t, err, "read the result of brim load")
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err = launch.Load(ctx, itself(t), d, "hangs")
	require.ErrorIs(t, err, context.DeadlineExceeded)
}
