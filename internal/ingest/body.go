package ingest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/golang/snappy"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A payload is what readings are decoded from: the body of a request over HTTP, or a
// message of a gRPC call. Its memory is reserved before it is read:
//
//	reserve ─▶ read ─▶ inflate ─▶ decode ─▶ free
type payload struct {
	server *Server
	pacer  *pacer
	lease  lease
	data   []byte
	buffer *[]byte // from the pool; holds data

	// While the payload is being read and holds a lease, it is a transfer of the budget.
	transferred bool
	since       time.Time
	received    atomic.Int64 // bytes
}

const (
	// firstBytes of a body are read before memory is reserved for it. Otherwise every
	// connection that has only begun a request would hold a lease.
	firstBytes = 4 << 10
	// chunkBytes is how much a body of unknown length reserves first, and how much is read
	// between two checks of the pace.
	chunkBytes = 64 << 10
	// freeInflation is the size to which a body may inflate at any ratio.
	freeInflation = 1 << 20
	// maxWindow bounds the memory of a zstd decoder. RFC 8878 requires every decoder to
	// support 8 MiB, which is also what level 19 uses.
	maxWindow = 8 << 20
)

// reserve waits until the lease has this size.
func (p *payload) reserve(ctx context.Context, cost int64) error {
	p.endTransfer() // the sender is not slow while the daemon waits for memory
	if p.lease.try(cost) {
		return nil
	}
	p.pacer.end()
	defer p.pacer.begin()
	return p.lease.reach(ctx, cost)
}

// beginTransfer notes that the payload is being read. Requests that wait for its memory may
// abort the read if it is slow.
func (p *payload) beginTransfer() {
	b := p.server.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	p.since, p.transferred = time.Now(), true
	b.transfers[p] = struct{}{}
}

// endTransfer notes that the payload is complete, or not being read any more.
func (p *payload) endTransfer() {
	if p.transferred {
		b := p.server.budget
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.transfers, p)
		p.transferred = false
	}
}

// grow makes the buffer at least this large.
func (p *payload) grow(size int64) {
	if p.buffer != nil && int64(cap(*p.buffer)) >= size {
		return
	}
	buffer := p.server.buffers.get(size)
	p.data = (*buffer)[:copy(*buffer, p.data)]
	p.server.buffers.put(p.buffer)
	p.buffer = buffer
}

// read reads until the data has this length, which the buffer must have, or src ends.
func (p *payload) read(src io.Reader, length int64) error {
	for have := int64(len(p.data)); have < length; {
		n, err := src.Read((*p.buffer)[have:min(length, have+chunkBytes)])
		have += int64(n)
		p.data = (*p.buffer)[:have]
		if have == length && (err == nil || errors.Is(err, io.EOF)) || err != nil {
			return err
		}
		p.pacer.received(have)
		p.received.Store(have)
		if p.transferred && p.pacer.awaited.Load() { // checked last, because pacer.received may have moved the deadline that abort set
			return os.ErrDeadlineExceeded
		}
	}
	return nil
}

// free returns the memory of the data to the pool, but keeps the lease. It may be called
// again.
func (p *payload) free() {
	p.server.buffers.put(p.buffer)
	p.data, p.buffer = nil, nil
}

// receive reads and inflates the body of the request.
func (x *exchange) receive() error {
	encoding, err := x.encoding()
	if err != nil {
		return err
	}
	srv, p := x.server, &x.payload
	if x.r.ContentLength > srv.config.MaxBodyBytes {
		return errBodyTooLarge(srv.config.MaxBodyBytes)
	}
	x.pacer.pace = srv.pace
	if x.r.ContentLength != 0 {
		x.pacer.control = http.NewResponseController(x.w)
	}
	x.pacer.begin()
	err = p.readBody(x.r, encoding)
	p.endTransfer()
	if err != nil {
		return err
	}
	x.pacer.end()
	p.lease.keep(srv.estimateCost(encoding, int64(len(p.data))))
	if encoding == "" {
		return nil
	}
	return p.inflateBody(x.r.Context(), encoding)
}

