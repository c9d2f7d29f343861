package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/access"
	"github.com/brim-telemetry/brim/internal/daemon"
	"github.com/brim-telemetry/brim/internal/daemon/openapi"
	"github.com/brim-telemetry/brim/internal/promapi"
	"github.com/brim-telemetry/brim/internal/read"
)

func description(t *testing.T) *openapi3.T {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromData(openapi.Description())
	require.NoError(t, err)
	return doc
}

// TestEveryPathIsDescribed compares the description with the paths registered in the code.
func TestEveryPathIsDescribed(t *testing.T) {
	t.Parallel()
	want := []string{"GET " + openapi.Path, "GET /", "GET " + daemon.SealPath, "POST " + daemon.SealPath}
	paths := read.Paths()
	maps.Copy(paths, promapi.Paths())
	for path, methods := range paths {
		for _, m := range methods {
			want = append(want, m+" "+path)
		}
	}
	source, err := os.ReadFile("../../internal/ingest/http.go")
	require.NoError(t, err)
	for _, m := range regexp.MustCompile(`mux\.Handle(?:Func)?\("(/[^"]+)", (.*)\)`).FindAllStringSubmatch(string(source), -1) {
		method := http.MethodGet
		if m[2] == "readings" || m[2] == "lines" || strings.HasPrefix(m[2], "srv.writes(") {
			method = http.MethodPost
		}
		if m[1] == "/query" { // accepts both
			want = append(want, http.MethodPost+" "+m[1])
		}
		want = append(want, method+" "+m[1])
	}
	var have []string
	for path, item := range description(t).Paths.Map() {
		for method := range item.Operations() {
			have = append(have, method+" "+path)
		}
	}
	slices.Sort(want)
	slices.Sort(have)
	assert.Equal(t, want, have)
}

// A describedAPI is a daemon whose answers are checked against the description.
type describedAPI struct {
	t    *testing.T
	doc  *openapi3.T
	base string
}

// ask makes a request, "METHOD PATH", with headers as "Name: value", and checks that the answer
// has the status and matches the description.
func (d *describedAPI) ask(want int, request, body string, headers ...string) {
	d.t.Helper()
	method, path, _ := strings.Cut(request, " ")
	req, err := http.NewRequestWithContext(d.t.Context(), method, d.base+path, strings.NewReader(body))
	require.NoError(d.t, err)
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Add(name, value)
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	require.NoError(d.t, err, request)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(d.t, err, request)
	assert.Equal(d.t, want, resp.StatusCode, "%s: %s", request, text)
	template, item := d.pathOf(req.URL.EscapedPath())
	require.NotNil(d.t, item, "%s is not described", path)
	operation := item.GetOperation(method)
	if operation == nil { // a method that is not allowed has the answer of an allowed one
		for _, operation = range item.Operations() {
		}
	}
	if want == http.StatusOK {
		d.checkParameters(operation, req)
	}
	require.NotNil(d.t, operation.Responses.Status(resp.StatusCode), "%s answers %d, which is not described", request, resp.StatusCode)
	in := &openapi3filter.RequestValidationInput{Request: req, Route: &routers.Route{Spec: d.doc, Path: template, PathItem: item, Method: method, Operation: operation}}
	err = openapi3filter.ValidateResponse(d.t.Context(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: in, Status: resp.StatusCode, Header: resp.Header, Body: io.NopCloser(bytes.NewReader(text)),
		Options: &openapi3filter.Options{IncludeResponseStatus: true, ExcludeResponseBody: slices.Contains(notJSON, resp.Header.Get("Content-Type"))},
	})
	require.NoError(d.t, err, "%s: %s", request, text)
	if resp.Header.Get("Content-Type") == ndjson {
		d.checkLines(operation, string(text))
	}
}

// checkParameters checks request and answer against the description.
func (d *describedAPI) checkParameters(operation *openapi3.Operation, req *http.Request) {
	d.t.Helper()
	for _, p := range operation.Parameters {
		if p.Value.In == openapi3.ParameterInQuery {
			err := openapi3filter.ValidateParameter(d.t.Context(), &openapi3filter.RequestValidationInput{Request: req}, p.Value)
			assert.NoError(d.t, err, req.URL.String())
		}
	}
}

