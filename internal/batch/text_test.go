package batch

import (
	"bytes"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

func TestTextsKeepEveryStringOverManyChunks(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		type kept struct {
			at uint32
			s  []byte
		}
		var (
			all   texts
			added []kept
		)
		for i := range rapid.IntRange(1, 10).Draw(t, "strings") {
			mark := all.mark()
			s := slices.Repeat([]byte{byte(i)}, rapid.SampledFrom([]int{0, 1, 1024, textChunk / 3, textChunk}).Draw(t, "length"))
			at := all.add(s)
			if rapid.IntRange(0, 3).Draw(t, "cut") == 0 {
				all.cut(mark)
				continue
			}
			added = append(added, kept{at, s})
		}
		for i, k := range added {
			if !bytes.Equal(k.s, all.at(k.at, uint32(len(k.s)))) {
				t.Fatalf("string %d is another one", i)
			}
		}
	})
}

func TestABatchOfMuchTextIsReadBack(t *testing.T) {
	t.Parallel()
	b := NewBuilder(received)
	text := bytes.Repeat([]byte("x"), telemetry.MaxTextBytes)
	const n = 3000 // of 2 KiB each
	for i := range n {
		b.Begin("readings", i, always)
		b.Sensor([]byte("s"))
		text[0], text[1] = byte('a'+i%26), byte('a'+i/26%26)
		b.Text([]byte("a"), text)
		b.Text([]byte("b"), text[:1023])
		require.Nil(t, b.End())
	}
	batch := b.Batch()
	for i := range n {
		text[0], text[1] = byte('a'+i%26), byte('a'+i/26%26)
		fields := batch.Reading(uint32(i)).Fields
		require.Equal(t, string(text), fields[0].Value.Text())
		require.Equal(t, string(text[:1023]), fields[1].Value.Text())
	}
	size := batch.MemorySize()
	assert.Greater(t, size, int64(n*2047))
	assert.Less(t, size, int64(n*2047+3<<20), "little more than what is kept")
}
