package ingest

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/brim-telemetry/brim/pkg/telemetry"
	"github.com/brim-telemetry/brim/pkg/telemetrypb"
)

func TestStatusesAreInTheOrderOfResults(t *testing.T) {
	t.Parallel()
	for i, s := range statuses {
		assert.EqualValues(t, i, s.result)
	}
	assert.Len(t, statuses, int(internal)+1)
}

// TestEveryStatus drives each row of the table through each protocol.
func TestEveryStatus(t *testing.T) {
	t.Parallel()
	const good, bad = `{"sensorId":"s","fields":{"t":1}}`, `{"sensorId":"s"}`
	goodProto, badProto := pb(func(*telemetrypb.Reading) {}), pb(func(r *telemetrypb.Reading) { r.Fields = nil })
	both := []*telemetrypb.Reading{goodProto, badProto}
	appended := func(kind telemetry.ErrorKind) *fakeJournal {
		return &fakeJournal{err: &telemetry.Error{Kind: kind, Code: "why", Message: "because", RetryAfter: 1500 * time.Millisecond, Err: errors.New("secret")}}
	}
	for _, c := range []struct {
		name     string
		journal  *fakeJournal
		json     string
		line     string
		proto    []*telemetrypb.Reading
		http     int
		lineCode int
		grpc     codes.Code
		retry    string
	}{
		{"all taken", &fakeJournal{}, good, "m t=1", both[:1], 200, 204, codes.OK, ""},
		{"journaled only", &fakeJournal{reach: telemetry.Journaled}, good, "m t=1", both[:1], 202, 202, codes.OK, ""},
		{"partly taken", &fakeJournal{}, good + "\n" + bad, "m t=1\nm", both, 207, 400, codes.OK, ""},
		{"partly taken, journaled only", &fakeJournal{reach: telemetry.Journaled}, good + "\n" + bad, "m t=1\nm", both, 207, 400, codes.OK, ""},
		{"nothing taken", &fakeJournal{}, bad, "m", both[1:], 400, 400, codes.InvalidArgument, ""},
		{"no readings", &fakeJournal{}, "", "", nil, 400, 400, codes.InvalidArgument, ""},
		{"invalid", appended(telemetry.Invalid), good, "m t=1", both[:1], 400, 400, codes.InvalidArgument, ""},
		{"too large", appended(telemetry.TooLarge), good, "m t=1", both[:1], 413, 413, codes.ResourceExhausted, ""},
		{"unsupported", appended(telemetry.Unsupported), good, "m t=1", both[:1], 415, 415, codes.Unimplemented, ""},
		{"not found", appended(telemetry.NotFound), good, "m t=1", both[:1], 404, 404, codes.NotFound, ""},
		{"conflict", appended(telemetry.Conflict), good, "m t=1", both[:1], 409, 409, codes.AlreadyExists, ""},
		{"quota", appended(telemetry.Quota), good, "m t=1", both[:1], 429, 429, codes.ResourceExhausted, "2"},
		{"unavailable", appended(telemetry.Unavailable), good, "m t=1", both[:1], 503, 503, codes.Unavailable, "2"},
		{"unknown outcome", appended(telemetry.UnknownOutcome), good, "m t=1", both[:1], 504, 504, codes.DeadlineExceeded, ""},
		{"internal", appended(telemetry.Internal), good, "m t=1", both[:1], 500, 500, codes.Internal, ""},
		{"an error of another kind", &fakeJournal{err: errors.New("secret")}, good, "m t=1", both[:1], 500, 500, codes.Internal, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d, err := New(testConfig(), c.journal)
			require.NoError(t, err)
			w := post(t, d, "/v1/readings", typeLines, c.json)
			assert.Equal(t, c.http, w.Code, w.Body)
			assert.Equal(t, c.retry, w.Header().Get("Retry-After"))
			assert.Equal(t, "application/json", w.Header().Get("Content-Type"))
			assert.NotContains(t, w.Body.String(), "secret", "internal text stays inside")

			w = post(t, d, "/write", "", c.line)
			assert.Equal(t, c.lineCode, w.Code, w.Body)
			assert.Equal(t, c.retry, w.Header().Get("Retry-After"))

			_, err = dialGRPC(t, d).Write(t.Context(), &telemetrypb.WriteRequest{Readings: c.proto})
			assert.Equal(t, c.grpc, status.Code(err), err)
			assert.NotContains(t, status.Convert(err).Message(), "secret")
			assert.Equal(t, c.retry != "", hasRetryInfo(err))
		})
	}
}

func hasRetryInfo(err error) bool {
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.RetryInfo); ok {
			return info.GetRetryDelay().AsDuration() == 2*time.Second
		}
	}
	return false
}

