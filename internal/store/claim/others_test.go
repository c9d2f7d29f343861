package claim

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// daemons returns the daemons that a process finds.
func (p *process) daemons(t *testing.T) (names []string) {
	t.Helper()
	found, err := p.Others(t.Context())
	require.NoError(t, err)
	for _, one := range found {
		names = append(names, one.Daemon+"@"+one.Address)
	}
	slices.Sort(names)
	return names
}

func newDaemon(t *testing.T, p *process, name, address string) *process {
	t.Helper()
	p.cfg.Holder.Daemon, p.cfg.Holder.Address, p.cfg.Holder.Streams = name, address, []string{"readings"}
	require.NoError(t, p.Ensure(t.Context()))
	return p
}

func TestOthersAreThoseWhoseBeatChanges(t *testing.T) {
	t.Parallel()
	db := fresh(t)
	a := newDaemon(t, newProcess(db, 1, "1:1", "a1", "a0"), "a", "a:8430")
	b := newDaemon(t, newProcess(db, 2, "1:2", "b1", "b0"), "b", "b:8430")
	c := newDaemon(t, newProcess(db, 3, "1:3", "c1"), "c", "")
	newDaemon(t, newProcess(db, 4, "1:4", "old"), "", "") // of an earlier release
	assert.Equal(t, []string{"@", "b@b:8430", "c@"}, a.daemons(t), "each once, and not itself")

	unreachable := []string{"a:8430"}
	b.cfg.Unreachable = func() []string { return unreachable }
	for range 5 { // 40 s, with frequent reads
		require.NoError(t, b.later(t))
		a.now = a.now.Add(expireAfter / 4)
		a.daemons(t)
	}
	found, err := a.Others(t.Context())
	require.NoError(t, err)
	require.Len(t, found, 1, "the others' beats did not change for as long as judge waits")
	assert.Equal(t, "b", found[0].Daemon)
	assert.Equal(t, []string{"readings"}, found[0].Streams)
	assert.Equal(t, unreachable, found[0].Unreachable)

	require.NoError(t, c.later(t))
	assert.Equal(t, []string{"b@b:8430", "c@"}, a.daemons(t), "c had only paused")
	b.Close(t.Context())
	assert.Equal(t, []string{"c@"}, a.daemons(t), "b ended")
}

// TestOthersLiveOnWhileMongoDBWasAway, since they could not renew their claims.
func TestOthersLiveOnWhileMongoDBWasAway(t *testing.T) {
	t.Parallel()
	db := fresh(t)
	a := newDaemon(t, newProcess(db, 1, "1:1", "a1"), "a", "a:8430")
	newDaemon(t, newProcess(db, 2, "1:2", "b1"), "b", "b:8430")
	assert.Len(t, a.daemons(t), 1)
	a.now = a.now.Add(time.Hour)
	assert.Len(t, a.daemons(t), 1)
	for range 4 {
		a.now = a.now.Add(expireAfter / 4)
		a.daemons(t)
	}
	assert.Empty(t, a.daemons(t))
}

// TestEarlierProcessOfAJournalIsNoOther: it has ended, because this process has its lock.
func TestEarlierProcessOfAJournalIsNoOther(t *testing.T) {
	t.Parallel()
	db := fresh(t)
	newDaemon(t, newProcess(db, 1, "1:1", "killed"), "killed", "a:8430")
	again := newDaemon(t, newProcess(db, 2, "1:1", "again"), "again", "")
	assert.Empty(t, again.daemons(t))
	other := newDaemon(t, newProcess(db, 3, "1:3", "other"), "other", "")
	assert.Equal(t, []string{"again@", "killed@a:8430"}, other.daemons(t))
}
