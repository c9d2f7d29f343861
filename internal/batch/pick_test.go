package batch

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestPickedRowsAreAsTheyWere(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		whole := drawn(t)
		whole.Session, whole.FirstSeq = "s", 100
		wanted := make([]bool, whole.SeriesLen())
		for i := range wanted {
			wanted[i] = rapid.Bool().Draw(t, "wanted")
		}
		var want []uint32
		for i := range uint32(whole.Len()) {
			if wanted[whole.SeriesNumber(whole.Row(i))] {
				want = append(want, i)
			}
		}
		picked := whole.Pick(wanted)
		if len(want) == 0 {
			require.Nil(t, picked)
			return
		}
		require.Equal(t, len(want), picked.Len())
		for i, before := range want {
			row := picked.Row(uint32(i))
			assert.Equal(t, whole.Reading(before), picked.Reading(uint32(i)))
			assert.Equal(t, whole.Row(before).Index, row.Index)
			assert.Equal(t, whole.Row(before).Size, row.Size)
			assert.Same(t, whole.Series(whole.Row(before)), picked.Series(row))
			assert.Equal(t, Ref{whole, before}.Seq(), Ref{picked, uint32(i)}.Seq())
		}
		assert.Equal(t, picked.MemorySize(), picked.Pick(all(picked)).MemorySize())
		for i := range uint32(picked.Len()) {
			assert.Equal(t, Ref{picked, i}.Seq(), Ref{picked.Pick(all(picked)), i}.Seq())
		}
	})
}

func all(b *Batch) []bool {
	wanted := make([]bool, b.SeriesLen())
	for i := range wanted {
		wanted[i] = true
	}
	return wanted
}
