package queue

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestWhatIsSetAsideKeepsBackOneOfAStreamsPositions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, q, heal := stuckLane(t, Config{})
		feed(t, q, 2000)
		require.Equal(t, 1, q.Status().SetAside)
		all, most := q.StreamStored(stream)
		assert.Equal(t, q.Status().Rest, all)
		assert.Less(t, all, most)
		end := q.End()
		assert.LessOrEqual(t, most, end)
		assert.Greater(t, most, end-end/10, "the lane goes on beside it")

		heal()
		require.NoError(t, q.Flush(t.Context()))
		all, most = q.StreamStored(stream)
		assert.Equal(t, q.End(), all)
		assert.Equal(t, all, most)
	})
}
