package batch

import (
	"bytes"
	"encoding/binary"
	"math"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// drawn returns a batch of any shape.
func drawn(t *rapid.T) *Batch {
	b := NewBuilder(received)
	for i := range rapid.IntRange(0, 12).Draw(t, "readings") {
		b.Begin(rapid.SampledFrom([]string{"readings", "events"}).Draw(t, "stream"), i, always)
		b.Sensor([]byte(rapid.StringMatching(`s-[a-z]{1,3}`).Draw(t, "sensor")))
		for range rapid.IntRange(0, 3).Draw(t, "tags") {
			b.Tag([]byte(rapid.StringMatching(`[a-c]`).Draw(t, "tag")), []byte(rapid.StringN(0, 5, 20).Draw(t, "value")))
		}
		for range rapid.IntRange(1, 5).Draw(t, "fields") {
			name := []byte(rapid.StringMatching(`[a-z]{1,4}`).Draw(t, "name"))
			switch rapid.IntRange(0, 3).Draw(t, "kind") {
			case 0:
				b.Float(name, rapid.Float64Range(-1e9, 1e9).Draw(t, "float"))
			case 1:
				b.Int(name, rapid.Int64().Draw(t, "int"))
			case 2:
				b.Bool(name, rapid.Bool().Draw(t, "bool"))
			default:
				b.Text(name, []byte(rapid.StringN(0, 10, 40).Draw(t, "text")))
			}
		}
		b.Time(rapid.Int64Range(0, math.MaxInt32).Draw(t, "time"))
		b.End() // names may be given twice
	}
	return b.Batch()
}

func TestABatchIsDecodedAsItWasEncoded(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := drawn(t)
		prefix := []byte("before")
		encoded := AppendBinary(prefix, want)
		require.Equal(t, "before", string(encoded[:6]))
		encoded = encoded[6:]
		got, err := Decode(encoded, Origin{
			Session: "sabc", FirstSeq: 7, Recovered: true,
			Granularity: func(stream string) time.Duration { return time.Duration(len(stream)) },
		})
		require.NoError(t, err)
		clear(encoded) // nothing of it may be in use
		assert.Equal(t, "sabc", got.Session)
		assert.EqualValues(t, 7, got.FirstSeq)
		assert.True(t, got.Recovered)
		assert.True(t, want.Received.Equal(got.Received))
		require.Equal(t, want.Len(), got.Len())
		assert.GreaterOrEqual(t, got.MemorySize(), int64(len(encoded)/2))
		assert.LessOrEqual(t, got.MemorySize(), want.MemorySize())
		for i := range uint32(want.Len()) {
			assert.Equal(t, *want.Row(i), *got.Row(i))
			assert.Equal(t, want.Reading(i), got.Reading(i))
			assert.Equal(t, *want.Series(want.Row(i)), *got.Series(got.Row(i)))
			stream := got.Series(got.Row(i)).Stream
			assert.Equal(t, time.Duration(len(stream)), got.Granularity(stream))
			assert.Equal(t, *want.Shape(want.Row(i)), *got.Shape(got.Row(i)))
		}
	})
}

func TestASummaryCountsTheReadingsOfEachStream(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		b := drawn(t)
		want, got := map[string]int{}, map[string]int{}
		for i := range uint32(b.Len()) {
			want[b.Series(b.Row(i)).Stream]++
		}
		when, streams, err := Summarize(AppendBinary(nil, b))
		for _, one := range streams {
			got[one.Stream] += int(one.Readings)
		}
		require.NoError(t, err)
		assert.Equal(t, want, got)
		assert.True(t, b.Received.Equal(when))
	})
}

func TestManyBytesOfTextAreDecoded(t *testing.T) {
	t.Parallel()
	b := NewBuilder(received)
	text := []byte(strings.Repeat("x", telemetry.MaxTextBytes))
	for i := range 2500 {
		b.Begin("readings", i, always)
		b.Sensor([]byte("s"))
		text[0] = byte('a' + i%26)
		b.Text([]byte("a"), text)
		require.Nil(t, b.End())
	}
	got, err := Decode(AppendBinary(nil, b.Batch()), Origin{})
	require.NoError(t, err)
	for i := range 2500 {
		text[0] = byte('a' + i%26)
		require.Equal(t, string(text), got.Reading(uint32(i)).Fields[0].Value.Text())
	}
}

