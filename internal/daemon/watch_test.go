package daemon

import (
	"context"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestLivePageKeepsHistory(t *testing.T) {
	t.Parallel()
	flags := memoryFlags(t)
	d := newTestDaemon(t, flags)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, d.run(ctx))
	assert.NoFileExists(t, filepath.Join(flags["data-dir"], "console-history"), "samples are taken until stop")
	require.NoError(t, d.stop(context.Background()))
	assert.FileExists(t, filepath.Join(flags["data-dir"], "console-history"))
	_, err := (&http.Client{Timeout: time.Second}).Get("http://" + d.listeners.admin.Addr().String())
	assert.Error(t, err)
}
