package doctor

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestSettingsUseRatesBetweenSamples of one process.
func TestSettingsUseRatesBetweenSamples(t *testing.T) {
	t.Parallel()
	r := scene(t, "replica-set-6.0.5")
	r.set(300, history...)
	before := r.copy(t)
	r.set(int64(22505), "serverStatus", "uptimeMillis")
	r.set(int64(15_000), enginePath("cache", "history store table insert calls")...)
	found := ask(t, r, settingRules, before)
	require.Len(t, found, 1)
	assert.Contains(t, found[0].Evidence, "1,500 old versions a second were written to the history store in the last 10s")

	r.set(101, "serverStatus", "pid") // a restart
	found = ask(t, r, settingRules, before)
	require.Len(t, found, 1)
	assert.Contains(t, found[0].Evidence, "667 old versions a second were written to the history store on average since the server's start 23s ago")

	found = ask(t, r, settingRules, scene(t, "no-role-6.0.5")) // reported nothing
	require.Len(t, found, 1)
	assert.Contains(t, found[0].Evidence, "on average since the server's start")
}

// TestSettingsUseWaitsBetweenSamples: waits during the server's start no longer
// count.
func TestSettingsUseWaitsBetweenSamples(t *testing.T) {
	t.Parallel()
	r := scene(t, "replica-set-7.0")
	r.set(int64(211_000), append(wtime, "totalMillis")...)
	before := r.copy(t)
	r.set(int64(22505), "serverStatus", "uptimeMillis")
	require.Empty(t, ask(t, r, settingRules, before))
	r.set(int64(2310), append(wtime, "num")...)
	require.Empty(t, ask(t, r, settingRules, before), "200 more waited not at all")
	r.set(int64(231_000), append(wtime, "totalMillis")...)
	found := ask(t, r, settingRules, before)
	require.Len(t, found, 1)
	assert.Contains(t, found[0].Evidence, "200 writes waited 100 ms each")
}
