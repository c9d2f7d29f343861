package send

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/brim-telemetry/brim/pkg/telemetrypb"
)

// onlyStream answers every request as if all was accepted.
type onlyStream struct {
	telemetrypb.UnimplementedIngestServiceServer
}

func (onlyStream) WriteStream(s grpc.BidiStreamingServer[telemetrypb.WriteRequest, telemetrypb.WriteResponse]) error {
	for {
		r, err := s.Recv()
		if err != nil {
			return nil //nolint:nilerr // the client has ended the call, in whatever way
		}
		if err := s.Send(&telemetrypb.WriteResponse{Accepted: uint32(len(r.GetReadings()))}); err != nil {
			return err
		}
	}
}

func TestTLS(t *testing.T) {
	t.Parallel()
	web := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"accepted":1,"rejected":0}`)
	}))
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := grpc.NewServer(grpc.WaitForHandlers(true), grpc.Creds(credentials.NewServerTLSFromCert(&web.TLS.Certificates[0])))
	telemetrypb.RegisterIngestServiceServer(server, onlyStream{})
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		web.Close()
		server.Stop()
		assert.NoError(t, <-served)
	})
	known := x509.NewCertPool()
	known.AddCert(web.Certificate())
	for _, target := range []string{web.URL, "grpcs://" + listener.Addr().String()} {
		// Closed before its daemon.
		pool, err := New(Config{Target: target, Timeout: 10 * time.Second, TLS: &tls.Config{RootCAs: known, MinVersion: tls.VersionTLS12}})
		require.NoError(t, err)
		require.NoError(t, pool.Check(t.Context()))
		s, err := pool.Sender(t.Context())
		require.NoError(t, err)
		a, err := s.Send(t.Context(), weather(1))
		require.NoError(t, err)
		assert.Equal(t, 1, a.Accepted)
		require.NoError(t, s.Close())
		require.NoError(t, pool.Close())

		untrusting, err := New(Config{Target: target, Timeout: 10 * time.Second})
		require.NoError(t, err)
		require.ErrorContains(t, untrusting.Check(t.Context()), "certificate")
		require.NoError(t, untrusting.Close())
	}
}
