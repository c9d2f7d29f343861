package settings

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/golang/snappy"
	"github.com/klauspost/compress/zstd"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/brim-telemetry/brim/internal/doctor"
	"github.com/brim-telemetry/brim/internal/store"
)

// streamFacts are of one stream's collection. What is nil is unknown, or does not
// exist; the refusals say which.
type streamFacts struct {
	Stream
	sizes   *collectionSizes
	indexes []indexUse
	trial   *trial
}

// collectionSizes are of a stream's collection, of all shards together; bytes.
type collectionSizes struct {
	data, storage, free float64
	documents           float64 // of a time-series collection: buckets
	indexes             map[string]float64
	compressor          string // empty: unknown
}

// examine asks for the facts about one stream.
func (f *facts) examine(ctx context.Context, s Stream, sample time.Duration) streamFacts {
	out := streamFacts{Stream: s}
	var err error
	out.sizes, err = f.sizes(ctx, s)
	f.note(readRole, "$collStats", "the compressor of stream "+s.Name, err)
	if out.sizes == nil {
		return out
	}
	out.indexes, err = f.indexUses(ctx, s.Collection)
	f.note(clusterMonitor, "$indexStats", "the indexes of stream "+s.Name, err)
	if sample > 0 && worthATrial(s, out.sizes) {
		out.trial, err = f.try(ctx, s, out.sizes, sample)
		f.note(readRole, "documents", "another compressor for stream "+s.Name, err)
	}
	return out
}

// aggregate runs a pipeline whose answer is small and returns the documents.
func (f *facts) aggregate(ctx context.Context, collection string, pipeline mongo.Pipeline, out any) error {
	raw, err := f.server.run(ctx, false, bson.D{
		{Key: "aggregate", Value: collection}, {Key: "pipeline", Value: pipeline}, {Key: "cursor", Value: bson.D{{Key: "batchSize", Value: 1000}}},
	})
	if err != nil {
		return err
	}
	var answer struct {
		Cursor struct {
			Documents bson.RawValue `bson:"firstBatch"`
		} `bson:"cursor"`
	}
	if err := bson.Unmarshal(raw, &answer); err != nil {
		return fmt.Errorf("read the answer of %s: %w", collection, err)
	}
	if err := answer.Cursor.Documents.Unmarshal(out); err != nil {
		return fmt.Errorf("read the answer of %s: %w", collection, err)
	}
	return nil
}

// sizes adds up those of the shards; nil without an error: there is no collection.
func (f *facts) sizes(ctx context.Context, s Stream) (*collectionSizes, error) {
	var shards []struct {
		Stats struct {
			Size     float64            `bson:"size"`
			Count    float64            `bson:"count"`
			Storage  float64            `bson:"storageSize"`
			Free     float64            `bson:"freeStorageSize"`
			Indexes  map[string]float64 `bson:"indexSizes"`
			InSeries struct {
				Buckets float64 `bson:"bucketCount"`
			} `bson:"timeseries"`
			Engine struct {
				Creation string `bson:"creationString"`
			} `bson:"wiredTiger"`
		} `bson:"storageStats"`
	}
	project := bson.D{}
	for _, name := range []string{"size", "count", "storageSize", "freeStorageSize", "indexSizes", "timeseries.bucketCount", "wiredTiger.creationString"} {
		project = append(project, bson.E{Key: "storageStats." + name, Value: 1})
	}
	err := f.aggregate(ctx, s.Collection, mongo.Pipeline{
		{{Key: "$collStats", Value: bson.D{{Key: "storageStats", Value: bson.D{}}}}},
		{{Key: "$project", Value: project}},
	}, &shards)
	if err != nil || len(shards) == 0 {
		if missing(err) {
			err = nil
		}
		return nil, err
	}
	out := &collectionSizes{indexes: make(map[string]float64)}
	for _, shard := range shards {
		out.data += shard.Stats.Size
		out.storage += shard.Stats.Storage
		out.free += shard.Stats.Free
		out.documents += shard.Stats.Count + shard.Stats.InSeries.Buckets
		for name, bytes := range shard.Stats.Indexes {
			out.indexes[name] += bytes
		}
		if name := blockCompressor(shard.Stats.Engine.Creation); name != "" {
			out.compressor = name
		}
	}
	return out, nil
}