const ndjson = "application/x-ndjson"

// notJSON are the answers with content that the library cannot check.
var notJSON = []string{ndjson, "text/csv", "application/vnd.apache.parquet"}

// checkLines checks each line of an answer against the schema that the description names: "A
// Reading a line".
func (d *describedAPI) checkLines(operation *openapi3.Operation, text string) {
	d.t.Helper()
	said := operation.Responses.Status(http.StatusOK).Value.Content.Get(ndjson)
	require.NotNil(d.t, said, operation.OperationID)
	schema := d.doc.Components.Schemas[strings.Fields(said.Schema.Value.Description)[1]].Value
	for line := range strings.Lines(text) {
		var value any
		require.NoError(d.t, json.Unmarshal([]byte(line), &value))
		assert.NoError(d.t, schema.VisitJSON(value), line)
	}
}

// pathOf returns the described path that matches a request's path.
func (d *describedAPI) pathOf(path string) (template string, item *openapi3.PathItem) {
	for template, item := range d.doc.Paths.Map() {
		pattern := regexp.MustCompile(`\\\{[^}]*\\\}`).ReplaceAllString(regexp.QuoteMeta(template), "[^/]+")
		if regexp.MustCompile("^" + pattern + "$").MatchString(path) {
			return template, item
		}
	}
	return "", nil
}

func startDescribed(t *testing.T, args ...string) *describedAPI {
	t.Helper()
	b := startBrim(t, append([]string{"--data-dir", t.TempDir()}, args...)...)
	return &describedAPI{t: t, doc: description(t), base: "http://" + b.awaitReady().HTTP}
}

const (
	jsonBody  = "Content-Type: application/json"
	linesBody = "Content-Type: application/x-ndjson"
	asNDJSON  = "Accept: application/x-ndjson"
)

