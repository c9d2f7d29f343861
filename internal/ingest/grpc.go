package ingest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/gzip"
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

// messagePool keeps room for messages that came in pieces. That of gRPC clears
// its buffers before they are used, a whole MiB for half of one.
type messagePool struct{ pool sync.Pool }

// keptMessage is the longest message whose room is kept.
const keptMessage = 1 << 20

// join returns the bytes of a message, and their room, which is nil if they are
// where they were.
func (p *messagePool) join(pieces mem.BufferSlice) (data []byte, room *[]byte) {
	if len(pieces) == 1 {
		return pieces[0].ReadOnlyData(), nil
	}
	length := pieces.Len()
	room, ok := p.pool.Get().(*[]byte)
	if !ok {
		room = new([]byte)
	}
	if cap(*room) < length {
		*room = make([]byte, length)
	}
	data = (*room)[:length]
	pieces.CopyTo(data)
	return data, room
}

// put takes back what join returned.
func (p *messagePool) put(room *[]byte) {
	if room != nil && cap(*room) <= keptMessage {
		p.pool.Put(room)
	}
}

// maxInFlight is how many requests of one stream are worked on at once. More of
// them wait in the client, by the flow control of HTTP/2.
const maxInFlight = 16

// A writeStream is one call of WriteStream. Its receiver hands requests to the
// goroutine that serves the call, which starts a worker for each and sends the
// answers in the order of the requests.
type writeStream struct {
	door     *Door
	stream   grpc.ServerStream
	arrivals chan arrival
	workers  sync.WaitGroup
	patience *time.Timer                       // of who waits for an answer to be sent; nil before the first
	answers  []chan *telemetrypb.WriteResponse // of the requests in flight, oldest first
}

// An arrival is a request, or the reason why there will be no more.
type arrival struct {
	message rawMessage
	at      time.Time
	err     error
}

// serveWriteStream serves WriteStream.
func (d *Door) serveWriteStream(_ any, stream grpc.ServerStream) error {
	w := &writeStream{door: d, stream: stream, arrivals: make(chan arrival)}
	// The receiver ends when this call does, because that ends its stream; so
	// it cannot be waited for here, and Door.Wait does.
	d.readers.Go(w.receive)
	defer w.workers.Wait()
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel() // first of all, when answers cannot be sent: then nobody waits for the workers' work
	return w.serve(ctx)
}

// receive passes on the requests until there are no more.
func (w *writeStream) receive() {
	for {
		a := arrival{message: rawMessage{oneOfMany: true}}
		a.err = w.stream.RecvMsg(&a.message)
		a.at = time.Now()
		if a.err != nil {
			w.door.countUnread(a.err, a.at)
		}
		select {
		case w.arrivals <- a:
		case <-w.stream.Context().Done():
			a.message.free()
			return
		}
		if a.err != nil {
			return
		}
	}
}

// serve works until there are no more requests and all are answered.
func (w *writeStream) serve(ctx context.Context) error {
	var last error // that ends the stream, once all is answered
	stopped := w.door.stopped
	for open := true; open || len(w.answers) > 0; {
		var arrivals chan arrival
		if open && len(w.answers) < maxInFlight {
			arrivals = w.arrivals
		}
		var answers chan *telemetrypb.WriteResponse
		if len(w.answers) > 0 {
			answers = w.answers[0]
		}
		select {
		case a := <-arrivals:
			if last = w.begin(ctx, a); last == nil {
				continue
			}
			open = false
			if errors.Is(last, io.EOF) {
				last = nil
			}
		case response := <-answers:
			w.answers = w.answers[1:]
			if err := w.send(response); err != nil {
				return err
			}
		case <-ctx.Done(): // nobody reads answers any more; the receiver may have seen it first
			return status.FromContextError(ctx.Err()).Err()
		case <-stopped:
			open, stopped = false, nil
			last = status.Error(codes.Unavailable, errStopping().Message)
		}
	}
	return last
}

// answerTime is how long a client may leave its answers unread. gRPC takes some
// of them for it, 64 KiB, before a stream waits.
const answerTime = time.Minute

// send sends an answer, or ends the connection of a client that does not read
// them.
func (w *writeStream) send(response *telemetrypb.WriteResponse) error {
	conn := connOf(w.stream.Context())
	if conn == nil {
		return w.stream.SendMsg(response)
	}
	if w.patience == nil {
		w.patience = time.AfterFunc(w.door.answerTime, func() { conn.end(endUnread) })
	} else {
		w.patience.Reset(w.door.answerTime)
	}
	defer w.patience.Stop()
	return w.stream.SendMsg(response)
}

// begin starts the work on an arrival; an error says why it is the last one.
func (w *writeStream) begin(ctx context.Context, a arrival) error {
	if a.err != nil {
		return a.err
	}
	if err := w.door.stillMay(ctx); err != nil {
		a.message.free()
		known := w.door.knownError(protoGRPC, err)
		r := resultOf(known.Kind)
		w.door.metrics.answered(protoGRPC, r, time.Since(a.at), &answer{})
		w.door.config.Guard.Hold(ctx, known)
		return statusError(r, known)
	}
	w.start(ctx, a)
	return nil
}