// readBody reads the whole body of a request.
func (p *payload) readBody(r *http.Request, encoding string) error {
	known, limit := r.ContentLength, p.server.config.MaxBodyBytes
	size := int64(firstBytes)
	for {
		p.grow(size)
		if known >= 0 {
			size = min(size, known)
		} else {
			size = min(size, limit+1) // one byte more reveals a body that is too long
		}
		err := p.read(r.Body, size)
		have := int64(len(p.data))
		switch {
		case have > limit:
			p.pacer.end()
			return errBodyTooLarge(limit)
		case errors.Is(err, io.EOF) || err == nil && have == known:
			return nil
		case err != nil:
			return p.pacer.explain(err)
		}
		// The body is longer than the memory reserved for it.
		length := known
		switch {
		case known >= 0:
			size = known
		case have < chunkBytes:
			size, length = chunkBytes, min(chunkBytes, limit)
		default:
			size, length = 2*have, limit
		}
		if err := p.reserve(r.Context(), p.server.estimateCost(encoding, length)); err != nil {
			p.pacer.end()
			return err
		}
		if p.lease.size > 0 {
			p.beginTransfer()
		}
	}
}

// estimateCost estimates how much memory a body of this length will take.
func (srv *Server) estimateCost(encoding string, length int64) int64 {
	inflated := min(srv.config.MaxInflatedBytes, usualRatio*length)
	if encoding == "" {
		return bodyCost(length, length)
	}
	return min(srv.budget.most(), windowCost(encoding)+bodyCost(length, inflated))
}

// encoding returns the content encoding of the body; empty: none.
func (x *exchange) encoding() (string, error) {
	name := strings.ToLower(strings.TrimSpace(strings.Join(x.r.Header["Content-Encoding"], ",")))
	allowed := "gzip, zstd, identity"
	switch remote := x.protocol == protoRemote; {
	case remote && (name == "" || name == encodingSnappy): // some senders omit it
		return encodingSnappy, nil
	case remote:
		allowed = encodingSnappy
	case name == "" || name == "identity":
		return "", nil
	case name == "gzip" || name == "x-gzip":
		return "gzip", nil
	case name == "zstd":
		return name, nil
	}
	return "", telemetry.Errorf(telemetry.Unsupported, codeEncodingUnknown,
		"Content-Encoding %s cannot be read; allowed: %s", telemetry.Quote([]byte(name)), allowed)
}

// windowCost is the memory of a decompressor without its input and output.
func windowCost(encoding string) int64 {
	if encoding == "zstd" {
		return zstdCost
	}
	return 0
}

// inflateBody replaces the body with its inflated content.
func (p *payload) inflateBody(ctx context.Context, encoding string) error {
	c := &p.server.config
	// The gzip reader reports fewer than ten bytes as cut off, whatever they are.
	foreign := encoding == "gzip" && !bytes.HasPrefix(p.data, []byte("\x1f\x8b")[:min(2, len(p.data))])
	limit := inflation{free: freeInflation, ratio: c.MaxInflateRatio, most: c.MaxInflatedBytes}
	length := len(p.data)
	var err error
	if encoding == encodingSnappy {
		err = p.inflateSnappy(ctx, &limit)
	} else {
		err = p.inflate(ctx, encoding, &limit)
	}
	switch _, known := errors.AsType[*telemetry.Error](err); {
	case err == nil || known:
		return err
	case errors.Is(err, errInflated) && limit.out <= limit.most:
		return telemetry.Errorf(telemetry.TooLarge, codeRatio,
			"the first %d bytes of the body, of %d, inflate to more than %d times as many (--max-inflate-ratio); nothing was accepted",
			limit.in, length, limit.ratio)
	case errors.Is(err, errInflated):
		return telemetry.Errorf(telemetry.TooLarge, codeInflated,
			"the body inflates to more than %d bytes (--max-inflated-bytes); nothing was accepted, send smaller requests", limit.most)
	}
	e := &telemetry.Error{Kind: telemetry.Invalid, Code: codeEncodingBroken, Err: err}
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF) && !foreign:
		e.Code, e.Message = codeCutOff, "the "+encoding+" body is cut off; nothing was accepted"
	case errors.Is(err, zstd.ErrWindowSizeExceeded), errors.Is(err, zstd.ErrDecoderSizeExceeded):
		e.Message = "the zstd body needs a window larger than 8 MiB; compress it without --long"
	default:
		e.Message = "the body is not valid " + encoding + "; nothing was accepted"
	}
	return e
}

