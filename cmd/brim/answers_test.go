package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	grpcgzip "google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/brim-telemetry/brim/internal/access"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
	"github.com/brim-telemetry/brim/pkg/telemetrypb"
)

var updateAnswers = flag.Bool("update", false, "record what the binary answers in testdata/answers")

// The golden answers are what clients see: for each request the status, the numbers of accepted
// and rejected readings, the error codes, and finally everything stored. They omit messages,
// which may be reworded. A difference is a change for users: record it with -update, review it,
// and add it to the changelog.
//
// The bodies in testdata/answers/*.txt are Go strings, one per line: hand-picked cases, and
// inputs found by fuzzing.

// A player sends requests to a daemon and records the answers.
type player struct {
	t    *testing.T
	b    *brimProcess
	grpc *grpc.ClientConn
	out  bytes.Buffer

	secrets *strings.Replacer // what differs between runs
}

func play(t *testing.T, b *brimProcess) *player {
	t.Helper()
	conn, err := grpc.NewClient(b.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, conn.Close()) })
	return &player{t: t, b: b, grpc: conn, secrets: strings.NewReplacer(b.Admin, "ADMIN")}
}

// golden compares the recording with the file of that name.
func (p *player) golden(name string) {
	p.t.Helper()
	path := filepath.Join("testdata", "answers", name+".golden")
	got := p.secrets.Replace(p.out.String())
	if *updateAnswers {
		require.NoError(p.t, os.WriteFile(path, []byte(got), 0o644))
		return
	}
	want, err := os.ReadFile(path)
	require.NoError(p.t, err)
	wanted := strings.Split(string(want), "\n")
	for i, line := range strings.Split(got, "\n") {
		if i >= len(wanted) || line != wanted[i] {
			p.t.Logf("%s, line %d: %s", path, i+1, line)
			break
		}
	}
	assert.Equal(p.t, string(want), got)
}

func (p *player) note(name, format string, args ...any) {
	fmt.Fprintf(&p.out, "%s: %s\n", name, strings.TrimSpace(fmt.Sprintf(format, args...)))
}

// corpus returns the bodies in a file.
func (p *player) corpus(name string) []string {
	p.t.Helper()
	content, err := os.ReadFile(filepath.Join("testdata", "answers", name))
	require.NoError(p.t, err)
	var bodies []string
	for line := range strings.Lines(string(content)) {
		body, err := strconv.Unquote(strings.TrimSuffix(line, "\n"))
		require.NoError(p.t, err, line)
		bodies = append(bodies, body)
	}
	return bodies
}

// shownHeaders are the response headers that clients rely on.
var shownHeaders = []string{"Allow", "Idempotent-Replayed", "Retry-After", "Www-Authenticate", "X-Content-Type-Options"}

// send makes a request and records the answer. Headers are alternating names and values.
func (p *player) send(name, method, path, body string, headers ...string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, "http://"+p.b.HTTP+path, strings.NewReader(body))
	require.NoError(p.t, err)
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	response, err := http.DefaultTransport.RoundTrip(r)
	require.NoError(p.t, err, name)
	p.noteResponse(name, response)
}

func (p *player) post(name, path, body string, headers ...string) {
	p.t.Helper()
	p.send(name, http.MethodPost, path, body, headers...)
}

func (p *player) get(path string, headers ...string) {
	p.t.Helper()
	p.send("GET "+path, http.MethodGet, path, "", headers...)
}

func (p *player) noteResponse(name string, response *http.Response) {
	p.t.Helper()
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(p.t, err, name)
	line := strconv.Itoa(response.StatusCode)
	for _, h := range shownHeaders {
		for _, v := range response.Header.Values(h) {
			if h == "Retry-After" {
				v = "some" // seconds
			}
			line += fmt.Sprintf(" %s=%q", h, v)
		}
	}
	p.note(name, "%s %s", line, summary(response.Header.Get("Content-Type"), body))
}

// raw sends text unchanged and records all answers until the daemon closes the connection. If
// cut is set, sending ends after the text.
func (p *player) raw(name, text string, cut bool) {
	p.t.Helper()
	conn, err := (&net.Dialer{}).DialContext(p.t.Context(), "tcp", p.b.HTTP)
	require.NoError(p.t, err)
	defer conn.Close()
	require.NoError(p.t, conn.SetDeadline(time.Now().Add(patience)))
	_, err = io.WriteString(conn, text)
	require.NoError(p.t, err)
	if cut {
		require.NoError(p.t, conn.(*net.TCPConn).CloseWrite()) //nolint:forcetypeassert // "tcp"
	}
	for r := bufio.NewReader(conn); ; {
		response, err := http.ReadResponse(r, nil)
		if err != nil {
			return
		}
		p.noteResponse(name, response)
	}
}