// blockCompressor is the one that a table was created with; empty: unknown.
func blockCompressor(creation string) string {
	for part := range strings.SplitSeq(creation, ",") {
		if name, ok := strings.CutPrefix(part, "block_compressor="); ok {
			if name == "" {
				return string(store.NoneCompressor)
			}
			return name
		}
	}
	return ""
}

// An indexUse is how one index is used, on all shards together.
type indexUse struct {
	name   string
	key    []string // fields
	used   float64  // times
	since  time.Time
	hidden bool
	bound  bool // it does more than speed up queries: it is unique, or removes old documents
}

// indexUses asks how often each index was used.
func (f *facts) indexUses(ctx context.Context, collection string) ([]indexUse, error) {
	var shards []struct {
		Name string `bson:"name"`
		Key  bson.D `bson:"key"`
		Use  struct {
			Times float64   `bson:"ops"`
			Since time.Time `bson:"since"`
		} `bson:"accesses"`
		Spec struct {
			Unique bool          `bson:"unique"`
			Hidden bool          `bson:"hidden"`
			Expire bson.RawValue `bson:"expireAfterSeconds"`
		} `bson:"spec"`
	}
	if err := f.aggregate(ctx, collection, mongo.Pipeline{{{Key: "$indexStats", Value: bson.D{}}}}, &shards); err != nil {
		if missing(err) {
			err = nil
		}
		return nil, err
	}
	var out []indexUse
	for _, s := range shards {
		i := slices.IndexFunc(out, func(u indexUse) bool { return u.name == s.Name })
		if i < 0 {
			u := indexUse{name: s.Name, since: s.Use.Since, hidden: s.Spec.Hidden, bound: s.Spec.Unique || !s.Spec.Expire.IsZero()}
			for _, field := range s.Key {
				u.key = append(u.key, field.Key)
			}
			out, i = append(out, u), len(out)
		}
		out[i].used += s.Use.Times
		if s.Use.Since.After(out[i].since) {
			out[i].since = s.Use.Since // what holds for all shards
		}
	}
	return out, nil
}

const (
	// sampleBytes are 32 to 128 blocks, enough for a ratio within a few percent.
	sampleBytes = 4 << 20
	// leastSample is where a ratio starts to mean something.
	leastSample = 1 << 20
	// leastData is the size of a collection, before compression, from which on a
	// move is worthwhile.
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
func (f *facts) try(ctx context.Context, s Stream, c *collectionSizes, patience time.Duration) (*trial, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	collection := s.Collection
	if s.Storage == store.TimeSeries {
		collection = "system.buckets." + collection // what the engine's blocks contain
	}
	documents, err := f.server.sample(ctx, collection, samplePipeline(c), sampleBytes)
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

// samplePipeline draws documents at random. The server does that at little cost
// if they are less than a twentieth of all; otherwise it would read and sort all
// of them, and the first ones are as good.
func samplePipeline(c *collectionSizes) mongo.Pipeline {
	wanted := max(int64(1.2*sampleBytes/(c.data/c.documents)), 1)
	if float64(wanted)*20 < c.documents {
		return mongo.Pipeline{{{Key: "$sample", Value: bson.D{{Key: "size", Value: wanted}}}}}
	}
	return mongo.Pipeline{{{Key: "$limit", Value: wanted}}}
}

// compressor advises zstd where it saves enough.
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
		out = append(out, doctor.Finding{
			Name: "setting_compressor", Cause: fmt.Sprintf("compressor: stream %s has %s, zstd would leave %.0f %% of its file", s.Name, from, 100*left),
			Evidence: fmt.Sprintf("%d of its documents, %s, packed in blocks as the engine does: %s makes %s of them, zstd %s. "+
				"Of the %s that its file holds now, about %s would be left",
				s.trial.documents, size(float64(s.trial.bytes)), from, size(float64(now)), size(float64(then)), size(used), size(left*used)),
			Action: "brim recompress --stream " + s.Name + " --to zstd, and compressor: zstd for the stream in the daemon's configuration",
			Cost: fmt.Sprintf("disk for both until --drop-old, about %s; checkpoints take 1.7 times the CPU, where it was measured; daemons go on meanwhile",
				size(left*used)),
		})
	}
	return out
}

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

// blocks adds up the sizes of the blocks. compress may use place as its buffer.
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
