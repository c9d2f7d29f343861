package ingest

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// post sends a body through the handler without a network.
func post(t testing.TB, d *Door, path, contentType, body string, headers ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	d.Handler().ServeHTTP(w, r)
	return w
}

func TestHTTPTakesAnObject(t *testing.T) {
	t.Parallel()
	d, j := newTestDoor(t)
	w := post(t, d, "/v1/readings", "application/json", `{"sensorId":"s-1","ts":"2026-11-21T10:00:00.123Z","fields":{"t":23.5,"h":65},"tags":{"site":"north"}}`)
	assert.Equal(t, 200, w.Code)
	assert.JSONEq(t, `{"accepted":1,"rejected":0,"ack":"stored","errors":[]}`, w.Body.String())
	require.Len(t, j.readings(), 1)
	assert.Equal(t, "s-1", j.readings()[0].Sensor)
}
