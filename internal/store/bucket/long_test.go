package bucket

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/internal/store/storetest"
)

// TestLongWindowsWaitForDaemonsThatDoNotReadThem: their readings stay in the journal while
// others are written.
func TestLongWindowsWaitForDaemonsThatDoNotReadThem(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	var allRead atomic.Bool
	s := open(t, connect(t), Config{Format: store.Columns, Granularity: day, CanReadLongWindows: allRead.Load})
	long := storetest.Pending(storetest.Batch(t, "s1", 1, storetest.Reading("a", 0, 1)), day)
	hour := storetest.Pending(storetest.Batch(t, "s2", 1, storetest.Reading("a", time.Hour, 2)), time.Hour) // journaled with an earlier granularity
	s.Write(t.Context(), append(long, hour...))
	assert.Equal(t, batch.Unsent, long[0].Verdict)
	require.ErrorContains(t, long[0].Err, "an earlier release")
	assert.Len(t, long[0].Rows, 1)
	assert.Len(t, storetest.ReadAll(t, s, "a"), 1)

	allRead.Store(true)
	storetest.WriteAll(t, s, long)
	assert.Len(t, storetest.ReadAll(t, s, "a"), 2)
	changed := s.Live.Load().Settings
	changed.Format = store.Documents
	assert.ErrorContains(t, s.Change(changed), "granularity 1d is invalid")
}

// TestLastWinsWaitsForColumns, since sub-documents do not keep the order that the rule needs.
func TestLastWinsWaitsForColumns(t *testing.T) {
	t.Parallel()
	var allRead atomic.Bool
	s := open(t, connect(t), Config{Format: store.Columns, Duplicates: store.LastWins, CanReadColumns: allRead.Load})
	pending := storetest.Pending(storetest.Batch(t, "s1", 1, storetest.Reading("a", 0, 1)), s.Granularity)
	s.Write(t.Context(), pending)
	assert.Equal(t, batch.Unsent, pending[0].Verdict)
	require.ErrorContains(t, pending[0].Err, "can read columns")
	assert.Empty(t, storetest.ReadAll(t, s, "a"))
	allRead.Store(true)
	storetest.WriteAll(t, s, pending)
	assert.Len(t, storetest.ReadAll(t, s, "a"), 1)
}
