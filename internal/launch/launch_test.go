package launch_test

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/launch"
)

func itself(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	require.NoError(t, err)
	return path
}

func TestStartWaitsUntilReady(t *testing.T) {
	t.Setenv("BRIM_MONGO_URI", "mongodb://elsewhere")
	t.Setenv("BRIM_MONGOD_BIN", "/bin/mongod")
	var out bytes.Buffer // read only when the daemon has ended
	d, err := launch.Start(t.Context(), launch.Config{Brim: itself(t), Args: []string{"ready"}, Out: &out})
	require.NoError(t, err)
	assert.Equal(t, []string{"127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"}, []string{d.HTTP, d.GRPC, d.Admin})
	assert.Positive(t, d.Pid())
	require.NoError(t, d.Stop())
	require.NoError(t, d.Stop(), "it has ended")
	<-d.Exited()
	assert.Contains(t, out.String(), "installs a mongod\n")
	assert.Contains(t, out.String(), "the disk is slow")
	assert.NotContains(t, out.String(), "of no interest")
	assert.Contains(t, out.String(), "--admin-addr 127.0.0.1:0 ready uri= bin=/bin/mongod")
}

func TestStartOfMissingOrExitingDaemonFails(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	_, err := launch.Start(t.Context(), launch.Config{Brim: "./no-such-program", Out: &out})
	require.ErrorContains(t, err, "make build")
	_, err = launch.Start(t.Context(), launch.Config{Brim: itself(t), Args: []string{"ends"}, Out: &out})
	require.ErrorContains(t, err, "ended before it was ready: exit status 2")
	assert.Contains(t, out.String(), "no such flag")
}

func TestStartEndsWithContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	var out strings.Builder
	_, err := launch.Start(ctx, launch.Config{Brim: itself(t), Args: []string{"hangs"}, Out: &out})
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

func TestAbortKillsHungDaemon(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	abort, kill := context.WithCancel(t.Context())
	out := &saying{what: "not yet", then: kill}
	_, err := launch.Start(ctx, launch.Config{Brim: itself(t), Args: []string{"stays"}, Out: out, Abort: abort})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	assert.NotContains(t, err.Error(), "did not stop", "it did not wait")
}

// A saying does something when it is written.
type saying struct {
	what string
	then func()
}

func (s *saying) Write(b []byte) (int, error) {
	if strings.Contains(string(b), s.what) {
		s.then()
	}
	return len(b), nil
}