func TestAnswersAreAsDescribed(t *testing.T) {
	t.Parallel()
	d := startDescribed(t, "--storage", "memory", "--max-body-bytes", "4KiB", "--max-inflated-bytes", "8KiB", "--max-readings-per-request", "10")
	const good, bad = `{"sensorId":"a/b","ts":1795255200000,"fields":{"t":1.5,"n":9007199254740993,"on":true,"x":"y"},"tags":{"site":"north"}}`, `{"sensorId":"","fields":{}}`
	for _, path := range []string{"/v1/readings", "/v1/streams/readings/readings"} {
		d.ask(200, "POST "+path, good, jsonBody)
		d.ask(200, "POST "+path, good, jsonBody, "Idempotency-Key: k"+path[4:6])
		d.ask(200, "POST "+path, good, jsonBody, "Idempotency-Key: k"+path[4:6])
		d.ask(409, "POST "+path, "["+good+"]", jsonBody, "Idempotency-Key: k"+path[4:6])
		d.ask(200, "POST "+path+"?ack=stored", good+"\n"+good, linesBody)
		d.ask(207, "POST "+path, "["+good+","+bad+"]", jsonBody)
		d.ask(400, "POST "+path, bad, jsonBody)
		d.ask(400, "POST "+path, "{", jsonBody)
		d.ask(400, "POST "+path+"?ack=perhaps", good, jsonBody)
		d.ask(405, "PUT "+path, good, jsonBody)
		d.ask(413, "POST "+path, "["+strings.Repeat(good+",", 100)+good+"]", jsonBody)
		d.ask(415, "POST "+path, good, "Content-Type: text/html")
		d.ask(415, "POST "+path, good, jsonBody, "Content-Encoding: br")
	}
	d.ask(404, "POST /v1/streams/none/readings", good, jsonBody)
	for _, path := range []string{"/write", "/api/v2/write"} {
		d.ask(204, "POST "+path, "w,site=a t=1 1795255200000000000")
		d.ask(400, "POST "+path, "w,site=a t=1\nw t=\n")
		d.ask(400, "POST "+path, "w t=")
		d.ask(400, "POST "+path+"?precision=y", "w t=1")
		d.ask(405, "GET "+path, "")
		d.ask(413, "POST "+path, strings.Repeat("w,site=a t=1\n", 1000))
		d.ask(415, "POST "+path, "w t=1", "Content-Encoding: br")
	}
	d.ask(204, "POST /api/v3/write_lp?db=d&precision=second", "w,site=a t=1 1795255200")
	d.ask(400, "POST /api/v3/write_lp", "w,site=a t=1\nw t=\n")
	d.ask(415, "POST /api/v1/write", "", "Content-Type: text/plain")
	d.ask(204, "POST /api/v1/write", "\x00", "Content-Type: application/x-protobuf;proto=io.prometheus.write.v2.Request", "Content-Encoding: snappy") // an empty message
	d.ask(400, "POST /api/v1/write", "x", "Content-Type: application/x-protobuf", "Content-Encoding: snappy")
	d.ask(200, "POST /v1/metrics", "{}", jsonBody)
	d.ask(200, "POST /v1/metrics", `{"resourceMetrics":[{"scopeMetrics":[{"scope":{"name":"x"},"metrics":[{"name":"m","gauge":{"dataPoints":[{"asInt":"7"},{"asDouble":"Infinity"}]}}]}]}]}`, jsonBody)
	d.ask(400, "POST /v1/metrics", "{", jsonBody)
	d.ask(404, "POST /v1/metrics", "{}", jsonBody, "Brim-Stream: none")
	d.ask(415, "POST /v1/metrics", "{}", "Content-Type: text/plain")
	d.ask(200, "POST /query", "q=CREATE+DATABASE+d", "Content-Type: application/x-www-form-urlencoded")
	const sensor = "/v1/sensors/a%2Fb"
	for request, want := range map[string]int{
		"GET /v1/streams": 200, "POST /v1/streams": 405, "GET /": 200, "GET /ping": 204, "PUT /ping": 405, "GET /health": 200, "PUT /health": 405,
		"GET /query?q=SHOW+DATABASES": 200, "GET /query?q=SELECT+1": 400, "PUT /query?q=x": 405, "GET /v1/metrics": 405, "GET /api/v2/buckets?name=b": 200, "GET /api/v2/buckets": 200, "POST /api/v2/buckets": 405,
		"GET /openapi.yaml": 200, "DELETE /openapi.yaml": 405,
		"GET /v1/sensors": 200, "GET /v1/sensors?limit=1": 200, "GET /v1/sensors?limit=0": 400, "POST /v1/sensors": 405, "GET /v1/sensors?stream=x": 404,
		"GET " + sensor + "/latest": 200, "GET /v1/sensors/none/latest": 404, "GET " + sensor + "/latest?x": 400, "PUT " + sensor + "/latest": 405,
		"GET " + sensor + "/readings": 200, "GET " + sensor + "/readings?limit=1": 200, "GET " + sensor + "/readings?from=x": 400, "POST " + sensor + "/readings": 405,
		"GET /v1/readings?sensor=a%2Fb&sensor=none": 200, "GET /v1/readings": 400, "GET /v1/readings?sensor=a%2Fb&stream=x": 404,
		"GET /v1/readings?sensor=a%2Fb&limit=1&after=1795255200000.1.a%2Fb": 200, "GET /v1/readings?sensor=a%2Fb&after=0.0.c": 400,
		"GET " + sensor + "/summary": 200, "GET " + sensor + "/summary?every=1s": 400, "GET " + sensor + "/summary?from=1795255200000&every=1000000d": 200, "POST " + sensor + "/summary": 405,
		"GET " + sensor: 405, "DELETE /v1/sensors/none": 200, "DELETE /v1/sensors/none?x=1": 400, "DELETE /v1/sensors/none?stream=x": 404,
	} {
		d.ask(want, request, "")
	}
	d.ask(200, "GET "+sensor+"/readings?limit=1&after=1795255200000.1", "")
	d.ask(200, "GET "+sensor+"/readings?after=253402300800000.1073741824", "")
	for _, path := range []string{"/v1/sensors", "/v1/readings?limit=1&sensor=a%2Fb", sensor + "/readings?limit=1", sensor + "/summary"} {
		d.ask(200, "GET "+path, "", asNDJSON)
		d.ask(406, "GET "+path, "", "Accept: text/html")
	}
	for _, table := range notJSON[1:] {
		d.ask(200, "GET "+sensor+"/readings", "", "Accept: "+table)
		assert.NotNil(t, d.doc.Paths.Find("/v1/sensors/{sensorId}/readings").Get.Responses.Status(http.StatusOK).Value.Content.Get(table), table)
		d.ask(406, "GET "+sensor+"/summary", "", "Accept: "+table)
	}
	d.ask(406, "GET "+sensor+"/latest", "", asNDJSON)
	d.ask(200, "DELETE "+sensor, "")
	d.ask(404, "GET "+sensor+"/latest", "")
}

