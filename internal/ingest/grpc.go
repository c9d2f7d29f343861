package ingest

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/brim-telemetry/brim/internal/access"
	"github.com/brim-telemetry/brim/pkg/telemetry"
	"github.com/brim-telemetry/brim/pkg/telemetrypb"
)

// Write, WriteStream and OpenTelemetry's Export are served by handlers of net/http's HTTP/2
// server, and the health and reflection services by grpc-go on the same server. grpc-go
// would read a message into memory before any of our code sees its length. Here a message is
// received like a body over HTTP: its memory is reserved before it is read.
//
//	call ─ identify ─▶ receive ─ inflate ─ decode ─▶ journal ─▶ send
//	                     ▲                                        │
//	                     └──────────── WriteStream ◀──────────────┘
//
// The additional memory that net/http uses for a client has fixed limits, see GRPCServer.

const (
	serviceName     = "brim.v1.IngestService" // also in the health service
	writePath       = "/" + serviceName + "/Write"
	writeStreamPath = "/" + serviceName + "/WriteStream"
)

const (
	// maxCalls is the maximum number of concurrent calls of all clients, twice the default
	// maximum of connections. An idle call takes some 20 KiB.
	maxCalls = 8192
	// maxWatches is the maximum number of calls of the health service's Watch among them.
	maxWatches = 512
	// maxInFlight is the maximum number of concurrent requests in one WriteStream. HTTP/2 flow
	// control makes the client wait with more.
	maxInFlight = 16
	// answerTime is how long a client may leave its answers unread. Buffers hold some 64 KiB
	// of them before a call blocks.
	answerTime = time.Minute
	// messagePrefix is the length of the prefix of each message: a flag that says whether it
	// is compressed, and its length.
	messagePrefix = 5
	// callBytes is the memory of a message in addition to its own bytes.
	callBytes = 512
	// tooLargeFactor: a message of up to this many times --max-body-bytes is read before it is
	// refused, so that a WriteStream can answer it by its id and continue.
	tooLargeFactor = 2
	// freeCallInflation is the size to which a message may inflate at any ratio. It is less than
	// for a body over HTTP, because a connection may send several messages at once.
	freeCallInflation = 64 << 10
	// otherCallBytes limits what a client sends in one call of health or reflection.
	otherCallBytes = 64 << 10
)

// GRPCServer returns a server with the ingest, health and reflection services; with a nil
// config it speaks HTTP/2 without TLS. A WriteStream has no time limit; the access of its
// client is checked for every message.
func (srv *Server) GRPCServer(config *tls.Config) *http.Server {
	others := grpc.NewServer(grpc.MaxRecvMsgSize(otherCallBytes))
	healthpb.RegisterHealthServer(others, srv.health)
	telemetrypb.RegisterIngestServiceServer(others, telemetrypb.UnimplementedIngestServiceServer{}) // for reflection
	reflection.Register(others)

	mux := http.NewServeMux()
	mux.Handle(writePath, srv.serveCall(srv.serveWrite))
	mux.Handle(writeStreamPath, srv.serveCall(srv.serveWriteStream))
	mux.Handle(exportPath, srv.serveCall(srv.serveExport))
	mux.Handle("/", srv.serveOthers(others))
	s := &http.Server{
		Handler: mux, TLSConfig: config, Protocols: new(http.Protocols), ErrorLog: slog.NewLogLogger(srv.logger.Handler(), slog.LevelDebug),
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       5 * time.Minute, // without a call; clients connect again when they need to
		MaxHeaderBytes:    32 << 10,        // as over HTTP
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: 256, MaxReadFrameSize: 16 << 10,
			// Bytes that a client has sent and a call has not read yet. The limit of the
			// connection is higher, so that a call that waits for memory does not block the
			// others.
			MaxReceiveBufferPerStream: 128 << 10, MaxReceiveBufferPerConnection: 256 << 10,
			SendPingTimeout: 2 * time.Minute, PingTimeout: 20 * time.Second,
		},
	}
	s.Protocols.SetHTTP2(config != nil)
	s.Protocols.SetUnencryptedHTTP2(config == nil)
	return access.Metered(s)
}

