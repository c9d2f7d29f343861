package client

import (
	"bytes"
	"compress/gzip"
	"context"
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
	idleConnections = 64          // kept for each address
	idleTime        = time.Minute // a daemon closes connections after two
	dialTime        = 10 * time.Second
	maxAnswer       = 1 << 20 // bytes; a hundred refusals are less
)

// httpTransport speaks HTTP/1.1, and HTTP/2 over TLS.
type httpTransport struct {
	config     Config
	addresses  []address
	client     *http.Client
	perReading atomic.Int64 // bytes of the last body, so that the next is made in one piece
}

func newHTTPTransport(c Config, addresses []address) *httpTransport {
	t := &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: (&net.Dialer{Timeout: dialTime}).DialContext,
		ForceAttemptHTTP2: true, MaxIdleConnsPerHost: idleConnections, IdleConnTimeout: idleTime, TLSHandshakeTimeout: dialTime,
	}
	if c.TLS != nil {
		t.TLSClientConfig = c.TLS.Clone()
	}
	// A daemon makes no redirects, and where one would lead nobody knows.
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

// fill makes the body of a request that has none yet.
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

// do sends a request with the token. Without a response the attempt tells why.
func (t *httpTransport) do(req *http.Request) (*http.Response, attempt) {
	req.Header.Set("User-Agent", userAgent)
	if t.config.Token != nil {
		token, err := t.config.Token(req.Context())
		if err != nil {
			return nil, attempt{err: fmt.Errorf("get the token: %w", err), again: mayCome(err)}
		}
		req.Header.Set("Authorization", "Bearer "+token)
	}
	// Without a connection nothing can have been taken.
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

// readAnswer tells what the answer to so many readings means.
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

// readProblem tells what an answer means that is not about single readings.
func readProblem(resp *http.Response, body []byte) attempt {
	problem := parseProblem(body)
	after := parseRetryAfter(resp.Header.Get("Retry-After"), time.Now())
	if problem == nil { // somebody else answered for the daemon, maybe until that is back
		again := resp.StatusCode >= http.StatusBadRequest
		switch resp.StatusCode {
		case http.StatusBadRequest, http.StatusMethodNotAllowed, http.StatusRequestEntityTooLarge, http.StatusRequestHeaderFieldsTooLarge:
			again = false
		}
		err := fmt.Errorf("the answer is %d %s, without a daemon's reason", resp.StatusCode, http.StatusText(resp.StatusCode))
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
	case http.StatusGatewayTimeout, http.StatusBadGateway: // the latter of a proxy, which may have passed the request on
		return telemetry.UnknownOutcome
	}
	if status >= http.StatusInternalServerError {
		return telemetry.Internal
	}
	return telemetry.Invalid
}

// pathOf returns the path of a question about a sensor.
func pathOf(sensor, what string, query url.Values) string {
	path := "/v1/sensors/" + url.PathEscape(sensor) + "/" + what
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	return path
}

func millis(t time.Time) string { return strconv.FormatInt(t.UnixMilli(), 10) }
