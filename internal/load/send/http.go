package send

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/brim-telemetry/brim/internal/load"
	"github.com/brim-telemetry/brim/pkg/client/encode"
)

const (
	headerAck  = "Brim-Ack"
	bufferSize = 16 << 10 // of a connection, each way
	maxAnswer  = 1 << 20  // bytes; a hundred refusals are less
	// maxIdle is how old an unused connection may be. A daemon closes it after
	// two minutes, which the next request would find out too late.
	maxIdle = time.Minute
)

// httpSender speaks HTTP/1.1 on a connection of its own, with the messages of
// fasthttp but not its client, which would share, queue and repeat.
type httpSender struct {
	pool     *Pool
	conn     net.Conn // nil: none
	in       *bufio.Reader
	out      *bufio.Writer
	leash    leash
	used     time.Time
	request  fasthttp.Request
	response fasthttp.Response
	body     []byte
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
	h.SetHost(p.target.address)
	h.SetUserAgent("brim-load")
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
	if !p.target.tls {
		return d.DialContext(ctx, "tcp", p.target.address)
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if p.config.TLS != nil {
		config = p.config.TLS.Clone()
	}
	config.NextProtos = []string{"http/1.1"}
	if config.ServerName == "" {
		config.ServerName = p.target.host
	}
	return (&tls.Dialer{NetDialer: &d, Config: config}).DialContext(ctx, "tcp", p.target.address)
}

// Send implements load.Sender.
func (s *httpSender) Send(ctx context.Context, r *load.Request) (load.Answer, error) {
	deadline := time.Now().Add(s.pool.config.Timeout)
	if err := s.exchange(ctx, r, deadline); err != nil {
		s.hangUp()
		if !time.Now().Before(deadline) { // what fasthttp returns does not always tell
			err = fmt.Errorf("%w after %s: %w", os.ErrDeadlineExceeded, s.pool.config.Timeout, err)
		}
		return brokenAnswer(ctx, err), err
	}
	a, err := httpAnswer(s.response.StatusCode(), s.response.Body(), len(r.Readings))
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
	s.body = encode.AppendBody(s.body[:0], r.Readings)
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
	s.used = time.Now()
	return nil
}

// connect makes sure that there is a connection, which ends with ctx and is
// of no use after the deadline.
func (s *httpSender) connect(ctx context.Context, deadline time.Time) error {
	if s.conn != nil && time.Since(s.used) > maxIdle {
		s.hangUp()
	}
	if s.conn == nil {
		dialCtx, cancel := context.WithDeadline(ctx, deadline)
		defer cancel()
		if err := s.dial(dialCtx); err != nil {
			return err
		}
	}
	conn := s.conn
	s.leash.hold(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) }) // fails only where it is closed
	if err := conn.SetDeadline(deadline); err != nil {
		return err
	}
	return ctx.Err() // behind the deadline, which may have replaced the leash's
}

func (s *httpSender) dial(ctx context.Context) error {
	conn, err := s.pool.dialHTTP(ctx)
	if err != nil {
		return err
	}
	s.conn, s.used = conn, time.Now()
	s.in.Reset(conn)
	s.out.Reset(conn)
	return nil
}

// hangUp gives up the connection; the next Send makes another.
func (s *httpSender) hangUp() {
	if s.conn != nil {
		s.leash.release()
		_ = s.conn.Close() // whatever was sent on it has been answered, or is counted as failed
		s.conn = nil
	}
}

// Close implements load.Sender.
func (s *httpSender) Close() error {
	s.hangUp()
	return nil
}
