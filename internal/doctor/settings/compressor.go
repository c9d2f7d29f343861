package settings

import (
	"context"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/brim-telemetry/brim/internal/doctor"
	"github.com/brim-telemetry/brim/internal/store"
)

const (
	// sampleBytes are 32 to 128 blocks, enough for a ratio to a few percent.
	sampleBytes = 4 << 20
	// leastSample is where a ratio begins to mean something.
	leastSample = 1 << 20
	// leastData is the size of a collection, before compression, from which on
	// a move is worth its while.
	leastData = 16 << 20
	// leastSaving is the share of the file from which on another compressor is
	// worth a move: zstd costs CPU, and estimates are off, against collections of
	// 6.0.5 by 2 to 18 % of the ratio.
	leastSaving = 0.2
)

// A trial is what the engine's blocks of a sample would take.
type trial struct {
	documents int
	bytes     int // before compression
	packed    map[store.Compressor]int
}

// worthATrial reports whether zstd could be advised for a collection.
func worthATrial(s Stream, c *collectionSizes) bool {
	from := store.Compressor(c.compressor)
	return s.Storage != store.Memory && (from == store.Snappy || from == store.NoneCompressor) && c.data >= leastData && c.documents > 0
}

// try reads a sample and packs it by each compressor; nil without an error:
// the sample is too small.
func (g *gathering) try(ctx context.Context, s Stream, c *collectionSizes, patience time.Duration) (*trial, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	collection := s.Collection
	if s.Storage == store.TimeSeries {
		collection = "system.buckets." + collection // what lies in the engine's blocks
	}
	documents, err := g.server.sample(ctx, collection, samplePipeline(c), sampleBytes)
	if err != nil {
		return nil, err
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

// samplePipeline draws documents by chance. The server does that at little cost
// as long as they are less than a twentieth of all; else it would read and sort
// all of them, and the first ones are as good.
func samplePipeline(c *collectionSizes) mongo.Pipeline {
	wanted := max(int64(1.2*sampleBytes/(c.data/c.documents)), 1)
	if float64(wanted)*20 < c.documents {
		return mongo.Pipeline{{{Key: "$sample", Value: bson.D{{Key: "size", Value: wanted}}}}}
	}
	return mongo.Pipeline{{{Key: "$limit", Value: wanted}}}
}

// compressor advises zstd where it saves enough of what is there.
func compressor(f *facts) []doctor.Finding {
	var out []doctor.Finding
	for i := range f.streams {
		s := &f.streams[i]
		if s.trial == nil || s.sizes == nil {
			continue
		}
		from := store.Compressor(s.sizes.compressor)
		now, then := s.trial.packed[from], s.trial.packed[store.Zstd]
		if now == 0 || float64(then) > (1-leastSaving)*float64(now) {
			continue
		}
		left := float64(then) / float64(now)
		used := s.sizes.storage - s.sizes.free
		out = append(out, advice{
			name:  "setting_compressor",
			cause: fmt.Sprintf("compressor: stream %s has %s, zstd would leave %.0f %% of its file", s.Name, from, 100*left),
			evidence: fmt.Sprintf("%d of its documents, %s, packed in blocks as the engine does: %s makes %s of them, zstd %s. "+
				"Of the %s that its file holds now, about %s would be left",
				s.trial.documents, size(float64(s.trial.bytes)), from, size(float64(now)), size(float64(then)), size(used), size(left*used)),
			action: "brim recompress --stream " + s.Name + " --to zstd, and compressor: zstd for the stream in the daemon's configuration",
			cost: fmt.Sprintf("disk for both until --drop-old, about %s; checkpoints take 1.7 times the CPU, where it was measured; daemons go on meanwhile",
				size(left*used)),
		}.finding())
	}
	return out
}
