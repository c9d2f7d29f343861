package ingest

import (
	"errors"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
)

// serve sends a request without a body through the handler.
func serve(t testing.TB, d *Server, method, path string, headers ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest(method, path, nil)
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	d.Handler().ServeHTTP(w, r)
	return w
}

func TestWhatTheDoorTellsAboutItself(t *testing.T) {
	t.Parallel()
	d, _ := newTestServer(t)
	w := serve(t, d, "GET", "/v1/streams")
	assert.Equal(t, 200, w.Code)
	assert.JSONEq(t, `{"default":"readings","acks":["stored","journaled"],"streams":[
		{"name":"readings","storage":"bucket","granularity":"5m","granularity_seconds":300,"bucket_max_readings":1000,"bucket_max_bytes":262144,"retention_seconds":0},
		{"name":"mem","storage":"timeseries","granularity":"1h","granularity_seconds":3600,"retention_seconds":86400}]}`, w.Body.String())

	for _, method := range []string{"GET", "HEAD"} {
		w = serve(t, d, method, "/ping")
		assert.Equal(t, 204, w.Code)
		assert.Equal(t, "brim-test", w.Header().Get("X-Influxdb-Version"))
	}
	w = serve(t, d, "GET", "/health")
	assert.Equal(t, 200, w.Code)
	assert.JSONEq(t, `{"name":"brim","message":"ready for readings","status":"pass","checks":[],"version":"test"}`, w.Body.String())
}

func TestHealthFailsWhileNothingCanBeTaken(t *testing.T) {
	t.Parallel()
	var away error
	d, _ := newTestServer(t, func(c *Config) { c.Available = func() error { return away } })
	assert.Equal(t, 200, serve(t, d, "GET", "/health").Code)
	away = errors.New("no server")
	w := serve(t, d, "GET", "/health")
	assert.Equal(t, 503, w.Code)
	assert.Contains(t, w.Body.String(), `"status":"fail"`)
	assert.NotContains(t, w.Body.String(), "no server", "what ails the inside is for the operator")
}