// GRPCListener returns a listener for the GRPCServer. It closes a connection when the client
// does not read for answerTime. WriteByteTimeout of net/http does the same, but sets two
// deadlines for each write, which is a fifth of the cost of a small Write.
func GRPCListener(l net.Listener) net.Listener { return writeLimiter{Listener: l, limit: answerTime} }

type writeLimiter struct {
	net.Listener

	limit time.Duration
}

// Accept implements net.Listener.
func (l writeLimiter) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &limitedConn{Conn: conn, limit: l.limit}, nil
}

// A limitedConn has a write deadline, which is moved when a tenth of it has passed. A
// deadline that net/http or TLS sets, for example for the handshake, replaces it until they
// clear it.
type limitedConn struct {
	net.Conn

	limit time.Duration

	mu       sync.Mutex
	moved    time.Time // zero: there is no deadline
	external bool      // net/http or TLS set the deadline
}

// NetConn returns the connection itself.
func (c *limitedConn) NetConn() net.Conn { return c.Conn }

// SetWriteDeadline implements net.Conn.
func (c *limitedConn) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.moved, c.external = time.Time{}, !t.IsZero()
	return c.Conn.SetWriteDeadline(t)
}

// Write implements net.Conn.
func (c *limitedConn) Write(p []byte) (int, error) {
	if err := c.moveDeadline(); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

func (c *limitedConn) moveDeadline() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if c.external || now.Sub(c.moved) <= c.limit/10 {
		return nil
	}
	c.moved = now
	return c.Conn.SetWriteDeadline(now.Add(c.limit))
}

// A call is a call of Write or WriteStream.
type call struct {
	server     *Server
	w          http.ResponseWriter
	r          *http.Request
	ctx        context.Context // with the identity of the client
	streaming  bool            // WriteStream, with any number of messages
	compressed bool            // messages with the flag are compressed with gzip
	control    *http.ResponseController
	in         *bufio.Reader
	pacer      pacer
	deadline   lazyDeadline

	mu   sync.Mutex // held while a timer aborts reading or writing
	over bool       // the handler has returned; w must not be used any more
}

// serveCall serves calls of one write method. An error of serve becomes the status of the
// call.
func (srv *Server) serveCall(serve func(*call) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isCall(w, r) {
			return
		}
		srv.callers.Add(1)
		defer srv.callers.Done()
		leave, err := srv.enter(r)
		defer leave()
		var c *call
		if err == nil {
			c, err = srv.newCall(w, r)
		}
		if err != nil {
			_ = r.Body.Close() // so that nothing is held while the answer is delayed
			endCall(w, srv.refuseCall(r.Context(), protocolOf(r), err, time.Now()))
			return
		}
		defer c.close()
		ctx, cancel, err := withTimeout(c.ctx, r)
		if err == nil {
			c.ctx = ctx
			defer cancel()
			err = serve(c)
		}
		endCall(w, err)
	})
}

// newCall identifies the client and prepares to receive messages.
func (srv *Server) newCall(w http.ResponseWriter, r *http.Request) (*call, error) {
	c := &call{server: srv, w: w, r: r, streaming: r.URL.Path == writeStreamPath, control: http.NewResponseController(w)}
	credentials := access.OfRequest(r)
	who, err := srv.identify(credentials, access.Ingest)
	if err != nil {
		return nil, err
	}
	c.ctx = access.WithCredentials(r.Context(), who, credentials)
	switch encoding := r.Header.Get("Grpc-Encoding"); encoding {
	case "", "identity":
	case "gzip":
		c.compressed = true
	default:
		w.Header().Set("Grpc-Accept-Encoding", "gzip")
		return nil, telemetry.Errorf(telemetry.Unsupported, codeEncodingUnknown, "grpc-encoding %s cannot be read; allowed: gzip and identity", telemetry.Quote([]byte(encoding)))
	}
	c.in = srv.callReaders.get() // of 4 KiB
	c.in.Reset(r.Body)
	c.deadline.expire = func() { c.expire(c.control.SetReadDeadline) }
	c.pacer.pace, c.pacer.control = srv.pace, &c.deadline
	return c, nil
}

