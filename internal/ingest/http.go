package ingest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/brim-telemetry/brim/internal/access"
	"github.com/brim-telemetry/brim/internal/config"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// Handler serves all HTTP paths of the package, and answers unknown paths with 404.
func (srv *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	readings, lines := srv.writes(protoHTTP, srv.serveReadings), srv.writes(protoLine, srv.serveLines)
	mux.Handle("/v1/readings", readings)
	mux.Handle("/v1/streams/{stream}/readings", readings)
	mux.Handle("/write", lines)
	mux.Handle("/api/v2/write", lines)
	mux.Handle("/api/v3/write_lp", srv.writes(protoLine, srv.serveLinesV3))
	mux.Handle("/query", srv.guarded(srv.allow(srv.serveInfluxQL, http.MethodGet, http.MethodPost), access.Ingest, access.Read))
	mux.Handle("/api/v2/buckets", srv.guarded(srv.reads(srv.serveBuckets), access.Ingest, access.Read))
	mux.Handle("/api/v1/write", srv.writes(protoRemote, srv.serveRemoteWrite))
	mux.Handle("/v1/metrics", srv.writes(protoOTLPHTTP, srv.serveMetrics))
	mux.Handle("/v1/streams", srv.guarded(srv.reads(srv.serveStreams), access.Ingest, access.Read))
	mux.Handle("/ping", srv.reads(srv.servePing))
	mux.Handle("/health", srv.reads(srv.serveHealth))
	mux.Handle("/", srv.guarded(http.HandlerFunc(srv.serveUnknown)))
	return mux
}

// An exchange is one write request over HTTP with its answer.
type exchange struct {
	server       *Server
	protocol     protocol
	w            http.ResponseWriter
	r            *http.Request
	start        time.Time
	who          *access.Identity // the sender
	began        bool             // some of the body was read
	tooSlow      bool             // the body arrived too slowly; the rest is not read
	unauthorized bool             // the sender is not authorized, so little of the rest is read

	// State of one request, reused by later ones.
	in      intake
	pacer   pacer
	payload payload
	text    []byte // of the answer
}

// newExchange begins an exchange.
func (srv *Server) newExchange(p protocol, w http.ResponseWriter, r *http.Request) *exchange {
	x := srv.exchanges.get()
	x.server, x.protocol, x.w, x.r, x.start = srv, p, w, r, time.Now()
	x.payload.server, x.payload.pacer, x.payload.lease.of = srv, &x.pacer, srv.budget
	return x
}

// finish ends the exchange after its answer, and releases its memory.
func (x *exchange) finish() {
	x.in.close()
	x.payload.lease.Release()
	exchanges := &x.server.exchanges
	*x = exchange{text: x.text[:0]}
	exchanges.put(x)
}

// writes wraps a handler that accepts readings.
func (srv *Server) writes(p protocol, serve func(*exchange) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := srv.newExchange(p, w, r)
		defer x.finish()
		if srv.stopping() {
			x.refuse(r.Context(), errStopping())
			return
		}
		if r.Method != http.MethodPost {
			allowed := http.MethodPost
			if r.URL.Path == "/v1/readings" { // package read serves GET and HEAD
				allowed = "GET, HEAD, POST"
			}
			w.Header().Set("Allow", allowed)
			x.problem(r.Context(), methodWrong, &telemetry.Error{Code: codeMethodWrong, Message: r.Method + " is not allowed here; readings are sent with POST"})
			return
		}
		var err error
		if x.who, err = srv.identifyRequest(r, access.Ingest); err != nil {
			x.unauthorized = true
			x.refuse(r.Context(), err)
		} else if err := serve(x); err != nil {
			x.refuse(r.Context(), err)
		}
	})
}

// reads wraps a handler that serves GET and HEAD.
func (srv *Server) reads(serve http.HandlerFunc) http.Handler {
	return srv.allow(serve, http.MethodGet, http.MethodHead)
}

// allow wraps a handler that serves some methods.
func (srv *Server) allow(serve http.HandlerFunc, methods ...string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if slices.Contains(methods, r.Method) {
			serve(w, r)
			return
		}
		w.Header().Set("Allow", strings.Join(methods, ", "))
		writeJSON(w, statuses[methodWrong].http, problem{Code: codeMethodWrong, Message: r.Method + " is not allowed here"})
	})
}

