package access_test

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/access"
	"github.com/brim-telemetry/brim/internal/access/accesstest"
)

// TestDaemonsPresentACertificateThatIsAccepted: the server would close the connection on
// any other, even if it does not require one.
func TestDaemonsPresentACertificateThatIsAccepted(t *testing.T) {
	t.Parallel()
	authority, other := accesstest.NewAuthority(t, "test"), accesstest.NewAuthority(t, "other")
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, len(r.TLS.PeerCertificates))
	}))
	s.TLS = &tls.Config{
		Certificates: []tls.Certificate{authority.Server("brim", tomorrow()).TLS(t)}, ClientCAs: authority.Pool(), ClientAuth: tls.VerifyClientCertIfGiven, MinVersion: tls.VersionTLS12,
	}
	s.StartTLS()
	t.Cleanup(s.Close)
	for name, c := range map[string]struct {
		own       accesstest.Pair
		presented int64
	}{
		"a client's":           {authority.Client("brim-2"), 1},
		"a server's only":      {authority.Server("brim-2", tomorrow()), 0},
		"of another authority": {other.Client("brim-2"), 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cert, key := c.own.Write(t, t.TempDir())
			own, err := access.NewTLS(access.TLSConfig{CertFile: cert, KeyFile: key, Logger: slog.New(slog.DiscardHandler)})
			require.NoError(t, err)
			transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: authority.Pool(), GetClientCertificate: own.ClientCertificate, MinVersion: tls.VersionTLS12}}
			t.Cleanup(transport.CloseIdleConnections)
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL, http.NoBody)
			require.NoError(t, err)
			resp, err := (&http.Client{Transport: transport}).Do(req)
			require.NoError(t, err)
			defer resp.Body.Close()
			var presented int64
			_, err = fmt.Fscan(resp.Body, &presented)
			require.NoError(t, err)
			assert.Equal(t, c.presented, presented)
		})
	}
}
