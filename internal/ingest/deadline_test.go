package ingest

import (
	"crypto/tls"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/access/accesstest"
)

// TestWriteDeadlineOverTLS writes to a client that reads nothing after the handshake.
func TestWriteDeadlineOverTLS(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		do    func(*tls.Conn) error
		after time.Duration
	}{
		"a write after the handshake": {func(c *tls.Conn) error {
			_, err := c.Write([]byte("answer"))
			return err
		}, answerTime},
		"the alert of a close": {(*tls.Conn).Close, 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				authority := accesstest.NewAuthority(t, "test")
				near, far := net.Pipe()
				defer far.Close()
				server := tls.Server(&limitedConn{Conn: near, limit: answerTime}, &tls.Config{
					Certificates:           []tls.Certificate{authority.Server("x", time.Now().Add(time.Hour)).TLS(t)},
					SessionTicketsDisabled: true, // they would be written to a client that no longer reads
				})
				defer near.Close()
				client := make(chan error, 1)
				go func() {
					client <- tls.Client(far, &tls.Config{RootCAs: authority.Pool(), ServerName: "localhost"}).HandshakeContext(t.Context())
				}()
				// As net/http does.
				require.NoError(t, server.SetWriteDeadline(time.Now().Add(10*time.Second)))
				require.NoError(t, server.HandshakeContext(t.Context()))
				require.NoError(t, server.SetWriteDeadline(time.Time{}))
				require.NoError(t, <-client)

				done := make(chan error, 1)
				start := time.Now()
				go func() { done <- c.do(server) }()
				select {
				case err := <-done:
					require.ErrorIs(t, err, os.ErrDeadlineExceeded)
					assert.Equal(t, c.after, time.Since(start))
				case <-time.After(time.Hour):
					near.Close()
					<-done
					t.Fatal("the write had no deadline")
				}
			})
		})
	}
}

// TestWriteDeadlineMoves keeps a connection for longer than its limit, with a client
// that reads.
func TestWriteDeadlineMoves(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer far.Close()
		conn := &limitedConn{Conn: near, limit: answerTime}
		defer conn.Close()
		for range 10 {
			go func() { _, _ = far.Read(make([]byte, 10)) }()
			_, err := conn.Write([]byte("answer"))
			require.NoError(t, err)
			<-time.After(answerTime / 2)
		}
	})
}
