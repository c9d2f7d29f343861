package ingest

import (
	"context"
	"fmt"
	"time"

	"github.com/cespare/xxhash/v2"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/gzip" // so that clients may compress
	"google.golang.org/grpc/encoding/proto"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/brim-telemetry/brim/pkg/telemetry"
	"github.com/brim-telemetry/brim/pkg/telemetrypb"
)

// serviceName is also that of the health service's entry.
const serviceName = "brim.v1.IngestService"

const (
	maxStreams    = 256              // calls at once on one connection
	maxCallHead   = 32 << 10         // bytes of a call's metadata, as over HTTP
	pingIdle      = 2 * time.Minute  // finds out connections whose other end is gone
	pingTimeout   = 20 * time.Second // for the answer to a ping
	pingMin       = 10 * time.Second // between pings of a client
	helloTimeout  = 20 * time.Second // for a new connection to begin to speak HTTP/2
	roomForTooBig = 2                // times the limit; see NewGRPCServer
)

// NewGRPCServer returns a server with the ingest, health and reflection
// services; options are added to its own. It does not listen yet. Credentials
// among them are to be those that Door.Credentials returns. Connections on
// which calls are made may be of any age: streams last as long as their senders
// want, and whether these still may send is asked with every message.
//
// A message may have as many bytes as an HTTP body, also when inflated. gRPC
// itself is given twice that limit, for what it refuses it refuses with a text
// that does not name the flag.
func (d *Door) NewGRPCServer(options ...grpc.ServerOption) *grpc.Server {
	s := grpc.NewServer(append([]grpc.ServerOption{
		grpc.ForceServerCodecV2(rawCodec{encoding.GetCodecV2(proto.Name)}),
		grpc.MaxRecvMsgSize(int(d.config.MaxBodyBytes) * roomForTooBig),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.MaxHeaderListSize(maxCallHead),
		grpc.Creds(d.Credentials(insecure.NewCredentials())),
		grpc.RPCDecompressor(callGzip{d}), //nolint:staticcheck // the other way is one for all servers of the process
		grpc.ConnectionTimeout(helloTimeout),
		grpc.ChainStreamInterceptor(d.guardCall, d.boundCall),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: idleTime, Time: pingIdle, Timeout: pingTimeout}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: pingMin, PermitWithoutStream: true}),
	}, options...)...)
	// Write is registered as a stream of one message, because a generated
	// handler would decode the message before it is asked.
	s.RegisterService(&grpc.ServiceDesc{
		ServiceName: serviceName,
		HandlerType: (*any)(nil),
		Streams: []grpc.StreamDesc{
			{StreamName: "Write", Handler: d.guardedWrite},
			{StreamName: "WriteStream", Handler: d.serveWriteStream, ServerStreams: true, ClientStreams: true},
		},
		Metadata: "brim/v1/ingest.proto",
	}, d)
	healthpb.RegisterHealthServer(s, d.health)
	reflection.Register(s)
	return s
}

// A rawMessage is a message that gRPC leaves encoded.
type rawMessage struct {
	data      mem.BufferSlice // in the pieces in which it came
	oneOfMany bool            // of a call, whose metadata is that of all
}

func (m *rawMessage) free() {
	m.data.Free()
	m.data = nil
}

// rawCodec passes on a rawMessage, and all else to the codec of protobuf.
type rawCodec struct{ encoding.CodecV2 }

// Unmarshal implements encoding.CodecV2.
func (c rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	if raw, ok := v.(*rawMessage); ok {
		data.Ref()
		raw.data = data
		return nil
	}
	return c.CodecV2.Unmarshal(data, v)
}

// serveWrite serves Write.
func (d *Door) serveWrite(_ any, stream grpc.ServerStream) error {
	start := time.Now()
	var message rawMessage
	if err := stream.RecvMsg(&message); err != nil {
		d.countUnread(err, start)
		return err
	}
	a := d.takeMessage(stream.Context(), &message, start)
	if a.err != nil {
		return statusError(a.result, a.err)
	}
	if a.repeated {
		if err := stream.SetHeader(metadata.Pairs(headerReplayed, "true")); err != nil {
			return err
		}
	}
	if a.result == nothingTaken || a.result == noneAllowed {
		return nothingTakenError(a.result, a.response)
	}
	return stream.SendMsg(a.response)
}

// A messageAnswer is what became of one message.
type messageAnswer struct {
	response *telemetrypb.WriteResponse // never nil
	result   result
	repeated bool             // the answer is that of an earlier message
	err      *telemetry.Error // why the message was refused as a whole
}

// takeMessage decodes one WriteRequest, appends its readings and reports what
// became of them. An idempotency key is taken from the call's metadata.
func (d *Door) takeMessage(ctx context.Context, message *rawMessage, start time.Time) messageAnswer {
	head, in, err := d.decodeMessage(ctx, message)
	a := messageAnswer{response: &telemetrypb.WriteResponse{RequestId: head.id}}
	if err == nil {
		a.result, err = in.append(ctx)
		in.close()
		in.lease.release()
	}
	if err != nil {
		a.err = d.knownError(protoGRPC, err)
		a.result = resultOf(a.err.Kind)
		d.metrics.answered(protoGRPC, a.result, time.Since(start), &answer{})
		return a
	}
	d.metrics.answered(protoGRPC, a.result, time.Since(start), &in.answer)
	a.repeated = in.answer.repeated
	a.response.Accepted, a.response.Rejected = uint32(in.answer.Accepted), uint32(in.answer.Rejected)
	a.response.Ack = ackOf(in.answer.Ack)
	for _, e := range in.answer.Errors {
		a.response.Errors = append(a.response.Errors, &telemetrypb.ReadingError{Index: uint32(e.Index), Code: string(e.Code), Message: e.Message})
	}
	return a
}