func TestProblems(t *testing.T) {
	t.Parallel()
	d, _ := newTestServer(t, func(c *Config) { c.Acks = []telemetry.Ack{telemetry.Stored} })
	for _, c := range []struct {
		method, path string
		header       []string
		status       int
		answer       string
	}{
		{"POST", "/v1/streams/cpu/readings", nil, 404, `{"code":"stream_unknown","message":"there is no stream \"cpu\"; there are: readings, mem"}`},
		{"POST", "/v1/readings", []string{"Brim-Stream", "cpu"}, 404, `{"code":"stream_unknown","message":"there is no stream \"cpu\"; there are: readings, mem"}`},
		{"POST", "/v1/streams/mem/readings", []string{"Brim-Stream", "cpu"}, 400, `{"code":"invalid_parameter","message":"the path names stream \"mem\", and the header Brim-Stream names \"cpu\"; give one of them"}`},
		{"POST", "/v1/readings?ack=maybe", nil, 400, `{"code":"ack_unknown","message":"ack \"maybe\" is unknown; allowed: journaled and stored; this daemon can give: stored"}`},
		{"POST", "/v1/readings?ack=", nil, 400, `{"code":"ack_unknown","message":"ack \"\" is unknown; allowed: journaled and stored; this daemon can give: stored"}`},
		{"POST", "/v1/readings?ack=journaled", nil, 400, `{"code":"ack_unavailable","message":"ack journaled is not available from this daemon; allowed: stored"}`},
		{"POST", "/v1/readings", []string{"Brim-Ack", "journaled"}, 400, `{"code":"ack_unavailable","message":"ack journaled is not available from this daemon; allowed: stored"}`},
		{"GET", "/v1/readings", nil, 405, `{"code":"method_not_allowed","message":"GET is not allowed here; readings are sent with POST"}`},
		{"PUT", "/v1/streams/mem/readings", nil, 405, `{"code":"method_not_allowed","message":"PUT is not allowed here; readings are sent with POST"}`},
		{"POST", "/v1/streams", nil, 405, `{"code":"method_not_allowed","message":"POST is not allowed here"}`},
		{"GET", "/", nil, 404, `{"code":"path_unknown","message":"there is nothing at \"/\"; readings go to POST /v1/readings"}`},
		{"POST", "/v1/traces", nil, 404, `{"code":"path_unknown","message":"there is nothing at \"/v1/traces\"; of OpenTelemetry's signals, Brim accepts metrics: POST /v1/metrics. Do not export traces to it"}`},
		{"GET", "/api/v1/query", nil, 404, `{"code":"path_unknown","message":"there is nothing at \"/api/v1/query\"; the Prometheus query API is under /prometheus/api/v1, and remote write goes to POST /api/v1/write"}`},
		{"POST", "/v1/reading", nil, 404, `{"code":"path_unknown","message":"there is nothing at \"/v1/reading\"; readings go to POST /v1/readings"}`},
	} {
		w := serve(t, d, c.method, c.path, c.header...)
		assert.Equal(t, c.status, w.Code, c.path)
		assert.JSONEq(t, c.answer, w.Body.String(), c.path)
		switch {
		case c.status != http.StatusMethodNotAllowed:
			assert.Empty(t, w.Header().Get("Allow"))
		case c.path == "/v1/streams":
			assert.Equal(t, "GET, HEAD", w.Header().Get("Allow"))
		case c.path == "/v1/readings":
			assert.Equal(t, "GET, HEAD, POST", w.Header().Get("Allow"), "the reader serves GET and HEAD")
		default:
			assert.Equal(t, "POST", w.Header().Get("Allow"))
		}
	}
	w := serve(t, d, "GET", "/write")
	assert.Equal(t, 405, w.Code)
	assert.Equal(t, "POST", w.Header().Get("Allow"))
	assert.Contains(t, w.Body.String(), `"error":`)
}

func TestAckThatIsWantedReachesTheJournal(t *testing.T) {
	t.Parallel()
	d, j := newTestServer(t)
	body := `{"sensorId":"s","fields":{"t":1}}`
	post(t, d, "/v1/readings", typeJSON, body)
	post(t, d, "/v1/readings?ack=journaled", typeJSON, body)
	post(t, d, "/v1/readings", typeJSON, body, "Brim-Ack", "journaled")
	post(t, d, "/v1/readings?ack=stored", typeJSON, body, "Brim-Ack", "journaled")
	post(t, d, "/write?ack=journaled", "", "m t=1")
	assert.Equal(t, []telemetry.Ack{"stored", "journaled", "journaled", "stored", "journaled"}, j.wants)
}

func TestAfterStopNothingIsTaken(t *testing.T) {
	t.Parallel()
	d, j := newTestServer(t)
	client := dialGRPC(t, d)
	d.Stop()
	d.Stop()
	for _, path := range []string{"/v1/readings", "/v1/streams/mem/readings", "/write", "/api/v2/write"} {
		w := post(t, d, path, typeJSON, `{"sensorId":"s","fields":{"t":1}}`)
		assert.Equal(t, 503, w.Code, path)
		assert.Equal(t, "1", w.Header().Get("Retry-After"), path)
		assert.Contains(t, w.Body.String(), `"code":"stopping"`, path)
	}
	_, err := client.Write(t.Context(), &telemetrypb.WriteRequest{RequestId: "7", Readings: []*telemetrypb.Reading{pb(func(*telemetrypb.Reading) {})}})
	assert.Equal(t, codes.Unavailable, status.Code(err))
	assert.Contains(t, status.Convert(err).Message(), "stopping: the daemon is stopping; nothing was accepted")
	assert.Equal(t, 503, serve(t, d, "GET", "/health").Code)
	assert.JSONEq(t, `{"name":"brim","message":"stopping","status":"fail","checks":[],"version":"test"}`, serve(t, d, "GET", "/health").Body.String())
	assert.Equal(t, 503, serve(t, d, "GET", "/ping").Code)
	assert.Empty(t, j.readings())
}