// summary is the recorded part of a body: everything but prose.
func summary(contentType string, body []byte) string {
	contentType, _, _ = strings.Cut(contentType, ";")
	if len(body) == 0 {
		return contentType
	}
	if contentType != typeJSON && contentType != typeLines {
		return contentType
	}
	var lines []string
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	for {
		var v any
		if err := d.Decode(&v); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return "not JSON"
		}
		text, _ := json.Marshal(withoutProse("", v))
		lines = append(lines, string(text))
	}
	return strings.Join(lines, " ")
}

// withoutProse drops messages, and times that depend on the clock.
func withoutProse(name string, v any) any {
	switch v := v.(type) {
	case map[string]any:
		delete(v, "message")
		delete(v, "error")
		delete(v, "version")
		for name, value := range v {
			v[name] = withoutProse(name, value)
		}
	case []any:
		for i := range v {
			v[i] = withoutProse(name, v[i])
		}
		if name == "readings" {
			slices.SortFunc(v, func(x, y any) int { return strings.Compare(fmt.Sprint(x), fmt.Sprint(y)) })
		}
	case string:
		if at, err := time.Parse(time.RFC3339, v); err == nil && time.Since(at).Abs() < time.Hour {
			return "now"
		}
	}
	return v
}

// rawMessages passes on already encoded messages.
type rawMessages struct{}

func (rawMessages) Name() string { return "proto" }

func (rawMessages) Marshal(v any) ([]byte, error) {
	if encoded, ok := v.([]byte); ok {
		return encoded, nil
	}
	return proto.Marshal(v.(proto.Message)) //nolint:forcetypeassert // there is nothing else
}

func (rawMessages) Unmarshal(data []byte, v any) error {
	return proto.Unmarshal(data, v.(proto.Message)) //nolint:forcetypeassert // there is nothing else
}

// write calls Write with an encoded message, or a WriteRequest.
func (p *player) write(name string, message any, pairs []string, options ...grpc.CallOption) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(p.t.Context(), pairs...), patience)
	defer cancel()
	var response telemetrypb.WriteResponse
	var header metadata.MD
	err := p.grpc.Invoke(ctx, "/brim.v1.IngestService/Write", message, &response, append(options, grpc.ForceCodec(rawMessages{}), grpc.Header(&header))...)
	p.note(name, "%s %s", summaryOf(&response, err), strings.Join(header.Get("idempotent-replayed"), ""))
}

// stream sends requests in one WriteStream call.
func (p *player) stream(name string, pairs []string, requests ...*telemetrypb.WriteRequest) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(p.t.Context(), pairs...), patience)
	defer cancel()
	stream, err := telemetrypb.NewIngestServiceClient(p.grpc).WriteStream(ctx)
	require.NoError(p.t, err)
	for _, r := range requests {
		require.NoError(p.t, stream.Send(r))
	}
	require.NoError(p.t, stream.CloseSend())
	for {
		response, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			p.note(name, "ends")
			return
		} else if err != nil {
			p.note(name, "ends with %s", grpcstatus.Code(err))
			return
		}
		p.note(name, "%s", summaryOf(response, nil))
	}
}

// summaryOf is the recorded part of a gRPC answer.
func summaryOf(response *telemetrypb.WriteResponse, err error) string {
	parts := []string{codes.OK.String()}
	if err != nil {
		status := grpcstatus.Convert(err)
		parts[0] = status.Code().String()
		for _, d := range status.Details() {
			switch d := d.(type) {
			case *telemetrypb.WriteResponse:
				response = d
			case *telemetrypb.RequestError:
				response = &telemetrypb.WriteResponse{Error: d}
			}
		}
	}
	if e := response.GetError(); e != nil {
		parts = append(parts, fmt.Sprintf("error %s %s %d", codes.Code(uint32(e.GetStatus())), e.GetCode(), e.GetRetryAfterMs())) //nolint:gosec // a code
	}
	parts = append(parts, fmt.Sprintf("id=%q accepted=%d rejected=%d ack=%s", response.GetRequestId(), response.GetAccepted(), response.GetRejected(), response.GetAck()))
	for _, e := range response.GetErrors() {
		parts = append(parts, fmt.Sprintf("%d=%s", e.GetIndex(), e.GetCode()))
	}
	return strings.Join(parts, " ")
}

// stored records everything stored in these streams.
func (p *player) stored(streams ...string) {
	p.t.Helper()
	code, answer := p.b.admin(http.MethodPost, "/flush?timeout=30s")
	require.Equal(p.t, http.StatusOK, code, answer)
	for _, stream := range streams {
		code, answer, err := p.b.ask("/v1/sensors?limit=10000&stream=" + stream)
		require.NoError(p.t, err)
		require.Equal(p.t, http.StatusOK, code, answer)
		var list struct {
			Sensors []struct {
				SensorID string `json:"sensorId"`
			} `json:"sensors"`
		}
		require.NoError(p.t, json.Unmarshal([]byte(answer), &list))
		for _, s := range list.Sensors {
			p.get("/v1/sensors/" + url.PathEscape(s.SensorID) + "/readings?limit=10000&stream=" + stream)
		}
		p.note(stream, "%d sensors", len(list.Sensors))
	}
}

