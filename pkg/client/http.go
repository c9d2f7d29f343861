package client

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/brim-telemetry/brim/pkg/client/encode"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

const (
	idleConnections = 64          // for each address
	idleTime        = time.Minute // a daemon closes them after two
	dialTime        = 10 * time.Second
	maxAnswer       = 1 << 20 // bytes; a hundred refusals have less
)

// httpTransport speaks HTTP/1.1, and HTTP/2 over TLS.
type httpTransport struct {
	config     Config
	addresses  []address
	client     *http.Client
	perReading atomic.Int64 // bytes in the last body, to allocate the next at once
}

func newHTTPTransport(c Config, addresses []address) *httpTransport {
	t := &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: (&net.Dialer{Timeout: dialTime}).DialContext,
		ForceAttemptHTTP2: true, MaxIdleConnsPerHost: idleConnections, IdleConnTimeout: idleTime, TLSHandshakeTimeout: dialTime,
	}
	if c.TLS != nil {
		t.TLSClientConfig = c.TLS.Clone()
	}
	// A daemon does not redirect.
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &httpTransport{config: c, addresses: addresses, client: &http.Client{Transport: t, CheckRedirect: stay}}
}

func (t *httpTransport) close() error {
	t.client.CloseIdleConnections()
	return nil
}

// try implements transport.
func (t *httpTransport) try(ctx context.Context, to int, w *write) attempt {
	if err := t.fill(w); err != nil {
		return attempt{err: err}
	}
	path := "/v1/readings"
	if w.stream != "" {
		path = "/v1/streams/" + url.PathEscape(w.stream) + "/readings"
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.addresses[to].base+path, bytes.NewReader(w.body))
	if err != nil {
		return attempt{err: fmt.Errorf("make request: %w", err)}
	}
	h := req.Header
	h.Set("Content-Type", "application/x-ndjson")
	if len(w.readings) == 1 {
		h.Set("Content-Type", "application/json")
	}
	if w.gzipped {
		h.Set("Content-Encoding", "gzip")
	}
	h.Set("Idempotency-Key", w.key)
	if w.ack != "" {
		h.Set("Brim-Ack", string(w.ack))
	}
	resp, failed := t.do(req)
	if resp == nil {
		return failed
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return attempt{err: fmt.Errorf("read the answer: %w", err), again: true, unknown: true}
	}
	a := readAnswer(resp, body, len(w.readings))
	a.result.Replayed = resp.Header.Get("Idempotent-Replayed") == "true"
	return a
}

// fill encodes the body of a request, once.
func (t *httpTransport) fill(w *write) error {
	if w.body != nil {
		return nil
	}
	n := int64(len(w.readings))
	body := encode.AppendBody(make([]byte, 0, (t.perReading.Load()+8)*n), w.readings)
	t.perReading.Store(int64(len(body)) / n)
	if !t.config.Gzip {
		w.body = body
		return nil
	}
	var out bytes.Buffer
	z, err := gzip.NewWriterLevel(&out, gzip.BestSpeed)
	if err != nil {
		return err
	}
	if _, err := z.Write(body); err != nil {
		return fmt.Errorf("compress readings: %w", err)
	}
	if err := z.Close(); err != nil {
		return fmt.Errorf("compress readings: %w", err)
	}
	w.body, w.gzipped = out.Bytes(), true
	return nil
}

// do sends a request with the token. Without a response, the attempt says why.
func (t *httpTransport) do(req *http.Request) (*http.Response, attempt) {
	req.Header.Set("User-Agent", userAgent)
	if t.config.Token != nil {
		token, err := t.config.Token(req.Context())
		if err != nil {
			return nil, attempt{err: fmt.Errorf("get the token: %w", err), again: mayCome(err)}
		}
		req.Header.Set("Authorization", "Bearer "+token)
	}
	// Without a connection, nothing can have been stored.
	var connected atomic.Bool
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }}
	resp, err := t.client.Do(req.WithContext(httptrace.WithClientTrace(req.Context(), trace)))
	if err != nil {
		var outer *url.Error // repeats the address
		if errors.As(err, &outer) {
			err = outer.Err
		}
		return nil, attempt{err: err, again: true, unknown: connected.Load()}
	}
	return resp, attempt{}
}

const userAgent = "brim-client"

