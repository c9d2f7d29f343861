package daemon

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/access"
	"github.com/brim-telemetry/brim/internal/access/accesstest"
)

// TestRevocationCountsWhileStopping: a token is revoked after run has returned,
// while the listeners are still open.
func TestRevocationCountsWhileStopping(t *testing.T) {
	t.Parallel()
	token, err := access.NewToken()
	require.NoError(t, err)
	dir := t.TempDir()
	flags := memoryFlags(t)
	flags["access-file"] = accesstest.File(t, dir, "access.yaml", fmt.Appendf(nil, "identities:\n  - {name: operator, hash: %q, scopes: [admin]}\n", access.HashOf(token)))
	d := newTestDaemon(t, flags)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, d.run(ctx))
	status := func() int {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+d.listeners.admin.Addr().String()+"/status", http.NoBody)
		require.NoError(t, err)
		r.Header.Set("Authorization", "Bearer "+token)
		r.Close = true
		resp, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		return resp.StatusCode
	}
	assert.Equal(t, http.StatusOK, status())
	accesstest.File(t, dir, "access.yaml", []byte("identities: []\n"))
	require.Eventually(t, func() bool { return status() == http.StatusUnauthorized }, patience, 50*time.Millisecond)
	require.NoError(t, d.stop(context.Background()))
}
