package ingest

import (
	"bufio"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	"github.com/brim-telemetry/brim/internal/access"
	"github.com/brim-telemetry/brim/pkg/telemetry"
	"github.com/brim-telemetry/brim/pkg/telemetrypb"
)

// guards is a guard with a clock, and the tokens of those whom it knows.
type guards struct {
	*access.Guard

	tokens map[string]string
	path   string
	now    atomic.Int64 // seconds since it began
}

// theGuard knows north, who may send for sensors north-…; all, who may send for
// any; few, with a quota of a reading a second; and reader, who may only read.
func theGuard(t testing.TB) *guards {
	t.Helper()
	g := &guards{tokens: make(map[string]string), path: filepath.Join(t.TempDir(), "access.yaml")}
	file := "identities:\n"
	for _, who := range []struct{ name, rest string }{
		{"north", "    scopes: [ingest]\n    sensor_prefix: north-\n"},
		{"all", "    scopes: [ingest]\n    expires: 2027-11-21T10:00:00Z\n"},
		{"few", "    scopes: [ingest]\n    quota: {readings_per_second: 1}\n"},
		{"reader", "    scopes: [read]\n"},
	} {
		token, err := access.NewToken()
		require.NoError(t, err)
		g.tokens[who.name] = token
		file += fmt.Sprintf("  - name: %s\n    hash: %s\n    created: 2026-11-21T10:00:00Z\n%s", who.name, access.HashOf(token), who.rest)
	}
	require.NoError(t, os.WriteFile(g.path, []byte(file), 0o600))
	var err error
	g.Guard, err = access.Open(access.Config{Path: g.path, Now: func() time.Time { return arrivalTime.Add(time.Duration(g.now.Load()) * time.Second) }})
	require.NoError(t, err)
	return g
}

// revoke takes all identities away.
func (g *guards) revoke(t *testing.T) {
	t.Helper()
	require.NoError(t, os.WriteFile(g.path, []byte("identities: []\n"), 0o600))
	require.NoError(t, g.Reload())
}

func (g *guards) bearer(who string) string { return "Bearer " + g.tokens[who] }

// refusalTime is how long a refusal is held at least.
const refusalTime = 50 * time.Millisecond

func guardedServer(t testing.TB) (*Server, *fakeJournal, *guards) {
	t.Helper()
	g := theGuard(t)
	d, j := newTestServer(t, func(c *Config) { c.Guard, c.Ack = g.Guard, telemetry.Journaled })
	return d, j, g
}

func TestAuthorizationOverHTTP(t *testing.T) {
	t.Parallel()
	d, j, g := guardedServer(t)
	basic := "Basic " + base64.StdEncoding.EncodeToString([]byte("any:"+g.tokens["all"]))
	for _, c := range []struct {
		method, path, authorization string
		status                      int
		code                        string
	}{
		{"POST", "/v1/readings", "", 401, "token_missing"},
		{"POST", "/v1/streams/mem/readings", "Bearer brim_nonsense", 401, "token_unknown"},
		{"POST", "/v1/readings", "Digest x", 401, "credentials_malformed"},
		{"POST", "/v1/streams/none/readings", "", 401, "token_missing"},
		{"POST", "/v1/readings", g.bearer("reader"), 403, "scope_missing"},
		{"POST", "/v1/readings", g.bearer("all"), 200, ""},
		{"POST", "/v1/readings", "Token " + g.tokens["all"], 200, ""},
		{"POST", "/v1/readings", basic, 200, ""},
		{"POST", "/write", "", 401, "unauthorized"},
		{"POST", "/api/v2/write", "Token x", 401, "unauthorized"},
		{"POST", "/write", g.bearer("reader"), 403, "forbidden"},
		{"GET", "/v1/readings", "", 405, "method_not_allowed"},
		{"GET", "/v1/streams", "", 401, "token_missing"},
		{"GET", "/v1/streams", g.bearer("reader"), 200, ""},
		{"GET", "/v1/streams", g.bearer("all"), 200, ""},
		{"GET", "/other", "", 401, "token_missing"},
		{"GET", "/other", g.bearer("reader"), 404, "path_unknown"},
		{"GET", "/ping", "", 204, ""},
		{"GET", "/health", "", 200, ""},
	} {
		r := httptest.NewRequest(c.method, c.path, strings.NewReader(goodReading))
		if c.authorization != "" {
			r.Header.Set("Authorization", c.authorization)
		}
		w, start := httptest.NewRecorder(), time.Now()
		d.Handler().ServeHTTP(w, r)
		if c.status == 401 || c.status == 403 {
			assert.GreaterOrEqual(t, time.Since(start), refusalTime)
		}
		name := c.method + " " + c.path + " " + c.authorization
		assert.Equal(t, c.status, w.Code, "%s: %s", name, w.Body)
		if c.code != "" {
			assert.Contains(t, w.Body.String(), `"code":"`+c.code+`"`, name)
		}
		assert.Equal(t, c.status == 401, strings.HasPrefix(w.Header().Get("WWW-Authenticate"), "Bearer"), name)
	}
	assert.Len(t, j.readings(), 3)
	w := post(t, d, "/write?u=x&p="+g.tokens["all"], "", "m t=1")
	assert.Equal(t, 204, w.Code, w.Body)
	w = post(t, d, "/write", "", "m t=1")
	assert.Contains(t, w.Body.String(), `"error":"token_missing: `, "where clients of InfluxDB 1 look for it")
	assert.EqualValues(t, 4, testutil.ToFloat64(d.metrics.requests.WithLabelValues("http", "401")))
	assert.EqualValues(t, 1, testutil.ToFloat64(d.metrics.requests.WithLabelValues("http", "403")))
	assert.EqualValues(t, 3, testutil.ToFloat64(d.metrics.requests.WithLabelValues("line", "401")))
}

