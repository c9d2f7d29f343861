package main

import (
	"encoding/json"
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/config"
)

func TestCSVCannotControlATerminal(t *testing.T) {
	t.Parallel()
	item := json.RawMessage(`{"sensorId":"s","ts":"2026-11-21T10:00:00Z","fields":{"a\u009b":"\u001b]0;title\u0007","b":"plain, text","c":1.5}}`)
	for _, shown := range []bool{true, false} {
		var out strings.Builder
		c := &csvPrinter{w: &out, kind: readingsKind(), terminal: shown, seen: map[string]bool{"a\u009b": true, "b": true, "c": true}}
		require.NoError(t, c.page(rowsOf(t, c.kind, item)))
		require.NoError(t, c.end())
		assert.Equal(t, !shown, strings.ContainsAny(out.String(), "\x1b\a\u009b"), "in a file they are as they were sent: %q", out.String())
		assert.Contains(t, out.String(), `"plain, text",1.5`)
	}
}

func TestAPasswordInAURLIsNotRepeated(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"http://u:CANARY@host:1":       "http://***@host:1",
		"http://CANARY@host":           "http://***@host",
		"u:CANARY@host":                "***@host",
		"http://u:CANARY@x@host":       "http://***@host",
		"http://host:8430/p":           "http://host:8430/p",
		"ftp://u:CANARY://x@host?a=b":  "ftp://***@host?a=b",
		"http://u:CANARY@[::1]:8430/p": "http://***@[::1]:8430/p",
	} {
		assert.Equal(t, want, config.MaskUser(address))
	}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	gone := listener.Addr().String()
	require.NoError(t, listener.Close())
	for _, address := range []string{"http://u:CANARY@" + gone, "gopher://u:CANARY@" + gone, "u:CANARY@" + gone} {
		for _, args := range [][]string{{"query", "s", "--url", address}, {"load", "--target", address}, {"load", "--target", "grpc://" + gone, "--http", address}, {"load", "--admin", address}} {
			got := runBrim(t, nil, args...)
			require.ErrorContains(t, got.err, "***@"+gone)
			assert.NotContains(t, got.err.Error()+got.stdout+got.stderr, "CANARY")
		}
	}
}