// expire aborts reading or writing, from another goroutine.
func (c *call) expire(set func(time.Time) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.over {
		_ = set(time.Unix(1, 0)) // fails if the connection has ended
	}
}

func (c *call) close() {
	c.pacer.end()
	c.mu.Lock()
	c.over = true
	c.mu.Unlock()
	c.in.Reset(nil)
	c.server.callReaders.put(c.in)
}

// isCall reports whether a request is a gRPC call, and answers it if it is not.
func isCall(w http.ResponseWriter, r *http.Request) bool {
	media, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	switch {
	case r.Method != http.MethodPost:
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "this listener takes calls of gRPC only", http.StatusMethodNotAllowed)
	case media != "application/grpc" && media != "application/grpc+proto":
		http.Error(w, "this listener takes calls of gRPC only, with Content-Type application/grpc", http.StatusUnsupportedMediaType)
	default:
		w.Header().Set("Content-Type", r.Header.Get("Content-Type"))
		return true
	}
	return false
}

// withTimeout applies the header Grpc-Timeout, which has up to 8 digits and a unit.
func withTimeout(ctx context.Context, r *http.Request) (context.Context, context.CancelFunc, error) {
	given := r.Header.Get("Grpc-Timeout")
	if given == "" {
		return ctx, func() {}, nil
	}
	units := map[byte]time.Duration{'H': time.Hour, 'M': time.Minute, 'S': time.Second, 'm': time.Millisecond, 'u': time.Microsecond, 'n': time.Nanosecond}
	unit := units[given[len(given)-1]]
	n, err := strconv.ParseUint(given[:len(given)-1], 10, 32)
	if err != nil || unit == 0 || len(given) > 9 {
		return nil, nil, status.Errorf(codes.InvalidArgument, "grpc-timeout %s is not a number of at most 8 digits with one of the units H, M, S, m, u, n", telemetry.Quote([]byte(given)))
	}
	const longest = 1000 * time.Hour // 99,999,999 hours do not fit a Duration
	if n > uint64(longest/unit) {
		n = uint64(longest / unit)
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(n)*unit)
	return ctx, cancel, nil
}

// A lazyDeadline is the read deadline of a call. Setting one in net/http takes longer than
// decoding a small message, so a timer sets it only when it has passed.
type lazyDeadline struct {
	expire func() // cannot be undone

	mu    sync.Mutex
	timer *time.Timer
	until time.Time // the deadline; zero: none
}

// SetReadDeadline implements readDeadline.
func (l *lazyDeadline) SetReadDeadline(t time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.until = t
	switch {
	case l.timer == nil && t.IsZero():
	case l.timer == nil:
		l.timer = time.AfterFunc(time.Until(t), l.fire)
	case t.IsZero():
		l.timer.Stop()
	default:
		l.timer.Reset(time.Until(t))
	}
	return nil
}

// fire is called by the timer. By then the deadline may have been removed or moved.
func (l *lazyDeadline) fire() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.until.IsZero() && !time.Now().Before(l.until) {
		l.expire()
	}
}

// A message is an encoded WriteRequest. Its end must be called.
type message struct {
	payload

	in         intake
	call       *call
	at         time.Time // of arrival
	compressed bool      // not yet inflated
}

func (m *message) end() {
	m.free()
	m.lease.Release()
}

