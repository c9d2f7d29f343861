package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/gzip" // so that requests can be compressed
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"

	"github.com/brim-telemetry/brim/pkg/client/encode"
	"github.com/brim-telemetry/brim/pkg/telemetry"
	"github.com/brim-telemetry/brim/pkg/telemetrypb"
)

const (
	// Pings detect connections whose other end is gone; a daemon allows one each ten
	// seconds.
	pingTime    = 30 * time.Second
	pingTimeout = 15 * time.Second

	// codeRatio of a daemon that does not inflate a message so far.
	codeRatio = "inflate_ratio"
)

// grpcTransport has one connection to each address, on which each request is a call.
type grpcTransport struct {
	token    TokenSource
	conns    []*grpc.ClientConn
	messages sync.Pool // of *encode.Message
}

func newGRPCTransport(c Config, addresses []address) (*grpcTransport, error) {
	t := &grpcTransport{token: c.Token}
	t.messages.New = func() any { return encode.NewMessage(encode.Compact, "", "") }
	for _, a := range addresses {
		conn, err := grpc.NewClient("dns:///"+a.host, dialOptions(c, a)...)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("connect to %s: %w", a.base, err), t.close())
		}
		t.conns = append(t.conns, conn)
	}
	return t, nil
}

func dialOptions(c Config, a address) []grpc.DialOption {
	security := insecure.NewCredentials()
	if a.tls {
		config := c.TLS
		if config == nil {
			config = &tls.Config{MinVersion: tls.VersionTLS12}
		}
		security = credentials.NewTLS(config)
	}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(security), grpc.WithDisableRetry(), grpc.WithIdleTimeout(0), grpc.WithUserAgent(userAgent),
		grpc.WithStatsHandler(sentHandler{}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingTime, Timeout: pingTimeout}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: c.BackoffMin, Multiplier: 1.6, Jitter: 0.2, MaxDelay: max(c.BackoffMin, min(c.BackoffMax, time.Second))},
			MinConnectTimeout: dialTime,
		}),
	}
	if c.Gzip {
		options = append(options, grpc.WithDefaultCallOptions(grpc.UseCompressor("gzip")))
	}
	return options
}

func (t *grpcTransport) close() error {
	var errs []error
	for _, conn := range t.conns {
		errs = append(errs, conn.Close())
	}
	return errors.Join(errs...)
}

// try implements transport.
func (t *grpcTransport) try(ctx context.Context, to int, w *write) attempt {
	pairs := []string{"idempotency-key", w.key}
	if t.token != nil {
		token, err := t.token(ctx)
		if err != nil {
			return attempt{err: fmt.Errorf("get the token: %w", err), again: mayCome(err)}
		}
		pairs = append(pairs, "authorization", "Bearer "+token)
	}
	message := t.messages.Get().(*encode.Message)
	defer t.messages.Put(message)
	request := message.Of(w.readings)
	request.Stream, request.Ack = w.stream, telemetrypb.Ack(0)
	switch w.ack {
	case telemetry.Journaled:
		request.Ack = telemetrypb.Ack_ACK_JOURNALED
	case telemetry.Stored:
		request.Ack = telemetrypb.Ack_ACK_STORED
	}
	sent := new(atomic.Bool)
	ctx = context.WithValue(metadata.AppendToOutgoingContext(ctx, pairs...), sentKey{}, sent)
	var header metadata.MD
	client := telemetrypb.NewIngestServiceClient(t.conns[to])
	response, err := client.Write(ctx, request, grpc.Header(&header))
	if problem := problemIn(err); problem != nil && problem.Code == codeRatio { // it is too regular to be compressed; nothing was stored
		response, err = client.Write(ctx, request, grpc.Header(&header), grpc.UseCompressor(encoding.Identity))
	}
	if err != nil {
		return readStatus(ctx, err, sent.Load(), message, len(w.readings))
	}
	a := readResponse(response, message, len(w.readings))
	a.result.Replayed = len(header.Get("idempotent-replayed")) > 0
	return a
}

// sentHandler notes in a call's context that a part of it was sent.
type sentHandler struct{}

type sentKey struct{}

