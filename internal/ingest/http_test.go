package ingest

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// post sends a body through the handler without a network.
func post(t testing.TB, d *Server, path, contentType, body string, headers ...string) *httptest.ResponseRecorder {
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

// laterReader reads what arrives some time after the headers.
type laterReader struct {
	io.Reader

	arrive func()
}

func (l laterReader) Read(p []byte) (int, error) {
	l.arrive()
	return l.Reader.Read(p)
}

// A body may arrive for minutes, and have readings of these minutes.
func TestTheTimeOfReceiptIsThatOfTheBody(t *testing.T) {
	t.Parallel()
	now, later := arrivalTime, arrivalTime.Add(time.Minute)
	d, j := newTestServer(t, func(c *Config) { c.MaxFuture, c.Now = time.Second, func() time.Time { return now } })
	body := strings.NewReader(`{"sensorId":"s","fields":{"t":1}}` + "\n" + `{"sensorId":"s","ts":` + strconv.FormatInt(later.UnixMilli(), 10) + `,"fields":{"t":2}}`)
	r := httptest.NewRequest(http.MethodPost, "/v1/readings", laterReader{body, func() { now = later }})
	w := httptest.NewRecorder()
	d.Handler().ServeHTTP(w, r)
	assert.Equal(t, 200, w.Code, w.Body)
	for _, reading := range j.readings() {
		assert.Equal(t, later.UnixMilli(), reading.Time.UnixMilli())
	}
}

func TestHTTPTakesAnObject(t *testing.T) {
	t.Parallel()
	d, j := newTestServer(t)
	w := post(t, d, "/v1/readings", "application/json", `{"sensorId":"s-1","ts":"2026-11-21T10:00:00.123Z","fields":{"t":23.5,"h":65},"tags":{"site":"north"}}`)
	assert.Equal(t, 200, w.Code)
	assert.JSONEq(t, `{"accepted":1,"rejected":0,"ack":"stored","errors":[]}`, w.Body.String())
	require.Len(t, j.readings(), 1)
	assert.Equal(t, "s-1", j.readings()[0].Sensor)
}

func TestUnknownParametersAreRefused(t *testing.T) {
	t.Parallel()
	d, j := newTestServer(t)
	for query, message := range map[string]string{
		"/v1/readings?stream=mem":               "the parameter stream is for reading; readings go to a stream with POST /v1/streams/STREAM/readings",
		"/v1/streams/mem/readings?stream=nope":  "the parameter stream is for reading",
		"/v1/readings?precision=ms":             `parameter \"precision\" is unknown; allowed: ack`,
		"/v1/readings?ack=stored&ack=journaled": "parameter ack is given 2 times; it is allowed once",
		"/v1/readings?%zz":                      "the query string is malformed",
		"/write?stream=mem":                     "the parameter stream is for reading",
		"/api/v2/write?precison=ms":             `parameter \"precison\" is unknown; allowed: ack, precision, db, rp, bucket, org, orgID, u, p, consistency`,
	} {
		w := post(t, d, query, "", goodReading)
		assert.Equal(t, 400, w.Code, query)
		assert.Contains(t, w.Body.String(), `"code":"invalid_parameter"`, query)
		assert.Contains(t, w.Body.String(), message, query)
	}
	assert.Empty(t, j.readings())
	w := post(t, d, "/write?u=x&p=y&db=d&rp=r&precision=ms&consistency=one", "", "m t=1")
	assert.Equal(t, 204, w.Code, w.Body)
	w = post(t, d, "/api/v2/write?org=o&orgID=1&bucket=b&precision=ns", "", "m t=1")
	assert.Equal(t, 204, w.Code, w.Body)
	assert.Len(t, j.readings(), 2)
}
