package send

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/brim-telemetry/brim/internal/load"
	"github.com/brim-telemetry/brim/pkg/client/encode"
	"github.com/brim-telemetry/brim/pkg/telemetrypb"
)

// codeNothingTaken of a daemon that refused every reading of a request.
const codeNothingTaken = "nothing_taken"

// grpcSender has one call of WriteStream, with one request at a time.
type grpcSender struct {
	pool    *Pool
	client  telemetrypb.IngestServiceClient
	message *encode.Message
	answer  telemetrypb.WriteResponse

	call     telemetrypb.IngestService_WriteStreamClient // nil: none
	cancel   context.CancelFunc                          // of the call
	timer    *time.Timer                                 // cancels it when a request takes too long
	timedOut *atomic.Bool
	cancelOn canceler
}

func (p *Pool) newGRPCSender(n int) (*grpcSender, error) {
	conn, err := p.conn(n / sendersOfConnection)
	if err != nil {
		return nil, err
	}
	return &grpcSender{
		pool: p, client: telemetrypb.NewIngestServiceClient(conn),
		message: encode.NewMessage(p.config.Form, p.config.Stream, p.config.Ack),
	}, nil
}

// conn returns the shared connection of that number.
func (p *Pool) conn(number int) (*grpc.ClientConn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.conns) <= number {
		conn, err := p.dialGRPC()
		if err != nil {
			return nil, err
		}
		conn.Connect()
		p.conns = append(p.conns, conn)
	}
	return p.conns[number], nil
}

// dialGRPC makes a client connection, which connects by itself. After a failure it
// retries within a second, as sensors would.
func (p *Pool) dialGRPC() (*grpc.ClientConn, error) {
	security := insecure.NewCredentials()
	if p.target.tls {
		config := p.config.TLS
		if config == nil {
			config = &tls.Config{MinVersion: tls.VersionTLS12}
		}
		security = credentials.NewTLS(config)
	}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(security), grpc.WithDisableRetry(), grpc.WithIdleTimeout(0), grpc.WithUserAgent("brim-load"),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: p.config.Timeout,
		}),
	}
	if p.config.Token != "" {
		options = append(options, grpc.WithPerRPCCredentials(bearer(p.config.Token)))
	}
	conn, err := grpc.NewClient("dns:///"+p.target.address, options...)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", p.target, err)
	}
	return conn, nil
}

// bearer is a token that is sent with every call.
type bearer string

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(b)}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials.
func (bearer) RequireTransportSecurity() bool { return false } // see Config.Token

// checkGRPC asks for the daemon's health. A daemon without a health service can be
// reached too.
func (p *Pool) checkGRPC(ctx context.Context) error {
	conn, err := p.dialGRPC()
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // it is not in use
	_, err = healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{})
	switch status.Code(err) {
	case codes.OK, codes.Unimplemented:
		return nil
	case codes.Unavailable:
		// The error of the network is more precise.
		var d net.Dialer
		plain, dialErr := d.DialContext(ctx, "tcp", p.target.address)
		if dialErr != nil {
			err = dialErr
			break
		}
		_ = plain.Close()                                    // nothing was sent on it
		if strings.Contains(err.Error(), "server preface") { // it has no code of its own
			err = fmt.Errorf("%w: %w", ErrNotGRPC, err)
		}
	}
	return fmt.Errorf("reach %s: %w", p.target, err)
}

// Send implements load.Sender.
func (s *grpcSender) Send(ctx context.Context, r *load.Request) (load.Answer, error) {
	if err := ctx.Err(); err != nil {
		return brokenAnswer(ctx, err), err
	}
	if err := s.exchange(ctx, r); err != nil {
		a := s.brokenCall(ctx, err)
		s.hangUp()
		if a.Failure == FailureTimeout { // not how the call was ended
			err = fmt.Errorf("%w after %s", os.ErrDeadlineExceeded, s.pool.config.Timeout)
		}
		return a, err
	}
	if !s.timer.Stop() { // it is just ending the call, too late for this request
		s.hangUp()
	}
	if e := s.answer.GetError(); e != nil {
		if e.GetCode() == codeNothingTaken {
			return load.Answer{Rejected: len(r.Readings)}, fmt.Errorf("every reading was refused: %s", e.GetMessage())
		}
		return load.Answer{Failure: codes.Code(uint32(e.GetStatus())).String()},
			fmt.Errorf("the answer is %s: %s: %s", codes.Code(uint32(e.GetStatus())), e.GetCode(), e.GetMessage())
	}
	return counted(int(s.answer.GetAccepted()), int(s.answer.GetRejected()), len(r.Readings))
}

// exchange sends the request and receives the response.
func (s *grpcSender) exchange(ctx context.Context, r *load.Request) error {
	if err := s.open(ctx); err != nil {
		return fmt.Errorf("open a call: %w", err)
	}
	err := s.call.SendMsg(s.message.Of(r.Readings))
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("send: %w", err)
	}
	// After an EOF the call has ended, and receiving returns why.
	if err := s.call.RecvMsg(&s.answer); err != nil {
		return fmt.Errorf("wait for the answer: %w", err)
	}
	return nil
}

// open makes sure that there is a call, which ends with ctx, or when a request times
// out.
func (s *grpcSender) open(ctx context.Context) error {
	if s.call != nil {
		s.timer.Reset(s.pool.config.Timeout)
		s.cancelOn.set(ctx, s.cancel)
		return nil
	}
	callCtx, cancel := context.WithCancel(context.Background())
	timedOut := new(atomic.Bool)
	s.cancel, s.timedOut = cancel, timedOut
	s.timer = time.AfterFunc(s.pool.config.Timeout, func() {
		timedOut.Store(true)
		cancel()
	})
	s.cancelOn.set(ctx, cancel)
	call, err := s.client.WriteStream(callCtx)
	if err != nil {
		return err
	}
	s.call = call
	return nil
}

// brokenCall classifies an error that ended the call.
func (s *grpcSender) brokenCall(ctx context.Context, err error) load.Answer {
	switch {
	case ctx.Err() != nil:
		return brokenAnswer(ctx, err)
	case s.timedOut.Load():
		return load.Answer{Failure: FailureTimeout}
	case errors.Is(err, io.EOF): // the daemon ended it without an error
		return load.Answer{Failure: FailureConnection}
	}
	return load.Answer{Failure: status.Code(err).String()}
}

// hangUp ends the call; the next Send opens another.
func (s *grpcSender) hangUp() {
	s.cancelOn.release()
	if s.timer != nil {
		s.timer.Stop()
		s.cancel()
	}
	s.call, s.timer, s.cancel = nil, nil, nil
}

// Close implements load.Sender.
func (s *grpcSender) Close() error {
	if s.call != nil {
		// An orderly end; no request is waiting.
		_ = s.call.CloseSend()
	}
	s.hangUp()
	return nil
}