func TestRefusalsOfAccessAreAsDescribed(t *testing.T) {
	t.Parallel()
	token, err := access.NewToken()
	require.NoError(t, err)
	eager, err := access.NewToken()
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "access.yaml")
	require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, `identities:
  - name: north
    hash: %s
    scopes: [ingest, read]
    sensor_prefix: north-
    quota: {readings_per_second: 1}
  - name: eager
    hash: %s
    scopes: [admin]
    quota: {requests_per_second: 0.001}
`, access.HashOf(token), access.HashOf(eager)), 0o600))
	d := startDescribed(t, "--storage", "memory", "--access-file", file)
	known := "Authorization: Bearer " + token
	const own, other = `{"sensorId":"north-1","fields":{"t":1}}`, `{"sensorId":"south-1","fields":{"t":1}}`
	for range 2 { // any remaining quota suffices for one more
		d.ask(200, "GET /v1/streams", "", "Authorization: Bearer "+eager)
	}
	for _, request := range []string{
		"POST /v1/readings", "POST /v1/streams/readings/readings", "POST /write", "POST /api/v2/write", "POST /v1/metrics", "GET /v1/streams",
		"POST /api/v1/write", "POST /api/v3/write_lp", "GET /query?q=SHOW+DATABASES", "GET /api/v2/buckets",
		"GET /v1/sensors", "GET /v1/sensors/a/latest", "GET /v1/sensors/a/readings", "GET /v1/sensors/a/summary", "DELETE /v1/sensors/a",
	} {
		d.ask(401, request, own)
		d.ask(401, request, own, "Authorization: Bearer wrong")
		d.ask(429, request, own, "Authorization: Bearer "+eager)
	}
	d.ask(403, "POST /v1/readings", other, known)
	d.ask(200, "POST /v1/readings", strings.Repeat(own+"\n", 20), known, linesBody) // into debt, once
	d.ask(429, "POST /v1/readings", strings.Repeat(own+"\n", 20), known, linesBody)
	d.ask(403, "GET /v1/sensors/south-1/readings", "", known)
	d.ask(403, "DELETE /v1/sensors/north-1", "", known)
	d.ask(200, "GET /v1/sensors?prefix=south", "", known)
	d.ask(200, "GET /v1/sensors/north-1/readings", "", known)
	for _, request := range []string{"GET /openapi.yaml", "GET /health"} {
		d.ask(200, request, "")
	}
}

func TestAnswersWithoutMongoDBAreAsDescribed(t *testing.T) {
	t.Parallel()
	d := startDescribed(t, "--mongo-uri", "mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=500", "--stored-timeout", "10ms", "--query-timeout", "1s")
	d.ask(202, "POST /v1/readings?ack=stored", `{"sensorId":"a","fields":{"t":1}}`, jsonBody)
	d.ask(202, "POST /write?ack=stored", "w t=1")
	for _, request := range []string{"GET /v1/sensors", "GET /v1/sensors/a/latest", "GET /v1/sensors/a/readings", "GET /v1/sensors/a/summary", "DELETE /v1/sensors/a"} {
		d.ask(503, request, "")
	}
}
