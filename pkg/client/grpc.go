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
	"google.golang.org/protobuf/proto"

	"github.com/brim-telemetry/brim/pkg/client/encode"
	"github.com/brim-telemetry/brim/pkg/telemetry"
	"github.com/brim-telemetry/brim/pkg/telemetrypb"
)

const (
	metadataKey = "idempotency-key"
	// Pings find out connections whose other end is gone; a daemon allows one each ten
	// seconds.
	pingTime    = 30 * time.Second
	pingTimeout = 15 * time.Second
)

// grpcTransport has one connection to each address, and on it one call of
// WriteStream that requests share. Those with a key of the caller's go with calls
// of their own, for in a stream a key and the number of a message count together.
//
// A request that is larger than others, or that a call has ended over, has a
// WriteStream to itself, where it hits nobody.
type grpcTransport struct {
	config   Config
	key      string // of all streams, so that a message is the same one in the next
	token    TokenSource
	conns    []*grpc.ClientConn
	pipes    []*pipe
	messages sync.Pool // of *encode.Message
}

func newGRPCTransport(c Config, addresses []address) (*grpcTransport, error) {
	t := &grpcTransport{config: c, key: newKey(), token: c.Token}
	for _, a := range addresses {
		conn, err := grpc.NewClient("dns:///"+a.host, dialOptions(c, a)...)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("connect to %s: %w", a.base, err), t.close())
		}
		t.conns = append(t.conns, conn)
		t.pipes = append(t.pipes, t.newPipe(conn))
	}
	return t, nil
}

