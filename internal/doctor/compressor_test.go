package doctor

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/brim-telemetry/brim/internal/store"
)

// rounded is the next value of a random walk, with one decimal.
func rounded(r *rand.Rand, last float64) float64 { return math.Round(10*(last+r.Float64()-0.5)) / 10 }

// buckets are documents like hourly buckets of 360 readings with four fields,
// some 20 KB each.
func buckets(n int, value func(*rand.Rand, float64) float64) []bson.Raw {
	out := make([]bson.Raw, n)
	for i := range out {
		b, err := bson.Marshal(bucket(i, value))
		if err != nil {
			panic(err)
		}
		out[i] = b
	}
	return out
}

func bucket(i int, value func(*rand.Rand, float64) float64) bson.D {
	r := rand.New(rand.NewPCG(uint64(i), 1))
	readings, last := bson.A{}, [4]float64{20, 60, 1000, 12}
	for k := range 360 {
		reading := bson.D{{Key: "ts", Value: noon.Add(time.Duration(10*k) * time.Second)}}
		for f, name := range []string{"t", "h", "p", "v"} {
			last[f] = value(r, last[f])
			reading = append(reading, bson.E{Key: name, Value: last[f]})
		}
		readings = append(readings, reading)
	}
	return bson.D{
		{Key: "_id", Value: bson.D{{Key: "s", Value: i}, {Key: "b", Value: noon}, {Key: "g", Value: 3600}, {Key: "p", Value: 0}}},
		{Key: "count", Value: 360}, {Key: "measurements", Value: readings},
	}
}

// TestSmallSavingsAreNotAdvised: zstd gains little on documents that are
// nine-tenths noise.
func TestSmallSavingsAreNotAdvised(t *testing.T) {
	t.Parallel()
	r := scene(t, "replica-set-6.0.5")
	full(r)
	source := rand.NewChaCha8([32]byte{})
	for i := range 1000 {
		noise := make([]byte, 9000)
		_, err := source.Read(noise)
		require.NoError(t, err)
		b, err := bson.Marshal(bson.D{{Key: "_id", Value: i}, {Key: "noise", Value: noise}, {Key: "rest", Value: make([]byte, 1000)}})
		require.NoError(t, err)
		r.documents = append(r.documents, b)
	}
	assert.Empty(t, ask(t, r, settingRules, nil))
	packed, err := pack(r.documents)
	require.NoError(t, err)
	assert.LessOrEqual(t, packed[store.Zstd], packed[store.Snappy])
	assert.Less(t, packed[store.Snappy], packed[store.NoneCompressor])
}

// TestDocumentsAreSampledAtRandomWhereThatIsCheap: in a collection 20 times the
// sample. From a smaller one, the first documents are taken.
func TestDocumentsAreSampledAtRandomWhereThatIsCheap(t *testing.T) {
	t.Parallel()
	r := scene(t, "replica-set-6.0.5")
	full(r)
	r.documents = buckets(10, rounded) // too few for advice
	assert.Empty(t, ask(t, r, settingRules, nil))
	require.NotEmpty(t, r.sampled)
	assert.Equal(t, "readings", r.from)
	assert.Equal(t, "$sample", r.sampled[0][0].Key)
	r.set(1000, "$collStats readings", "docs", 0, "storageStats", "count")
	r.set(17<<20, "$collStats readings", "docs", 0, "storageStats", "size")
	assert.Empty(t, ask(t, r, settingRules, nil))
	assert.Equal(t, "$limit", r.sampled[0][0].Key)
}

// TestNoSampleIsReadIfZstdWouldNotBeAdvised: the collection already has zstd, or is small, or
// there is no time.
func TestNoSampleIsReadIfZstdWouldNotBeAdvised(t *testing.T) {
	t.Parallel()
	r := scene(t, "replica-set-6.0.5")
	r.documents = buckets(60, rounded)
	assert.Empty(t, ask(t, r, settingRules, nil), "a small collection")
	full(r)
	f := r.facts(t, nil)
	f.sampleTime = 0
	require.NoError(t, f.gather(t.Context()))
	r.set("block_compressor=zstd", "$collStats readings", "docs", 0, "storageStats", "wiredTiger", "creationString")
	assert.Empty(t, ask(t, r, settingRules, nil))
	assert.Empty(t, r.sampled)
}

// TestTimeSeriesAreSampledFromTheirBuckets, since the engine compresses those.
func TestTimeSeriesAreSampledFromTheirBuckets(t *testing.T) {
	t.Parallel()
	r := scene(t, "replica-set-6.0.5")
	r.documents = buckets(60, rounded)
	stats := []any{"$collStats series", "docs", 0, "storageStats"}
	r.set(int64(6<<30), append(stats, "size")...)
	r.set("block_compressor=snappy", append(stats, "wiredTiger", "creationString")...)
	found := ask(t, r, settingRules, nil)
	require.Len(t, found, 1)
	assert.Equal(t, "system.buckets.series", r.from)
	assert.Contains(t, found[0].Action, "brim move series")
}

// TestBlocksAreWholeUnits of at most four pages.
func TestBlocksAreWholeUnits(t *testing.T) {
	t.Parallel()
	document := make(bson.Raw, 1000)
	var images []int
	all := make([]bson.Raw, 1000)
	for i := range all {
		all[i] = document
	}
	half := func(place, image []byte) []byte { images = append(images, len(image)); return place[:len(image)/10] }
	total := blocks(all, half)
	assert.Zero(t, total%unit)
	assert.Equal(t, 32_000, images[0], "a page, until it is known how well it is packed")
	assert.Equal(t, 131_000, images[1], "as much as four pages, since it would be ten")
	images = nil
	assert.Equal(t, 31*leafPage+2*unit, blocks(all, func(_, image []byte) []byte { return append(image, 0) }), "what grows stays as it is")
}
