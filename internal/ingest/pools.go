package ingest

import (
	"errors"
	"io"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

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
