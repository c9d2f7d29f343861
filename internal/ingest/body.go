package ingest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// freeInflation is how much anything may inflate to, whatever its ratio.
const freeInflation = 1 << 20

// maxWindow bounds the memory of a zstd decoder. 8 MiB is what RFC 8878 asks
// every decoder to support, and what level 19 uses.
const maxWindow = 8 << 20

// turnBytes is after how much of a body others get their turn at the processor.
// Without it they wait for 10 ms behind each large body, until the scheduler ends
// its turn; small requests never come so far.
const turnBytes = 64 << 10

// A body is a request's body, inflated and limited. Its errors are
// *telemetry.Error and final.
type body struct {
	wire  *wireBody
	plain io.Reader // inflates wire
	lease *lease    // of the request; nil where it is too small to need one
	name  string    // of the encoding
	pools *inflaters
	gzip  *gzip.Reader  // to give back; may be nil
	zstd  *zstd.Decoder // to give back; may be nil

	hash     *xxhash.Digest // of what was read; nil without an Idempotency-Key
	ctx      context.Context
	inflated inflation
	err      error
}

// openBody readies what was received for reading; close must be called.
func (srv *Server) openBody(ctx context.Context, wire *wireBody) (*body, error) {
	b := new(body)
	if err := srv.openInto(ctx, b, wire); err != nil {
		return nil, err
	}
	return b, nil
}

// openInto is openBody with memory of the caller's.
func (srv *Server) openInto(ctx context.Context, b *body, wire *wireBody) error {
	*b = body{
		wire:     wire,
		lease:    wire.lease,
		pools:    &srv.pools,
		ctx:      ctx,
		inflated: srv.config.bodyInflation(wire.encoding),
	}
	if err := b.inflate(wire.encoding); err != nil {
		b.close()
		return err
	}
	return nil
}

// bodyInflation bounds a body of this encoding; one that has none is read as it is.
func (c *Config) bodyInflation(encoding string) inflation {
	if encoding == "" {
		return inflation{free: c.MaxInflatedBytes, most: c.MaxInflatedBytes}
	}
	return inflation{free: freeInflation, ratio: c.MaxInflateRatio, most: c.MaxInflatedBytes}
}

// encodingOf returns the encoding of a body: gzip, zstd, or none.
func encodingOf(r *http.Request) (string, error) {
	given := r.Header["Content-Encoding"]
	if len(given) == 0 {
		return "", nil
	}
	name := strings.ToLower(strings.TrimSpace(strings.Join(given, ",")))
	switch name {
	case "", "identity":
		return "", nil
	case "gzip", "x-gzip":
		return "gzip", nil
	case "zstd":
		return name, nil
	}
	return "", telemetry.Errorf(telemetry.Unsupported, codeEncodingUnknown,
		"Content-Encoding %s cannot be read; allowed is one of gzip, zstd, identity", telemetry.Quote([]byte(name)))
}

// inflate sets plain according to the encoding.
func (b *body) inflate(encoding string) error {
	b.name, b.plain = encoding, b.wire
	switch encoding {
	case "gzip":
		b.gzip = b.pools.getGzip()
		b.plain = &lazyGzip{unzip: b.gzip, src: b.wire}
	case "zstd":
		return b.inflateZstd()
	}
	return nil
}

func (b *body) inflateZstd() error {
	if err := b.afford(); err != nil {
		return err
	}
	unzstd, err := b.pools.getZstd()
	if err != nil {
		return fmt.Errorf("make zstd decoder: %w", err)
	}
	b.zstd, b.plain = unzstd, unzstd
	if err := unzstd.Reset(b.wire); err != nil {
		return fmt.Errorf("reset zstd decoder: %w", err)
	}
	return nil
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	n, err := b.plain.Read(p)
	turn := b.inflated.out / turnBytes
	within := b.inflated.add(n, b.consumed())
	if b.inflated.out/turnBytes > turn {
		runtime.Gosched()
	}
	switch {
	case !within:
		n, b.err = 0, b.tooLarge()
	case errors.Is(err, io.EOF):
		b.err = io.EOF
	case err != nil:
		b.err = b.explain(err)
	default:
		b.err = b.afford()
	}
	if b.err != nil && !errors.Is(b.err, io.EOF) {
		n = 0
	}
	if b.hash != nil {
		_, _ = b.hash.Write(p[:n]) // a hash takes everything
	}
	return n, b.err
}

// consumed is how much of the wire was read.
func (b *body) consumed() int64 {
	if b.wire == nil {
		return 0
	}
	return b.wire.read
}