// ask makes a read request.
func (b *brimProcess) ask(path string) (code int, answer string, err error) {
	r, err := http.Get("http://" + b.HTTP + path)
	if err != nil {
		return 0, "", err
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	return r.StatusCode, string(body), err
}

const answersConfig = `streams:
  machines: {granularity: 1m, retention: 30d}
  few: {fields: [t, h]}
  lenient: {fields: [t, h], other-fields: drop}
`

// TestAnswers plays the corpus against a daemon without access control.
func TestAnswers(t *testing.T) {
	t.Parallel()
	p := play(t, startBrim(t, "--storage", "memory", "--data-dir", t.TempDir(), "--config", writeConfig(t, answersConfig), "--flush-interval", "10ms",
		"--max-body-bytes", "64KiB", "--max-inflated-bytes", "2MiB", "--max-readings-per-request", "200").awaitReady())
	p.bodies()
	p.limits()
	p.headers()
	p.keys()
	p.connections()
	p.calls()
	p.golden("ingest")

	p.out.Reset()
	p.reads()
	p.stored("readings", "machines", "few", "lenient")
	p.golden("stored")

	p.out.Reset()
	p.admin()
	p.golden("admin")
}

// bodies sends the corpus in every format.
func (p *player) bodies() {
	for i, body := range p.corpus("json.txt") {
		p.post(fmt.Sprint("json ", i), "/v1/readings", body, "Content-Type", typeJSON)
		p.post(fmt.Sprint("ndjson ", i), "/v1/readings", body, "Content-Type", typeLines)
		p.post(fmt.Sprint("guessed ", i), "/v1/readings", body, "Content-Type", "application/x-www-form-urlencoded")
	}
	for i, body := range p.corpus("line.txt") {
		p.post(fmt.Sprint("line ", i), "/api/v2/write?precision=ns", body)
	}
	for i, body := range p.corpus("protobuf.txt") {
		p.write(fmt.Sprint("protobuf ", i), []byte(body), nil)
	}
	for _, name := range []string{"ecg-360hz.ndjson", "nyc-weather-2013.ndjson"} {
		lines := strings.Join(sampleLines(p.t, name), "\n")
		p.post(name, "/v1/readings", lines, "Content-Type", typeLines)
		p.post(name+" as an array", "/v1/streams/lenient/readings", "["+strings.ReplaceAll(lines, "\n", ",")+"]", "Content-Type", typeJSON)
	}
	p.post("tsbs", "/write?db=x&rp=y&precision=n", strings.Join(sampleLines(p.t, "tsbs-cpu-100x1h.lp"), "\n"))
	for _, precision := range []string{"", "n", "ns", "u", "us", "ms", "s", "m", "h", "d", "rfc3339"} {
		p.post("precision "+precision, "/write?precision="+precision, "prec"+precision+" t=1 26913906\n")
	}
	for _, c := range []struct{ stream, body string }{
		{"few", `{"sensorId":"few","ts":1614834367000,"fields":{"t":1}}`},
		{"few", `{"sensorId":"few","ts":1614834367000,"fields":{"t":1,"u":2}}`},
		{"lenient", `{"sensorId":"len","ts":1614834367000,"fields":{"u":"a","t":1,"h":"kept","v":"b"}}`},
		{"lenient", `{"sensorId":"len","ts":1614834367000,"fields":{"u":1}}`},
		{"machines", `{"sensorId":"mach","ts":1614834367000,"fields":{"t":1}}`},
		{"machines", `{"sensorId":"mach","fields":{"t":1}}`},
		{"none", `{"sensorId":"mach","fields":{"t":1}}`},
		{"%2e", `{}`},
	} {
		p.post("stream "+c.stream, "/v1/streams/"+c.stream+"/readings", c.body)
	}
}

// limits sends oversized requests of various kinds.
func (p *player) limits() {
	reading := func(sensor string) string { return `{"sensorId":"` + sensor + `","ts":1614834367000,"fields":{"t":1}}` }
	lines := func(n int) string { return strings.Repeat(reading("limit")+"\n", n) }
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	require.NoError(p.t, err)
	pack := map[string]func(string) string{
		"":         func(s string) string { return s },
		"identity": func(s string) string { return s },
		"gzip":     func(s string) string { return string(gzipped(p.t, []byte(s))) },
		"x-gzip":   func(s string) string { return string(gzipped(p.t, []byte(s))) },
		"zstd":     func(s string) string { return string(encoder.EncodeAll([]byte(s), nil)) },
	}
	for _, encoding := range []string{"", "identity", "gzip", "x-gzip", "zstd"} {
		wrap := pack[encoding]
		for _, c := range []struct{ name, body string }{
			{"one", wrap(reading("enc-" + encoding))},
			{"empty", wrap("")},
			{"201 readings", wrap(lines(201))},
			{"200 readings", wrap(lines(200))},
			{"too long", wrap(strings.Repeat(" ", 70<<10) + reading("long"))},
			{"bomb", wrap(strings.Repeat("\n", 1<<21+1))},
			{"ratio", wrap(strings.Repeat("\n", 3<<19) + reading("ratio"))},
			{"cut off", wrap(lines(20))[:max(0, len(wrap(lines(20)))-9)]},
			{"with junk behind", wrap(reading("junk")) + "junk"},
			{"plain", reading("not packed")},
		} {
			p.post(encoding+" "+c.name, "/v1/readings", c.body, "Content-Encoding", encoding, "Content-Type", typeLines)
			p.post(encoding+" "+c.name+" as line protocol", "/write", c.body, "Content-Encoding", encoding)
		}
	}
	require.NoError(p.t, encoder.Close())
	p.post("unknown encoding", "/v1/readings", "x", "Content-Encoding", "br")
	p.post("two encodings", "/v1/readings", "x", "Content-Encoding", "gzip", "Content-Encoding", "zstd")
	var fields strings.Builder
	for i := range 257 {
		fmt.Fprintf(&fields, `,"f%d":%d`, i, i)
	}
	long := strings.Repeat("x", 1025)
	for _, body := range []string{
		`{"sensorId":"many","ts":1614834367000,"fields":{` + fields.String()[1:] + `}}`,
		`{"sensorId":"many","ts":1614834367000,"fields":{` + strings.TrimPrefix(strings.Replace(fields.String(), `,"f256":256`, "", 1), ",") + `}}`,
		`{"sensorId":"` + long + `","ts":1614834367000,"fields":{"t":1}}`,
		`{"sensorId":"` + long[1:] + `","ts":1614834367000,"fields":{"t":1}}`,
		`{"sensorId":"text","ts":1614834367000,"fields":{"t":"` + long + `"}}`,
		`{"sensorId":"text","ts":1614834367000,"fields":{"t":"` + long[1:] + `"}}`,
		`{"sensorId":"text","ts":1614834367000,"fields":{"t":1},"tags":{"a":"` + long + `"}}`,
		`{"sensorId":"name","ts":1614834367000,"fields":{"` + long[:129] + `":1}}`,
		`{"sensorId":"name","ts":1614834367000,"fields":{"` + long[:128] + `":1}}`,
		strings.Repeat(`{"a":[`, 5000), strings.Repeat(`[`, 20000),
		`{"sensorId":"deep","x":` + strings.Repeat(`[`, 9000) + strings.Repeat(`]`, 9000) + `}`,
	} {
		p.post("long body "+body[:14], "/v1/readings", body, "Content-Type", typeJSON)
		p.post("long line "+body[:14], "/v1/readings", body, "Content-Type", typeLines)
	}
	refused := strings.Repeat("7\n", 120) + reading("after-120") + "\n"
	p.post("more errors than are listed", "/v1/readings", refused, "Content-Type", typeLines)
	p.post("more broken lines than are listed", "/write", strings.Repeat("broken\n", 120)+"l,host=after t=1 1614834367000000000\n")
}

// headers sends requests with different headers.
func (p *player) headers() {
	body := `{"sensorId":"head","ts":1614834367000,"fields":{"t":1}}`
	for _, contentType := range []string{
		"", typeJSON, typeJSON + "; charset=utf-8", "application/ndjson", "application/jsonl", "application/x-ndjson; q=1",
		"text/plain", "application/octet-stream", "application/xml", ";", "application/x-www-form-urlencoded",
	} {
		headers := []string{"Content-Type", contentType}
		if contentType == "" {
			headers = nil
		}
		p.post("type "+contentType, "/v1/readings", body, headers...)
	}
	for _, ack := range []string{"journaled", "stored", "Stored", "", " ", "both"} {
		p.post("ack "+ack, "/v1/readings", body, "Brim-Ack", ack)
		p.post("?ack="+ack, "/v1/readings?ack="+url.QueryEscape(ack), body)
		p.post("line ?ack="+ack, "/write?ack="+url.QueryEscape(ack), "l,host=ack t=1 1614834367000000000")
	}
	p.post("ack in both", "/v1/readings?ack=stored", body, "Brim-Ack", "journaled")
	for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodDelete, http.MethodHead, http.MethodOptions, http.MethodPatch} {
		for _, path := range []string{"/v1/readings", "/write", "/api/v2/write", "/v1/streams", "/ping", "/health", "/v1/streams/few/readings"} {
			p.send(method+" "+path, method, path, "")
		}
	}
	for _, path := range []string{"/v1", "/v1/", "/v1/readings/", "/v2/readings", "/favicon.ico", "/v1/streams/", "/v1/streams/few", "/api/v1/write/"} {
		p.post("POST "+path, path, body)
		p.get(path)
	}
	p.post("foreign page", "/v1/readings", body, "Origin", "http://elsewhere.example", "Sec-Fetch-Site", "cross-site")
}

