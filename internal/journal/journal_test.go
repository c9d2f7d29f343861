package journal_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestWhatWasAppendedIsThereAfterARestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	j := open(t, config(dir, "first"))
	for i := range 10 {
		mustAppend(t, j, makeBatch("readings", i*3, 3))
	}
	records := follow(t, j, j.Oldest())
	assert.Equal(t, upTo(30), numbers(records))
	assert.EqualValues(t, 30, j.Taken())
	require.NoError(t, j.Close())

	j = open(t, config(dir, "second"))
	mustAppend(t, j, makeBatch("readings", 30, 2))
	records = follow(t, j, j.Oldest())
	require.Equal(t, upTo(32), numbers(records))
	for i, r := range records[:10] {
		assert.Equal(t, "first", r.Batch.Session)
		assert.True(t, r.Batch.Recovered)
		assert.EqualValues(t, 1+3*i, r.Batch.FirstSeq)
		assert.Equal(t, streams()["readings"].Granularity, r.Batch.Granularity(r.Batch.SeriesAt(0).Stream))
	}
	last := records[10].Batch
	assert.Equal(t, "second", last.Session)
	assert.False(t, last.Recovered)
	assert.EqualValues(t, 1, last.FirstSeq)
	require.Len(t, j.Unapplied(), 1)
	assert.EqualValues(t, 30, j.Unapplied()[0].Readings)
	assert.Equal(t, streams()["readings"], j.Unapplied()[0].Settings)
	assert.EqualValues(t, 32, j.Taken())

	j.Trim(records[3].Position)
	require.NoError(t, j.Close())
	j = open(t, config(dir, "third"))
	assert.Equal(t, upTo(32)[9:], numbers(follow(t, j, j.Oldest())))
	assert.EqualValues(t, 23, j.Taken())
}
