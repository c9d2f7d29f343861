package access_test

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/access"
	"github.com/brim-telemetry/brim/internal/access/accesstest"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// TestOpenConnectionIsRefusedWhenItsCertificateExpires: certificates were valid
// when the connections were accepted.
func TestOpenConnectionIsRefusedWhenItsCertificateExpires(t *testing.T) {
	t.Parallel()
	clients, others := accesstest.NewAuthority(t, "clients"), accesstest.NewAuthority(t, "others")
	dir, late := t.TempDir(), false
	now := func() time.Time {
		if late {
			return time.Now().Add(2 * time.Hour)
		}
		return time.Now()
	}
	c := access.TLSConfig{ClientCAFile: accesstest.File(t, dir, "clients.pem", clients.PEM), Now: now}
	c.CertFile, c.KeyFile = clients.Server("brim", tomorrow()).Write(t, dir)
	secure, err := access.NewTLS(c)
	require.NoError(t, err)
	file := accesstest.File(t, dir, "access.yaml", []byte("identities:\n  - {name: edge, certificate: 'cn:edge-7', scopes: [ingest]}\n"))
	guard, err := access.Open(access.Config{Path: file, Now: now, TLS: secure})
	require.NoError(t, err)

	// connection is a request over a connection from the time when an authority was trusted.
	connection := func(a *accesstest.Authority) *http.Request {
		chains, err := a.Client("edge-7").TLS(t).Leaf.Verify(x509.VerifyOptions{Roots: a.Pool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
		require.NoError(t, err)
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
		r.TLS = &tls.ConnectionState{VerifiedChains: chains}
		return r
	}
	refused := func(err error, says string) {
		t.Helper()
		require.ErrorContains(t, err, says)
		assert.Equal(t, telemetry.Unauthenticated, telemetry.KindOf(err))
	}
	ours := connection(clients)
	shown := access.OfRequest(ours)
	who, err := guard.Identify(shown)
	require.NoError(t, err)
	stream := access.WithCredentials(t.Context(), who, shown)
	require.NoError(t, access.Recheck(stream))

	accesstest.File(t, dir, "clients.pem", others.PEM)
	secure.Settle()
	for range 2 {
		_, err = guard.Identify(access.OfRequest(ours))
		refused(err, "the authority that signed the client certificate is no longer trusted")
		refused(access.Recheck(stream), "is no longer trusted")
	}
	theirs := connection(others)
	_, err = guard.Identify(access.OfRequest(theirs))
	require.NoError(t, err)

	accesstest.File(t, dir, "clients.pem", append(others.PEM, clients.PEM...))
	secure.Settle()
	for _, r := range []*http.Request{ours, theirs} {
		_, err = guard.Identify(access.OfRequest(r))
		require.NoError(t, err)
	}
	require.NoError(t, access.Recheck(stream))

	late = true
	_, err = guard.Identify(access.OfRequest(ours))
	refused(err, "the client certificate expired at")
	refused(access.Recheck(stream), "the client certificate expired at")
	require.NoError(t, access.Recheck(access.With(t.Context(), who)), "who showed a token has no certificate that could end")
}