// inflate replaces the data with its inflated content. The error is errInflated if that
// exceeds the limit. Content too large for the largest buffer of the pool is inflated
// twice, see inflateLarge.
func (p *payload) inflate(ctx context.Context, encoding string, limit *inflation) error {
	wire, length := bytes.NewReader(p.data), int64(len(p.data))
	window := windowCost(encoding)
	// The largest buffer within the budget.
	affordable := min(limit.most+1, (p.server.budget.most()-window-wireCost*length)/decodedCost)
	size := min(bufferSize(usualRatio/2*length), affordable, largestPooled)
	if err := p.lease.reach(ctx, window+bodyCost(length, size)); err != nil {
		return err
	}
	src, done, err := p.server.inflaters.open(encoding, wire)
	if err != nil {
		return err
	}
	defer func() { done(limit.out <= freeInflation) }()
	out := p.server.buffers.get(size)
	defer func() { p.server.buffers.put(out) }()
	for {
		if limit.out >= largestPooled {
			return p.inflateLarge(ctx, encoding, src, wire, limit)
		}
		if limit.out == int64(len(*out)) { // the buffer is full, but the content may end here
			size = max(min(2*limit.out, affordable), limit.out+1)
			if err := p.lease.reach(ctx, window+bodyCost(length, size)); err != nil {
				return err
			}
			grown := p.server.buffers.get(size)
			copy(*grown, *out)
			p.server.buffers.put(out)
			out = grown
		}
		n, err := src.Read((*out)[limit.out:])
		turn := limit.out / turnBytes
		within := limit.add(n, length-int64(wire.Len()))
		switch {
		case !within:
			return errInflated
		case errors.Is(err, io.EOF):
			p.data = (*out)[:limit.out]
			p.buffer, out = out, p.buffer
			return nil
		case err != nil:
			return err
		}
		if limit.out/turnBytes > turn {
			runtime.Gosched()
		}
	}
}

// encodingSnappy is the encoding of remote write.
const encodingSnappy = "snappy"

// inflateSnappy is like inflate for the snappy block format. A block begins with the length of
// its content, which cannot be more than 22 times that of the block.
func (p *payload) inflateSnappy(ctx context.Context, limit *inflation) error {
	const maxRatio = 22
	length, err := snappy.DecodedLen(p.data)
	if err != nil || length/maxRatio > len(p.data) {
		return snappy.ErrCorrupt
	}
	if !limit.add(length, len64(p.data)) {
		return errInflated
	}
	if err := p.lease.reach(ctx, bodyCost(len64(p.data), limit.out)); err != nil {
		return err
	}
	out := p.server.buffers.get(limit.out)
	defer func() { p.server.buffers.put(out) }()
	if len(*out) > largestPooled {
		// Decode cannot be preempted. This buffer is new, and the first access to its pages takes
		// several times as long as decoding.
		for part := range slices.Chunk(*out, turnBytes) {
			clear(part)
			runtime.Gosched()
		}
	}
	content, err := snappy.Decode(*out, p.data)
	if err != nil {
		return err
	}
	p.data = content
	p.buffer, out = out, p.buffer
	return nil
}

func len64(b []byte) int64 { return int64(len(b)) }

