package send

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/brim-telemetry/brim/internal/load"
	"github.com/brim-telemetry/brim/pkg/client/wire"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

const (
	headerAck  = "Brim-Ack"
	bufferSize = 16 << 10 // per connection and direction
	maxAnswer  = 1 << 20  // bytes; a hundred refusals need less
	// maxIdle of a connection. A daemon closes it after two minutes, which the next request
	// would notice too late.
	maxIdle = time.Minute
	// maxUnused is maxIdle before the first request, for which a daemon waits ten seconds.
	maxUnused = 5 * time.Second
)

// httpSender speaks HTTP/1.1 on its own connection, with fasthttp's messages but not its
// client, which would share, queue and retry.
type httpSender struct {
	pool     *Pool
	conn     net.Conn // nil: none
	in       *bufio.Reader
	out      *bufio.Writer
	used     time.Time
	maxIdle  time.Duration
	request  fasthttp.Request
	response fasthttp.Response
	body     []byte
	accepted []byte // start of an answer that accepts everything

	ctx     context.Context // of the Send that ends the connection
	unwatch func() bool     // nil: none
}

func (p *Pool) newHTTPSender(ctx context.Context) (*httpSender, error) {
	path := "/v1/readings"
	if p.config.Stream != "" {
		path = "/v1/streams/" + url.PathEscape(p.config.Stream) + "/readings"
	}
	s := &httpSender{pool: p, in: bufio.NewReaderSize(nil, bufferSize), out: bufio.NewWriterSize(nil, bufferSize)}
	h := &s.request.Header
	h.SetMethod(http.MethodPost)
	h.SetRequestURI(path)
	h.SetHost(p.target.Host)
	h.SetUserAgent(userAgent)
	if p.config.Token != "" {
		h.Set("Authorization", "Bearer "+p.config.Token)
	}
	if p.config.Ack != "" {
		h.Set(headerAck, string(p.config.Ack))
	}
	ctx, cancel := context.WithTimeout(ctx, p.config.Timeout)
	defer cancel()
	if err := s.dial(ctx); err != nil {
		return nil, fmt.Errorf("reach %s: %w", p.target, err)
	}
	return s, nil
}

func (p *Pool) dialHTTP(ctx context.Context) (net.Conn, error) {
	var d net.Dialer
	if !p.target.TLS {
		return d.DialContext(ctx, "tcp", p.target.Host)
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if p.config.TLS != nil {
		config = p.config.TLS.Clone()
	}
	config.NextProtos = []string{"http/1.1"}
	if config.ServerName == "" {
		config.ServerName = p.target.Name
	}
	return (&tls.Dialer{NetDialer: &d, Config: config}).DialContext(ctx, "tcp", p.target.Host)
}

// Send implements load.Sender.
func (s *httpSender) Send(ctx context.Context, r *load.Request) (load.Answer, error) {
	deadline := time.Now().Add(s.pool.config.Timeout)
	if err := s.exchange(ctx, r, deadline); err != nil {
		s.hangUp()
		if !time.Now().Before(deadline) { // fasthttp's errors do not always say so
			err = fmt.Errorf("%w after %s: %w", os.ErrDeadlineExceeded, s.pool.config.Timeout, err)
		}
		return brokenAnswer(ctx, err), err
	}
	a, err := load.Answer{Accepted: len(r.Readings)}, error(nil)
	s.accepted = fmt.Appendf(s.accepted[:0], `{"accepted":%d,"rejected":0,`, len(r.Readings))
	if s.response.StatusCode() != http.StatusOK || !bytes.HasPrefix(s.response.Body(), s.accepted) {
		a, err = httpAnswer(s.response.StatusCode(), s.response.Body(), len(r.Readings))
	}
	if s.response.ConnectionClose() {
		s.hangUp()
	}
	return a, err
}

// exchange sends the request and reads the response.
func (s *httpSender) exchange(ctx context.Context, r *load.Request, deadline time.Time) error {
	if err := s.connect(ctx, deadline); err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	s.body = telemetry.AppendNDJSON(s.body[:0], r.Readings)
	if len(r.Readings) == 1 {
		s.request.Header.SetContentType("application/json")
	} else {
		s.request.Header.SetContentType("application/x-ndjson")
	}
	s.request.SetBodyRaw(s.body)
	if err := s.request.Write(s.out); err != nil {
		return fmt.Errorf("send: %w", err)
	}
	if err := s.out.Flush(); err != nil {
		return fmt.Errorf("send: %w", err)
	}
	if err := s.response.ReadLimitBody(s.in, maxAnswer); err != nil {
		return fmt.Errorf("wait for the answer: %w", err)
	}
	s.used, s.maxIdle = time.Now(), maxIdle
	return nil
}

// connect makes sure that there is a connection, which ends with ctx and times out at the
// deadline.
func (s *httpSender) connect(ctx context.Context, deadline time.Time) error {
	if s.conn != nil && time.Since(s.used) > s.maxIdle {
		s.hangUp()
	}
	if s.conn == nil {
		dialCtx, cancel := context.WithDeadline(ctx, deadline)
		defer cancel()
		if err := s.dial(dialCtx); err != nil {
			return err
		}
	}
	if conn := s.conn; s.unwatch == nil || s.ctx != ctx { // all requests of a run share a context
		if s.unwatch != nil {
			s.unwatch()
		}
		s.ctx, s.unwatch = ctx, context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) }) // fails only if closed
	}
	if err := s.conn.SetDeadline(deadline); err != nil {
		return err
	}
	return ctx.Err() // checked after the deadline, which may have replaced AfterFunc's
}