// TagRPC implements stats.Handler.
func (sentHandler) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// HandleRPC implements stats.Handler.
func (sentHandler) HandleRPC(ctx context.Context, s stats.RPCStats) {
	if _, ok := s.(*stats.OutHeader); !ok {
		return
	}
	if sent, ok := ctx.Value(sentKey{}).(*atomic.Bool); ok {
		sent.Store(true)
	}
}

// TagConn implements stats.Handler.
func (sentHandler) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn implements stats.Handler.
func (sentHandler) HandleConn(context.Context, stats.ConnStats) {}

// readResponse interprets the response to so many readings.
func readResponse(response *telemetrypb.WriteResponse, message *encode.Message, readings int) attempt {
	if e := response.GetError(); e != nil && response.GetRejected() == 0 {
		return wayOf(problemOf(e))
	}
	r := Result{Accepted: int(response.GetAccepted()), Rejected: int(response.GetRejected())}
	switch response.GetAck() {
	case telemetrypb.Ack_ACK_JOURNALED:
		r.Ack = telemetry.Journaled
	case telemetrypb.Ack_ACK_STORED:
		r.Ack = telemetry.Stored
	}
	for _, e := range response.GetErrors() {
		r.Refused = append(r.Refused, Refused{Index: message.Place(int(e.GetIndex())), Code: telemetry.Code(e.GetCode()), Message: e.GetMessage()})
	}
	if err := checkResult(r, readings); err != nil {
		return attempt{err: fmt.Errorf("read the answer: %w", err), unknown: true}
	}
	return attempt{result: r}
}

// problemOf returns the error of a daemon.
func problemOf(e *telemetrypb.RequestError) *telemetry.Error {
	after := min(maxRetryAfter, time.Duration(max(0, min(e.GetRetryAfterMs(), maxRetryAfter.Milliseconds())))*time.Millisecond)
	return &telemetry.Error{Kind: kindOfCode(codes.Code(uint32(e.GetStatus())), after > 0), Code: e.GetCode(), Message: e.GetMessage(), RetryAfter: after}
}

// kindOfCode returns the kind of a daemon's error. Of the two kinds that share a code,
// only a quota has a time to retry.
func kindOfCode(code codes.Code, retryAfter bool) telemetry.ErrorKind {
	switch code {
	case codes.Aborted:
		return telemetry.TooSlow
	case codes.ResourceExhausted:
		if retryAfter {
			return telemetry.Quota
		}
		return telemetry.TooLarge
	case codes.Unimplemented:
		return telemetry.Unsupported
	case codes.NotFound:
		return telemetry.NotFound
	case codes.AlreadyExists:
		return telemetry.Conflict
	case codes.Unauthenticated:
		return telemetry.Unauthenticated
	case codes.PermissionDenied:
		return telemetry.Forbidden
	case codes.Unavailable:
		return telemetry.Unavailable
	case codes.DeadlineExceeded:
		return telemetry.UnknownOutcome
	case codes.Internal:
		return telemetry.Internal
	}
	return telemetry.Invalid
}

// readStatus interprets the error of a call.
func readStatus(ctx context.Context, err error, sent bool, message *encode.Message, readings int) attempt {
	if problem := problemIn(err); problem != nil {
		return wayOf(problem)
	}
	s := status.Convert(err)
	for _, detail := range s.Details() {
		if response, ok := detail.(*telemetrypb.WriteResponse); ok {
			return readResponse(response, message, readings)
		}
	}
	if ctx.Err() != nil {
		return attempt{err: fmt.Errorf("wait for the answer: %w", context.Cause(ctx)), again: true, unknown: sent}
	}
	switch s.Code() {
	case codes.Unauthenticated, codes.PermissionDenied, codes.Unimplemented, codes.InvalidArgument, codes.NotFound, codes.ResourceExhausted: // of gRPC itself, or of a proxy
		known := &telemetry.Error{Kind: kindOfCode(s.Code(), false), Code: s.Code().String(), Message: s.Message()}
		return attempt{err: known}
	}
	return attempt{err: err, again: true, unknown: sent}
}

// problemIn returns the error of a daemon in that of a call; nil if there is none.
func problemIn(err error) *telemetry.Error {
	for _, detail := range status.Convert(err).Details() {
		if e, ok := detail.(*telemetrypb.RequestError); ok {
			return problemOf(e)
		}
	}
	return nil
}
