package ingest

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/access"
	"github.com/brim-telemetry/brim/internal/access/accesstest"
)

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
	d, _ := newTestServer(t, func(c *Config) { c.Guard = guard })
	shown := tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{certificate}}}
	r := httptest.NewRequest(http.MethodPost, writeStreamPath, nil)
	r.TLS = &shown
	c, err := d.newCall(httptest.NewRecorder(), r)
	require.NoError(t, err)
	require.NoError(t, access.Recheck(c.ctx))
	now = now.Add(2 * time.Minute)
	require.ErrorContains(t, access.Recheck(c.ctx), "the client certificate expired at")
}
