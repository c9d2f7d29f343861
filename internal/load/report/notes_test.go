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
			"The readings cover 5m of a window of 1h: raise --speedup or --duration for whole windows. Unless --start is given, they lie at the end of the window, where even a new bucket counts as full."},
		"two writes in a window": {func(r *load.Result) {
			for i := range r.StoreByFill {
				r.StoreByFill[i].Count = 0
			}
			r.StoreByFill[4].Count, r.StoreByFill[9].Count = 167, 167
		}, "Some tenths have readings but no updates, because readings gather before they are written: use a lower --speedup, a longer granularity, or a shorter --flush-max of the daemon."},
		"a tenth without load": {func(r *load.Result) { r.StoreByFill[0].Count, r.ByFill[0].Count = 0, 0 }, ""},
		"a ramp":               {func(r *load.Result) { r.Setup.Rate = "1..2" }, rampNote},
		"journaled":            {func(r *load.Result) { r.Setup.Ack = "journaled" }, ackNote},
		"memory":               {func(r *load.Result) { r.Setup.Ack, r.Setup.Storage = "", "memory" }, ""},
	} {
		r := aResult()
		row.change(r)
		var want []string
		if row.want != "" {
			want = []string{row.want}
			assert.Contains(t, textOf(t, r), row.want, name)
		}
		assert.Equal(t, want, fillNotes(r), name)
	}
}

// TestCaptionsClaimOnlyWhatIsSeen checks that bars do not rise for an unsupported reason.
func TestCaptionsClaimOnlyWhatIsSeen(t *testing.T) {
	t.Parallel()
	const fills = "requests take longer as buckets fill"
	r := aResult()
	assert.Contains(t, htmlOf(t, r), fills)
	assert.Contains(t, htmlOf(t, r), "writes take longer as buckets fill")
	r.Setup.Rate = "1..2"
	page := htmlOf(t, r)
	assert.NotContains(t, page, "longer as buckets fill")
	r = aResult()
	r.Setup.Ack = "journaled"
	assert.NotContains(t, htmlOf(t, r), fills)
}
