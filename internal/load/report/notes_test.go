package report

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/brim-telemetry/brim/internal/load"
)

func TestNotesOnTheTablesByFill(t *testing.T) {
	t.Parallel()
	none := func(*load.Result) {}
	for name, row := range map[string]struct {
		change func(*load.Result)
		want   string
	}{
		"whole windows": {none, ""},
		"less than one": {func(r *load.Result) { r.Setup.EventStart = r.Setup.EventEnd.Add(-5 * time.Minute) },
			"Event time covers 5m of windows of 1h: for whole ones raise --speedup or --duration (together 12 times). Readings lie at the end of their window: a bucket counts as 90–100 % full there, however new it is. --start puts them elsewhere."},
		"elsewhere": {func(r *load.Result) {
			r.Setup.EventStart = r.Setup.EventEnd.Add(-30 * time.Minute)
			r.Setup.EventEnd = r.Setup.EventStart.Add(20 * time.Minute)
		}, "Event time covers 20m of windows of 1h: for whole ones raise --speedup or --duration (together 3 times)."},
		"two writes in a window": {func(r *load.Result) {
			for i := range r.StoreByFill {
				r.StoreByFill[i].Count = 0
			}
			r.StoreByFill[4].Count, r.StoreByFill[9].Count = 167, 167
		}, "Updates fall in few tenths of the window: writes are made each flush interval, which is about 50 % of a window at this speed-up. Use a smaller --speedup or a longer granularity."},
		"a neighbour with fewer": {func(r *load.Result) { r.StoreByFill[5].Count = 300 },
			"Updates fall in few tenths of the window: writes are made each flush interval, which is about 1 % of a window at this speed-up. Use a smaller --speedup or a longer granularity."},
		"a tenth without load": {func(r *load.Result) { r.StoreByFill[0].Count, r.ByFill[0].Count = 0, 0 }, ""},
		"few updates": {func(r *load.Result) {
			for i := range r.StoreByFill {
				r.StoreByFill[i].Count = int64(i % 2)
			}
		}, ""},
		"a ramp":    {func(r *load.Result) { r.Setup.Rate = "1..2" }, "The rate changed in the course of the run, and the fill with it: what changes from tenth to tenth can come of either."},
		"journaled": {func(r *load.Result) { r.Setup.Ack = "journaled" }, "A request is answered when it is in the journal, before MongoDB is written to: only with --ack stored does the response time contain the write."},
		"memory":    {func(r *load.Result) { r.Setup.Ack, r.Setup.Storage = "", "memory" }, ""},
	} {
		r := aResult()
		row.change(r)
		var want []string
		if row.want != "" {
			want = []string{row.want}
			assert.Contains(t, textOf(t, r, Extras{}), row.want, name)
		}
		assert.Equal(t, want, fillNotes(r), name)
	}
}

// TestCaptionsClaimOnlyWhatIsSeen has no bar rise for a reason that it may not have.
func TestCaptionsClaimOnlyWhatIsSeen(t *testing.T) {
	t.Parallel()
	const fills = "requests take longer as buckets fill"
	r := aResult()
	assert.Contains(t, htmlOf(t, r, Extras{}), fills)
	assert.Contains(t, htmlOf(t, r, Extras{}), "writes take longer as buckets fill")
	r.Setup.Rate = "1..2"
	page := htmlOf(t, r, Extras{})
	assert.NotContains(t, page, "longer as buckets fill")
	assert.Contains(t, page, "<dt>asked, mean</dt>")
	r = aResult()
	r.Setup.Ack = "journaled"
	assert.NotContains(t, htmlOf(t, r, Extras{}), fills)
}

func TestAFloorAboveTheMeasurementCannotBeUsed(t *testing.T) {
	t.Parallel()
	floor := aFloor()
	floor.Response.P99 = 0.05
	assert.Contains(t, textOf(t, aResult(), Extras{Floor: floor}), "This floor cannot be used: it lies above what was measured over it (14.2 % of the p50, 694.4 % of the p99)")
	assert.NotContains(t, textOf(t, aResult(), Extras{Floor: aFloor()}), "cannot be used")
}