// receive returns the next message, or io.EOF if there are no more. Any other error ends the
// call, because the rest of the message was not read.
func (c *call) receive() (*message, error) {
	if c.streaming { // it may be idle for any time
		if _, err := c.in.Peek(1); err != nil {
			return nil, c.explain(err)
		}
	}
	p := &c.pacer
	p.begin()
	defer p.end()
	m := &message{call: c, at: time.Now(), payload: payload{server: c.server, pacer: p, lease: lease{of: c.server.budget}}}
	prefix, err := c.in.Peek(messagePrefix)
	if err != nil {
		if errors.Is(err, io.EOF) && len(prefix) > 0 {
			err = io.ErrUnexpectedEOF
		}
		return nil, c.explain(err)
	}
	flag, length := prefix[0], int64(binary.BigEndian.Uint32(prefix[1:]))
	_, _ = c.in.Discard(messagePrefix) // it is in the buffer
	most := c.server.config.MaxBodyBytes
	switch {
	case length > tooLargeFactor*most:
		return nil, errMessageTooLarge(length, most)
	case flag > 1 || flag == 1 && !c.compressed:
		return nil, telemetry.Errorf(telemetry.Invalid, codeMalformed, "the message has the flag %d; allowed: 0, and 1 with grpc-encoding: gzip", flag)
	}
	if err := m.reserve(c.ctx, min((wireCost+decodedCost)*length+callBytes, c.server.budget.most())); err != nil {
		c.server.metrics.ended.WithLabelValues(endNoRoom).Inc()
		return nil, err
	}
	m.grow(length)
	if length > int64(c.in.Buffered()) {
		m.beginTransfer()
		defer m.endTransfer()
	}
	if err := m.read(c.in, length); err != nil && int64(len(m.data)) < length {
		m.endTransfer() // it must not refer to a lease that has ended
		m.end()
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, c.explain(err)
	}
	m.compressed = flag == 1
	return m, nil
}

// explain turns an error of reading into one for the client.
func (c *call) explain(err error) error {
	switch {
	case errors.Is(err, io.EOF):
		return io.EOF
	case c.r.Context().Err() != nil:
		return c.r.Context().Err()
	}
	known := c.pacer.explain(err)
	if telemetry.KindOf(known) == telemetry.TooSlow {
		why := endHalfOpen
		if c.pacer.awaited.Load() {
			why = endSlow
		}
		c.server.metrics.ended.WithLabelValues(why).Inc()
	}
	return known
}

// inflateMessage decompresses the message.
func (m *message) inflateMessage(ctx context.Context) error {
	c := &m.server.config
	limit := inflation{free: freeCallInflation, ratio: c.MaxInflateRatio, most: tooLargeFactor * c.MaxBodyBytes}
	err := m.inflate(ctx, "gzip", &limit)
	switch _, known := errors.AsType[*telemetry.Error](err); {
	case err == nil || known:
		return err
	case errors.Is(err, errInflated):
		return telemetry.Errorf(telemetry.TooLarge, codeRatio,
			"the inflated message exceeds --max-inflate-ratio or --max-body-bytes; nothing was accepted")
	}
	return &telemetry.Error{Kind: telemetry.Invalid, Code: codeEncodingBroken, Message: "the message is not valid gzip; nothing was accepted", Err: err}
}

func errMessageTooLarge(length, most int64) error {
	return telemetry.Errorf(telemetry.TooLarge, codeBodyTooLarge,
		"the message has %d bytes; at most %d are allowed (--max-body-bytes); nothing was accepted, send smaller requests", length, most)
}

// receiveOnly returns the message of a call that has exactly one. Its errors are statuses of
// the call.
func (c *call) receiveOnly() (*message, error) {
	start := time.Now()
	m, err := c.receive()
	if errors.Is(err, io.EOF) {
		err = telemetry.Errorf(telemetry.Invalid, codeMalformed, "the call has no message; nothing was accepted")
	}
	if err != nil {
		return nil, c.server.refuseCall(c.ctx, protocolOf(c.r), err, start)
	}
	return m, nil
}

