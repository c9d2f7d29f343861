package queue

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/journal"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// followed is a journal in memory that tells when a cursor is made.
type followed struct {
	*journal.Journal
	told func(position uint64)
}

func (f *followed) Follow(position uint64, part batch.Part) batch.Cursor {
	f.told(position)
	return f.Journal.Follow(position, part)
}

// A walk along a journal in memory skips what is stored, all that the lane has
// taken perhaps. A request that comes as the walk begins is left to the lane's own
// cursor: neither refused as out of order nor acknowledged before it is stored.
func TestAWalkDoesNotOvertakeTheLane(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore(t)
		var healed, slow atomic.Bool
		store.verdict = func(share *batch.Share) (batch.Verdict, error) {
			if share.Sensor == "stuck" && !healed.Load() {
				return batch.Hangs, errAway
			}
			return batch.Stored, nil
		}
		store.before = func(_ context.Context, shares []*batch.Share) {
			for _, s := range shares {
				if s.Sensor == "well" && slow.Load() {
					time.Sleep(5 * time.Second) //nolint:forbidigo // fake time
				}
			}
		}
		v, err := journal.Open(journal.Config{Memory: true, TailBytes: 1, Session: "s1", Streams: map[string]journal.Stream{stream: {Granularity: 5 * time.Minute}}})
		require.NoError(t, err)
		var all sync.WaitGroup
		send := func(at int, sensors ...string) {
			all.Go(func() {
				receipt, err := v.Append(context.Background(), mixed(at, sensors...), batch.Request{Want: telemetry.Stored})
				assert.NoError(t, err)
				assert.Empty(t, receipt.Refused)
				for _, sensor := range sensors {
					store.mu.Lock()
					assert.NotEmpty(t, store.stored[sensor], "acknowledged before it is stored")
					store.mu.Unlock()
				}
			})
		}
		var once sync.Once
		follow := func(position uint64) {
			if position == 0 { // a probe, or the lane itself
				return
			}
			once.Do(func() {
				slow.Store(true)
				end := v.End()
				send(2, "stuck", "well", "third")
				for v.End() == end {
					time.Sleep(time.Millisecond) //nolint:forbidigo // fake time
				}
			})
		}
		q, err := New(Config{
			Journal: &followed{v, follow}, Streams: map[string]Stream{stream: {Store: store, Granularity: 5 * time.Minute}}, Lanes: 1,
			DeadLetters: &fakeLetters{}, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
		})
		require.NoError(t, err)
		send(0, "stuck")
		pass(time.Second)
		require.Equal(t, 1, q.Status().SetAside)
		send(1, "well") // the lane goes on
		pass(time.Second)
		healed.Store(true)
		all.Wait()
		assert.True(t, slow.Load(), "no walk began behind the first record")
		assert.Zero(t, testutil.ToFloat64(q.metrics.outOfOrder))
		assert.Zero(t, testutil.ToFloat64(q.metrics.impossible))
		assert.Len(t, store.stored["stuck"], 2)
		v.Stop()
		q.Close(cancelled())
		require.NoError(t, v.Close())
	})
}
