package doctor

import (
	"context"
	"errors"
	"fmt"

	"github.com/golang/snappy"
	"github.com/klauspost/compress/zstd"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/brim-telemetry/brim/internal/store"
)

const (
	// sampleBytes are 32 to 128 blocks, enough for a ratio within a few percent.
	sampleBytes = 4 << 20
	// leastSample is the least from which a ratio means something.
	leastSample = 1 << 20
	// leastData is the uncompressed size from which a change is worthwhile.
	leastData = 16 << 20
	// leastSaving is the share of the file that another compressor must save to be
	// worth a change: zstd costs CPU, and estimates are off by 2 to 18 % of the ratio,
	// measured with collections of 6.0.5.
	leastSaving = 0.2
)

// A trial is the size of a sample's blocks with each compressor.
type trial struct {
	documents int
	bytes     int // before compression
	packed    map[store.Compressor]int
}

// try packs a sample with each compressor. It returns nil and no error where
// zstd is no option anyway, or the sample is too small.
func (f *facts) try(ctx context.Context, s Stream) (*trial, error) {
	c := f.collection(s)
	from := store.Compressor(c.compressor)
	if f.sampleTime <= 0 || from != store.Snappy && from != store.NoneCompressor || !(c.data >= leastData && c.documents > 0) {
		return nil, nil
	}
	limited, cancel := context.WithTimeout(ctx, f.sampleTime)
	defer cancel()
	collection := c.name
	if s.Storage == store.TimeSeries {
		collection = "system.buckets." + collection // what the engine's blocks contain
	}
	documents, err := f.server.aggregate(limited, collection, samplePipeline(c), sampleBytes)
	if err != nil && !errors.Is(limited.Err(), context.DeadlineExceeded) { // otherwise only the time is up
		return nil, fmt.Errorf("read a sample of documents: %w", err)
	}
	t := &trial{documents: len(documents)}
	for _, d := range documents {
		t.bytes += len(d)
	}
	if t.bytes < leastSample {
		return nil, nil
	}
	t.packed, err = pack(documents)
	return t, err
}

// samplePipeline draws documents at random, which is cheap for the server below a
// twentieth of the collection. Above that it would read and sort the whole
// collection, so the first documents have to do.
func samplePipeline(c collection) mongo.Pipeline {
	wanted := max(int64(1.2*sampleBytes/(c.data/c.documents)), 1)
	if float64(wanted)*20 < c.documents {
		return mongo.Pipeline{{{Key: "$sample", Value: bson.D{{Key: "size", Value: wanted}}}}}
	}
	return mongo.Pipeline{{{Key: "$limit", Value: wanted}}}
}

// compressor advises zstd where it saves enough.
func compressor(f *facts) []Finding {
	var out []Finding
	for _, s := range f.streams {
		c, t := f.collection(s), f.trials[s.Name]
		if t == nil {
			continue
		}
		now, then := float64(t.packed[store.Compressor(c.compressor)]), float64(t.packed[store.Zstd])
		if now == 0 || then > (1-leastSaving)*now {
			continue
		}
		used := c.storage - c.free
		left := size(then / now * used)
		out = append(out, advice("compressor", fmt.Sprintf("compressor: stream %s has %s, zstd would leave %.0f %% of its file", s.Name, c.compressor, percent*then/now),
			fmt.Sprintf("%d documents of %s, %s, packed in blocks as the engine does: %s makes %s of them, zstd %s. Of the %s that its file holds now, about %s would be left",
				t.documents, c.name, size(float64(t.bytes)), c.compressor, size(now), size(then), size(used), left),
			"compressor: zstd for the stream in the daemon's configuration, and a restart, for what is written from then on; then brim move "+s.Name+" for the rest",
			fmt.Sprintf("disk for both while brim move runs, about %s; checkpoints took 1.7 times the CPU when measured; daemons keep running", left))...)
	}
	return out
}

// How the engine lays out a collection, according to its creationString: a leaf page
// is one block, in whole units. With a compressor, a block holds as many documents
// as fill a page after compression, but at most four pages before it.
const (
	leafPage  = 32 << 10
	mostImage = 4 * leafPage
	unit      = 4 << 10
	zstdLevel = 6 // the engine's default
)

// pack returns, for each compressor, the bytes of the blocks that hold the documents
// in this order.
func pack(documents []bson.Raw) (map[store.Compressor]int, error) {
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.EncoderLevelFromZstd(zstdLevel)))
	if err != nil {
		return nil, fmt.Errorf("set up zstd: %w", err)
	}
	defer encoder.Close() //nolint:errcheck // nothing is written to it
	return map[store.Compressor]int{
		store.NoneCompressor: blocks(documents, func(_, image []byte) []byte { return image }),
		store.Snappy:         blocks(documents, snappy.Encode),
		store.Zstd:           blocks(documents, func(buffer, image []byte) []byte { return encoder.EncodeAll(image, buffer[:0]) }),
	}, nil
}

// blocks adds up the block sizes. compress may use the buffer.
func blocks(documents []bson.Raw, compress func(buffer, image []byte) []byte) int {
	var image []byte
	buffer := make([]byte, 2*mostImage)
	total, wanted := 0, leafPage
	write := func() {
		if len(image) == 0 {
			return
		}
		packed := len(compress(buffer, image))
		wanted = min(max(leafPage*len(image)/packed, leafPage), mostImage)
		total += (min(packed, len(image)) + unit - 1) / unit * unit // a block that would grow is stored uncompressed
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