func (b *body) tooLarge() error {
	if b.inflated.out <= b.inflated.most {
		return telemetry.Errorf(telemetry.TooLarge, codeRatio,
			"the first %d bytes of the body, of %d, inflate to more than %d times as many (--max-inflate-ratio); nothing was taken",
			b.consumed(), b.wire.length, b.inflated.ratio)
	}
	return telemetry.Errorf(telemetry.TooLarge, codeInflated,
		"the body inflates to more than %d bytes (--max-inflated-bytes); nothing was taken, send smaller requests", b.inflated.most)
}

// explain turns an error of reading or inflating into one for the client.
func (b *body) explain(err error) error {
	var known *telemetry.Error
	if errors.As(err, &known) {
		return known
	}
	e := &telemetry.Error{Kind: telemetry.Invalid, Code: codeEncodingBroken, Err: err}
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		e.Code, e.Message = codeCutOff, "the "+b.name+" body is cut off; nothing was taken"
	case errors.Is(err, zstd.ErrWindowSizeExceeded), errors.Is(err, zstd.ErrDecoderSizeExceeded):
		e.Message = "the zstd body needs a window larger than 8 MiB; compress it without --long"
	default:
		e.Message = "the body is not valid " + b.name + "; nothing was taken"
	}
	return e
}

// drain reads on to the end, to see whether the body is whole and within its
// limits when inflated: those faults are told before any of its contents.
func (b *body) drain() error {
	_, err := io.Copy(io.Discard, b)
	return err
}

// close gives back what the body holds; the body cannot be read any more.
func (b *body) close() {
	b.err = io.ErrClosedPipe
	if b.gzip != nil {
		b.pools.putGzip(b.gzip)
	}
	if b.zstd != nil && b.inflated.out <= freeInflation { // else it keeps a large window
		b.pools.putZstd(b.zstd)
	}
	b.gzip, b.zstd = nil, nil
}

// afford extends the lease if the body needs more by now than was foreseen.
func (b *body) afford() error {
	if b.lease == nil {
		return nil
	}
	needs := bodyCost(b.wire.length, b.inflated.out)
	if b.name == "zstd" {
		needs += zstdCost
	}
	if needs <= b.lease.size {
		return nil
	}
	return b.lease.reach(b.ctx, needs)
}

// lazyGzip reads the header of a gzip body with its first bytes, so that faults
// of the header come to light like all others.
type lazyGzip struct {
	unzip  *gzip.Reader
	src    io.Reader
	opened bool
}

// Read implements io.Reader.
func (l *lazyGzip) Read(p []byte) (int, error) {
	if !l.opened {
		if err := l.unzip.Reset(l.src); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF // an empty body is no gzip
			}
			return 0, err
		}
		l.opened = true
	}
	return l.unzip.Read(p)
}

// A body is received whole before it is inflated and decoded. Until its first
// bytes have come it holds nothing but firstBytes, for there may be as many of
// them as connections; then it takes its lease of the budget.
const (
	firstBytes = 4 << 10
	chunkBytes = 64 << 10
)

// A receiver takes bodies from the wire.
type receiver struct {
	limit    int64 // of one body
	inflated int64 // the most that it may inflate to
	budget   *budget
	pace     pace
	firsts   sync.Pool // of *[firstBytes]byte
	chunks   sync.Pool // of *[chunkBytes]byte
}

func newReceiver(limit, inflated int64, b *budget) *receiver {
	return &receiver{limit: limit, inflated: inflated, budget: b}
}

// foreseen estimates how much memory a body of this length will take.
func (v *receiver) foreseen(encoding string, length int64) int64 {
	switch encoding {
	case "":
		return bodyCost(length, length)
	case "zstd":
		return min(v.budget.most(), zstdCost+bodyCost(length, min(v.inflated, usualRatio*length)))
	}
	return min(v.budget.most(), bodyCost(length, min(v.inflated, usualRatio*length)))
}

// A wireBody is a body as it was sent, to be read once. free must be called.
type wireBody struct {
	from     *receiver
	encoding string
	start    *[firstBytes]byte // holds all while there is no chunk
	chunks   []*[chunkBytes]byte
	first    [1]*[chunkBytes]byte // holds chunks while there is one
	length   int64
	read     int64
	lease    *lease    // of the request
	coming   *incoming // nil while it holds nothing
	pacer    pacer
}

// receive reads the whole body of r. What it returns is never nil: on an error
// it tells how much came.
func (v *receiver) receive(r *http.Request) (*wireBody, error) {
	w := new(wireBody)
	return w, v.receiveInto(w, &lease{of: v.budget}, r, nil)
}