// readAnswer interprets the answer to so many readings.
func readAnswer(resp *http.Response, body []byte, readings int) attempt {
	switch resp.StatusCode {
	case http.StatusOK, http.StatusAccepted, http.StatusMultiStatus, http.StatusBadRequest, http.StatusForbidden:
		r, err := parseAnswer(body, readings)
		if err == nil {
			return attempt{result: r}
		}
		if resp.StatusCode < http.StatusBadRequest {
			// Of somebody else, such as a page that asks for a password, if it has no counts.
			return attempt{err: fmt.Errorf("read the answer: %w", err), again: !errors.Is(err, errImpossible), unknown: true}
		}
	}
	return readProblem(resp, body)
}

// readProblem interprets an answer that is not about single readings.
func readProblem(resp *http.Response, body []byte) attempt {
	problem := parseProblem(body)
	after := parseRetryAfter(resp.Header.Get("Retry-After"), time.Now())
	if problem == nil { // a proxy answered, perhaps until the daemon is back
		again := resp.StatusCode >= http.StatusBadRequest
		switch resp.StatusCode {
		case http.StatusBadRequest, http.StatusMethodNotAllowed, http.StatusRequestEntityTooLarge, http.StatusRequestHeaderFieldsTooLarge:
			again = false
		}
		err := fmt.Errorf("the answer is %d %s, not from a daemon", resp.StatusCode, http.StatusText(resp.StatusCode))
		return attempt{err: err, again: again, unknown: resp.StatusCode >= http.StatusInternalServerError, after: after}
	}
	problem.Kind, problem.RetryAfter = kindOf(resp.StatusCode), after
	return wayOf(problem)
}

func kindOf(status int) telemetry.ErrorKind {
	switch status {
	case http.StatusUnauthorized:
		return telemetry.Unauthenticated
	case http.StatusForbidden:
		return telemetry.Forbidden
	case http.StatusNotFound:
		return telemetry.NotFound
	case http.StatusRequestTimeout:
		return telemetry.TooSlow
	case http.StatusConflict:
		return telemetry.Conflict
	case http.StatusRequestEntityTooLarge:
		return telemetry.TooLarge
	case http.StatusNotAcceptable:
		return telemetry.NotAcceptable
	case http.StatusUnsupportedMediaType:
		return telemetry.Unsupported
	case http.StatusTooManyRequests:
		return telemetry.Quota
	case http.StatusServiceUnavailable:
		return telemetry.Unavailable
	case http.StatusGatewayTimeout, http.StatusBadGateway: // the latter is a proxy's, which may have forwarded the request
		return telemetry.UnknownOutcome
	}
	if status >= http.StatusInternalServerError {
		return telemetry.Internal
	}
	return telemetry.Invalid
}

// pathOf returns the path of a request about a sensor.
func pathOf(sensor, what string, query url.Values) string {
	path := "/v1/sensors/" + url.PathEscape(sensor) + "/" + what
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	return path
}

func millis(t time.Time) string { return strconv.FormatInt(t.UnixMilli(), 10) }

// parseAnswer decodes a daemon's answer to so many readings.
func parseAnswer(body []byte, readings int) (Result, error) {
	var a struct {
		Accepted, Rejected *int
		Ack                telemetry.Ack
		Errors             []struct {
			Index   int
			Code    telemetry.Code
			Message string
		}
	}
	if err := json.Unmarshal(body, &a); err != nil {
		return Result{}, err
	}
	if a.Accepted == nil || a.Rejected == nil {
		return Result{}, errors.New("it does not say how many readings were accepted and rejected")
	}
	r := Result{Accepted: *a.Accepted, Rejected: *a.Rejected, Ack: a.Ack}
	for _, e := range a.Errors {
		r.Refused = append(r.Refused, Refused{Index: e.Index, Code: e.Code, Message: e.Message})
	}
	return r, checkResult(r, readings)
}

// errImpossible is in the error of an answer to another request.
var errImpossible = errors.New("the answer is not to this request")

// checkResult checks the counts of an answer.
func checkResult(r Result, readings int) error {
	if r.Accepted < 0 || r.Rejected < 0 || r.Accepted > readings || r.Accepted+r.Rejected != readings {
		return fmt.Errorf("%w: it has %d readings accepted and %d rejected, but %d were sent", errImpossible, r.Accepted, r.Rejected, readings)
	}
	for _, e := range r.Refused {
		if e.Index < 0 || e.Index >= readings {
			return fmt.Errorf("%w: it names reading %d, but %d were sent", errImpossible, e.Index, readings)
		}
	}
	return nil
}

// parseProblem decodes why a daemon refused a whole request; nil if the answer is not a
// daemon's.
func parseProblem(body []byte) *telemetry.Error {
	var p struct{ Code, Message string }
	if err := json.Unmarshal(body, &p); err == nil && p.Code != "" {
		return &telemetry.Error{Code: p.Code, Message: p.Message}
	}
	return nil
}
