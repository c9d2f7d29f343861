package storage

import (
	"encoding/json"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/doctor"
)

const h, d = doctor.Healthy, doctor.Degrading

func verdicts(rows []bench.Row) (out []bench.Verdict) {
	for _, row := range rows {
		out = append(out, row.Verdict)
	}
	return out
}

func TestADiskThatShowsFirstConfirmsWhatWasPublished(t *testing.T) {
	t.Parallel()
	var r bench.Result
	ramps{rampOf(5, map[string][]doctor.Class{diskBusy: {h, h, d, d, d}, cacheDirty: {h, h, h, d, d}})}.rows(&r, true)
	require.Len(t, r.Rows, 4+1)
	assert.Equal(t, []bench.Verdict{bench.Confirmed, bench.Confirmed, bench.NotSeen, bench.Confirmed}, verdicts(r.Rows[:4]))
	assert.Equal(t, "first: Title of disk_busy", r.Rows[0].MeasuredAs)
	assert.Contains(t, r.Rows[0].Why, "until p99 was 10 times idle the disk was busy 50 % at most")
	assert.InDelta(t, 0.5, r.Rows[1].Published, 1e-9)
	assert.Equal(t, "it was over the threshold", r.Rows[1].Why)
	assert.Equal(t, "it stayed within the threshold", r.Rows[2].Why)
}

func TestTheMajorityOfRampsDecides(t *testing.T) {
	t.Parallel()
	disk := rampOf(5, map[string][]doctor.Class{diskBusy: {h, h, d, d, d}})
	cache := rampOf(5, map[string][]doctor.Class{diskBusy: {h, h, h, h, h}, cacheDirty: {h, h, d, d, d}})
	var r bench.Result
	ramps{cache, disk, cache}.rows(&r, true)
	assert.Equal(t, bench.NotSeen, r.Rows[0].Verdict)
	assert.Equal(t, "first: Title of cache_dirty (2 of 3), Title of disk_busy (1 of 3)", r.Rows[0].MeasuredAs)
	assert.InDelta(t, 2, r.Rows[0].Measured, 0)
	assert.Equal(t, bench.NotSeen, r.Rows[1].Verdict)
	assert.Equal(t, bench.Confirmed, r.Rows[3].Verdict)
	assert.Equal(t, "it was over the threshold in 2 of 3 ramps", r.Rows[3].Why)
}

func TestADiskThatCannotBeSeenIsLeftOut(t *testing.T) {
	t.Parallel()
	u := doctor.Unknown
	one := rampOf(unknown(), map[string][]doctor.Class{diskBusy: {u, u, u, u}, diskAwait: {u, u, u, u}, cacheDirty: {d, d, d, d}})
	var r bench.Result
	rs := ramps{one}
	rs.rows(&r, true)
	require.Len(t, r.LeftOut, 1)
	assert.Contains(t, r.LeftOut[0].Why, "it is far away")
	for _, row := range r.Rows {
		assert.NotContains(t, row.Claim, "disk")
	}
	assert.Equal(t, "it was over the threshold already before the load rose, but the load did not rise far enough to take p99 so far", r.Rows[0].Why)
	rs.notes(&r, false)
	assert.Contains(t, strings.Join(r.Notes, "\n"), "not to be seen: it is far away")
	assert.Contains(t, strings.Join(r.Notes, "\n"), "did not rise far enough")
	table := rs.signalTable()
	assert.Contains(t, table.Rows[0][5], "cannot be seen")
}

func TestNotesFollowFromTheRamp(t *testing.T) {
	t.Parallel()
	one := rampOf(5, map[string][]doctor.Class{diskBusy: {h, h, h, h, h}})
	for i := range one.Looks {
		one.Looks[i].Processors, one.Looks[i].Writers, one.Looks[i].Machine = 0.5, 0.3, number(runtime.NumCPU())
	}
	one.Looks[4].Processors = number(runtime.NumCPU()) - 0.35
	var r bench.Result
	ramps{one}.notes(&r, true)
	require.Len(t, r.Notes, 3)
	assert.Contains(t, r.Notes[0], "no signal")
	assert.Contains(t, r.Notes[1], "the disk was not the limit")
	assert.Contains(t, r.Notes[2], "the processor is the limit")

	for i := range one.Looks {
		one.Looks[i].Processors, one.Looks[i].Writers = 0.1, 0.1
	}
	r = bench.Result{}
	one.noteProcessors(&r)
	assert.Contains(t, r.Notes[0], "used up by something else")
	one.Looks[4].Machine = 0.3
	one.noteProcessors(&r)
	assert.Contains(t, r.Notes[1], "and others 0.1.")
}

