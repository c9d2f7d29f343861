package block_test

import (
	"cmp"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"pgregory.net/rapid"

	"github.com/brim-telemetry/brim/internal/block"
	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

func open(t require.TestingT, data []byte) *block.Block {
	b, err := block.Open(data)
	require.NoError(t, err)
	return b
}

func TestKeysAreKept(t *testing.T) {
	t.Parallel()
	keys := []block.Key{{}, {Arrival: 1_700_000_000_000, Session: "s1", Sequence: math.MaxUint64}, {}, {Arrival: -5, Session: "s2", Sequence: 7}}
	var b block.Builder
	for i, k := range keys {
		b.AddReading(reading(int64(10-i), "v", i))
		if k != (block.Key{}) {
			b.Key(k)
		}
	}
	data, err := b.Append(nil, block.Options{})
	require.NoError(t, err)
	got, err := open(t, data).Keys()
	require.NoError(t, err)
	assert.Equal(t, keys, got)

	without := built(t, []telemetry.Reading{reading(0, "v", 9)}, block.Options{})
	none, err := open(t, without).Keys()
	require.NoError(t, err)
	assert.Empty(t, none)
}

func TestKeysAreOrdered(t *testing.T) {
	t.Parallel()
	want := []block.Key{{Arrival: 1, Session: "b", Sequence: 9}, {Arrival: 2, Session: "a", Sequence: 3}, {Arrival: 2, Session: "b", Sequence: 1}, {Arrival: 2, Session: "b", Sequence: 2}}
	got := []block.Key{want[3], want[1], want[0], want[2]}
	slices.SortFunc(got, block.Key.Compare)
	assert.Equal(t, want, got)
}

func TestBuilderIsUsedAgain(t *testing.T) {
	t.Parallel()
	var b block.Builder
	for i := range 3 {
		for name, want := range shapes() {
			b.Reset()
			for _, ref := range refsOf(t, []telemetry.Reading{reading(7, "t", 1.5, "before", "x")}) {
				b.Add(ref)
			}
			b.Reset()
			for _, r := range want {
				b.AddReading(r)
				if !slices.Equal(r.Tags, documentTags) {
					b.Own(r.Tags)
				}
			}
			first, err := b.Append(nil, block.Options{Statistics: true})
			require.NoError(t, err)
			second, err := b.Append(nil, block.Options{Statistics: true})
			require.NoError(t, err)
			assert.Equal(t, first, second, name)
			assert.Equal(t, built(t, want, block.Options{Statistics: true}), first, "%s, round %d", name, i)
		}
	}
}

func TestWhatCannotBeABlockIsRefused(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 256)
	for _, c := range []struct {
		want  string
		n     int
		field string
	}{
		{"a block needs at least one reading", 0, "v"},
		{"1048577 readings do not fit into a block; at most 1048576 do", block.MaxReadings + 1, "v"},
		{`field name "" has 0 bytes; names have 1 to 255`, 1, ""},
		{fmt.Sprintf("field name %q has 256 bytes; names have 1 to 255", long), 1, long},
	} {
		var b block.Builder
		r := reading(1, c.field, 1)
		for range c.n {
			b.AddReading(r)
		}
		_, err := b.Append(nil, block.Options{})
		assert.EqualError(t, err, c.want)
	}
}

func TestStatisticsAreThoseOfDocuments(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		readings := drawnReadings(t)
		got, ok, err := open(t, built(t, readings, block.Options{Statistics: true})).Statistics()
		require.NoError(t, err)
		require.True(t, ok)
		assertStatistics(t, readings, got)
	})
	for _, set := range dataSets {
		for _, w := range windowsOf(t, set.name, set.window) {
			got, ok, err := open(t, built(t, w.readings, block.Options{Statistics: true})).Statistics()
			require.NoError(t, err)
			require.True(t, ok)
			assertStatistics(t, w.readings, got)
		}
	}
	_, ok, err := open(t, built(t, []telemetry.Reading{reading(1, "v", 1)}, block.Options{})).Statistics()
	require.NoError(t, err)
	assert.False(t, ok)
}

