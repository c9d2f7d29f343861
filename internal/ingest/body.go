package ingest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"

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

	hash     *xxhash.Digest // of what was read; nil where nobody wants to know
	ctx      context.Context
	inflated inflation
	err      error
}

// openBody readies what was received for reading; close must be called.
func (d *Door) openBody(ctx context.Context, wire *wireBody) (*body, error) {
	b := new(body)
	if err := d.openInto(ctx, b, wire); err != nil {
		return nil, err
	}
	return b, nil
}

// openInto is openBody with memory of the caller's.
func (d *Door) openInto(ctx context.Context, b *body, wire *wireBody) error {
	*b = body{
		wire:     wire,
		lease:    wire.lease,
		pools:    &d.pools,
		ctx:      ctx,
		inflated: d.config.bodyInflation(wire.encoding),
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