// A body is not waited for, and one that is announced is not asked for.
func TestARefusalComesBeforeTheBody(t *testing.T) {
	t.Parallel()
	d, _, _ := guardedServer(t)
	conn := dial(t, d)
	head := "POST /v1/readings HTTP/1.1\r\n" + "Host: b\r\nContent-Type: application/json\r\n"
	_, err := io.WriteString(conn, head+"Expect: 100-continue\r\nContent-Length: 100\r\n\r\n")
	require.NoError(t, err)
	response, _ := readAnswer(t, bufio.NewReader(conn))
	assert.Equal(t, 401, response.StatusCode, "and not 100")

	conn = dial(t, d)
	in := bufio.NewReader(conn)
	for range 2 { // a small body is read, so that the connection lives
		_, err = io.WriteString(conn, oneRequest(goodReading))
		require.NoError(t, err)
		response, _ = readAnswer(t, in)
		assert.Equal(t, 401, response.StatusCode)
		assert.False(t, response.Close)
	}
	_, err = io.WriteString(conn, head+"Content-Length: 8000000\r\n\r\n"+strings.Repeat("x", drainBytes))
	require.NoError(t, err)
	response, _ = readAnswer(t, in)
	assert.Equal(t, 401, response.StatusCode)
	assert.True(t, response.Close, "the rest is not waited for")
}

func TestSensorsOfOthersAreRefused(t *testing.T) {
	t.Parallel()
	d, j, g := guardedServer(t)
	mine, others := `{"sensorId":"north-1","fields":{"t":1}}`, `{"sensorId":"south-1","fields":{"t":1}}`
	north := []string{"Authorization", g.bearer("north")}
	for range 2 { // seen for the first time, and known
		w := post(t, d, "/v1/readings", typeLines, mine+"\n"+others+"\n"+others+"\n"+mine, north...)
		assert.Equal(t, 207, w.Code)
		assert.JSONEq(t, `{"accepted":2,"rejected":2,"ack":"journaled","errors":[`+
			`{"index":1,"code":"sensor_forbidden","message":"north may not send for sensor \"south-1\"; the ids of its sensors begin with \"north-\""},`+
			`{"index":2,"code":"sensor_forbidden","message":"north may not send for sensor \"south-1\"; the ids of its sensors begin with \"north-\""}]}`, w.Body.String())
	}
	w := post(t, d, "/v1/readings", typeLines, others+"\n"+others, north...)
	assert.Equal(t, 403, w.Code)
	assert.Contains(t, w.Body.String(), `"rejected":2,"errors":[{"index":0,"code":"sensor_forbidden"`)
	w = post(t, d, "/v1/readings", typeLines, others+"\n{}", north...)
	assert.Equal(t, 400, w.Code, "one was refused for another reason")
	w = post(t, d, "/v1/readings", typeJSON, others, "Authorization", g.bearer("all"))
	assert.Equal(t, 200, w.Code)
	w = post(t, d, "/write", "", "south t=1", north...)
	assert.Equal(t, 403, w.Code)
	w = post(t, d, "/write", "", "north-2 t=1\nsouth t=1\nnorth-2 t=2", north...)
	assert.Equal(t, 400, w.Code)
	var sensors []string
	for _, r := range j.readings() {
		sensors = append(sensors, r.Sensor)
	}
	assert.Equal(t, []string{"north-1", "north-1", "north-1", "north-1", "south-1", "north-2", "north-2"}, sensors)
	assert.EqualValues(t, 9, testutil.ToFloat64(d.metrics.rejected.WithLabelValues("sensor_forbidden")))
}

