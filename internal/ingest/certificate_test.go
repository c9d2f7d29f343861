package ingest

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"github.com/brim-telemetry/brim/internal/access"
	"github.com/brim-telemetry/brim/internal/access/accesstest"
)

// A callOf is a call of gRPC that has nothing but a context.
type callOf struct {
	grpc.ServerStream

	ctx context.Context
}

func (c callOf) Context() context.Context { return c.ctx }

// TestAStreamEndsWithItsCertificate has the certificate expire by which a stream
// was begun.
func TestAStreamEndsWithItsCertificate(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "access.yaml")
	require.NoError(t, os.WriteFile(path, []byte("identities:\n  - {name: edge, certificate: 'cn:edge-7', scopes: [ingest]}\n"), 0o600))
	certificate := accesstest.NewAuthority(t, "clients").Client("edge-7").TLS(t).Leaf
	now := certificate.NotAfter.Add(-time.Minute)
	guard, err := access.Open(access.Config{Path: path, Now: func() time.Time { return now }})
	require.NoError(t, err)
	d, _ := newTestDoor(t, func(c *Config) { c.Guard = guard })
	shown := tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{certificate}}}
	ctx := peer.NewContext(t.Context(), &peer.Peer{AuthInfo: credentials.TLSInfo{State: shown}})
	call := &grpc.StreamServerInfo{FullMethod: "/" + serviceName + "/WriteStream"}
	err = d.guardCall(nil, callOf{ctx: ctx}, call, func(_ any, stream grpc.ServerStream) error {
		require.NoError(t, d.stillMay(stream.Context()))
		now = now.Add(2 * time.Minute)
		return d.stillMay(stream.Context())
	})
	require.ErrorContains(t, err, "the client certificate expired at")
}
