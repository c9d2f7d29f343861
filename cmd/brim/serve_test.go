package main

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTakenPortIsAnErrorThatNamesItsFlag(t *testing.T) {
	t.Parallel()
	taken, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	for _, flag := range []string{"http-addr", "grpc-addr", "admin-addr"} {
		args := []string{"serve", "--storage", "memory", "--data-dir", t.TempDir(), "--http-addr", "127.0.0.1:0", "--grpc-addr", "127.0.0.1:0", "--admin-addr", "127.0.0.1:0", "--log-level", "debug"}
		got := runBrim(t, nil, append(args, "--"+flag, taken.Addr().String())...)
		assert.ErrorContains(t, got.err, "(--"+flag+")")
		assert.ErrorContains(t, got.err, "address already in use")
		assert.Equal(t, exitFailed, got.code)
		assert.Regexp(t, "level=DEBUG msg=stopped ", got.stderr, "it never ran, so that it stopped is no news")
		assert.NotContains(t, got.stderr, "level=INFO msg=stopped")
	}
}

func TestServeEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	var logs synced
	done := make(chan error, 1)
	go func() {
		args := []string{"serve", "--storage", "memory", "--data-dir", t.TempDir(), "--http-addr", "127.0.0.1:0", "--grpc-addr", "127.0.0.1:0", "--admin-addr", "127.0.0.1:0", "--log-format", "json"}
		done <- run(ctx, args, nil, strings.NewReader(""), io.Discard, &logs)
	}()
	require.Eventually(t, func() bool { return strings.Contains(logs.String(), `"msg":"ready"`) }, patience, 5*time.Millisecond)
	cancel()
	require.NoError(t, <-done)
	assert.Contains(t, logs.String(), `"msg":"stopped"`)
	for line := range strings.Lines(logs.String()) {
		assert.True(t, json.Valid([]byte(line)), line)
	}
}
