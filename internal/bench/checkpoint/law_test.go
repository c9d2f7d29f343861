package checkpoint

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/bench"
)

// costWith is that of checkpoints which wrote so much each.
func costWith(load string, seconds float64, written ...float64) *Cost {
	c := &Cost{Load: load, Seconds: seconds, Counted: len(written), Over: seconds * float64(len(written))}
	for i, bytes := range written {
		from := float64(i) * seconds
		c.Periods = append(c.Periods, Period{
			From: from, To: from + seconds, WrittenBytes: bytes, CheckpointWrittenBytes: bytes, DirtyBytes: 4e6 * seconds, GatheredBytes: 3e6 * seconds,
			CheckpointSeconds: 0.02 * seconds, JournalBytes: 1e6 * seconds, Inside: 0.01 + float64(i)/1000, Outside: 0.01, Met: 20,
		})
		c.Looks = append(c.Looks, Look{At: from, DirtyBytes: bytes, Checkpoints: float64(i)})
	}
	return c
}

func TestTheLawIsALine(t *testing.T) {
	t.Parallel()
	law := LawOf([]*Cost{costWith("appends", 1, 12, 12, 12), costWith("appends", 2, 14), costWith("appends", 10, 30, 30)})
	assert.InDelta(t, 10, law.Once, 1e-9)
	assert.InDelta(t, 2, law.PerSecond, 1e-9)
	assert.InDelta(t, 3600*(10.0/30+2), law.BytesPerHour(30*time.Second), 1e-6)
	assert.True(t, law.known())

	law = LawOf([]*Cost{costWith("inserts", 1, 1), costWith("inserts", 10, 20)})
	assert.Zero(t, law.Once, "nothing hangs on the checkpoint")
	assert.InDelta(t, 201.0/101, law.PerSecond, 1e-9)
	law = LawOf([]*Cost{costWith("appends", 1, 20), costWith("appends", 10, 10)})
	assert.Equal(t, Law{Once: 15}, law, "nothing hangs on the time")

	assert.False(t, LawOf([]*Cost{costWith("appends", 1, 12)}).known())
	assert.False(t, LawOf(nil).known())
	assert.False(t, LawOf([]*Cost{costWith("appends", 1), costWith("appends", 2)}).known())
}

func TestThePublishedFactorIsThatOfIntervalsAsFarApart(t *testing.T) {
	t.Parallel()
	factor, as := publishedDirty().factor(4)
	assert.InDelta(t, 4, factor, 1e-9)
	assert.Equal(t, "40.0 MB → 160 MB for 30 → 120 s", as)
	factor, _ = publishedDuration().factor(5)
	assert.InDelta(t, 8.2/1.8, factor, 1e-9)
	factor, _ = publishedP99().factor(10)
	assert.InDelta(t, 280.0/45, factor, 1e-9)
	factor, as = publishedDirty().factor(6)
	assert.InDelta(t, 6, factor, 1e-9, "it is published as proportional")
	assert.Equal(t, "40.0 MB → 400 MB for 30 → 300 s, which makes 6.00x for an interval of 6.00x", as)
}

func TestAReplayIsToldPerSecondOfWrites(t *testing.T) {
	t.Parallel()
	r := &Recovery{Bare: bench.Samples{1, 1.2, 1.1}, Late: bench.Samples{2.1, 0.9}, Written: bench.Samples{10, 10}}
	replay := r.Replay()
	require.Len(t, replay, 2)
	assert.InDelta(t, 0.1, replay[0], 1e-9)
	assert.Zero(t, replay[1], "faster than with nothing to replay is noise")
}
