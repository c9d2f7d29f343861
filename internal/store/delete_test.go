package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/internal/store/storetest"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// TestFailedCountDeletesNothing: readings are counted first, and nothing is
// deleted if that fails.
func TestFailedCountDeletesNothing(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, _ store.Storage, _ string, s storetest.Store) {
		storetest.WriteAll(t, s, storetest.Pending(storetest.Batch(t, "s1", 1, storetest.Reading("s", 0, 1)), 5*time.Minute))
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := s.Delete(ended, "s")
		var unavailable *telemetry.Error
		require.ErrorAs(t, err, &unavailable)
		assert.Equal(t, telemetry.Unavailable, unavailable.Kind)
		assert.Equal(t, "not_deleted", unavailable.Code)
		assert.Contains(t, unavailable.Message, "nothing was deleted; repeat the request")
		assert.Positive(t, unavailable.RetryAfter)
		assert.ErrorContains(t, err, `count readings of sensor "s"`)
		assert.Len(t, storetest.ReadAll(t, s, "s"), 1)
	})
}
