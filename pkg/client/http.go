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
	"sync/atomic"
	"time"

	"github.com/brim-telemetry/brim/pkg/client/wire"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

const (
	idleConnections = 64          // per address
	idleTime        = time.Minute // a daemon closes them after two minutes
	dialTime        = 10 * time.Second
	maxAnswer       = 1 << 20 // bytes; a hundred refusals take less
)

// httpTransport speaks HTTP/1.1, and HTTP/2 over TLS.
type httpTransport struct {
	config    Config
	addresses []wire.Address
	client    *http.Client
}

func newHTTPTransport(c Config, addresses []wire.Address) *httpTransport {
	t := &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: (&net.Dialer{Timeout: dialTime}).DialContext,
		ForceAttemptHTTP2: true, MaxIdleConnsPerHost: idleConnections, IdleConnTimeout: idleTime, TLSHandshakeTimeout: dialTime,
	}
	if c.TLS != nil {
		t.TLSClientConfig = c.TLS.Clone()
	}
	// Daemons do not redirect.
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
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.addresses[to].Base+path, bytes.NewReader(w.body))
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
	if problem, ok := errors.AsType[*telemetry.Error](a.err); ok && w.gzipped && problem.Code == codeRatio { // the content compresses too well; nothing was stored
		w.body, w.gzipped = telemetry.AppendNDJSON(nil, w.readings), false
		return t.try(ctx, to, w)
	}
	a.result.Replayed = resp.Header.Get("Idempotent-Replayed") == "true"
	return a
}

// fill encodes the body of a request, once.
func (t *httpTransport) fill(w *write) error {
	if w.body != nil {
		return nil
	}
	const usual = 128 // bytes per reading
	body := telemetry.AppendNDJSON(make([]byte, 0, usual*len(w.readings)), w.readings)
	if !t.config.Gzip {
		w.body = body
		return nil
	}
	var out bytes.Buffer
	z, err := gzip.NewWriterLevel(&out, gzip.BestSpeed)
	if err == nil {
		_, err = z.Write(body)
		err = errors.Join(err, z.Close())
	}
	if err != nil {
		return fmt.Errorf("compress readings: %w", err)
	}
	w.body, w.gzipped = out.Bytes(), true
	return nil
}

// do sends a request with the token. If there is no response, the attempt says why.
func (t *httpTransport) do(req *http.Request) (*http.Response, attempt) {
	req.Header.Set("User-Agent", userAgent)
	if t.config.Token != nil {
		token, err := t.config.Token(req.Context())
		if err != nil {
			return nil, attempt{err: fmt.Errorf("get the token: %w", err), again: !errors.Is(err, errNeverGood)}
		}
		req.Header.Set("Authorization", "Bearer "+token)
	}
	// Without a connection, nothing can have been stored.
	var connected atomic.Bool
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }}
	resp, err := t.client.Do(req.WithContext(httptrace.WithClientTrace(req.Context(), trace)))
	if err != nil {
		if outer, ok := errors.AsType[*url.Error](err); ok { // repeats the address
			err = outer.Err
		}
		return nil, attempt{err: err, again: true, unknown: connected.Load()}
	}
	return resp, attempt{}
}

const userAgent = "brim-client"

// readAnswer interprets the answer to a request with this number of readings.
func readAnswer(resp *http.Response, body []byte, readings int) attempt {
	switch resp.StatusCode {
	case http.StatusOK, http.StatusAccepted, http.StatusMultiStatus, http.StatusBadRequest, http.StatusForbidden:
		r, err := parseAnswer(body, readings)
		if err == nil {
			return attempt{result: r}
		}
		if resp.StatusCode < http.StatusBadRequest {
			// Without counts it comes from a proxy, such as a page that asks for a password.
			return attempt{err: fmt.Errorf("read the answer: %w", err), again: !errors.Is(err, wire.ErrImpossible), unknown: true}
		}
	}
	return readProblem(resp, body)
}

// errTooLarge is the error of a proxy that limits the size of requests.
var errTooLarge = errors.New("the request is too large")

// readProblem interprets an error for the whole request.
func readProblem(resp *http.Response, body []byte) attempt {
	var problem struct{ Code, Message string }
	_ = json.Unmarshal(body, &problem)
	after := parseRetryAfter(resp.Header.Get("Retry-After"), time.Now())
	if problem.Code == "" { // from a proxy, perhaps until the daemon is back
		again := resp.StatusCode >= http.StatusBadRequest
		err := fmt.Errorf("the answer is %d %s, not from a daemon", resp.StatusCode, http.StatusText(resp.StatusCode))
		switch resp.StatusCode {
		case http.StatusBadRequest, http.StatusMethodNotAllowed, http.StatusRequestHeaderFieldsTooLarge:
			again = false
		case http.StatusRequestEntityTooLarge:
			again, err = false, fmt.Errorf("%w: %w", errTooLarge, err)
		}
		return attempt{err: err, again: again, unknown: resp.StatusCode >= http.StatusInternalServerError, after: after}
	}
	return wayOf(&telemetry.Error{Kind: kindOf(resp.StatusCode), Code: problem.Code, Message: problem.Message, RetryAfter: after})
}

// kindOf returns the kind of a daemon's error. A 502 comes from a proxy, which
// may have forwarded the request.
func kindOf(status int) telemetry.ErrorKind {
	kind, known := map[int]telemetry.ErrorKind{
		http.StatusUnauthorized:          telemetry.Unauthenticated,
		http.StatusForbidden:             telemetry.Forbidden,
		http.StatusNotFound:              telemetry.NotFound,
		http.StatusRequestTimeout:        telemetry.TooSlow,
		http.StatusConflict:              telemetry.Conflict,
		http.StatusRequestEntityTooLarge: telemetry.TooLarge,
		http.StatusNotAcceptable:         telemetry.NotAcceptable,
		http.StatusUnsupportedMediaType:  telemetry.Unsupported,
		http.StatusTooManyRequests:       telemetry.Quota,
		http.StatusServiceUnavailable:    telemetry.Unavailable,
		http.StatusGatewayTimeout:        telemetry.UnknownOutcome,
		http.StatusBadGateway:            telemetry.UnknownOutcome,
	}[status]
	if !known && status < http.StatusInternalServerError {
		return telemetry.Invalid
	}
	return kind // or Internal, which is 0
}

// parseAnswer decodes a daemon's answer to a request with this number of readings.
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
	if err := wire.CheckCounts(a.Accepted, a.Rejected, readings); err != nil {
		return Result{}, err
	}
	r := Result{Accepted: *a.Accepted, Rejected: *a.Rejected, Ack: a.Ack}
	for _, e := range a.Errors {
		r.Refused = append(r.Refused, Refused{Index: e.Index, Code: e.Code, Message: e.Message})
	}
	return r, checkRefused(r.Refused, readings)
}

// checkRefused checks that an answer only names readings of its request.
func checkRefused(refused []Refused, readings int) error {
	for _, e := range refused {
		if e.Index < 0 || e.Index >= readings {
			return fmt.Errorf("%w: it names reading %d, but %d were sent", wire.ErrImpossible, e.Index, readings)
		}
	}
	return nil
}
