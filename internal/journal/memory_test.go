package journal_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/fault"
	"github.com/brim-telemetry/brim/internal/journal"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

func memoryConfig() journal.Config {
	return journal.Config{Memory: true, Session: "first", Streams: streams()}
}

func TestWithoutADiskNothingIsJournaled(t *testing.T) {
	t.Parallel()
	v := open(t, memoryConfig())
	err := tryAppend(v, makeBatch("readings", 0, 1))
	var e *telemetry.Error
	require.ErrorAs(t, err, &e)
	assert.Equal(t, telemetry.Invalid, e.Kind)
	assert.Equal(t, "ack_unavailable", e.Code)
	assert.True(t, v.Status().Volatile)
}

func TestMemoryIsBoundedWithoutADisk(t *testing.T) {
	t.Parallel()
	for _, limited := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			cfg := memoryConfig()
			cfg.MaxBytes, cfg.TailBytes = 1<<20, 1
			if !limited {
				cfg.Faults = fault.Without(fault.Limit)
			}
			v, err := journal.Open(cfg)
			require.NoError(t, err)
			var refused answer
			waiting := 0
			for ; refused.err == nil && waiting < 300; waiting++ {
				ch := appendStored(t.Context(), v, makeBatch("readings", 0, 200), batch.Request{})
				select {
				case refused = <-ch:
				default:
				}
			}
			if !limited {
				require.NoError(t, refused.err)
				assert.Greater(t, v.Status().Bytes, cfg.MaxBytes)
				require.NoError(t, v.Close())
				return
			}
			assertRefused(t, refused.err, "queue_full")
			assert.ErrorContains(t, refused.err, "--queue-max-bytes")
			assert.LessOrEqual(t, v.Status().Bytes, cfg.MaxBytes)
			records := follow(t, v, 0)
			for _, r := range records[1:] {
				r.Batch.Tracker.Released(r.Batch.Len())
			}
			<-time.After(time.Second)
			held := v.Status().Bytes
			assert.Less(t, held, int64(20<<10), "freed although the first request is not stored")
			assert.Len(t, follow(t, v, 0), 1, "only the first")
			records[0].Batch.Tracker.Released(records[0].Batch.Len())
			<-time.After(time.Second)
			assert.Zero(t, v.Status().Bytes, "freed before it is trimmed")
			again := appendStored(t.Context(), v, makeBatch("readings", 0, 200), batch.Request{})
			assert.Empty(t, again, "it waits for the store")
			v.Trim(records[len(records)-1].Next)
			assert.Len(t, follow(t, v, 0), 1)
			require.NoError(t, v.Close())
			<-again
		})
	}
}

func TestWithoutADiskAnAwayDatabaseIsTold(t *testing.T) {
	t.Parallel()
	cfg := memoryConfig()
	away := errors.New("no server is there")
	cfg.Admit = func(stream string) error {
		if stream == "events" {
			return away
		}
		return nil
	}
	v, err := journal.Open(cfg)
	require.NoError(t, err)
	_, err = v.Append(context.Background(), makeBatch("events", 0, 1), batch.Request{Want: telemetry.Stored})
	assertRefused(t, err, "mongodb_away")
	require.ErrorIs(t, err, away)
	assert.Zero(t, v.Taken())
	require.NoError(t, v.Close())
}

func TestWithoutADiskTheOrderIsKept(t *testing.T) {
	t.Parallel()
	for _, kept := range []bool{true, false} {
		mixed := 0
		for range 20 {
			synctest.Test(t, func(t *testing.T) {
				cfg := memoryConfig()
				if !kept {
					cfg.Faults = fault.Without(fault.Order)
				}
				v, err := journal.Open(cfg)
				require.NoError(t, err)
				var all sync.WaitGroup
				for range 200 {
					all.Go(func() {
						_, _ = v.Append(context.Background(), makeBatch("readings", 0, 1), batch.Request{Want: telemetry.Stored})
					})
				}
				synctest.Wait()
				records := follow(t, v, 0)
				assert.Len(t, records, 200)
				mixed += outOfOrder(records)
				require.NoError(t, v.Close())
				all.Wait()
			})
			if mixed > 0 {
				break
			}
		}
		assert.Equal(t, kept, mixed == 0, "%d out of order", mixed)
	}
}

func TestAnUnknownOutcomeSaysHowToRepeatTheRequest(t *testing.T) {
	t.Parallel()
	for key, advice := range map[string]string{
		"":  "; repeating it may store them twice; an Idempotency-Key prevents that",
		"a": "; repeat it with the same Idempotency-Key",
	} {
		synctest.Test(t, func(t *testing.T) {
			v, err := journal.Open(memoryConfig())
			require.NoError(t, err)
			for range 2 {
				got := <-appendStored(t.Context(), v, makeBatch("readings", 0, 1), batch.Request{Key: key})
				var e *telemetry.Error
				require.ErrorAs(t, got.err, &e)
				assert.Equal(t, "outcome_unknown", e.Code)
				assert.True(t, strings.HasSuffix(e.Message, advice), e.Message)
				assert.Contains(t, e.Message, "within 10s")
			}
			assert.Equal(t, key == "", v.Taken() == 2)
			require.NoError(t, v.Close())
		})
	}
}