// keys repeats requests.
func (p *player) keys() {
	one, other := `{"sensorId":"key","ts":1614834367000,"fields":{"t":1}}`, `{"sensorId":"key","ts":1614834367001,"fields":{"t":2}}`
	some := one + "\n7\n" + other
	for _, c := range []struct{ name, path, body, key string }{
		{"first", "/v1/readings", one, "k-1"},
		{"repeated", "/v1/readings", one, "k-1"},
		{"another body", "/v1/readings", other, "k-1"},
		{"another stream", "/v1/streams/few/readings", one, "k-1"},
		{"another format", "/write", "l,host=key t=1 1614834367000000000", "k-1"},
		{"partly", "/v1/readings", some, "k-2"},
		{"partly, repeated", "/v1/readings", some, "k-2"},
		{"nothing", "/v1/readings", "7", "k-3"},
		{"nothing, repeated", "/v1/readings", "7", "k-3"},
		{"line", "/write", "l,host=key t=1 1614834367000000000\nbroken", "k-4"},
		{"line, repeated", "/write", "l,host=key t=1 1614834367000000000\nbroken", "k-4"},
		{"line, another precision", "/write?precision=us", "l,host=key t=1 1614834367000000000\nbroken", "k-4"},
		{"empty", "/v1/readings", one, ""},
		{"too long", "/v1/readings", one, strings.Repeat("k", 129)},
		{"128 bytes", "/v1/readings", one, strings.Repeat("k", 128)},
		{"not printable", "/v1/readings", one, "a\tb"},
		{"é", "/v1/readings", one, "é"},
	} {
		p.post("key "+c.name, c.path, c.body, "Idempotency-Key", c.key)
	}
	p.post("two keys", "/v1/readings", one, "Idempotency-Key", "a", "Idempotency-Key", "b")
}