func (s *httpSender) dial(ctx context.Context) error {
	conn, err := s.pool.dialHTTP(ctx)
	if err != nil {
		return err
	}
	s.conn, s.used, s.maxIdle = conn, time.Now(), maxUnused
	s.in.Reset(conn)
	s.out.Reset(conn)
	return nil
}

// hangUp closes the connection; the next Send opens another.
func (s *httpSender) hangUp() {
	if s.conn != nil {
		if s.unwatch != nil {
			s.unwatch()
		}
		_ = s.conn.Close() // what was sent on it is answered or counted as failed
		s.conn, s.ctx, s.unwatch = nil, nil, nil
	}
}

// Close implements load.Sender.
func (s *httpSender) Close() error {
	s.hangUp()
	return nil
}

// httpAnswer interprets the response to a number of readings.
func httpAnswer(status int, body []byte, readings int) (load.Answer, error) {
	var answer struct {
		Accepted, Rejected *int
		Code, Message      string
		Errors             []struct{ Code, Message string }
	}
	err := json.Unmarshal(body, &answer)
	if err == nil {
		err = wire.CheckCounts(answer.Accepted, answer.Rejected, readings)
	}
	switch status {
	case http.StatusOK, http.StatusAccepted, http.StatusMultiStatus:
		if err != nil {
			return load.Answer{Failure: failureAnswer}, fmt.Errorf("read the answer: %w", err)
		}
		return load.Answer{Accepted: *answer.Accepted, Rejected: *answer.Rejected}, nil
	}
	problem := http.StatusText(status)
	switch {
	case answer.Message != "":
		problem = answer.Code + ": " + answer.Message
	case len(answer.Errors) > 0:
		problem = answer.Errors[0].Code + ": " + answer.Errors[0].Message
	case len(body) > 0:
		const most = 300 // bytes of a foreign answer
		problem = strconv.Quote(string(body[:min(len(body), most)]))
	}
	if status == http.StatusBadRequest && err == nil && *answer.Accepted == 0 { // a daemon's answer if it refused every reading
		return load.Answer{Rejected: readings}, fmt.Errorf("every reading was refused: %s", problem)
	}
	return load.Answer{Failure: strconv.Itoa(status)}, fmt.Errorf("the answer is %d: %s", status, problem)
}

// brokenAnswer classifies a network error.
func brokenAnswer(ctx context.Context, err error) load.Answer {
	var network net.Error
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return load.Answer{Failure: failureCanceled}
	case ctx.Err() != nil, errors.Is(err, context.DeadlineExceeded), errors.As(err, &network) && network.Timeout():
		return load.Answer{Failure: FailureTimeout}
	}
	return load.Answer{Failure: failureConnection}
}