// serveWrite serves Write.
func (srv *Server) serveWrite(c *call) error {
	m, err := c.receiveOnly()
	if err != nil {
		return err
	}
	response, r, refused := m.answer(c.ctx)
	switch {
	case refused != nil:
		return c.refusal(r, refused)
	case m.in.answer.repeated:
		c.w.Header().Set(headerReplayed, "true")
	}
	if r == nothingTaken || r == noneAllowed {
		return withDetails(status.New(statuses[r].grpc, allRefused(response)), protoadapt.MessageV1Of(response))
	}
	return c.send(response)
}

// protocolOf returns the protocol of a call.
func protocolOf(r *http.Request) protocol {
	if r.URL.Path == exportPath {
		return protoOTLPGRPC
	}
	return protoGRPC
}

// refuseCall counts a refused call, and returns its status.
func (srv *Server) refuseCall(ctx context.Context, p protocol, err error, start time.Time) error {
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return status.FromContextError(err).Err()
	}
	known := srv.knownError(p, err)
	result := resultOf(known.Kind)
	srv.metrics.answered(p, result, time.Since(start), &answer{})
	srv.config.Guard.DelayRefusal(ctx, known)
	return statusError(result, known)
}

// refusal returns the status of a call whose message was refused as a whole.
func (c *call) refusal(r result, refused *telemetry.Error) error {
	c.server.config.Guard.DelayRefusal(c.ctx, refused)
	return statusError(r, refused)
}

// take decodes the message, appends its readings, and frees it. It returns the id of the
// request, and why it was refused as a whole.
func (m *message) take(ctx context.Context, decode func([]byte) error) (id string, r result, refused *telemetry.Error) {
	srv, p, in := m.server, protocolOf(m.call.r), &m.in
	defer m.end()
	defer in.close()
	id, err := m.open(ctx)
	if err == nil {
		r, err = in.take(&m.payload, decode)
	}
	if err != nil {
		refused = srv.knownError(p, err)
		r = resultOf(refused.Kind)
		in.answer = answer{}
	}
	srv.metrics.answered(p, r, time.Since(m.at), &in.answer)
	return id, r, refused
}

// open opens the intake for the readings of the message. For an export, the stream and the ack
// are in the headers of its call.
func (m *message) open(ctx context.Context) (id string, err error) {
	srv, c, in := m.server, m.call, &m.in
	if m.compressed {
		if err := m.inflateMessage(ctx); err != nil {
			return "", err
		}
	}
	head, exports := wireHead{stream: c.r.Header.Get(streamHeader)}, protocolOf(c.r) == protoOTLPGRPC
	if !exports {
		head, err = decodeHead(m.data)
	}
	length := int64(len(m.data))
	switch {
	case err != nil:
		return head.id, err
	case srv.stopping():
		return head.id, errStopping()
	case length > srv.config.MaxBodyBytes:
		return head.id, errMessageTooLarge(length, srv.config.MaxBodyBytes)
	}
	stream, err := srv.stream(head.stream)
	if err != nil {
		return head.id, err
	}
	var want telemetry.Ack
	if exports {
		want, err = srv.wantedAck(c.r, nil)
	} else {
		want, err = srv.ackWanted(head.ack)
	}
	if err != nil {
		return head.id, err
	}
	key, err := idempotencyKey(c.r.Header[headerKey])
	if err != nil {
		return head.id, err
	}
	in.open(srv, stream, want)
	in.who, in.key, in.lease, in.ctx = access.From(ctx), key, &m.lease, ctx
	if key != "" && c.streaming {
		if in.part = head.id; head.id == "" {
			return "", telemetry.Errorf(telemetry.Invalid, codeKey,
				"the call has an idempotency key, which identifies a message only together with a request_id; nothing was accepted")
		}
	}
	return head.id, nil
}

// answer takes a WriteRequest. refused says why it is refused as a whole.
func (m *message) answer(ctx context.Context) (a *telemetrypb.WriteResponse, r result, refused *telemetry.Error) {
	id, r, refused := m.take(ctx, m.in.decodeProtobuf)
	in := &m.in.answer
	a = &telemetrypb.WriteResponse{RequestId: id, Accepted: uint32(in.Accepted), Rejected: uint32(in.Rejected), Ack: acksOf[in.Ack]}
	for _, e := range in.Errors {
		a.Errors = append(a.Errors, &telemetrypb.ReadingError{Index: uint32(e.Index), Code: string(e.Code), Message: e.Message})
	}
	return a, r, refused
}

