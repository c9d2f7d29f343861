package doctor

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func causes(found []Finding) []string {
	out := make([]string, len(found))
	for i, f := range found {
		out[i] = f.Cause
	}
	return out
}

// TestRecordedServers without changes.
func TestRecordedServers(t *testing.T) {
	t.Parallel()
	history := "history window: minSnapshotHistoryWindowInSeconds is 300, which bucket streams pay for and do not need"
	arbiter := "topology: an arbiter in place of a member that holds data"
	for name, want := range map[string][]string{
		"standalone-6.0.5": {
			"topology: a standalone server, no replica set",
		},
		"arbiter-6.0.5":             {history, arbiter},
		"arbiter-member-away-6.0.5": {history, arbiter, "topology: members are away or behind"},
	} {
		assert.Equal(t, want, causes(ask(t, scene(t, name), settingRules, nil)), name)
	}
	found := ask(t, scene(t, "arbiter-member-away-6.0.5"), settingRules, nil)
	require.Len(t, found, 3)
	assert.Contains(t, found[1].Evidence, "db3:27017 holds nothing; a majority is 2 of 3 votes, and 2 members hold data: when one of them is away no write is acknowledged by a majority")
	assert.Contains(t, found[2].Evidence, "db2:27017 is away.")
}
