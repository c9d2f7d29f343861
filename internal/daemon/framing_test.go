package daemon

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestConnectionClosesAfterChunkedRequest sends an ambiguously framed request,
// followed by another, to both HTTP listeners.
func TestConnectionClosesAfterChunkedRequest(t *testing.T) {
	t.Parallel()
	d := newTestDaemon(t, memoryFlags(t))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- d.run(ctx) }()
	t.Cleanup(func() {
		cancel()
		assert.NoError(t, <-done)
	})
	require.Eventually(t, func() bool { return d.available() == nil }, patience, 5*time.Millisecond)
	one := `{"sensorId":"x","fields":{"v":1}}`
	for _, l := range []net.Listener{d.listeners.http, d.listeners.admin} {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", l.Addr().String())
		require.NoError(t, err)
		_, err = fmt.Fprintf(conn, "POST /v1/readings HTTP/1.1\r\nHost: b\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n"+
			"GET /healthz HTTP/1.1\r\nHost: b\r\n\r\n", len(one), one)
		require.NoError(t, err)
		r := bufio.NewReader(conn)
		response, err := http.ReadResponse(r, nil)
		require.NoError(t, err)
		body, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		assert.NotEqual(t, http.StatusInternalServerError, response.StatusCode, "%s", body)
		assert.True(t, response.Close)
		_, err = r.ReadByte()
		require.ErrorIs(t, err, io.EOF)
		require.NoError(t, conn.Close())
	}
}