func TestKindsOfADisksLimit(t *testing.T) {
	t.Parallel()
	of := func(busy, await float64, operations, bytes number) limit {
		return diskState{
			doctor.Signal{Value: busy, Threshold: doctor.Threshold{Degrading: 50, Bottleneck: 80}},
			doctor.Signal{Value: await, Threshold: doctor.Threshold{Degrading: 2, Bottleneck: 10}}, operations, bytes,
		}.limit()
	}
	assert.Equal(t, operationsBound, of(95, 3, 5000, 5000*4096))
	assert.Equal(t, throughputBound, of(95, 3, 500, 500*(512<<10)))
	assert.Equal(t, latencyBound, of(40, 3, 500, 500*4096))
	assert.Equal(t, noLimit, of(40, 1, 500, 500*4096))
	assert.Equal(t, unseenLimit, of(float64(unknown()), 1, 0, 0))
}

func compacted(pattern string, full, deleted, after number) *compaction {
	return &compaction{
		Pattern: pattern, Full: sizes{File: full}, Deleted: sizes{File: deleted, Free: deleted / 4}, After: sizes{File: after}, Peak: deleted,
		Before: writing{P99: 0.01}, During: writing{P99: 0.05}, Later: writing{P99: 0.01},
	}
}

func TestCompactionIsHeldAgainstWhatWasPublished(t *testing.T) {
	t.Parallel()
	patterns := []string{scattered, contiguous}
	all := compactions{compacted(scattered, 100, 180, 90), compacted(contiguous, 100, 100, 80)}
	var r bench.Result
	all.rows(&r, patterns)
	assert.Equal(t, []bench.Verdict{bench.SizeDiffers, bench.Confirmed, bench.NotSeen}, verdicts(r.Rows))
	all.notes(&r, patterns)
	notes := strings.Join(r.Notes, "\n")
	assert.Contains(t, notes, "every fourth document made the file larger, 1.80x")
	assert.Contains(t, notes, "one piece left the file as it was, with 25 %")
	assert.Contains(t, notes, "5.00x of what it was before")
	assert.Contains(t, notes, "no further space")
	assert.Len(t, all.table(patterns).Rows, 2)
}

// TestACompactionThatGivesHardlyAnythingBackIsNotAsPublished: 0.95x of a file is
// near 0.77x, but it is a fifth of what was published to be given back.
func TestACompactionThatGivesHardlyAnythingBackIsNotAsPublished(t *testing.T) {
	t.Parallel()
	row := compactions{compacted(contiguous, 100, 100, 95)}.spaceRow(contiguous)
	assert.Equal(t, bench.SizeDiffers, row.Verdict)
	assert.Contains(t, row.Why, "where the free parts are")
	assert.NotContains(t, row.Why, "had grown")
	assert.Contains(t, compactions{compacted(scattered, 100, 180, 90)}.spaceRow(scattered).Why, "had grown")
}

func TestAQuarterIsAQuarter(t *testing.T) {
	t.Parallel()
	for _, pattern := range []string{scattered, contiguous} {
		n := 0
		for i := range 1000 {
			if inQuarter(pattern, i, 1000) {
				n++
			}
		}
		assert.Equal(t, 250, n, pattern)
	}
}

func TestCostsOfTheStatusAreTold(t *testing.T) {
	t.Parallel()
	all := costs{
		{Form: fullForm, Load: idleLoad, P50: bench.Samples{6e-4, 7e-4}}, {Form: doctorForm, Load: idleLoad, P50: bench.Samples{3e-4, 4e-4}},
		{Form: fullForm, Load: someLoad, P50: bench.Samples{1e-3, 1e-3}},
	}
	assert.Equal(t, bench.Confirmed, all.row().Verdict)
	var r bench.Result
	all.notes(&r)
	assert.Contains(t, r.Notes[0], "0.01 % of a processor")
	assert.Contains(t, r.Notes[1], "saves 46.2 %")
}

func TestWhatIsNotKnownIsNull(t *testing.T) {
	t.Parallel()
	raw, err := json.Marshal([]number{1.5, unknown()})
	require.NoError(t, err)
	assert.JSONEq(t, `[1.5,null]`, string(raw))
}

func TestThingsAreCounted(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "a", counted([]string{"a", "a"}))
	assert.Equal(t, "b (2 of 3), a (1 of 3)", counted([]string{"a", "b", "b"}))
	assert.Equal(t, "published", origin("published, for an SSD"))
	assert.Equal(t, "ours", origin("ours"))
}
