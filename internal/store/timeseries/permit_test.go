package timeseries

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/internal/store/storetest"
)

func TestACommandNeedsThePermit(t *testing.T) {
	t.Parallel()
	s := open(t, connect(t), Config{})
	shares := storetest.Shares(storetest.Batch(t, "s1", 1, storetest.Reading("a", 0, 1)), 5*time.Minute)
	errLost := errors.New("lost")
	s.Write(store.WithPermit(t.Context(), func() error { return errLost }), shares)
	assert.Equal(t, batch.Unsent, shares[0].Verdict)
	assert.ErrorIs(t, shares[0].Err, errLost)
	assert.Len(t, shares[0].Rows, 1)
}
