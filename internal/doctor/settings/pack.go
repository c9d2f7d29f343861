package settings

import (
	"fmt"

	"github.com/golang/snappy"
	"github.com/klauspost/compress/zstd"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/brim-telemetry/brim/internal/store"
)

// How the engine lays a collection out, as in the creationString of a
// collection: a leaf page is written as one block, in whole units; with a
// compressor a block holds as many documents as make a page after compression,
// but not more than four pages before it.
const (
	leafPage  = 32 << 10
	mostImage = 4 * leafPage
	unit      = 4 << 10
	// zstdLevel is the engine's own.
	zstdLevel = 6
)

// pack returns the bytes of the blocks that documents, in this order, take with
// each compressor.
func pack(documents []bson.Raw) (map[store.Compressor]int, error) {
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.EncoderLevelFromZstd(zstdLevel)))
	if err != nil {
		return nil, fmt.Errorf("set up zstd: %w", err)
	}
	defer encoder.Close() //nolint:errcheck // nothing is written to it
	return map[store.Compressor]int{
		store.NoneCompressor: blocks(documents, func(_, image []byte) []byte { return image }),
		store.Snappy:         blocks(documents, snappy.Encode),
		store.Zstd:           blocks(documents, func(place, image []byte) []byte { return encoder.EncodeAll(image, place[:0]) }),
	}, nil
}

// blocks adds up the sizes of the blocks. compress may use the place that it is
// given.
func blocks(documents []bson.Raw, compress func(place, image []byte) []byte) int {
	var image []byte
	place := make([]byte, 2*mostImage)
	total, wanted := 0, leafPage
	write := func() {
		if len(image) == 0 {
			return
		}
		packed := len(compress(place, image))
		wanted = min(max(leafPage*len(image)/packed, leafPage), mostImage)
		total += (min(packed, len(image)) + unit - 1) / unit * unit // a block that grows stays as it is
		image = image[:0]
	}
	for _, d := range documents {
		if len(image)+len(d) > wanted {
			write()
		}
		image = append(image, d...)
	}
	write()
	return total
}