// decodeMessage decodes a message and lets go of it.
func (d *Door) decodeMessage(ctx context.Context, message *rawMessage) (wireHead, *intake, error) {
	defer message.free()
	data, room := d.messages.join(message.data)
	defer d.messages.put(room)
	if d.isBomb(data) {
		return wireHead{}, nil, errBomb()
	}
	head, err := decodeHead(data)
	switch {
	case err != nil:
		return head, nil, err
	case d.stopping.Load():
		return head, nil, errStopping()
	case int64(len(data)) > d.config.MaxBodyBytes:
		return head, nil, telemetry.Errorf(telemetry.TooLarge, codeBodyTooLarge,
			"the message has %d bytes; at most %d are allowed (--max-body-bytes); nothing was taken, send smaller requests", len(data), d.config.MaxBodyBytes)
	}
	in, err := d.messageIntake(ctx, head, message.oneOfMany)
	if err != nil {
		return head, nil, err
	}
	if len(data) > firstBytes {
		// The connection holds a lease for the message itself until the answer.
		wire := int64(len(data))
		in.lease, in.ctx = &lease{of: d.budget, other: (wireCost + decodedCost) * wire}, ctx
		in.paid = (wireCost + decodedCost - 1) * wire
	}
	if err := in.decodeProtobuf(data); err != nil {
		in.lease.release()
		in.close()
		return head, nil, err
	}
	if in.key != "" {
		hash := xxhash.New()
		_, _ = hash.Write(data) // a hash takes everything
		in.hash = bodyHash(hash, in.meaning)
	}
	return head, in, nil
}

// messageIntake returns an intake for the readings of a message.
func (d *Door) messageIntake(ctx context.Context, head wireHead, oneOfMany bool) (*intake, error) {
	stream, err := d.stream(head.stream)
	if err != nil {
		return nil, err
	}
	want, err := d.ackWanted(head.ack)
	if err != nil {
		return nil, err
	}
	key, err := idempotencyKey(metadata.ValueFromIncomingContext(ctx, metadataKey))
	if err != nil {
		return nil, err
	}
	part := ""
	if key != "" && oneOfMany {
		if head.id == "" {
			return nil, telemetry.Errorf(telemetry.Invalid, codeKey,
				"the call has an idempotency key, which stands for a message of it only together with a request_id; nothing was taken")
		}
		part = head.id
	}
	in := new(intake)
	in.open(d, stream, want)
	in.who = d.caller(ctx)
	in.build()
	in.key, in.part = key, part
	return in, nil
}

// ackWanted returns the level that a request asks for.
func (d *Door) ackWanted(a telemetrypb.Ack) (telemetry.Ack, error) {
	switch a {
	case telemetrypb.Ack_ACK_UNSPECIFIED:
		return d.config.Ack, nil
	case telemetrypb.Ack_ACK_JOURNALED:
		return d.ackOrError(telemetry.Journaled)
	case telemetrypb.Ack_ACK_STORED:
		return d.ackOrError(telemetry.Stored)
	}
	return "", telemetry.Errorf(telemetry.Invalid, codeAckUnknown, "ack %d is unknown; this daemon can give: %s", int32(a), d.acks)
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

// countUnread notes a message that gRPC itself refused, and answered.
func (d *Door) countUnread(err error, start time.Time) {
	if status.Code(err) == codes.ResourceExhausted {
		d.metrics.answered(protoGRPC, tooLarge, time.Since(start), &answer{})
	}
}

// statusError returns err as a gRPC status.
func statusError(r result, err *telemetry.Error) error {
	details := []protoadapt.MessageV1{protoadapt.MessageV1Of(requestError(r, err))}
	if wait := retrySeconds(err); wait > 0 {
		details = append(details, protoadapt.MessageV1Of(&errdetails.RetryInfo{RetryDelay: durationpb.New(time.Duration(wait) * time.Second)}))
	}
	return withDetails(status.New(statuses[r].grpc, err.Code+": "+err.Message), details...)
}

// requestError returns err as part of a response.
func requestError(r result, err *telemetry.Error) *telemetrypb.RequestError {
	return &telemetrypb.RequestError{
		Status: int32(statuses[r].grpc), Code: err.Code, Message: err.Message,
		RetryAfterMs: int64(retrySeconds(err)) * 1000,
	}
}

// nothingTakenError is the status of a Write whose readings were all refused.
func nothingTakenError(r result, response *telemetrypb.WriteResponse) error {
	return withDetails(status.New(statuses[r].grpc, allRefused(response)), protoadapt.MessageV1Of(response))
}

func allRefused(response *telemetrypb.WriteResponse) string {
	first := response.GetErrors()[0]
	return fmt.Sprintf("all %d readings were refused; reading %d: %s: %s",
		response.GetRejected(), first.GetIndex(), first.GetCode(), first.GetMessage())
}

// withDetails adds details where they can be encoded: texts are UTF-8 by then,
// so that they always can.
func withDetails(s *status.Status, details ...protoadapt.MessageV1) error {
	if detailed, err := s.WithDetails(details...); err == nil {
		return detailed.Err()
	}
	return s.Err()
}