var acksOf = map[telemetry.Ack]telemetrypb.Ack{
	telemetry.Journaled: telemetrypb.Ack_ACK_JOURNALED, telemetry.Stored: telemetrypb.Ack_ACK_STORED,
}

// ackWanted returns the ack that a request asks for.
func (srv *Server) ackWanted(a telemetrypb.Ack) (telemetry.Ack, error) {
	if a == telemetrypb.Ack_ACK_UNSPECIFIED {
		return srv.config.Ack, nil
	}
	for want, number := range acksOf {
		if number == a {
			return srv.ackOrError(want)
		}
	}
	return "", telemetry.Errorf(telemetry.Invalid, codeAckUnknown, "ack %d is unknown; this daemon can give: %s", int32(a), listAcks(srv.config.Acks))
}

// send sends an answer.
func (c *call) send(response *telemetrypb.WriteResponse) error {
	framed, err := proto.MarshalOptions{}.MarshalAppend(make([]byte, messagePrefix, 64), response)
	if err != nil {
		return fmt.Errorf("encode the answer: %w", err)
	}
	return c.write(framed)
}

// write sends an encoded answer; framed begins with space for its prefix. The call ends if
// the client does not read its answers.
func (c *call) write(framed []byte) error {
	binary.BigEndian.PutUint32(framed[1:], uint32(len(framed)-messagePrefix))
	if !c.streaming {
		_, err := c.w.Write(framed)
		return err
	}
	timer := time.AfterFunc(c.server.answerTime, func() {
		c.server.metrics.ended.WithLabelValues(endUnread).Inc()
		c.expire(c.control.SetWriteDeadline)
	})
	defer timer.Stop()
	_, err := c.w.Write(framed)
	if err == nil {
		err = c.control.Flush()
	}
	return err
}

// serveWriteStream serves WriteStream: one goroutine receives requests, one goroutine per
// request processes it, and this one sends the answers in the order of the requests.
func (srv *Server) serveWriteStream(c *call) error {
	ctx, cancel := context.WithCancel(c.ctx)
	c.ctx = ctx
	var workers sync.WaitGroup
	defer workers.Wait()
	defer c.r.Body.Close() // ends the receiver
	defer cancel()
	defer context.AfterFunc(srv.stopped, c.deadline.expire)()
	// One more is in flight: the one whose answer this goroutine is waiting for.
	answers := make(chan chan *telemetrypb.WriteResponse, maxInFlight-1)
	var last error // ends the call after all answers
	workers.Go(func() {
		defer close(answers)
		last = c.receiveAll(ctx, answers, &workers)
	})
	for answer := range answers {
		if err := c.send(<-answer); err != nil {
			return status.Error(codes.Canceled, err.Error())
		}
	}
	return last
}

// receiveAll starts a worker for each request, until there are no more.
func (c *call) receiveAll(ctx context.Context, answers chan<- chan *telemetrypb.WriteResponse, workers *sync.WaitGroup) error {
	d := c.server
	for {
		m, err := c.receive()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case d.stopping():
			err = status.Error(codes.Unavailable, errStopping().Message)
		case err != nil:
			err = d.refuseCall(ctx, protoGRPC, err, time.Now())
		default:
			if err = access.Recheck(ctx); err == nil { // the call may outlive the client's access
				err = access.From(ctx).Require(access.Ingest)
			}
			if err != nil {
				err = d.refuseCall(ctx, protoGRPC, err, m.at)
			}
		}
		if err != nil {
			if m != nil {
				m.end()
			}
			return err
		}
		answer := make(chan *telemetrypb.WriteResponse, 1) // so that a worker never waits
		select {
		case answers <- answer:
		case <-ctx.Done():
			m.end()
			return status.FromContextError(ctx.Err()).Err()
		}
		workers.Go(func() {
			a, r, refused := m.answer(ctx)
			if refused != nil {
				a.Error = requestError(r, refused)
			} else if r == nothingTaken || r == noneAllowed {
				a.Error = &telemetrypb.RequestError{Status: int32(statuses[r].grpc), Code: codeNothingTaken, Message: allRefused(a)}
			}
			answer <- a
		})
	}
}

