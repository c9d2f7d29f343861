package batch

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A builder that remembers earlier requests makes the same batches, and refuses
// the same readings, as one that does not; also where almost everything is
// forgotten at once.
func TestInternerChangesNoBatch(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		interner := NewInterner(rapid.SampledFrom([]int64{1, 20_000, 0}).Draw(t, "bytes"))
		for range rapid.IntRange(1, 6).Draw(t, "requests") {
			remembering, plain := interner.Builder(received), NewBuilder(received)
			for i := range rapid.IntRange(1, 12).Draw(t, "readings") {
				d := drawDraft(t)
				require.Equal(t, d.give(plain, i), d.give(remembering, i))
			}
			want, got := plain.Batch(), remembering.Batch()
			require.Equal(t, want.Len(), got.Len())
			for i := range uint32(want.Len()) {
				assert.Equal(t, want.Reading(i), got.Reading(i))
				assert.Equal(t, *want.Series(want.Row(i)), *got.Series(got.Row(i)))
				assert.Equal(t, want.Row(i).Size, got.Row(i).Size)
			}
			read, err := Decode(AppendBinary(nil, got), Origin{Interner: interner})
			require.NoError(t, err)
			for i := range uint32(want.Len()) {
				assert.Equal(t, want.Reading(i), read.Reading(i))
			}
		}
	})
}

func reading(t *testing.T, n *Interner, sensor string) *Batch {
	t.Helper()
	b := n.Builder(received)
	b.Begin("readings", 0, always)
	b.Sensor([]byte(sensor))
	b.Tag([]byte("site"), []byte("north"))
	b.Int([]byte("t"), 1)
	require.Nil(t, b.End())
	return b.Batch()
}

func TestBatchesShareSeriesAndShapes(t *testing.T) {
	t.Parallel()
	n := NewInterner(0)
	first, again, other := reading(t, n, "a"), reading(t, n, "a"), reading(t, n, "b")
	assert.Same(t, first.SeriesAt(0), again.SeriesAt(0))
	assert.NotSame(t, first.SeriesAt(0), other.SeriesAt(0))
	assert.Same(t, first.Shape(first.Row(0)), other.Shape(other.Row(0)))
	assert.Less(t, again.MemorySize(), first.MemorySize(), "what is shared is charged once")

	decoded, err := Decode(AppendBinary(nil, first), Origin{Interner: n})
	require.NoError(t, err)
	assert.Same(t, first.SeriesAt(0), decoded.SeriesAt(0))
	assert.Same(t, first.Shape(first.Row(0)), decoded.Shape(decoded.Row(0)))
}

func TestAnAliasIsKnownUnderItsKeyAlone(t *testing.T) {
	t.Parallel()
	n := NewInterner(0)
	series := reading(t, n, "a").SeriesAt(0)
	n.SetAlias([]byte("l,a"), series)
	assert.Same(t, series, n.Alias([]byte("l,a")))
	assert.Nil(t, n.Alias([]byte("l,b")))
	other, _ := n.find(keySeries, []byte("l,a"))
	assert.Nil(t, other, "kinds of keys are kept apart")
	assert.Nil(t, n.Alias([]byte(series.encoded)))
}

func TestInternerForgetsUnusedSeries(t *testing.T) {
	t.Parallel()
	const most = 1 << 20
	n := NewInterner(most)
	busy := reading(t, n, "busy").SeriesAt(0)
	idle := reading(t, n, "idle").SeriesAt(0)
	for i := range 20_000 {
		reading(t, n, fmt.Sprint("s-", i, strings.Repeat("x", 50)))
		if i%100 == 0 {
			require.Same(t, busy, reading(t, n, "busy").SeriesAt(0))
		}
	}
	assert.NotSame(t, idle, reading(t, n, "idle").SeriesAt(0))
	held := int64(0)
	for i := range n.shards {
		for _, generation := range []map[uint64]*known{n.shards[i].young, n.shards[i].old} {
			for _, e := range generation {
				held += e.bytes
			}
		}
	}
	assert.LessOrEqual(t, held, int64(most))
	assert.Greater(t, held, int64(most/4))
}

func TestLargeEntriesAreNotInterned(t *testing.T) {
	t.Parallel()
	n := NewInterner(8 << 20)
	busy := reading(t, n, "busy").SeriesAt(0)
	for range 20 {
		n.SetAlias([]byte(strings.Repeat("x", 20_000)), busy)
	}
	assert.Nil(t, n.Alias([]byte(strings.Repeat("x", 20_000))))
	assert.Same(t, busy, reading(t, n, "busy").SeriesAt(0))
}

func TestInternerIsSafeForConcurrentUse(t *testing.T) {
	t.Parallel()
	n := NewInterner(50_000)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for i := range 2000 {
				id := fmt.Sprint("s-", i%300)
				b := n.Builder(received)
				b.Begin("readings", 0, always)
				b.Sensor([]byte(id))
				b.Int([]byte("t"), int64(i))
				if r := b.End(); r != nil {
					t.Error(r)
					return
				}
				made := b.Batch()
				if got := made.Reading(0); got.Sensor != id || got.Fields[0].Value != telemetry.IntValue(int64(i)) {
					t.Errorf("%+v", got)
					return
				}
			}
		})
	}
	all.Wait()
}