// inflateLarge continues to inflate from src, but only counts, so that a bomb takes no
// memory. Then it inflates all of the data again, into a buffer of the right size.
func (p *payload) inflateLarge(ctx context.Context, encoding string, src io.Reader, wire *bytes.Reader, limit *inflation) error {
	scratch := p.server.buffers.get(turnBytes)
	defer p.server.buffers.put(scratch)
	length := int64(len(p.data))
	for more := true; more; runtime.Gosched() {
		n, err := src.Read(*scratch)
		if !limit.add(n, length-int64(wire.Len())) {
			return errInflated
		}
		if more = err == nil; !more && !errors.Is(err, io.EOF) {
			return err
		}
	}
	if err := p.lease.reach(ctx, windowCost(encoding)+bodyCost(length, limit.out)); err != nil {
		return err
	}
	src, done, err := p.server.inflaters.open(encoding, bytes.NewReader(p.data))
	if err != nil {
		return err
	}
	defer done(false)
	buffer := make([]byte, limit.out)
	for at := 0; at < len(buffer); at += turnBytes {
		if _, err := io.ReadFull(src, buffer[at:min(at+turnBytes, len(buffer))]); err != nil {
			return err
		}
		runtime.Gosched()
	}
	p.server.buffers.put(p.buffer)
	p.data, p.buffer = buffer, &buffer
	return nil
}

// turnBytes is how much is inflated before the goroutine yields the CPU. Otherwise others
// would wait 10 ms, until the scheduler preempts it.
const turnBytes = 64 << 10

var errInflated = errors.New("inflated beyond the limit")

func errBodyTooLarge(limit int64) error {
	return telemetry.Errorf(telemetry.TooLarge, codeBodyTooLarge,
		"the body is larger than %d bytes (--max-body-bytes); nothing was accepted, send smaller requests or compress them", limit)
}

// A pace is how fast a body must arrive: after the grace period, rate bytes must have arrived
// for every second. After the first chunk the body holds memory that others may wait for,
// and must arrive heavyRate times as fast.
type pace struct {
	grace time.Duration
	rate  int64 // bytes a second; 0: any
}

// heavyRate is how many times faster a body must arrive after its first chunk: 32 KiB/s with
// the default rate, so that 8 MiB take at most 6 minutes, including grace and first chunk.
const heavyRate = 32

// until returns the deadline for more bytes of a body that is being read since start, when
// length bytes have arrived.
func (p pace) until(start time.Time, length int64) time.Time {
	light, heavy := min(length, chunkBytes), max(0, length-chunkBytes)
	return start.Add(p.grace + seconds(light, p.rate) + seconds(heavy, p.rate*heavyRate))
}

func seconds(bytes, rate int64) time.Duration {
	return time.Duration(float64(bytes) / float64(rate) * float64(time.Second))
}

// A readDeadline is a connection, or one call on it.
type readDeadline interface{ SetReadDeadline(t time.Time) error }

// A pacer enforces the pace of one body by the read deadline of its connection.
type pacer struct {
	pace    pace
	control readDeadline // nil: the connection has no deadline
	start   time.Time
	set     time.Time   // current deadline; zero: none
	awaited atomic.Bool // abort was called: others wait for the memory
}

// begin sets the first deadline.
func (p *pacer) begin() {
	p.awaited.Store(false) // it was about an earlier message
	if p.pace.rate == 0 || p.control == nil {
		p.control = nil
		return
	}
	p.start = time.Now()
	p.move(0)
}

// received moves the deadline, unless that would change little.
func (p *pacer) received(length int64) {
	const step = time.Second // moving a deadline costs as much as decoding a reading
	if p.control != nil && p.pace.until(p.start, length).Sub(p.set) > min(step, p.pace.grace) {
		p.move(length)
	}
}

func (p *pacer) move(length int64) {
	p.set = p.pace.until(p.start, length)
	if p.control.SetReadDeadline(p.set) != nil {
		p.control = nil // not a connection
	}
}

// end removes the deadline, because net/http keeps reading from the connection while the
// request is answered.
func (p *pacer) end() {
	if p.control != nil {
		_ = p.control.SetReadDeadline(time.Time{}) // it could be set before
	}
}