// connections sends requests that no client library would send.
func (p *player) connections() {
	const head = "POST /v1/readings HTTP/1.1\r\nHost: b\r\nContent-Type: application/x-ndjson\r\n"
	one := `{"sensorId":"raw","ts":1614834367000,"fields":{"t":1}}`
	length := fmt.Sprintf("Content-Length: %d\r\n", len(one))
	chunk := fmt.Sprintf("%x\r\n%s\r\n", len(one), one)
	last := "Connection: close\r\n"
	for _, c := range []struct {
		name, text string
		cut        bool
	}{
		{"one", head + length + last + "\r\n" + one, false},
		{"two in a row", head + length + "\r\n" + one + head + length + last + "\r\n" + one, false},
		{"HTTP/1.0", strings.Replace(head, "1.1", "1.0", 1) + length + "\r\n" + one, false},
		{"chunks", head + "Transfer-Encoding: chunked\r\n" + last + "\r\n" + chunk + "0\r\n\r\n", false},
		{"expected", head + length + "Expect: 100-continue\r\n" + last + "\r\n" + one, false},
		{"a body cut off", head + "Content-Length: 1000\r\n\r\n" + one + "\n{", true},
		{"a chunk cut off", head + "Transfer-Encoding: chunked\r\n\r\n" + chunk + "ff\r\n{", true},
		{"a line protocol body cut off", "POST /write HTTP/1.1\r\nHost: b\r\nContent-Length: 1000\r\n\r\nl,host=raw t=1 1614834367000000000\n", true},
		{"broken chunks", head + "Transfer-Encoding: chunked\r\n\r\nxyz\r\n", true},
		{"told too long", head + "Content-Length: 100000\r\n\r\n" + one, true},
		{"no host", "POST /v1/readings HTTP/1.1\r\n" + length + "\r\n" + one, true},
		{"no length", head + last + "\r\n", false},
		{"two lengths", head + length + "Content-Length: 3\r\n\r\n" + one, true},
		{"an unknown coding", head + "Transfer-Encoding: xchunked\r\n\r\n" + chunk, true},
		{"another protocol", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", true},
		{"no HTTP", "hello\r\n\r\n", true},
	} {
		p.raw("raw "+c.name, c.text, c.cut)
	}
}

// calls sends gRPC messages.
func (p *player) calls() {
	ms := proto.Int64(1614834367000)
	reading := func(sensor string, fields ...*telemetrypb.Field) *telemetrypb.Reading {
		if fields == nil {
			fields = []*telemetrypb.Field{{Name: "t", Value: &telemetrypb.Field_DoubleValue{DoubleValue: 1.5}}}
		}
		return &telemetrypb.Reading{SensorId: sensor, TsMs: ms, Fields: fields, Tags: []*telemetrypb.Tag{{Name: "site", Value: "north"}}}
	}
	one := &telemetrypb.WriteRequest{RequestId: "r-1", Readings: []*telemetrypb.Reading{reading("g-1")}}
	many := &telemetrypb.WriteRequest{}
	for range 201 {
		many.Readings = append(many.Readings, reading("g-many"))
	}
	compact := func(s *telemetrypb.Series) *telemetrypb.WriteRequest {
		return &telemetrypb.WriteRequest{RequestId: "c", Series: []*telemetrypb.Series{s}}
	}
	times, tags := []int64{1614834367000, 1614834367001, 5}, []*telemetrypb.Tag{{Name: "b", Value: "2"}, {Name: "a", Value: "1"}}
	for _, c := range []struct {
		name    string
		message *telemetrypb.WriteRequest
	}{
		{"one", one},
		{"kinds", &telemetrypb.WriteRequest{Readings: []*telemetrypb.Reading{reading("g-kinds",
			&telemetrypb.Field{Name: "i", Value: &telemetrypb.Field_IntValue{IntValue: -1 << 63}}, &telemetrypb.Field{Name: "b", Value: &telemetrypb.Field_BoolValue{BoolValue: true}},
			&telemetrypb.Field{Name: "s", Value: &telemetrypb.Field_StringValue{StringValue: "x y"}}), reading("g-none", &telemetrypb.Field{Name: "n"}), reading("")}}},
		{"another stream", &telemetrypb.WriteRequest{Stream: "few", Readings: []*telemetrypb.Reading{reading("g-1"), reading("g-1", &telemetrypb.Field{Name: "u", Value: &telemetrypb.Field_BoolValue{}})}}},
		{"no stream", &telemetrypb.WriteRequest{Stream: "none", Readings: one.GetReadings()}},
		{"stored", &telemetrypb.WriteRequest{Ack: telemetrypb.Ack_ACK_STORED, Readings: one.GetReadings()}},
		{"unknown ack", &telemetrypb.WriteRequest{Ack: 7, Readings: one.GetReadings()}},
		{"long id", &telemetrypb.WriteRequest{RequestId: strings.Repeat("i", 1025), Readings: one.GetReadings()}},
		{"201 readings", many},
		{"too long", &telemetrypb.WriteRequest{Stream: strings.Repeat("x", 70<<10), Readings: one.GetReadings()}},
		{"far too long", &telemetrypb.WriteRequest{Stream: strings.Repeat("x", 170<<10), Readings: one.GetReadings()}},
		{"columns", compact(&telemetrypb.Series{SensorId: "c-1", TsMs: times, Tags: tags, Columns: []*telemetrypb.Column{
			{Name: "d", Doubles: []float64{1, 2.5, 3}}, {Name: "i", Ints: []int64{-1, 1 << 40, 0}}, {Name: "b", Bools: []bool{true, false, true}}, {Name: "s", Strings: []string{"x", "", "z"}}}})},
		{"absent", compact(&telemetrypb.Series{SensorId: "c-2", TsMs: times, Columns: []*telemetrypb.Column{{Name: "d", Doubles: []float64{1}, Absent: []uint32{1, 2}}, {Name: "e", Ints: []int64{7}, Absent: []uint32{0, 2}}}})},
		{"too few values", compact(&telemetrypb.Series{SensorId: "c-3", TsMs: times, Columns: []*telemetrypb.Column{{Name: "d", Doubles: []float64{1}}}})},
		{"two kinds", compact(&telemetrypb.Series{SensorId: "c-4", TsMs: times, Columns: []*telemetrypb.Column{{Name: "d", Doubles: []float64{1}, Ints: []int64{1, 2}}}})},
		{"absent out of order", compact(&telemetrypb.Series{SensorId: "c-5", TsMs: times, Columns: []*telemetrypb.Column{{Name: "d", Doubles: []float64{1}, Absent: []uint32{2, 1}}}})},
		{"no columns", compact(&telemetrypb.Series{SensorId: "c-6", TsMs: times})},
		{"bad column", compact(&telemetrypb.Series{SensorId: "c-7", TsMs: times, Columns: []*telemetrypb.Column{{Name: "a.b", Doubles: []float64{1, 2, 3}}}})},
		{"nothing", &telemetrypb.WriteRequest{RequestId: "empty"}},
	} {
		encoded, err := proto.Marshal(c.message)
		require.NoError(p.t, err)
		p.write("write "+c.name, encoded, nil)
		p.write("gzip write "+c.name, encoded, nil, grpc.UseCompressor(grpcgzip.Name))
		if len(c.message.GetStream()) < 70<<10 {
			p.stream("stream "+c.name, nil, c.message, one)
		}
	}
	key := func(k string) []string { return []string{"idempotency-key", k} }
	p.write("key", one, key("g-1"))
	p.write("key, repeated", one, key("g-1"))
	p.write("key, another body", &telemetrypb.WriteRequest{Readings: []*telemetrypb.Reading{reading("g-2")}}, key("g-1"))
	p.write("bad key", one, key(strings.Repeat("k", 129)))
	p.write("two keys", one, append(key("a"), key("b")...))
	p.stream("stream with a key", key("g-2"), one, one, &telemetrypb.WriteRequest{Readings: one.GetReadings()})
	var none telemetrypb.WriteResponse
	p.note("unknown method", "%s", grpcstatus.Code(p.grpc.Invoke(p.t.Context(), "/brim.v1.IngestService/Read", one, &none)))
}

// reads queries what is stored.
func (p *player) reads() {
	for _, path := range []string{
		"/ping", "/health", "/v1/streams", "/openapi.yaml", "/",
		"/v1/sensors?prefix=j-", "/v1/sensors?prefix=j-&limit=2", "/v1/sensors?prefix=j-&limit=2&after=j-2", "/v1/sensors?stream=none", "/v1/sensors?limit=0", "/v1/sensors?limit=x", "/v1/sensors?unknown=1",
		"/v1/sensors/j-3/latest", "/v1/sensors/none/latest", "/v1/sensors/j-3/readings", "/v1/sensors/none/readings", "/v1/sensors/j-3/readings?limit=1",
		"/v1/sensors/j-3/readings?from=2021-03-04T05:06:07.500Z", "/v1/sensors/j-3/readings?to=1614834367500", "/v1/sensors/j-3/readings?from=-1h", "/v1/sensors/j-3/readings?from=x", "/v1/sensors/j-3/readings?limit=100001",
		"/v1/sensors/j-3/readings?from=2&to=1", "/v1/sensors/j-3/summary?every=1m&from=2021-03-04T05:06:00Z&to=2021-03-04T05:08:00Z", "/v1/sensors/j-3/summary", "/v1/sensors/j-3/summary?every=0s", "/v1/sensors/j-3/summary?every=1ms&from=0&to=1614834367500",
		"/v1/sensors/mach/readings?stream=machines&limit=1", "/v1/sensors/mach/readings?stream=none", "/v1/sensors//readings", "/v1/sensors/%00/latest",
	} {
		p.get(path)
	}
	p.get("/v1/sensors/j-3/readings", "Accept", typeLines)
	p.get("/v1/sensors/j-3/readings?from=0", "Accept", "text/csv")
	p.get("/v1/sensors/j-3/readings?from=0&limit=1", "Accept", "image/png")
	p.send("POST reads", http.MethodPost, "/v1/sensors", "")
	p.send("DELETE one", http.MethodDelete, "/v1/sensors/j-5", "")
	p.send("DELETE none", http.MethodDelete, "/v1/sensors/none", "")
	p.send("DELETE all", http.MethodDelete, "/v1/sensors", "")
}

// admin records the stable parts of the admin listener: status codes, the paths of /status, and
// the names, labels and types of our own metrics.
func (p *player) admin() {
	for _, c := range [][2]string{
		{"GET", "/healthz"}, {"GET", "/readyz"}, {"GET", "/status"}, {"GET", "/metrics"}, {"GET", "/"}, {"GET", "/debug/pprof/"}, {"GET", "/none"},
		{"POST", "/flush"}, {"POST", "/flush?timeout=x"}, {"GET", "/flush"}, {"POST", "/metrics"},
	} {
		code, _ := p.b.admin(c[0], c[1])
		p.note(c[0]+" "+c[1], "%d", code)
	}
	_, body := p.b.admin(http.MethodGet, "/status")
	var status any
	require.NoError(p.t, json.Unmarshal([]byte(body), &status))
	paths := make(map[string]bool)
	pathsOf(paths, "", status)
	delete(paths, "status .revision") // only in builds from a repository
	_, metrics := p.b.admin(http.MethodGet, "/metrics")
	label := regexp.MustCompile(`([a-zA-Z_]+)="[^"]*"`)
	for line := range strings.Lines(metrics) {
		switch name, rest, _ := strings.Cut(strings.TrimPrefix(line, "# TYPE "), " "); {
		case strings.HasPrefix(line, "# TYPE brim_"):
			paths["metric "+name+" "+strings.TrimSpace(rest)] = true
		case strings.HasPrefix(line, "brim_ingest_") && !strings.Contains(name, "_bucket"), strings.HasPrefix(line, "brim_queue_"), strings.HasPrefix(line, "brim_http_"):
			paths["series "+name] = true // closed sets, with their values
		case strings.HasPrefix(line, "brim_"):
			paths["series "+label.ReplaceAllString(name, "$1")] = true
		}
	}
	lines := make([]string, 0, len(paths))
	for path := range paths {
		lines = append(lines, path)
	}
	sort.Strings(lines)
	p.out.WriteString(strings.Join(lines, "\n") + "\n")
}

// pathsOf adds the paths of a JSON document.
func pathsOf(paths map[string]bool, at string, v any) {
	switch v := v.(type) {
	case map[string]any:
		for name, value := range v {
			pathsOf(paths, at+"."+name, value)
		}
	case []any:
		for _, value := range v {
			pathsOf(paths, at+"[]", value)
		}
	default:
		paths["status "+at] = true
	}
}

// TestAnswersWithTokens runs requests against a daemon that requires tokens.
func TestAnswersWithTokens(t *testing.T) {
	t.Parallel()
	tokens, file, pairs := make(map[string]string), "identities:\n", []string{}
	for _, who := range []struct{ name, rest string }{
		{"all", "scopes: [admin]"}, {"north", "scopes: [ingest], sensor_prefix: north-"}, {"few", "scopes: [ingest], quota: {readings_per_second: 1}"}, {"reader", "scopes: [read]"},
	} {
		token, err := access.NewToken()
		require.NoError(t, err)
		tokens[who.name] = token
		pairs = append(pairs, token, who.name)
		file += fmt.Sprintf("  - {name: %s, hash: %q, %s}\n", who.name, access.HashOf(token), who.rest)
	}
	path := filepath.Join(t.TempDir(), "access.yaml")
	require.NoError(t, os.WriteFile(path, []byte(file), 0o600))
	// A list of sensors includes fields only once readings are stored.
	p := play(t, startBrim(t, "--storage", "memory", "--data-dir", t.TempDir(), "--access-file", path, "--flush-interval", "1h"))
	p.secrets = strings.NewReplacer(pairs...)
	p.b.eventually("it takes readings", func() bool { code, _ := p.b.admin(http.MethodGet, "/readyz"); return code == http.StatusOK })
	body := `{"sensorId":"north-1","ts":1614834367000,"fields":{"t":1}}`
	for _, who := range []string{"all", "north", "few", "reader", "unknown", ""} {
		var headers, pairs []string
		if who != "" {
			headers, pairs = []string{"Authorization", "Bearer " + tokens[who]}, []string{"authorization", "Bearer " + tokens[who]}
		}
		if who == "unknown" {
			headers, pairs = []string{"Authorization", "Bearer brim_unknown"}, []string{"authorization", "Bearer brim_unknown"}
		}
		if who == "few" {
			p.b.eventually("the quota is used up", func() bool {
				code, _, err := p.b.send("/v1/readings", []byte(strings.Repeat(body+"\n", 100)), headers...)
				return err == nil && code == http.StatusTooManyRequests
			})
			p.post(who+" writes too many", "/v1/readings", strings.Repeat(body+"\n", 100), headers...)
			continue
		}
		p.post(who+" writes", "/v1/readings", body, headers...)
		p.post(who+" writes for another sensor", "/v1/readings", strings.Replace(body, "north", "south", 1), headers...)
		p.post(who+" writes for both", "/v1/readings", body+"\n"+strings.Replace(body, "north", "south", 1), headers...)
		p.post(who+" writes too many", "/v1/readings", strings.Repeat(body+"\n", 12), headers...)
		p.post(who+" writes lines", "/write", "north-2 t=1 1614834367000000000", headers...)
		p.post(who+" writes with a key", "/v1/readings", body, append(headers, "Idempotency-Key", "k")...)
		for _, path := range []string{"/v1/streams", "/v1/sensors", "/v1/sensors/north-1/latest", "/ping", "/health", "/openapi.yaml", "/none"} {
			p.send(who+" GET "+path, http.MethodGet, path, "", headers...)
		}
		p.send(who+" deletes", http.MethodDelete, "/v1/sensors/none", "", headers...)
		request := &telemetrypb.WriteRequest{Readings: []*telemetrypb.Reading{{SensorId: "north-g", TsMs: proto.Int64(1614834367000), Fields: []*telemetrypb.Field{{Name: "t", Value: &telemetrypb.Field_BoolValue{}}}}}}
		p.write(who+" calls", request, pairs)
		p.stream(who+" calls WriteStream", pairs, request)
	}
	for _, authorization := range []string{"Bearer", "Token " + tokens["all"], "Basic eDp5", "bearer " + tokens["all"], tokens["all"]} {
		p.post("authorization "+authorization, "/v1/readings", body, "Authorization", authorization)
	}
	p.post("u and p", "/write?u=x&p="+tokens["all"], "north-2 t=1 1614834367000000000")
	p.golden("access")
}

// TestAnswersWithMongoDB plays a few requests against daemons that store in MongoDB.
func TestAnswersWithMongoDB(t *testing.T) {
	t.Parallel()
	db := mongodtest.Database(t)
	config := writeConfig(t, "streams:\n  native: {storage: timeseries}\n  minute: {granularity: 1m}\n")
	p := play(t, startBrim(t, append(onShared(t, db), "--config", config)...).awaitStorage())
	for _, stream := range []string{"readings", "native", "minute"} {
		p.post("json to "+stream, "/v1/streams/"+stream+"/readings", strings.Join(p.corpus("json.txt")[52:55], "\n"), "Content-Type", typeLines)
		for _, name := range []string{"ecg-360hz.ndjson", "nyc-weather-2013.ndjson"} {
			p.post(name+" to "+stream, "/v1/streams/"+stream+"/readings", strings.Join(sampleLines(t, name), "\n"), "Content-Type", typeLines)
		}
		p.write("kinds to "+stream, &telemetrypb.WriteRequest{Stream: stream, Readings: []*telemetrypb.Reading{{SensorId: "g", TsMs: proto.Int64(1614834367000), Fields: []*telemetrypb.Field{
			{Name: "i", Value: &telemetrypb.Field_IntValue{IntValue: 1 << 53}}, {Name: "d", Value: &telemetrypb.Field_DoubleValue{DoubleValue: 1}}, {Name: "s", Value: &telemetrypb.Field_StringValue{StringValue: "x"}}}}}}, nil)
	}
	p.post("lines", "/write", strings.Join(sampleLines(t, "tsbs-cpu-100x1h.lp")[:20], "\n"))
	p.stored("readings", "native", "minute")
	p.golden("mongodb")
}