func TestACutOffBatchIsAnError(t *testing.T) {
	t.Parallel()
	encoded := AppendBinary(nil, tenFields(5))
	for n := range encoded {
		_, err := Decode(encoded[:n], Origin{})
		assert.Error(t, err, "%d of %d bytes", n, len(encoded))
	}
	_, err := Decode(append(encoded, 0), Origin{})
	assert.Error(t, err, "one byte more")
}

func TestAHostileHeadReservesNoMemory(t *testing.T) {
	t.Parallel()
	for field := range 9 {
		src := AppendBinary(nil, tenFields(5))
		binary.LittleEndian.PutUint32(src[8+4*field:], math.MaxUint32)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := Decode(src, Origin{})
		runtime.ReadMemStats(&after)
		assert.Error(t, err)
		assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(64<<20), "of other tests, too") // the number asks for gigabytes
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte{})
	f.Add(AppendBinary(nil, NewBuilder(received).Batch()))
	f.Add(AppendBinary(nil, tenFields(3)))
	b := NewBuilder(received)
	b.Begin("readings", 0, always)
	b.Sensor([]byte("s"))
	b.Tag([]byte("site"), []byte("north"))
	b.Text([]byte("a"), []byte("text"))
	b.Bool([]byte("b"), true)
	b.End()
	f.Add(AppendBinary(nil, b.Batch()))
	f.Fuzz(func(t *testing.T, src []byte) {
		got, err := Decode(src, Origin{})
		_, _, _ = Summarize(src)
		if err != nil {
			return
		}
		assert.LessOrEqual(t, got.MemorySize(), int64(1024+30*len(src)))
		// Strings that no value has are left out, so that bytes which no builder
		// made may be encoded otherwise; then as the same batch, and always alike.
		again := AppendBinary(nil, got)
		assert.LessOrEqual(t, len(again), len(src))
		same, err := Decode(again, Origin{})
		require.NoError(t, err)
		for i := range uint32(max(got.Len(), same.Len())) {
			assert.Equal(t, got.Reading(i), same.Reading(i))
		}
		assert.True(t, bytes.Equal(again, AppendBinary(nil, same)), "another form of the same batch")
	})
}

// tenFields returns n readings of ten fields, of ten sensors.
func tenFields(n int) *Batch {
	b := NewBuilder(received)
	for i := range n {
		b.Begin("readings", i, always)
		b.Sensor([]byte{'s', byte('0' + i%10)})
		b.Time(int64(i))
		for f := range 10 {
			b.Int([]byte{'f', byte('0' + f)}, int64(i*f))
		}
		b.End()
	}
	return b.Batch()
}

func BenchmarkEncode(b *testing.B) {
	const rows = 1000
	src := tenFields(rows)
	var buf []byte
	b.ReportAllocs()
	for b.Loop() {
		buf = AppendBinary(buf[:0], src)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/rows, "ns/reading")
	b.ReportMetric(float64(len(buf))/rows, "B/reading")
}

func BenchmarkDecode(b *testing.B) {
	const rows = 1000
	src := AppendBinary(nil, tenFields(rows))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Decode(src, Origin{}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/rows, "ns/reading")
}

// What several decode in parts is the whole.
func TestPartsOfABatchAreTheWhole(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		whole := drawn(t)
		encoded := AppendBinary(nil, whole)
		of := uint64(rapid.IntRange(1, 5).Draw(t, "parts"))
		seen := make(map[uint64]bool)
		for number := range of {
			part := Part{Number: number, Of: of}
			got, err := Decode(encoded, Origin{Session: "s", FirstSeq: 100, Part: part})
			require.NoError(t, err)
			for i := range uint32(got.Len()) {
				ref := Ref{got, i}
				before := uint32(ref.Seq() - 100)
				require.False(t, seen[ref.Seq()])
				seen[ref.Seq()] = true
				assert.True(t, part.Has(got.HashAt(int(got.SeriesNumber(ref.Row())))))
				assert.Equal(t, whole.Reading(before), got.Reading(i))
				assert.Equal(t, whole.Row(before).Index, ref.Row().Index)
				assert.Equal(t, *whole.Series(whole.Row(before)), *got.Series(ref.Row()))
			}
		}
		assert.Len(t, seen, whole.Len())
	})
}
