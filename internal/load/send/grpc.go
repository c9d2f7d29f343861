package send

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/brim-telemetry/brim/internal/load"
	"github.com/brim-telemetry/brim/pkg/client/wire"
	"github.com/brim-telemetry/brim/pkg/telemetrypb"
)

// codeNothingTaken means that the daemon refused every reading of a request.
const codeNothingTaken = "nothing_taken"

// grpcSender has one WriteStream call, with one request at a time.
type grpcSender struct {
	pool    *Pool
	client  telemetrypb.IngestServiceClient
	message *wire.Message
	answer  telemetrypb.WriteResponse

	call   telemetrypb.IngestService_WriteStreamClient // nil: none
	ctx    context.Context                             // of the Send that opened the call
	cancel context.CancelFunc                          // ends the call
	timer  *time.Timer                                 // cancels when a request takes too long
}

func (p *Pool) newGRPCSender() (*grpcSender, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.senders == sendersOfConnection*len(p.conns) {
		conn, err := p.dialGRPC()
		if err != nil {
			return nil, err
		}
		conn.Connect()
		p.conns = append(p.conns, conn)
	}
	p.senders++
	return &grpcSender{
		pool: p, client: telemetrypb.NewIngestServiceClient(p.conns[len(p.conns)-1]),
		message: wire.NewMessage(p.config.Form, p.config.Stream, p.config.Ack),
	}, nil
}

// dialGRPC returns a connection that, like a sensor's, reconnects within a second after a
// failure.
func (p *Pool) dialGRPC() (*grpc.ClientConn, error) {
	return p.target.Dial(p.config.TLS, grpc.WithUserAgent(userAgent), grpc.WithConnectParams(grpc.ConnectParams{
		Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
		MinConnectTimeout: p.config.Timeout,
	}))
}

// withToken returns a call's context.
func (p *Pool) withToken(ctx context.Context) context.Context {
	if p.config.Token == "" {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+p.config.Token)
}

// checkGRPC checks the daemon's health. A daemon without a health service counts as reachable.
func (p *Pool) checkGRPC(ctx context.Context) error {
	conn, err := p.dialGRPC()
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // not in use
	_, err = healthpb.NewHealthClient(conn).Check(p.withToken(ctx), &healthpb.HealthCheckRequest{})
	switch status.Code(err) {
	case codes.OK, codes.Unimplemented:
		return nil
	case codes.Unavailable:
		// The network's error is more precise.
		var d net.Dialer
		plain, dialErr := d.DialContext(ctx, "tcp", p.target.Host)
		if dialErr != nil {
			err = dialErr
			break
		}
		_ = plain.Close()                                    // nothing was sent on it
		if strings.Contains(err.Error(), "server preface") { // the error has no code of its own
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
		defer s.hangUp()
		code := status.Code(err) // also of a wrapped error
		switch {
		case ctx.Err() != nil:
			return brokenAnswer(ctx, err), err
		case !s.timer.Stop():
			return load.Answer{Failure: FailureTimeout}, fmt.Errorf("%w after %s", os.ErrDeadlineExceeded, s.pool.config.Timeout)
		case errors.Is(err, io.EOF): // the daemon ended the call without an error
			return load.Answer{Failure: failureConnection}, err
		}
		return load.Answer{Failure: code.String()}, err
	}
	if !s.timer.Stop() { // it is just ending the call, too late for this request
		s.hangUp()
	}
	if e := s.answer.GetError(); e != nil {
		if e.GetCode() == codeNothingTaken {
			return load.Answer{Rejected: len(r.Readings)}, fmt.Errorf("every reading was refused: %s", e.GetMessage())
		}
		code := codes.Code(uint32(e.GetStatus()))
		return load.Answer{Failure: code.String()}, fmt.Errorf("the answer is %s: %s: %s", code, e.GetCode(), e.GetMessage())
	}
	a := load.Answer{Accepted: int(s.answer.GetAccepted()), Rejected: int(s.answer.GetRejected())}
	if err := wire.CheckCounts(&a.Accepted, &a.Rejected, len(r.Readings)); err != nil {
		return load.Answer{Failure: failureAnswer}, err
	}
	return a, nil
}

// exchange sends the request and receives the response.
func (s *grpcSender) exchange(ctx context.Context, r *load.Request) error {
	if s.ctx != ctx {
		s.hangUp()
	}
	if s.call != nil {
		s.timer.Reset(s.pool.config.Timeout)
	} else {
		callCtx, cancel := context.WithCancel(s.pool.withToken(ctx))
		s.ctx, s.cancel, s.timer = ctx, cancel, time.AfterFunc(s.pool.config.Timeout, cancel)
		call, err := s.client.WriteStream(callCtx)
		if err != nil {
			return fmt.Errorf("open a call: %w", err)
		}
		s.call = call
	}
	if err := s.call.SendMsg(s.message.Of(r.Readings)); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("send: %w", err)
	}
	// After an EOF the call has ended, and receiving returns why.
	if err := s.call.RecvMsg(&s.answer); err != nil {
		return fmt.Errorf("wait for the answer: %w", err)
	}
	return nil
}

// hangUp ends the call; the next Send opens another.
func (s *grpcSender) hangUp() {
	if s.timer != nil {
		s.timer.Stop()
		s.cancel()
	}
	s.call, s.timer, s.cancel = nil, nil, nil
}

// Close implements load.Sender.
func (s *grpcSender) Close() error {
	if s.call != nil {
		_ = s.call.CloseSend() // an orderly end; no request is waiting
	}
	s.hangUp()
	return nil
}