func (t *grpcTransport) newPipe(conn *grpc.ClientConn) *pipe {
	return newPipe(telemetrypb.NewIngestServiceClient(conn), t.config.Timeout, func(ctx context.Context) (context.Context, error) {
		return t.metadata(ctx, t.key)
	})
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

// metadata returns a context for a call with this key.
func (t *grpcTransport) metadata(ctx context.Context, key string) (context.Context, error) {
	pairs := []string{metadataKey, key}
	if t.token != nil {
		token, err := t.token(ctx)
		if err != nil {
			return nil, fmt.Errorf("get the token: %w", err)
		}
		pairs = append(pairs, "authorization", "Bearer "+token)
	}
	return metadata.AppendToOutgoingContext(ctx, pairs...), nil
}

func (t *grpcTransport) close() error {
	var errs []error
	for _, p := range t.pipes {
		p.close()
	}
	for _, conn := range t.conns {
		errs = append(errs, conn.Close())
	}
	return errors.Join(errs...)
}

// try implements transport.
func (t *grpcTransport) try(ctx context.Context, to int, w *write) attempt {
	message := t.message()
	defer t.messages.Put(message)
	request := message.Of(w.readings)
	request.Stream, request.Ack, request.RequestId = w.stream, ackOf(w.ack), ""
	if w.ownKey {
		request.RequestId = w.key
		return t.share(ctx, to, w, message, request)
	}
	return t.call(ctx, to, w, message, request)
}

// largeMessage is what a daemon takes unless it is told otherwise, in bytes.
const largeMessage = 8 << 20

// share sends a request on the call that all share, unless it may end that.
func (t *grpcTransport) share(ctx context.Context, to int, w *write, message *encode.Message, request *telemetrypb.WriteRequest) attempt {
	w.alone = w.alone || proto.Size(request) > largeMessage
	var response *telemetrypb.WriteResponse
	var failed attempt
	if w.alone {
		response, failed = t.alone(ctx, to, request)
	} else {
		response, failed = t.pipes[to].exchange(ctx, request)
	}
	if response.GetError().GetCode() == codeRatio { // nothing was taken; it is too regular to be compressed
		response, failed = t.alone(ctx, to, request, grpc.UseCompressor(encoding.Identity))
	}
	if response == nil {
		// gRPC refused a message of the call by its size, maybe this one.
		w.alone = w.alone || status.Code(failed.err) == codes.ResourceExhausted
		return failed
	}
	return readResponse(response, message, len(w.readings))
}

// codeRatio is that of a daemon which will not inflate a message so far.
const codeRatio = "inflate_ratio"

// alone sends a request on a stream of its own. It has the key and the id that it
// has among others, so that it is the same request.
func (t *grpcTransport) alone(ctx context.Context, to int, request *telemetrypb.WriteRequest, options ...grpc.CallOption) (*telemetrypb.WriteResponse, attempt) {
	p := t.newPipe(t.conns[to])
	p.alone, p.options = true, options
	defer p.close()
	return p.exchange(ctx, request)
}

func (t *grpcTransport) message() *encode.Message {
	if m, ok := t.messages.Get().(*encode.Message); ok {
		return m
	}
	return encode.NewMessage(encode.Compact, "", "")
}

// call sends a request by itself.
func (t *grpcTransport) call(ctx context.Context, to int, w *write, message *encode.Message, request *telemetrypb.WriteRequest) attempt {
	ctx, err := t.metadata(ctx, w.key)
	if err != nil {
		return attempt{err: err, again: mayCome(err)}
	}
	sent := new(atomic.Bool)
	var header metadata.MD
	client := telemetrypb.NewIngestServiceClient(t.conns[to])
	response, err := client.Write(context.WithValue(ctx, sentKey{}, sent), request, grpc.Header(&header))
	if err != nil {
		return readStatus(err, sent.Load(), message, len(w.readings))
	}
	a := readResponse(response, message, len(w.readings))
	a.result.Replayed = len(header.Get("idempotent-replayed")) > 0
	return a
}

// sentHandler notes in a call's context that something of it was written.
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

// readResponse tells what a response to so many readings means.
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

// problemOf returns the error that a daemon told.
func problemOf(e *telemetrypb.RequestError) *telemetry.Error {
	after := min(maxRetryAfter, time.Duration(max(0, min(e.GetRetryAfterMs(), maxRetryAfter.Milliseconds())))*time.Millisecond)
	return &telemetry.Error{Kind: kindOfCode(codes.Code(uint32(e.GetStatus())), after > 0), Code: e.GetCode(), Message: e.GetMessage(), RetryAfter: after}
}

// kindOfCode returns the kind of a daemon's error. Of two kinds that share a code,
// only a quota has a time to come back.
func kindOfCode(code codes.Code, comeBack bool) telemetry.ErrorKind {
	switch code {
	case codes.Aborted:
		return telemetry.TooSlow
	case codes.ResourceExhausted:
		if comeBack {
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

// readStatus tells what the error of a call means.
func readStatus(err error, sent bool, message *encode.Message, readings int) attempt {
	if e := told(err); e != nil {
		return wayOf(e)
	}
	for _, detail := range status.Convert(err).Details() {
		if response, ok := detail.(*telemetrypb.WriteResponse); ok {
			return readResponse(response, message, readings)
		}
	}
	return broken(err, sent)
}

// told returns why a daemon ended a call; nil if it did not say.
func told(err error) *telemetry.Error {
	for _, detail := range status.Convert(err).Details() {
		if e, ok := detail.(*telemetrypb.RequestError); ok {
			return problemOf(e)
		}
	}
	return nil
}

// broken tells what a failure means of which the daemon said nothing.
func broken(err error, sent bool) attempt {
	switch code := status.Code(err); code {
	case codes.Unauthenticated, codes.PermissionDenied, codes.Unimplemented, codes.InvalidArgument, codes.NotFound, codes.ResourceExhausted:
		known := &telemetry.Error{Kind: kindOfCode(code, false), Code: code.String(), Message: status.Convert(err).Message()}
		return attempt{err: known}
	}
	return attempt{err: err, again: true, unknown: sent}
}

func ackOf(a telemetry.Ack) telemetrypb.Ack {
	switch a {
	case telemetry.Journaled:
		return telemetrypb.Ack_ACK_JOURNALED
	case telemetry.Stored:
		return telemetrypb.Ack_ACK_STORED
	}
	return telemetrypb.Ack_ACK_UNSPECIFIED
}
