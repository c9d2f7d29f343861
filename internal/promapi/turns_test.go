package promapi

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestQueriesLeaveProcessorsToReadingsThatArrive(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		arrive := false
		turns := &turns{arriving: func() bool { return arrive }}
		processors := runtime.GOMAXPROCS(0)
		for range 2 * processors {
			require.NoError(t, turns.take(t.Context()))
		}
		arrive = true
		var order []string
		wait := func(ctx context.Context, name string) {
			go func() {
				if turns.take(ctx) == nil {
					order = append(order, name)
				}
			}()
			synctest.Wait()
		}
		leaving, leave := context.WithCancel(t.Context())
		wait(leaving, "gone")
		wait(t.Context(), "first")
		wait(t.Context(), "second")
		leave()
		for range 2*processors - max(1, processors/2) {
			turns.leave()
			synctest.Wait()
		}
		assert.Empty(t, order, "there are as many as there may be")
		turns.leave()
		synctest.Wait()
		turns.leave()
		synctest.Wait()
		assert.Equal(t, []string{"first", "second"}, order)
		for range max(1, processors/2) {
			turns.leave()
		}
		assert.Zero(t, turns.taken)
		assert.Empty(t, turns.waiting)
	})
}
