package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/mongod"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
	"github.com/brim-telemetry/brim/internal/store/storetest"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// TestADeletionThatWasNotBegunSaysSo: readings are counted first, and where that
// cannot be, nothing was deleted.
func TestADeletionThatWasNotBegunSaysSo(t *testing.T) {
	t.Parallel()
	server := mongodtest.Start(t, mongod.Config{})
	stores := make(map[string]storetest.Store)
	for _, s := range sides() {
		stores[s.name], _ = s.open(t, server.URI(), s.name)
		n, err := stores[s.name].Delete(t.Context(), "s")
		require.NoError(t, err)
		assert.Zero(t, n)
	}
	require.NoError(t, server.Close(t.Context()))
	for name, s := range stores {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		_, err := s.Delete(ctx, "s")
		cancel()
		var told *telemetry.Error
		require.ErrorAs(t, err, &told, name)
		assert.Equal(t, telemetry.Unavailable, told.Kind, name)
		assert.Equal(t, "not_deleted", told.Code, name)
		assert.Contains(t, told.Message, "nothing was deleted; repeat the request", name)
		assert.Positive(t, told.RetryAfter, name)
		assert.ErrorContains(t, err, `count readings of sensor "s"`, name)
	}
}