func TestKeysAreTheirSendersOwn(t *testing.T) {
	t.Parallel()
	d, j, g := guardedServer(t)
	for range 2 {
		for _, who := range []string{"all", "north"} {
			w := post(t, d, "/v1/readings", typeJSON, `{"sensorId":"north-1","fields":{"t":1}}`, "Authorization", g.bearer(who), headerKey, "k")
			assert.Equal(t, 200, w.Code, w.Body)
		}
	}
	assert.Len(t, j.readings(), 2)
	assert.Contains(t, j.keys, "\x00north\x00readings\x00k")
	open, unasked := newTestServer(t)
	post(t, open, "/v1/readings", typeJSON, goodReading, headerKey, "k")
	assert.Contains(t, unasked.keys, "readings\x00k", "keys that journals hold from before")
}

func TestQuotaIsCheckedBeforeReadingsAreAccepted(t *testing.T) {
	t.Parallel()
	d, j, g := guardedServer(t)
	few := []string{"Authorization", g.bearer("few")}
	assert.Equal(t, 200, post(t, d, "/v1/readings", typeJSON, goodReading, few...).Code)
	w := post(t, d, "/v1/readings", typeJSON, goodReading, few...)
	assert.Equal(t, 429, w.Code)
	assert.NotEmpty(t, w.Header().Get("Retry-After"))
	assert.Contains(t, w.Body.String(), `"code":"quota_readings"`)
	assert.Equal(t, 429, post(t, d, "/write", "", "m t=1", few...).Code)
	_, err := dialGRPC(t, d).Write(withToken(t.Context(), g.tokens["few"]), oneReading("1", "s"))
	assert.Equal(t, codes.ResourceExhausted, status.Code(err))
	assert.NotEmpty(t, status.Convert(err).Details(), "when to come back")
	assert.Len(t, j.readings(), 1)
	g.now.Add(3)
	assert.Equal(t, 200, post(t, d, "/v1/readings", typeJSON, goodReading, few...).Code)
}

func TestWhatIsNotTakenIsNotCounted(t *testing.T) {
	t.Parallel()
	d, j, g := guardedServer(t)
	few := []string{"Authorization", g.bearer("few")}
	keyed := append([]string{headerKey, "k"}, few...)
	for refusal, code := range map[error]int{
		telemetry.Errorf(telemetry.Unavailable, "journal_full", "full"): 503, telemetry.Errorf(telemetry.Unavailable, "stopping", "stopping"): 503,
		telemetry.Errorf(telemetry.Conflict, "idempotency_conflict", "another body"): 409,
	} {
		j.err = refusal
		for range 3 { // which a quota of one a second would not bear
			assert.Equal(t, code, post(t, d, "/v1/readings", typeJSON, goodReading, few...).Code)
		}
	}
	j.err = nil
	assert.Equal(t, 200, post(t, d, "/v1/readings", typeJSON, goodReading, keyed...).Code)
	g.now.Add(1)
	for range 3 {
		w := post(t, d, "/v1/readings", typeJSON, goodReading, keyed...)
		assert.Equal(t, 200, w.Code, w.Body)
		assert.Equal(t, "true", w.Header().Get(headerReplayed))
	}
	assert.Equal(t, 200, post(t, d, "/v1/readings", typeJSON, goodReading, few...).Code, "all of it is left")
	assert.Equal(t, 429, post(t, d, "/v1/readings", typeJSON, goodReading, few...).Code)
	assert.Len(t, j.readings(), 2)

	g.now.Add(3)
	j.err = telemetry.Errorf(telemetry.UnknownOutcome, "outcome_unknown", "who knows")
	assert.Equal(t, 504, post(t, d, "/v1/readings", typeJSON, goodReading, few...).Code)
	assert.Equal(t, 429, post(t, d, "/v1/readings", typeJSON, goodReading, few...).Code, "what may be kept is counted")
}

