package doctor

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestSettingThatSlowsWritesIsReportedOnce, as part of the diagnosis.
func TestSettingThatSlowsWritesIsReportedOnce(t *testing.T) {
	t.Parallel()
	window := &Finding{Name: "setting_history_window", Cause: "history window: …"}
	large := &Finding{Name: "setting_cache", Cause: "cache: larger than the machine's memory allows"}
	for found, want := range map[string][]*Finding{foundHistory: {window}, foundCache: nil, foundTickets: nil} {
		for _, setting := range []*Finding{window, large} {
			r := Report{Diagnosis: []Finding{{Name: found}}}
			assert.Equal(t, slices.Contains(want, setting), r.explains(setting), "%s, %s", found, setting.Cause)
		}
	}
}

func TestSettingsDoNotMakeTheClassWorse(t *testing.T) {
	t.Parallel()
	before, now := twoSamples()
	s := newSeen(before, now, nil)
	r := s.Report([]Finding{{Name: "setting_topology", Kind: Setting, Class: Degrading}})
	assert.Equal(t, Healthy, r.Class)
	assert.Len(t, r.Diagnosis, 1)
}