func (srv *Server) serveUnknown(w http.ResponseWriter, r *http.Request) {
	writeJSON(w, http.StatusNotFound, problem{
		Code:    codePathUnknown,
		Message: "there is nothing at " + telemetry.Quote([]byte(r.URL.Path)) + "; " + pathHint(r.URL.Path),
	})
}

// pathHint says what to use instead of a path that does not exist.
func pathHint(path string) string {
	for _, h := range []struct{ prefix, hint string }{
		{"/v1/traces", "of OpenTelemetry's signals, Brim accepts metrics: POST /v1/metrics. Do not export traces to it"},
		{"/v1/logs", "of OpenTelemetry's signals, Brim accepts metrics: POST /v1/metrics. Do not export logs to it"},
		{"/prometheus/api/v1/write", "remote write goes to POST /api/v1/write"},
		{"/api/v1/", "the Prometheus query API is under /prometheus/api/v1, and remote write goes to POST /api/v1/write"},
		{"/metrics", "it is at the admin listener (admin-addr)"},
		{"/readyz", "it is at the admin listener (admin-addr)"},
		{"/healthz", "it is at the admin listener (admin-addr)"},
		{"/status", "it is at the admin listener (admin-addr)"},
	} {
		if strings.HasPrefix(path, h.prefix) {
			return h.hint
		}
	}
	return "readings go to POST /v1/readings"
}

// serveReadings accepts JSON.
func (srv *Server) serveReadings(x *exchange) error {
	query, err := parseQuery(x.r, "ack")
	if err != nil {
		return err
	}
	stream, header := x.r.PathValue("stream"), x.r.Header.Get(streamHeader)
	if stream != "" && header != "" && stream != header {
		return telemetry.Errorf(telemetry.Invalid, codeParameter, "the path names stream %s, and the header %s names %s; give one of them",
			telemetry.Quote([]byte(stream)), streamHeader, telemetry.Quote([]byte(header)))
	}
	in, err := x.intake(cmp.Or(stream, header), query)
	if err != nil {
		return err
	}
	form, err := formOf(x.r.Header.Get("Content-Type"))
	if err != nil {
		return err
	}
	return x.take(in, func(body []byte) error { return in.decodeJSON(body, form) })
}

// parseQuery returns the query parameters of a request, each of which must be allowed.
func parseQuery(r *http.Request, allowed ...string) (url.Values, error) {
	if r.URL.RawQuery == "" {
		return nil, nil
	}
	invalid := func(format string, args ...any) (url.Values, error) {
		return nil, telemetry.Errorf(telemetry.Invalid, codeParameter, format, args...)
	}
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return invalid("the query string is malformed: %v", err)
	}
	for name, given := range values {
		switch {
		case name == "stream":
			return invalid("the parameter stream is for reading; readings go to a stream with POST /v1/streams/STREAM/readings, or with the header Brim-Stream")
		case !slices.Contains(allowed, name):
			return invalid("parameter %s is unknown; allowed: %s", telemetry.Quote([]byte(name)), strings.Join(allowed, ", "))
		case len(given) > 1:
			return invalid("parameter %s is given %d times; it is allowed once", name, len(given))
		}
	}
	return values, nil
}

// intake returns an intake for readings of the named stream.
func (x *exchange) intake(name string, query url.Values) (*intake, error) {
	stream, err := x.server.stream(name)
	if err != nil {
		return nil, err
	}
	want, err := x.server.wantedAck(x.r, query)
	if err != nil {
		return nil, err
	}
	key, err := idempotencyKey(x.r.Header[headerKey])
	if err != nil {
		return nil, err
	}
	x.in.open(x.server, stream, want)
	x.in.who, x.in.key, x.in.lease, x.in.ctx = x.who, key, &x.payload.lease, x.r.Context()
	return &x.in, nil
}

// take receives and decodes the body, appends its readings and answers.
func (x *exchange) take(in *intake, decode func([]byte) error) error {
	err := x.receive()
	x.began = len(x.payload.data) > 0 || telemetry.KindOf(err) == telemetry.TooSlow
	if err != nil {
		return err
	}
	r, err := in.take(&x.payload, decode)
	if err != nil {
		return err
	}
	x.answer(r, in)
	return nil
}

