package journal

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestWhatIsPackedIsUnpacked(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.SliceOfN(rapid.Byte(), 1, 64).Draw(t, "word")
		encoded := bytes.Repeat(word, rapid.IntRange(0, 400).Draw(t, "times"))
		front := rapid.SliceOfN(rapid.Byte(), 0, 100).Draw(t, "front")
		record, flags := appendPacked(bytes.Clone(front), encoded)
		require.True(t, bytes.HasPrefix(record, front))
		packed := record[len(front):]
		assert.LessOrEqual(t, len(packed), len(encoded))
		if flags == 0 {
			assert.Equal(t, string(encoded), string(packed))
		}
		scratch := make([]byte, rapid.IntRange(0, 40_000).Draw(t, "scratch"))
		got, wrong := unpack(scratch, packed, flags)
		require.Empty(t, wrong)
		assert.True(t, bytes.Equal(encoded, got))
	})
}

func TestWhatCannotBePackedStaysAsItIs(t *testing.T) {
	t.Parallel()
	noise := rapid.SliceOfN(rapid.Byte(), 5000, 5000).Example(1)
	record, flags := appendPacked(nil, noise)
	assert.Zero(t, flags)
	assert.Equal(t, noise, record)
}

func FuzzUnpack(f *testing.F) {
	packed, flags := appendPacked(nil, bytes.Repeat([]byte("sensor"), 1000))
	require.EqualValues(f, flagPacked, flags)
	f.Add(packed)
	f.Add(packed[:len(packed)/2])
	f.Fuzz(func(t *testing.T, packed []byte) {
		encoded, wrong := unpack(nil, packed, flagPacked)
		if wrong != "" {
			assert.Nil(t, encoded)
		}
	})
}