func withToken(ctx context.Context, token string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
}

func TestAuthorizationOverGRPC(t *testing.T) {
	t.Parallel()
	d, j, g := guardedServer(t)
	conn := connectGRPC(t, d)
	client := telemetrypb.NewIngestServiceClient(conn)
	for _, c := range []struct {
		name, token string
		code        codes.Code
		text        string
	}{
		{"no token", "", codes.Unauthenticated, "token_missing"},
		{"an unknown token", "brim_x", codes.Unauthenticated, "token_unknown"},
		{"a reader", g.tokens["reader"], codes.PermissionDenied, "scope_missing"},
		{"another's sensor", g.tokens["north"], codes.PermissionDenied, "sensor_forbidden"},
		{"one who may", g.tokens["all"], codes.OK, ""},
	} {
		ctx := t.Context()
		if c.token != "" {
			ctx = withToken(ctx, c.token)
		}
		start := time.Now()
		_, err := client.Write(ctx, oneReading("1", "s"))
		assert.Equal(t, c.code, status.Code(err), "%s: %v", c.name, err)
		if c.code == codes.Unauthenticated {
			assert.GreaterOrEqual(t, time.Since(start), refusalTime)
		}
		assert.Contains(t, status.Convert(err).Message(), c.text)
		stream, err := client.WriteStream(ctx)
		require.NoError(t, err)
		_ = stream.Send(oneReading("1", "s")) // the stream may have ended
		response, err := stream.Recv()
		if c.name == "another's sensor" { // the stream goes on
			require.NoError(t, err)
			assert.EqualValues(t, codes.PermissionDenied, response.GetError().GetStatus())
		} else {
			assert.Equal(t, c.code, status.Code(err), "%s: %v", c.name, err)
		}
		_ = stream.CloseSend() // likewise
	}
	assert.Len(t, j.readings(), 2)
	assert.EqualValues(t, 4, testutil.ToFloat64(d.metrics.requests.WithLabelValues("grpc", "Unauthenticated")))
	_, err := grpc_health_v1.NewHealthClient(conn).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{})
	require.NoError(t, err, "probes have no token")
	for token, code := range map[string]codes.Code{"": codes.Unauthenticated, g.tokens["reader"]: codes.OK} {
		ctx, cancel := context.WithCancel(withToken(t.Context(), token))
		list, err := reflectionv1.NewServerReflectionClient(conn).ServerReflectionInfo(ctx, grpc.WaitForReady(true))
		require.NoError(t, err)
		_ = list.Send(&reflectionv1.ServerReflectionRequest{MessageRequest: &reflectionv1.ServerReflectionRequest_ListServices{}})
		_, err = list.Recv()
		assert.Equal(t, code, status.Code(err), err)
		cancel()
	}
}

func TestAStreamEndsWhenItsSenderMayNotSendAnyMore(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*guards){
		"revoked": func(g *guards) { g.revoke(t) },
		"expired": func(g *guards) { g.now.Add(400 * 24 * 3600) },
	} {
		d, j, g := guardedServer(t)
		stream, err := dialGRPC(t, d).WriteStream(withToken(t.Context(), g.tokens["all"]))
		require.NoError(t, err)
		require.NoError(t, stream.Send(oneReading("1", "s")))
		_, err = stream.Recv()
		require.NoError(t, err)
		end(g)
		require.NoError(t, stream.Send(oneReading("2", "s")))
		_, err = stream.Recv()
		assert.Equal(t, codes.Unauthenticated, status.Code(err), "%s: %v", name, err)
		assert.Len(t, j.readings(), 1)
	}
}

func TestARequestWithoutAGuardNeedsNoToken(t *testing.T) {
	t.Parallel()
	d, j := newTestServer(t)
	w := post(t, d, "/v1/readings", typeJSON, goodReading, "Authorization", "Bearer whatever")
	assert.Equal(t, http.StatusOK, w.Code)
	assert.Len(t, j.readings(), 1)
}