// answer writes the answer to a request whose readings were decoded.
func (x *exchange) answer(r result, in *intake) {
	x.server.metrics.answered(x.protocol, r, time.Since(x.start), &in.answer)
	if in.answer.repeated {
		x.w.Header().Set(headerReplayed, "true")
	}
	switch {
	case x.protocol == protoLine:
		x.answerLines(r, in)
	case x.protocol == protoRemote:
		x.answerRemote(r, in)
	case x.protocol == protoOTLPHTTP:
		x.answerOTLP(in)
	case len(in.answer.Errors) == 0 && in.answer.Ack != "":
		x.text = in.answer.appendTaken(x.text[:0])
		writeHead(x.w, statuses[r].http)
		_, _ = x.w.Write(x.text) // the only error is that the connection has ended
	default:
		writeJSON(x.w, statuses[r].http, &in.answer)
	}
}

// refuse answers a request that failed, or has an unknown outcome.
func (x *exchange) refuse(ctx context.Context, err error) {
	known := x.server.knownError(x.protocol, err)
	x.in.close() // it has the decoded readings
	x.payload.free()
	x.payload.lease.Release()
	x.tooSlow = known.Kind == telemetry.TooSlow
	adviseClient(x.w, known)
	x.problem(ctx, resultOf(known.Kind), known)
}

// problem writes the answer to a refused request, after the guard's delay.
func (x *exchange) problem(ctx context.Context, r result, e *telemetry.Error) {
	x.drain()
	x.server.metrics.answered(x.protocol, r, time.Since(x.start), &answer{})
	p := problem{Code: e.Code, Message: e.Message}
	if x.protocol == protoLine {
		if code, ok := influxCodes[e.Kind]; ok {
			p.Code, p.Message = code, e.Code+": "+e.Message
		}
		p.Error = p.Message
	}
	x.server.config.Guard.DelayRefusal(ctx, e)
	if x.protocol == protoOTLPHTTP {
		x.writeOTLPProblem(r, e)
		return
	}
	writeJSON(x.w, x.protocol.status(r), p)
}

const (
	// drainTime is how long the rest of a refused body is read.
	drainTime = time.Second
	// drainBytes is how much of it is read from an unauthorized client.
	drainBytes = 64 << 10
)

// drain reads the rest of the body, because the connection of a client that is still
// sending would be reset before it reads the answer. A body that the client has not
// started to send is not read.
func (x *exchange) drain() {
	if x.r.Header.Get("Expect") != "" && !x.began {
		return
	}
	if x.tooSlow {
		x.w.Header().Set("Connection", "close")
		return // the deadline of the connection has passed
	}
	control := http.NewResponseController(x.w)
	if err := control.SetReadDeadline(time.Now().Add(drainTime)); err != nil {
		return // not a connection with deadlines
	}
	limit := int64(math.MaxInt64)
	if x.unauthorized {
		limit = drainBytes
	}
	if n, err := io.CopyN(io.Discard, x.r.Body, limit); n == limit || !errors.Is(err, io.EOF) {
		x.w.Header().Set("Connection", "close")
		return
	}
	// Otherwise the deadline would abort the next request. It cannot fail, since setting the
	// deadline did not.
	_ = control.SetReadDeadline(time.Time{})
}

// stream returns the named stream; an empty name stands for the default stream.
func (srv *Server) stream(name string) (*inputStream, error) {
	if name == "" {
		name = srv.config.DefaultStream
	}
	if s, ok := srv.streams[name]; ok {
		return s, nil
	}
	return nil, telemetry.Errorf(telemetry.NotFound, codeStreamUnknown,
		"there is no stream %s; there are: %s", telemetry.Quote([]byte(name)), listStreams(srv.config.Streams))
}

// wantedAck returns the level of acknowledgement that the client requests.
func (srv *Server) wantedAck(r *http.Request, query url.Values) (telemetry.Ack, error) {
	given := strings.TrimSpace(r.Header.Get(headerAck))
	asked := given != ""
	if query.Has("ack") {
		given, asked = query.Get("ack"), true
	}
	if !asked {
		return srv.config.Ack, nil
	}
	want, err := telemetry.ParseAck(given)
	if err != nil {
		return "", telemetry.Errorf(telemetry.Invalid, codeAckUnknown, "%s; this daemon can give: %s", err, listAcks(srv.config.Acks))
	}
	return srv.ackOrError(want)
}

