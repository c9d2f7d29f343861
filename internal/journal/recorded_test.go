package journal_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/journal"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// TestAJournalOfAnEarlierReleaseIsRead opens the folder of an earlier release that
// was killed: 24 requests of ten readings each and a key, in two sessions, of which
// the first nine requests were stored.
func TestAJournalOfAnEarlierReleaseIsRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS("testdata/recorded")))
	report, err := journal.Inspect(dir, nil)
	require.NoError(t, err)
	assert.Empty(t, report.Problems)
	assert.Len(t, report.Segments, 4)
	cfg := config(dir, "next")
	cfg.KeyWindow = 100 * 365 * 24 * time.Hour
	j := open(t, cfg)
	left := []journal.Unapplied{
		{Session: "life0", Stream: "events", Settings: streams()["events"], Readings: 20},
		{Session: "life0", Stream: "readings", Settings: streams()["readings"], Readings: 10},
		{Session: "life1", Stream: "readings", Settings: streams()["readings"], Readings: 60},
		{Session: "life1", Stream: "events", Settings: streams()["events"], Readings: 60},
	}
	assert.Equal(t, left, j.Unapplied())
	assert.Equal(t, left, report.Unapplied)
	records := follow(t, j, j.Oldest())
	assert.Equal(t, upTo(240)[90:], numbers(records))
	assert.EqualValues(t, 91, records[0].Batch.FirstSeq)
	assert.True(t, records[0].Batch.Recovered)
	assert.Equal(t, "reading 90", records[0].Batch.Reading(0).Fields[1].Value.Text())
	for n := 0; n < 240; n += 10 {
		receipt, err := j.Repeat(t.Context(), batch.Request{Want: telemetry.Journaled, Key: fmt.Sprint("key ", n), BodyHash: uint64(n)})
		require.NoError(t, err)
		assert.Equal(t, fmt.Sprint("answer ", n), string(receipt.Answer))
	}
	mustAppend(t, j, makeBatch("readings", 240, 10))
	assert.Equal(t, upTo(250)[90:], numbers(follow(t, j, j.Oldest())))
}