// receiveInto is receive with memory and a lease of the caller, which the caller
// releases. The connection that to answers on gets the deadlines of the pace; nil:
// any pace will do.
func (v *receiver) receiveInto(w *wireBody, l *lease, r *http.Request, to http.ResponseWriter) (err error) {
	*w = wireBody{from: v, lease: l}
	w.chunks = w.first[:0]
	if w.encoding, err = encodingOf(r); err != nil {
		return err
	}
	if r.ContentLength > v.limit {
		return errBodyTooLarge(v.limit)
	}
	p := &w.pacer
	p.pace = v.pace
	if to != nil && r.ContentLength != 0 {
		p.control = http.NewResponseController(to)
	}
	p.begin()
	defer w.whole()
	for {
		if err := w.makeRoom(r); err != nil {
			p.end()
			return err
		}
		n, err := r.Body.Read(w.room())
		w.length += int64(n)
		switch {
		case w.length > v.limit:
			p.end()
			return errBodyTooLarge(v.limit)
		case errors.Is(err, io.EOF):
			w.whole()
			p.end()
			l.keep(v.foreseen(w.encoding, w.length))
			return nil
		case err != nil:
			return p.explain(err)
		}
		p.came(w.length)
		if w.coming != nil {
			w.coming.came.Store(w.length)
			if p.awaited.Load() { // behind came, which may have moved the deadline of giveUp
				return errAwaited()
			}
		}
	}
}

// makeRoom makes sure that there is room for what comes next.
func (w *wireBody) makeRoom(r *http.Request) error {
	v := w.from
	switch {
	case w.start == nil && len(w.chunks) == 0:
		var ok bool
		if w.start, ok = v.firsts.Get().(*[firstBytes]byte); !ok {
			w.start = new([firstBytes]byte)
		}
	case w.start != nil && w.length == firstBytes:
		length := r.ContentLength
		if length < 0 {
			length = min(chunkBytes, v.limit)
		}
		if err := w.reserve(r, length); err != nil {
			return err
		}
		copy(w.addChunk()[:], w.start[:])
		v.firsts.Put(w.start)
		w.start = nil
	case w.length == chunkBytes && r.ContentLength < 0:
		return w.reserve(r, v.limit)
	}
	return nil
}

// reserve takes the lease of a body of this length.
func (w *wireBody) reserve(r *http.Request, length int64) error {
	w.whole() // waiting here does not count against its pace
	err := w.lease.reach(r.Context(), w.from.foreseen(w.encoding, length))
	if err != nil || w.lease.size == 0 {
		return err
	}
	w.coming = &incoming{size: w.lease.size, since: time.Now(), end: w.pacer.giveUp}
	w.from.budget.comes(w.coming)
	return nil
}

// whole notes that the body is complete, or no longer expected.
func (w *wireBody) whole() {
	if w.coming != nil {
		w.from.budget.gone(w.coming)
		w.coming = nil
	}
}

// room returns where the next bytes go. One chunk more than allowed tells a full
// body from one that is too large.
func (w *wireBody) room() []byte {
	if w.start != nil {
		return w.start[w.length:]
	}
	used := w.length % chunkBytes
	if w.length == int64(len(w.chunks))*chunkBytes {
		w.addChunk()
	}
	return w.chunks[len(w.chunks)-1][used:]
}

func (w *wireBody) addChunk() *[chunkBytes]byte {
	chunk, ok := w.from.chunks.Get().(*[chunkBytes]byte)
	if !ok {
		chunk = new([chunkBytes]byte)
	}
	w.chunks = append(w.chunks, chunk)
	return chunk
}

// Read implements io.Reader.
func (w *wireBody) Read(p []byte) (int, error) {
	if w.read == w.length {
		return 0, io.EOF
	}
	at := w.read % chunkBytes
	var piece []byte
	if w.start != nil {
		piece = w.start[at:w.length]
	} else {
		piece = w.chunks[w.read/chunkBytes][at:min(chunkBytes, at+w.length-w.read)]
	}
	n := copy(p, piece)
	w.read += int64(n)
	return n, nil
}

// free gives back the body's buffers. It may be called again.
func (w *wireBody) free() {
	for _, c := range w.chunks {
		w.from.chunks.Put(c)
	}
	if w.start != nil {
		w.from.firsts.Put(w.start)
	}
	w.start, w.chunks, w.read, w.length = nil, nil, 0, 0
}

func errBodyTooLarge(limit int64) error {
	return telemetry.Errorf(telemetry.TooLarge, codeBodyTooLarge,
		"the body is larger than %d bytes (--max-body-bytes); nothing was taken, send smaller requests or compress them", limit)
}

