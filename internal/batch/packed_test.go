package batch

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// drawField draws ordinary values and edge cases of the encoding.
func drawField(t *rapid.T, name string) telemetry.Field {
	value := rapid.OneOf(
		rapid.Map(rapid.Float64(), telemetry.FloatValue),
		rapid.Map(rapid.IntRange(-5000, 5000), func(n int) telemetry.Value { return telemetry.FloatValue(float64(n) / 100) }),
		rapid.Map(rapid.SampledFrom([]float64{math.Copysign(0, -1), math.MaxFloat64, math.SmallestNonzeroFloat64, 1 << 53, -1 << 53, 1e15, 1e21, 0.1 + 0.2}), telemetry.FloatValue),
		rapid.Map(rapid.Int64(), telemetry.IntValue),
		rapid.Map(rapid.Bool(), telemetry.BoolValue),
		rapid.Map(rapid.StringOfN(rapid.RuneFrom([]rune("ab")), 0, 2, -1), telemetry.TextValue),
	)
	return telemetry.Field{Name: name, Value: value.Draw(t, "value")}
}

// oneOf builds a batch of one reading.
func oneOf(site string, ms int64, seq uint64, fields ...telemetry.Field) Ref {
	b := NewBuilder(received)
	b.Begin("readings", 0, telemetry.TimeRange{Oldest: math.MinInt64, Newest: math.MaxInt64})
	b.Sensor([]byte("a"))
	b.Tag([]byte("site"), []byte(site))
	b.Time(ms)
	for _, f := range fields {
		b.Add(f)
	}
	if refusal := b.End(); refusal != nil {
		panic(refusal)
	}
	made := b.Batch()
	made.FirstSeq = seq
	return Ref{Batch: made}
}

func TestReadingsAreUnpackedAsTheyWerePacked(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var p Packed
		var want []Ref
		seq := rapid.Uint64Range(0, 1<<40).Draw(t, "first")
		for range rapid.IntRange(0, 20).Draw(t, "readings") {
			var fields []telemetry.Field
			for _, name := range rapid.SampledFrom([]string{"t", "t", "t", "th", "htx"}).Draw(t, "names") {
				fields = append(fields, drawField(t, string(name)))
			}
			r := oneOf(rapid.SampledFrom([]string{"north", "north", "south", ""}).Draw(t, "site"), rapid.Int64Range(0, 1<<45).Draw(t, "time"), seq, fields...)
			r.Batch.Received = time.UnixMilli(rapid.Int64Range(0, 1<<45).Draw(t, "arrival"))
			before := p.Unpack()
			require.True(t, p.Append(r))
			require.Equal(t, len(want), before.Len())
			want = append(want, r)
			seq += rapid.Uint64Range(1, 1<<20).Draw(t, "step")
		}
		require.Equal(t, len(want), p.Len())
		got := p.Unpack()
		require.Equal(t, len(want), got.Len())
		for i, w := range want {
			r := Ref{Batch: &got, Index: uint32(i)}
			assert.Equal(t, w.Seq(), r.Seq())
			assert.Equal(t, w.Arrival(), r.Arrival())
			assert.Equal(t, w.Row().Size, r.Row().Size)
			assert.Equal(t, w.Batch.Reading(0), got.Reading(uint32(i)))
			assert.Equal(t, w.Batch.Series(w.Row()).Hash, got.Series(r.Row()).Hash)
			for f, word := range w.Batch.Values(w.Row()) {
				if w.Batch.Shape(w.Row()).Fields[f].Kind == telemetry.Float { // negative zero equals zero
					assert.Equal(t, word, got.Values(r.Row())[f])
				}
			}
		}
	})
}

// Equal series and shapes are listed once, although each request has its own.
func TestPackedListsAShapeOnce(t *testing.T) {
	t.Parallel()
	var p Packed
	for i := range 60 {
		fields := []telemetry.Field{{Name: "t", Value: telemetry.FloatValue(20 + float64(i%7)/10)}}
		if i%3 == 0 {
			fields = append(fields, telemetry.Field{Name: "state", Value: telemetry.TextValue(strings.Repeat("x", i))})
		}
		require.True(t, p.Append(oneOf([]string{"north", "south"}[i/30], int64(i)*5000, uint64(i+1)*100_000, fields...)))
	}
	b := p.Unpack()
	assert.Equal(t, 2, b.SeriesLen())
	assert.Len(t, b.shapes, 2)
}

// A sensor's readings take a few bytes each, and MemorySize counts them.
func TestPackedIsSmall(t *testing.T) {
	t.Parallel()
	var p Packed
	for i := range 60 {
		var fields []telemetry.Field
		for _, name := range []string{"t", "h", "p", "v"} {
			fields = append(fields, telemetry.Field{Name: name, Value: telemetry.FloatValue(float64(200+i*37%50) / 10)})
		}
		at := base(i)
		require.True(t, p.Append(oneOf("north", at, uint64(i+1)*100_000, fields...)))
	}
	assert.LessOrEqual(t, p.MemorySize(), int64(60*20))
	assert.GreaterOrEqual(t, p.MemorySize(), int64(len(p.data)+len(p.series)))
}

func base(i int) int64 { return received.Add(time.Duration(i) * 5 * time.Second).UnixMilli() }

func TestPackedRefusesSequencesThatDoNotRise(t *testing.T) {
	t.Parallel()
	field := telemetry.Field{Name: "t", Value: telemetry.FloatValue(1)}
	var p Packed
	require.True(t, p.Append(oneOf("", 0, 100, field)))
	assert.False(t, p.Append(oneOf("", 0, 99, field)))
	assert.False(t, p.Append(oneOf("", 0, 100, field)))
	assert.False(t, p.Append(oneOf("", 0, 100+1<<32, field)))
	assert.True(t, p.Append(oneOf("", 0, 100+1<<32-1, field)))
	assert.Equal(t, 2, p.Len())
	b := p.Unpack()
	assert.Equal(t, uint64(100+1<<32-1), Ref{Batch: &b, Index: 1}.Seq())
}

// BenchmarkPacked measures packing and unpacking a reading of four fields, sixty at once.
func BenchmarkPacked(b *testing.B) {
	var refs []Ref
	for i := range 60 {
		var fields []telemetry.Field
		for _, name := range []string{"t", "h", "p", "v"} {
			fields = append(fields, telemetry.Field{Name: name, Value: telemetry.FloatValue(float64(200+i*37%50) / 10)})
		}
		refs = append(refs, oneOf("north", base(i), uint64(i+1)*100_000, fields...))
	}
	b.Run("pack", func(b *testing.B) {
		for b.Loop() {
			var p Packed
			for _, r := range refs {
				p.Append(r)
			}
			b.ReportMetric(float64(len(p.data))/60, "B/reading")
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(60*b.N), "ns/reading")
	})
	b.Run("unpack", func(b *testing.B) {
		var p Packed
		for _, r := range refs {
			p.Append(r)
		}
		for b.Loop() {
			p.Unpack()
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(60*b.N), "ns/reading")
	})
}