func (srv *Server) ackOrError(want telemetry.Ack) (telemetry.Ack, error) {
	if slices.Contains(srv.config.Acks, want) {
		return want, nil
	}
	return "", telemetry.Errorf(telemetry.Invalid, codeAckUnavailable, "ack %s is not available from this daemon; allowed: %s", want, listAcks(srv.config.Acks))
}

// streamsAnswer is the answer to GET /v1/streams.
type streamsAnswer struct {
	Default string          `json:"default"`
	Acks    []telemetry.Ack `json:"acks"` // that can be had
	Streams []streamAnswer  `json:"streams"`
}

type streamAnswer struct {
	Name               string  `json:"name"`
	Storage            string  `json:"storage"`
	GranularitySeconds int64   `json:"granularity_seconds"`
	Granularity        string  `json:"granularity"`
	MaxReadings        int     `json:"bucket_max_readings,omitempty"`
	MaxBytes           int64   `json:"bucket_max_bytes,omitempty"`
	RetentionSeconds   float64 `json:"retention_seconds"` // 0: for ever

	Fields      []string `json:"fields,omitempty"`       // that readings may have; none: any
	OtherFields string   `json:"other_fields,omitempty"` // refuse or drop
}

func (srv *Server) serveStreams(w http.ResponseWriter, _ *http.Request) {
	about := streamsAnswer{Default: srv.config.DefaultStream, Acks: srv.config.Acks, Streams: []streamAnswer{}}
	for i := range srv.order {
		s := srv.order[i].live.Load()
		others := ""
		if len(s.Fields) > 0 {
			others = cmp.Or(s.OtherFields, refuseOthers)
		}
		about.Streams = append(about.Streams, streamAnswer{
			Name: s.Name, Storage: s.Storage,
			GranularitySeconds: int64(s.Granularity / time.Second), Granularity: config.FormatDuration(s.Granularity),
			MaxReadings: s.MaxReadings, MaxBytes: s.MaxBytes, RetentionSeconds: s.Retention.Seconds(),
			Fields: s.Fields, OtherFields: others,
		})
	}
	writeJSON(w, http.StatusOK, about)
}

// servePing answers the request that InfluxDB clients send before they write. Some of them
// check the header.
func (srv *Server) servePing(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("X-Influxdb-Version", "brim-"+srv.config.Version)
	w.Header().Set("X-Influxdb-Build", "Brim")
	status := http.StatusNoContent
	if srv.stopping() {
		status = http.StatusServiceUnavailable
	}
	w.WriteHeader(status)
}

// serveHealth answers in the format of InfluxDB 2.
func (srv *Server) serveHealth(w http.ResponseWriter, _ *http.Request) {
	message, outcome, status := "ready for readings", "pass", http.StatusOK
	if available := srv.config.Available; available != nil && available() != nil {
		message, outcome, status = "no readings can be taken now; /readyz of the admin listener says why", "fail", http.StatusServiceUnavailable
	}
	if srv.stopping() {
		message, outcome, status = "stopping", "fail", http.StatusServiceUnavailable
	}
	writeJSON(w, status, map[string]any{"name": "brim", "message": message, "status": outcome, "checks": []string{}, "version": srv.config.Version})
}

// serveLines accepts line protocol as InfluxDB 1 and 2 clients send it. Databases,
// buckets and organisations are ignored.
func (srv *Server) serveLines(x *exchange) error {
	query, err := parseQuery(x.r, "ack", "precision", "db", "rp", "bucket", "org", "orgID", "u", "p", "consistency")
	if err != nil {
		return err
	}
	p, err := precisionOf(query.Get("precision"))
	if err != nil {
		return err
	}
	return srv.takeLines(x, query, p, true)
}

// takeLines accepts the lines of a request. If partial is false, it accepts all or none.
func (srv *Server) takeLines(x *exchange, query url.Values, p precision, partial bool) error {
	in, err := x.intake("", query)
	if err != nil {
		return err
	}
	return x.take(in, func(body []byte) error {
		if err := in.decodeLineProtocol(body, p); err != nil || partial {
			return err
		}
		return in.noneRefused()
	})
}

