package bucket

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/internal/store/storetest"
)

// TestWhatTooFewMembersHaveIsNotStored: the write is applied and cannot be
// confirmed. A look by the majority then finds it, and that is less than was
// asked for.
func TestWhatTooFewMembersHaveIsNotStored(t *testing.T) {
	t.Parallel()
	db := connect(t)
	asks := open(t, db, Config{})
	settings := asks.live.Load().Settings
	settings.WriteConcern = store.WriteConcern{Members: 3} // which Prepare, if it may ask how many there are, refuses
	require.NoError(t, asks.Change(settings))
	shares := storetest.Shares(storetest.Batch(t, "s1", 1, storetest.Reading("a", 0, 1), storetest.Reading("a", time.Second, 2)), 5*time.Minute)
	for range 4 {
		asks.Write(t.Context(), shares)
		require.Equal(t, batch.Wait, shares[0].Verdict)
		require.Len(t, shares[0].Rows, 2)
		require.ErrorContains(t, shares[0].Err, "Not enough data-bearing nodes")
	}
	storetest.WriteAll(t, open(t, db, Config{}), shares)
	assert.Len(t, storetest.ReadAll(t, open(t, db, Config{}), "a"), 2, "each is there once")
}