// abort aborts reading the body, because others wait for its memory. Any goroutine may call
// it while the body is being read.
func (p *pacer) abort() {
	p.awaited.Store(true)
	if p.control != nil {
		_ = p.control.SetReadDeadline(time.Unix(1, 0)) // it could be set before
	}
}

// explain turns an error of reading a body into one for the client.
func (p *pacer) explain(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		if p.awaited.Load() {
			return telemetry.Errorf(telemetry.TooSlow, codeTooSlow,
				"the body arrived too slowly while other requests waited for the memory it held (--ingest-max-bytes); nothing was accepted, send smaller requests")
		}
		return &telemetry.Error{
			Kind: telemetry.TooSlow, Code: codeTooSlow, Err: err,
			Message: "the body came too slowly; nothing was accepted, send smaller requests",
		}
	}
	return &telemetry.Error{Kind: telemetry.Invalid, Code: codeCutOff, Message: "the body did not arrive whole; nothing was accepted", Err: err}
}

// An inflation bounds the output of a decompressor, absolutely and relative to the input
// so far, so that a bomb is detected within its first MiB, whatever its length.
type inflation struct {
	free  int64 // output allowed at any ratio
	ratio int64 // output allowed per byte of input, beyond free
	most  int64 // maximum output
	in    int64 // input so far
	out   int64 // output so far
}

// add counts n bytes of output after in bytes of input, and reports whether the output is
// still within the limits.
func (i *inflation) add(n int, in int64) bool {
	i.in, i.out = in, i.out+int64(n)
	return i.out <= min(i.most, max(i.free, i.ratio*in))
}

// inflaters keeps decompressors between requests: tens of KiB for gzip, up to two windows
// for zstd.
type inflaters struct {
	gzip pool[gzip.Reader]
	zstd sync.Pool
}

// open returns a decompressor of src. done returns it to the pool, unless it has grown large.
func (p *inflaters) open(encoding string, src io.Reader) (inflated io.Reader, done func(small bool), err error) {
	if encoding == "zstd" {
		r, ok := p.zstd.Get().(*zstd.Decoder)
		if !ok {
			// With a concurrency of 1 it starts no goroutine.
			r, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
			if err != nil {
				return nil, nil, fmt.Errorf("make zstd decoder: %w", err)
			}
		}
		done = func(small bool) {
			if small && r.Reset(nil) == nil {
				p.zstd.Put(r)
			}
		}
		if err := r.Reset(src); err != nil {
			done(true)
			return nil, nil, err
		}
		return r, done, nil
	}
	r := p.gzip.get()
	done = func(bool) {
		_ = r.Reset(strings.NewReader("")) // fails, but releases src
		p.gzip.put(r)
	}
	if err := r.Reset(src); err != nil {
		done(true)
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF // an empty body is not gzip
		}
		return nil, nil, err
	}
	return r, done, nil
}

// A bufferPool keeps buffers for payloads, in powers of two from firstBytes to
// largestPooled.
type bufferPool struct{ pools [12]sync.Pool }

const largestPooled = firstBytes << 11

// bufferSize returns the size of a buffer for n bytes.
func bufferSize(n int64) int64 {
	if n > largestPooled {
		return n
	}
	return max(firstBytes, int64(1)<<bits.Len64(uint64(n-1)))
}

// of returns the pool for buffers of this size.
func (p *bufferPool) of(size int64) *sync.Pool {
	return &p.pools[bits.TrailingZeros64(uint64(size/firstBytes))]
}

// get returns a buffer of at least n bytes.
func (p *bufferPool) get(n int64) *[]byte {
	size := bufferSize(n)
	if size <= largestPooled {
		if buffer, ok := p.of(size).Get().(*[]byte); ok {
			return buffer
		}
	}
	buffer := make([]byte, size)
	return &buffer
}

// put returns a buffer, which may be nil.
func (p *bufferPool) put(buffer *[]byte) {
	if buffer != nil && len(*buffer) <= largestPooled {
		p.of(int64(len(*buffer))).Put(buffer)
	}
}