// A pace is how fast a body must come. Nothing is asked of it for a while; from
// then on as much as the rate must have come for every second. Beyond a chunk it
// holds room that others wait for, and must be heavyRate times as fast.
type pace struct {
	grace time.Duration
	rate  int64 // bytes a second; 0: any
}

// heavyRate is how many times faster the part of a body must come for which room
// is reserved: 32 KiB/s with the default rate, so that 8 MiB take 6 minutes at
// most, grace and first chunk included.
const heavyRate = 32

// until returns when more must have come of a body that began to be read at
// start, and of which length bytes have come.
func (p pace) until(start time.Time, length int64) time.Time {
	light, heavy := min(length, chunkBytes), max(0, length-chunkBytes)
	return start.Add(p.grace + seconds(light, p.rate) + seconds(heavy, p.rate*heavyRate))
}

func seconds(bytes, rate int64) time.Duration {
	return time.Duration(float64(bytes) / float64(rate) * float64(time.Second))
}

// A readDeadline is that of a connection, or of one call on it.
type readDeadline interface{ SetReadDeadline(t time.Time) error }

// A pacer holds one body to its pace, by the deadline of its connection.
type pacer struct {
	pace    pace
	control readDeadline // nil: the connection has no deadline
	start   time.Time
	set     time.Time   // deadline; zero: none
	awaited atomic.Bool // others wait for the memory
}

// begin sets the first deadline.
func (p *pacer) begin() {
	if p.pace.rate == 0 || p.control == nil {
		p.control = nil
		return
	}
	p.start = time.Now()
	p.move(0)
}

// came moves the deadline, if that is worth it.
func (p *pacer) came(length int64) {
	const step = time.Second // of deadlines; to move one costs as much as to decode a reading
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

// end takes the deadline away: what comes behind the body is watched for as long
// as its answer takes.
func (p *pacer) end() {
	if p.control != nil {
		_ = p.control.SetReadDeadline(time.Time{}) // it could be set before
	}
}

// giveUp aborts the body, because others wait for its memory. Any goroutine may
// call it while the body is being received.
func (p *pacer) giveUp() {
	p.awaited.Store(true)
	if p.control != nil {
		_ = p.control.SetReadDeadline(time.Unix(1, 0)) // it could be set before
	}
}

// explain turns an error of reading a body into one for its sender.
func (p *pacer) explain(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		if p.awaited.Load() {
			return errAwaited()
		}
		return &telemetry.Error{
			Kind: telemetry.TooSlow, Code: codeTooSlow, Err: err,
			Message: "the body came too slowly; nothing was taken, send smaller requests",
		}
	}
	return &telemetry.Error{Kind: telemetry.Invalid, Code: codeCutOff, Message: "the body did not arrive whole; nothing was taken", Err: err}
}

func errAwaited() error {
	return telemetry.Errorf(telemetry.TooSlow, codeTooSlow,
		"the body arrived too slowly while other requests waited for the memory it held (--ingest-max-bytes); nothing was taken, send smaller requests")
}

// An inflation bounds what comes out of a decompressor, by itself and by what has
// gone in until then: so a bomb is known by its first MiB, whatever its length.
// Who pads it to what the ratio asks for sends what an honest body may be.
type inflation struct {
	free  int64 // what anything may become
	ratio int64 // what each byte may become, beyond that
	most  int64 // what anything may become at most
	out   int64 // has come out
}

// limit returns what may come out of in bytes.
func (i *inflation) limit(in int64) int64 { return min(i.most, max(i.free, i.ratio*in)) }

// add counts n bytes that came out, when in had gone in, and reports whether
// that many may.
func (i *inflation) add(n int, in int64) bool {
	i.out += int64(n)
	return i.out <= i.limit(in)
}

// inflaters keeps what inflates between requests: tens of KiB for gzip, up to
// two windows for zstd.
type inflaters struct{ gzip, zstd sync.Pool }

func (p *inflaters) getGzip() *gzip.Reader {
	if r, ok := p.gzip.Get().(*gzip.Reader); ok {
		return r
	}
	return new(gzip.Reader)
}

func (p *inflaters) putGzip(r *gzip.Reader) {
	// The end of an empty reader is no fault: this only lets go of the body.
	if errors.Is(r.Reset(strings.NewReader("")), io.EOF) {
		p.gzip.Put(r)
	}
}

func (p *inflaters) getZstd() (*zstd.Decoder, error) {
	if r, ok := p.zstd.Get().(*zstd.Decoder); ok {
		return r, nil
	}
	// With a concurrency of 1 it starts no goroutine.
	return zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
}

func (p *inflaters) putZstd(r *zstd.Decoder) {
	if r.Reset(nil) == nil { // lets go of the body
		p.zstd.Put(r)
	}
}