// start makes a worker answer one request.
func (w *writeStream) start(ctx context.Context, a arrival) {
	answer := make(chan *telemetrypb.WriteResponse, 1) // so that a worker never waits
	w.answers = append(w.answers, answer)
	w.workers.Go(func() {
		taken := w.door.takeMessage(ctx, &a.message, a.at)
		if taken.err != nil {
			taken.response.Error = requestError(taken.result, taken.err)
		} else if taken.result == nothingTaken || taken.result == noneAllowed {
			taken.response.Error = &telemetrypb.RequestError{
				Status: int32(statuses[taken.result].grpc), Code: codeNothingTaken, Message: allRefused(taken.response),
			}
		}
		answer <- taken.response
	})
}

// A call that lasts takes memory for as long as its client wants, some 12 KiB if
// nothing happens on it. So of all connections together only so many may be open.
const (
	// maxOpen is twice as many as there may be connections by default.
	maxOpen = 8192
	// maxWatches is how many of them may wait for a change of the health.
	maxWatches = 512
)

// codeStreams is that of a call beyond these.
const codeStreams = "streams_too_many"

// openStreams counts the calls that last.
type openStreams struct{ all, watches atomic.Int64 }

// boundCall refuses a call that lasts where there are too many.
func (d *Door) boundCall(service any, stream grpc.ServerStream, call *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	defer d.open.all.Add(-1)
	if d.open.all.Add(1) > maxOpen {
		return d.refuseCall(call, "calls that last", maxOpen)
	}
	if call.FullMethod == healthpb.Health_Watch_FullMethodName {
		defer d.open.watches.Add(-1)
		if d.open.watches.Add(1) > maxWatches {
			return d.refuseCall(call, "calls of Watch", maxWatches)
		}
	}
	return next(service, stream)
}

func (d *Door) refuseCall(call *grpc.StreamServerInfo, what string, most int) error {
	err := telemetry.Errorf(telemetry.Quota, codeStreams, "%d %s are open, which is the most of all clients together; end some, or try again later", most, what)
	err.RetryAfter = time.Second
	known := d.knownError(protoGRPC, err)
	if strings.HasPrefix(call.FullMethod, "/"+serviceName+"/") {
		d.metrics.answered(protoGRPC, quota, 0, &answer{})
	}
	return statusError(quota, known)
}

// freeCallInflation is how much a message of gRPC may inflate to, whatever its
// ratio. It is less than a body may, for many of them inflate at once.
const freeCallInflation = 64 << 10

// A callGzip inflates the messages of one server. That of gRPC itself looks at
// how much comes out, and not at how little went in.
type callGzip struct{ door *Door }

// Type implements grpc.Decompressor.
func (callGzip) Type() string { return gzip.Name }

// Do implements grpc.Decompressor.
func (z callGzip) Do(r io.Reader) ([]byte, error) {
	wire, ok := r.(remainder)
	if !ok {
		return nil, fmt.Errorf("inflate gzip: a message in a %T, which does not tell its length", r)
	}
	unzip := z.door.pools.getGzip()
	defer z.door.pools.putGzip(unzip)
	m := &messageInflater{wire: wire, length: wire.Remaining(), plain: unzip, inflated: z.door.config.messageInflation()}
	if err := unzip.Reset(r); err != nil {
		return nil, fmt.Errorf("read gzip head: %w", err)
	}
	var out bytes.Buffer
	out.Grow(int(min(m.inflated.most, 4*int64(m.length))) + bytes.MinRead)
	_, err := io.Copy(&out, m)
	switch {
	case errors.Is(err, errTooMuch):
		return z.door.bomb[:], nil
	case err != nil:
		return nil, fmt.Errorf("inflate gzip: %w", err)
	}
	return out.Bytes(), nil
}

// messageInflation bounds a message of gRPC.
func (c *Config) messageInflation() inflation {
	return inflation{free: freeCallInflation, ratio: c.MaxInflateRatio, most: roomForTooBig * c.MaxBodyBytes}
}

// errTooMuch ends the reading of what inflates to more than it may.
var errTooMuch = errors.New("inflates to more than it may")

// A remainder knows how much of it is not read yet, as gRPC's messages do.
type remainder interface{ Remaining() int }

// A messageInflater reads a message, inflated and limited.
type messageInflater struct {
	wire     remainder
	length   int // of wire at first
	plain    io.Reader
	inflated inflation
}

// Read implements io.Reader.
func (m *messageInflater) Read(p []byte) (int, error) {
	n, err := m.plain.Read(p)
	if !m.inflated.add(n, int64(m.length-m.wire.Remaining())) {
		return 0, errTooMuch
	}
	return n, err
}

// isBomb reports whether these are the bytes that stand for a message which
// inflates to more than it may. An error of Do would end the call with a status
// that clients take for a defect.
func (d *Door) isBomb(data []byte) bool { return len(data) == 1 && &data[0] == &d.bomb[0] }

func errBomb() error {
	return telemetry.Errorf(telemetry.TooLarge, codeRatio,
		"the message inflates to more than it may (--max-inflate-ratio, --max-body-bytes); nothing was taken")
}
