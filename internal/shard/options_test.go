package shard

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestZonesAreRead(t *testing.T) {
	t.Parallel()
	z, err := ParseZone("north=shard01,shard02:aa:bb")
	require.NoError(t, err)
	assert.Equal(t, Zone{Name: "north", Shards: []string{"shard01", "shard02"}, Prefix: "aa:bb"}, z, "a prefix may have colons")
	for _, text := range []string{"", "north", "north=", "north=a", "north=a:", "=a:n", "north=:n", "north=a,:n", "north:a=n"} {
		_, err := ParseZone(text)
		require.ErrorContains(t, err, "NAME=SHARD,SHARD:PREFIX", text)
	}
}

func FuzzParseZone(f *testing.F) {
	f.Add("north=shard01,shard02:n-")
	f.Add("=:")
	f.Fuzz(func(t *testing.T, text string) {
		z, err := ParseZone(text)
		if err != nil {
			return
		}
		assert.Equal(t, text, z.Name+"="+strings.Join(z.Shards, ",")+":"+z.Prefix)
		span := z.span()
		assert.True(t, span.To == "" || span.From < span.To, "%+v", span)
	})
}

func TestPointsCutIDsIntoPartsOfAsMany(t *testing.T) {
	t.Parallel()
	var ids []string
	for i := range 1000 {
		ids = append(ids, fmt.Sprintf("s-%03d", (i*7)%1000))
	}
	assert.Equal(t, []string{"s-250", "s-500", "s-750"}, PointsOf(ids, 4))
	assert.Empty(t, PointsOf(ids, 1))
	assert.Empty(t, PointsOf(nil, 8))
	assert.Empty(t, PointsOf([]string{"a", "a"}, 8), "one sensor is not cut")
	assert.Equal(t, []string{"b"}, PointsOf([]string{"b", "a", "b"}, 8))
}

func TestPointsBehindAPrefixAreInOrderAndEven(t *testing.T) {
	t.Parallel()
	assert.Equal(t, []string{"s-2", "s-5", "s-7"}, PointsBehind("s-", Decimal, 4))
	assert.Equal(t, []string{"s-4", "s-8", "s-c"}, PointsBehind("s-", Hex, 4))
	for _, chunks := range []int{1, 2, 10, 11, 100, 8192} {
		for _, digits := range []string{Decimal, Hex} {
			points := PointsBehind("p", digits, chunks)
			assert.Len(t, points, chunks-1)
			assert.True(t, slices.IsSorted(points))
			assert.Len(t, slices.Compact(slices.Clone(points)), chunks-1, "each once")
		}
	}
}

func TestIDsAreReadLineByLine(t *testing.T) {
	t.Parallel()
	ids, err := ReadIDs(strings.NewReader("s-1\r\n\ns 2\nß\n"))
	require.NoError(t, err)
	assert.Equal(t, []string{"s-1", "s 2", "ß"}, ids)
	_, err = ReadIDs(strings.NewReader("s-1\n\x01\n"))
	require.ErrorContains(t, err, "line 2")
	_, err = ReadIDs(strings.NewReader(strings.Repeat("x", 1<<20)))
	require.ErrorContains(t, err, "read sensor ids")
}
