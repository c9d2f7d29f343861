package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A holder answers as a test says, and remembers what it was asked.
type holder struct {
	answer func(context.Context) error
	stream string
	lease  time.Duration
	freed  string
}

func (h *holder) hold(ctx context.Context, stream string, lease time.Duration) (Held, error) {
	h.stream, h.lease = stream, lease
	return Held{Stream: stream, Session: "s1"}, h.answer(ctx)
}

func (h *holder) release(stream string) error {
	if stream != "readings" {
		return errUnknownStream
	}
	h.freed = stream
	return nil
}

func TestHoldAnswers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		hold   func(context.Context) error
		target string
		code   int
		want   string
		lease  time.Duration
	}{
		"held":                {func(context.Context) error { return nil }, "/hold?stream=readings&for=20s", http.StatusOK, `"session": "s1"`, 20 * time.Second},
		"a minute by default": {func(context.Context) error { return nil }, "/hold?stream=readings", http.StatusOK, `"stream": "readings"`, time.Minute},
		"until the restart":   {func(context.Context) error { return nil }, "/hold?stream=readings&for=restart", http.StatusOK, `"since"`, 0},
		"not in time":         {func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, "/hold?stream=readings&timeout=1ms", http.StatusGatewayTimeout, `"hold_timeout"`, time.Minute},
		"while it starts":     {func(context.Context) error { return errNotReady }, "/hold?stream=readings", http.StatusServiceUnavailable, `"starting"`, time.Minute},
		"of no stream":        {func(context.Context) error { return errUnknownStream }, "/hold?stream=other", http.StatusNotFound, `"unknown_stream"`, time.Minute},
		"for another cause":   {func(context.Context) error { return errors.New("secret words") }, "/hold?stream=readings", http.StatusInternalServerError, `"internal"`, time.Minute},
		"without a stream":    {nil, "/hold", http.StatusBadRequest, "stream is missing", 0},
		"for too long":        {nil, "/hold?stream=readings&for=11m", http.StatusBadRequest, "up to 10m", 0},
		"for nothing":         {nil, "/hold?stream=readings&for=0s", http.StatusBadRequest, "above 0", 0},
		"timeout malformed":   {nil, "/hold?stream=readings&timeout=soon", http.StatusBadRequest, `timeout \"soon\"`, 0},
		"parameter unknown":   {nil, "/hold?stream=readings&until=1s", http.StatusBadRequest, `\"until\" is unknown`, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			asked := &holder{answer: c.hold}
			resp, body := call(t, samplePages(t, func(cfg *adminPages) { cfg.hold, cfg.release = asked.hold, asked.release }), http.MethodPost, c.target)
			assert.Equal(t, c.code, resp.StatusCode, body)
			assert.Contains(t, body, c.want)
			assert.NotContains(t, body, "secret words")
			assert.True(t, json.Valid([]byte(body)))
			assert.Equal(t, c.lease, asked.lease)
			assert.Equal(t, c.hold != nil, asked.stream != "", "only a good request is carried out")
		})
	}
}

func TestReleaseNeedsStream(t *testing.T) {
	t.Parallel()
	asked := &holder{}
	h := samplePages(t, func(cfg *adminPages) { cfg.hold, cfg.release = asked.hold, asked.release })
	resp, body := call(t, h, http.MethodPost, "/release?stream=readings")
	require.Equal(t, http.StatusOK, resp.StatusCode)
	assert.JSONEq(t, `{"stream":"readings","released":true}`, body)
	assert.Equal(t, "readings", asked.freed)
	resp, _ = call(t, h, http.MethodPost, "/release?stream=other")
	assert.Equal(t, http.StatusNotFound, resp.StatusCode)
	resp, _ = call(t, h, http.MethodPost, "/release")
	assert.Equal(t, http.StatusBadRequest, resp.StatusCode)
}