// precisions are the units of timestamps by their names, in milliseconds as in precision.
var precisions = map[string]int64{"ns": -1_000_000, "us": -1_000, "ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000}

// precisionOf returns the unit of a request's timestamps.
func precisionOf(name string) (precision, error) {
	switch name {
	case "", "n":
		name = "ns"
	case "u":
		name = "us"
	}
	if ratio, ok := precisions[name]; ok {
		return precision{name, ratio}, nil
	}
	return precision{}, telemetry.Errorf(telemetry.Invalid, codePrecision,
		"precision %s is unknown; allowed: n, u, ns, us, ms, s, m, h", telemetry.Quote([]byte(name)))
}

// answerLines writes the answer to line protocol. Telegraf drops the refused lines if the
// answer has the same phrases as InfluxDB's: "partial write" if the other lines were
// accepted, "unable to parse" if none was.
func (x *exchange) answerLines(r result, in *intake) {
	status, a := x.protocol.status(r), &in.answer
	if a.Rejected == 0 {
		x.w.WriteHeader(status)
		return
	}
	first := a.Errors[0]
	p := problem{Code: codePartialWrite, Line: in.lines[first.Index]}
	reason := fmt.Sprintf("line %d: %s: %s dropped=%d", p.Line, first.Code, first.Message, a.Rejected)
	if a.Accepted > 0 {
		p.Message = fmt.Sprintf("partial write: %d of %d lines were refused, the others were taken; %s", a.Rejected, in.count, reason)
	} else {
		p.Code = codeNothingTaken
		p.Message = fmt.Sprintf("unable to parse: %d of %d lines were refused, nothing was accepted; %s", a.Rejected, in.count, reason)
	}
	p.Error = p.Message
	if x.r.URL.Path == pathWriteV3 {
		p.Error, p.Data = "partial write of line protocol occurred: "+p.Message, in.refusedLines() // the prefix that its clients look for
	}
	writeJSON(x.w, status, p)
}

// A problem is an answer about a whole request.
type problem struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Line    uint32 `json:"line,omitempty"`  // line protocol: the first refused line, from 1
	Error   string `json:"error,omitempty"` // line protocol: the message again, for InfluxDB 1 clients

	Data []refusedLine `json:"data,omitempty"` // for InfluxDB 3 clients
}

// WriteProblem answers an HTTP request that failed with err: with the status of the error's
// kind and an object {"code", "message"}. The text of an error that is not a
// *telemetry.Error is logged and not sent.
func (srv *Server) WriteProblem(w http.ResponseWriter, err error) {
	known := srv.knownError(protoHTTP, err)
	adviseClient(w, known)
	writeJSON(w, statuses[resultOf(known.Kind)].http, problem{Code: known.Code, Message: known.Message})
}

// adviseClient sets the headers that say when to retry, if that can help, or how to authenticate.
func adviseClient(w http.ResponseWriter, e *telemetry.Error) {
	if seconds := retrySeconds(e); seconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(seconds))
	}
	if e.Kind == telemetry.Unauthenticated {
		access.Challenge(w.Header())
	}
}

// retrySeconds returns after how many seconds the client may retry; 0: retrying does not
// help.
func retrySeconds(e *telemetry.Error) int {
	if e.Kind != telemetry.Unavailable && e.Kind != telemetry.Quota {
		return 0
	}
	wait := e.RetryAfter
	if wait <= 0 {
		wait = retryAfter
	}
	return int(math.Ceil(wait.Seconds()))
}

// writeHead begins an answer in JSON. It uses canonical header names and one array for their
// values to save allocations.
func writeHead(w http.ResponseWriter, status int) {
	h, values := w.Header(), []string{"application/json", "nosniff"}
	h["Content-Type"], h["X-Content-Type-Options"] = values[:1:1], values[1:]
	w.WriteHeader(status)
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	writeHead(w, status)
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	// The only error is that the connection has ended.
	_ = e.Encode(v)
}

// formOf returns the form of a body with this Content-Type.
func formOf(contentType string) (form, error) {
	switch contentType { // the usual spellings
	case "":
		return formGuess, nil
	case "application/json":
		return formJSON, nil
	case "application/x-ndjson":
		return formLines, nil
	}
	media, _, err := mime.ParseMediaType(contentType)
	if err == nil {
		switch media {
		case "application/json":
			return formJSON, nil
		case "application/x-ndjson", "application/ndjson", "application/jsonl":
			return formLines, nil
		case "application/x-www-form-urlencoded": // what curl -d sends if not told otherwise
			return formGuess, nil
		}
	}
	return 0, telemetry.Errorf(telemetry.Unsupported, codeTypeUnknown,
		"Content-Type %s cannot be read; allowed: application/json and application/x-ndjson", telemetry.Quote([]byte(contentType)))
}
