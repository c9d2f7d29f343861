package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/gzip" // so that requests can be compressed
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/brim-telemetry/brim/pkg/client/wire"
	"github.com/brim-telemetry/brim/pkg/telemetry"
	"github.com/brim-telemetry/brim/pkg/telemetrypb"
)

const (
	// Pings detect dead connections; a daemon allows one every ten seconds.
	pingTime    = 30 * time.Second
	pingTimeout = 15 * time.Second

	// codeRatio is a daemon's code for a message that it will not inflate any further.
	codeRatio = "inflate_ratio"
)

// grpcTransport has one connection per address; each request is a call on it.
type grpcTransport struct {
	token    TokenSource
	conns    []*grpc.ClientConn
	messages sync.Pool // of *wire.Message
}

func newGRPCTransport(c Config, addresses []wire.Address) (*grpcTransport, error) {
	t := &grpcTransport{token: c.Token}
	t.messages.New = func() any { return wire.NewMessage(wire.Compact, "", "") }
	options := []grpc.DialOption{
		grpc.WithUserAgent(userAgent),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingTime, Timeout: pingTimeout}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: c.BackoffMin, Multiplier: 1.6, Jitter: 0.2, MaxDelay: max(c.BackoffMin, min(c.BackoffMax, time.Second))},
			MinConnectTimeout: dialTime,
		}),
	}
	if c.Gzip {
		options = append(options, grpc.WithDefaultCallOptions(grpc.UseCompressor(gzip.Name)))
	}
	for _, a := range addresses {
		conn, err := a.Dial(c.TLS, options...)
		if err != nil {
			return nil, errors.Join(err, t.close())
		}
		t.conns = append(t.conns, conn)
	}
	return t, nil
}

func (t *grpcTransport) close() error {
	var errs []error
	for _, conn := range t.conns {
		errs = append(errs, conn.Close())
	}
	return errors.Join(errs...)
}

// try implements transport.
func (t *grpcTransport) try(ctx context.Context, number int, w *write) attempt {
	pairs := []string{"idempotency-key", w.key}
	if t.token != nil {
		token, err := t.token(ctx)
		if err != nil {
			return attempt{err: fmt.Errorf("get the token: %w", err), again: !errors.Is(err, errNeverGood)}
		}
		pairs = append(pairs, "authorization", "Bearer "+token)
	}
	message := t.messages.Get().(*wire.Message)
	defer t.messages.Put(message)
	message.Address(w.stream, w.ack)
	request := message.Of(w.readings)
	ctx = metadata.AppendToOutgoingContext(ctx, pairs...)
	var header metadata.MD
	var to peer.Peer // where the request was sent; no address if it was not
	options := []grpc.CallOption{grpc.Header(&header), grpc.Peer(&to)}
	client := telemetrypb.NewIngestServiceClient(t.conns[number])
	response, err := client.Write(ctx, request, options...)
	if problem := problemIn(err); problem != nil && problem.Code == codeRatio { // the content compresses too well; nothing was stored
		response, err = client.Write(ctx, request, append(options, grpc.UseCompressor(encoding.Identity))...)
	}
	if err != nil {
		return readStatus(ctx, err, to.Addr != nil, message, len(w.readings))
	}
	a := readResponse(response, message, len(w.readings))
	a.result.Replayed = len(header.Get("idempotent-replayed")) > 0
	return a
}

// readResponse interprets the response to a request with this number of readings.
func readResponse(response *telemetrypb.WriteResponse, message *wire.Message, readings int) attempt {
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
	err := wire.CheckCounts(&r.Accepted, &r.Rejected, readings)
	if err == nil {
		err = checkRefused(r.Refused, readings)
	}
	if err != nil {
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
// only a quota has a retry time.
func kindOfCode(code codes.Code, retryAfter bool) telemetry.ErrorKind {
	if code == codes.ResourceExhausted && retryAfter {
		return telemetry.Quota
	}
	kind, known := map[codes.Code]telemetry.ErrorKind{
		codes.Aborted:           telemetry.TooSlow,
		codes.ResourceExhausted: telemetry.TooLarge,
		codes.Unimplemented:     telemetry.Unsupported,
		codes.NotFound:          telemetry.NotFound,
		codes.AlreadyExists:     telemetry.Conflict,
		codes.Unauthenticated:   telemetry.Unauthenticated,
		codes.PermissionDenied:  telemetry.Forbidden,
		codes.Unavailable:       telemetry.Unavailable,
		codes.DeadlineExceeded:  telemetry.UnknownOutcome,
		codes.Internal:          telemetry.Internal,
	}[code]
	if !known {
		return telemetry.Invalid
	}
	return kind
}

// readStatus interprets the error of a call.
func readStatus(ctx context.Context, err error, sent bool, message *wire.Message, readings int) attempt {
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
	case codes.Unauthenticated, codes.PermissionDenied, codes.Unimplemented, codes.InvalidArgument, codes.NotFound, codes.ResourceExhausted: // from gRPC itself, or a proxy
		known := &telemetry.Error{Kind: kindOfCode(s.Code(), false), Code: s.Code().String(), Message: s.Message()}
		return attempt{err: known}
	}
	return attempt{err: err, again: true, unknown: sent}
}

// problemIn returns the daemon's error within a call's error; nil if there is none.
func problemIn(err error) *telemetry.Error {
	for _, detail := range status.Convert(err).Details() {
		if e, ok := detail.(*telemetrypb.RequestError); ok {
			return problemOf(e)
		}
	}
	return nil
}