// serveOthers serves the health and reflection services. The health service's Check needs no
// authentication, because probes have no token.
func (srv *Server) serveOthers(others http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isCall(w, r) {
			return
		}
		var err error
		if r.URL.Path != healthpb.Health_Check_FullMethodName {
			_, err = srv.identifyRequest(r)
		}
		if err == nil {
			var leave func()
			leave, err = srv.enter(r)
			defer leave()
		}
		if err != nil {
			known := srv.knownError(protoGRPC, err)
			srv.config.Guard.DelayRefusal(r.Context(), known)
			endCall(w, statusError(resultOf(known.Kind), known))
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, otherCallBytes)
		others.ServeHTTP(w, r)
	})
}

// codeStreams is the code for calls beyond maxCalls or maxWatches.
const codeStreams = "streams_too_many"

// openCalls counts the open calls.
type openCalls struct{ all, watches atomic.Int64 }

// enter counts a call until leave is called. It returns an error if there are too many.
func (srv *Server) enter(r *http.Request) (leave func(), err error) {
	leave = func() { srv.open.all.Add(-1) }
	what, most := "calls", maxCalls
	full := srv.open.all.Add(1) > maxCalls
	if r.URL.Path == healthpb.Health_Watch_FullMethodName {
		leave = func() { srv.open.all.Add(-1); srv.open.watches.Add(-1) }
		if srv.open.watches.Add(1) > maxWatches && !full {
			what, most, full = "calls of Watch", maxWatches, true
		}
	}
	if !full {
		return leave, nil
	}
	refused := telemetry.Errorf(telemetry.Quota, codeStreams, "%d %s are open, which is the maximum of all clients together; end some, or try again later", most, what)
	refused.RetryAfter = time.Second
	return leave, refused
}

// endCall ends a call with the status of err.
func endCall(w http.ResponseWriter, err error) {
	w.WriteHeader(http.StatusOK) // if nothing was sent yet
	s := status.Convert(err)
	h := w.Header()
	h[http.TrailerPrefix+"Grpc-Status"] = []string{strconv.Itoa(int(s.Code()))}
	if s.Code() == codes.OK {
		return
	}
	h[http.TrailerPrefix+"Grpc-Message"] = []string{url.PathEscape(s.Message())}
	if len(s.Proto().GetDetails()) > 0 {
		if encoded, err := proto.Marshal(s.Proto()); err == nil { // its texts are UTF-8
			h[http.TrailerPrefix+"Grpc-Status-Details-Bin"] = []string{base64.RawStdEncoding.EncodeToString(encoded)}
		}
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

func allRefused(response *telemetrypb.WriteResponse) string {
	first := response.GetErrors()[0]
	return fmt.Sprintf("all %d readings were refused; reading %d: %s: %s",
		response.GetRejected(), first.GetIndex(), first.GetCode(), first.GetMessage())
}

// withDetails adds details, which can always be encoded because their texts are UTF-8.
func withDetails(s *status.Status, details ...protoadapt.MessageV1) error {
	if detailed, err := s.WithDetails(details...); err == nil {
		return detailed.Err()
	}
	return s.Err()
}

// Why a gRPC call was ended early, see brim_ingest_grpc_ended_total.
const (
	endHalfOpen = "half_open" // the rest of a message did not arrive
	endUnread   = "unread"    // answers were not read
	endNoRoom   = "no_room"   // other requests hold all the memory
	endSlow     = "slow"      // a message arrived slowly while others waited for its memory
)
