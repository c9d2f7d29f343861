package block

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// A compressed section is the size of its content and a zstd frame. Content that shrinks
// more is not compressed, so that a reader's memory is bounded.
const maxInflation = 12

// Both may be used by any number of goroutines.
var (
	compressor = sync.OnceValues(func() (*zstd.Encoder, error) { //nolint:gochecknoglobals // made once, as its memory is large
		return zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(false), zstd.WithWindowSize(128<<10), zstd.WithSingleSegment(true))
	})
	decompressor = sync.OnceValues(func() (*zstd.Decoder, error) { //nolint:gochecknoglobals // likewise
		return zstd.NewReader(nil, zstd.WithDecodeAllCapLimit(true), zstd.WithDecoderLowmem(true))
	})
)

// appendCompressed appends content as a compressed section. If zstd is not
// available, the result is larger than content, so that callers do not use it.
func appendCompressed(dst, content []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(content)))
	z, err := compressor()
	if err != nil {
		return append(dst, content...) // not smaller
	}
	return z.EncodeAll(content, dst)
}

// decompress returns the content of a compressed section, in memory if there is room.
func decompress(memory, section []byte) ([]byte, error) {
	r := reader{rest: section}
	size := r.size()
	if r.err != nil || size > maxInflation*len(section) {
		return nil, errors.New("the size of a compressed section is missing, or more than 12 times its compressed length")
	}
	z, err := decompressor()
	if err != nil {
		return nil, err
	}
	if cap(memory) < size {
		memory = make([]byte, 0, size)
	}
	content, err := z.DecodeAll(r.rest, memory[:0:size])
	if err != nil {
		return nil, fmt.Errorf("decompress a section: %w", err)
	}
	if len(content) != size {
		return nil, fmt.Errorf("a compressed section has %d bytes of content; its header says %d", len(content), size)
	}
	return content, nil
}