// assertStatistics compares statistics with what the store makes of the documents.
func assertStatistics(t require.TestingT, readings []telemetry.Reading, got block.Statistics) {
	var sums store.Sums
	want := block.Statistics{First: math.MaxInt64, Last: math.MinInt64, Fields: []telemetry.FieldSummary{}}
	type ends struct{ first, last telemetry.Value }
	numbers := make(map[string]ends)
	for _, r := range readings {
		doc := bson.D{{Key: "ts", Value: bson.DateTime(r.Time.UnixMilli())}}
		want.First, want.Last = min(want.First, r.Time.UnixMilli()), max(want.Last, r.Time.UnixMilli())
		for _, f := range r.Fields {
			doc = append(doc, bson.E{Key: f.Name, Value: f.Value.Any()})
			if f.Value.Kind().Numeric() {
				e, ok := numbers[f.Name]
				if !ok {
					e.first = f.Value
				}
				e.last = f.Value
				numbers[f.Name] = e
			}
		}
		raw, err := bson.Marshal(doc)
		require.NoError(t, err)
		require.NoError(t, sums.AddDocument(raw))
	}
	for _, f := range sums.Fields {
		f.First, f.Last = numbers[f.Name].first, numbers[f.Name].last
		want.Fields = append(want.Fields, f)
	}
	got.Fields = slices.DeleteFunc(got.Fields, func(f telemetry.FieldSummary) bool { return f.N == 0 })
	byName := func(a, b telemetry.FieldSummary) int { return cmp.Compare(a.Name, b.Name) }
	slices.SortFunc(got.Fields, byName)
	slices.SortFunc(want.Fields, byName)
	for i := range want.Fields { // all sums that are NaN are alike
		if i < len(got.Fields) && math.IsNaN(want.Fields[i].Sum) && math.IsNaN(got.Fields[i].Sum) {
			got.Fields[i], want.Fields[i] = telemetry.FieldSummary{}, telemetry.FieldSummary{}
		}
	}
	require.Equal(t, want, got)
}

func TestOneFieldIsRead(t *testing.T) {
	t.Parallel()
	got := readAll(t, built(t, []telemetry.Reading{reading(5, "a", 1, "b", "x"), reading(6, "a", 2), reading(7, "b", "y")}, block.Options{}), []string{"b", "other"})
	assert.Equal(t, []telemetry.Field{{Name: "b", Value: value("y")}}, got[2].Fields)
	assert.Empty(t, got[1].Fields)
}

func TestSmallBlocksAreSmall(t *testing.T) {
	t.Parallel()
	one := []telemetry.Reading{reading(1_770_000_000_123, "temperature", 21.37, "humidity", 48.5, "pressure", 1013.2, "on", true)}
	names := len("temperature" + "humidity" + "pressure" + "on")
	got := len(built(t, one, block.Options{})) - names
	assert.LessOrEqual(t, got, 45, "bytes of a block with one reading of four fields, beside the names")
}

// TestManyFieldsTakeLittle: each reading has a field of its own, and they come in reverse. It
// measures memory, so it is not parallel.
func TestManyFieldsTakeLittle(t *testing.T) {
	const n = 4000
	want := make([]telemetry.Reading, n)
	var b block.Builder
	for i := range want {
		want[i] = reading(int64(i), fmt.Sprint("f", n-i), i)
		b.AddReading(want[i])
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	data, err := b.Append(nil, block.Options{Statistics: true})
	runtime.GC()
	runtime.ReadMemStats(&after)
	assert.Less(t, int64(after.HeapAlloc)-int64(before.HeapAlloc), int64(1000*n))
	require.NoError(t, err)
	assert.Less(t, len(data), 100*n)
	assert.Equal(t, want, readAll(t, data, nil))
}
