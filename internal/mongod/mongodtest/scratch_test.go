package mongodtest

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestScratchOfADeadOwnerIsRemovedAndOfALivingOneStays(t *testing.T) {
	t.Parallel()
	dead, err := newScratch()
	require.NoError(t, err)
	// What the system does when the owner is killed.
	require.NoError(t, dead.lock.Unlock())
	living, err := newScratch()
	require.NoError(t, err)
	require.NoDirExists(t, dead.path)
	require.NoFileExists(t, dead.lock.Path())

	next, err := newScratch()
	require.NoError(t, err)
	require.DirExists(t, living.path)
	for _, s := range []*scratch{living, next} {
		require.NoError(t, s.remove())
		require.NoDirExists(t, s.path)
		_, err := os.Stat(s.lock.Path())
		require.ErrorIs(t, err, os.ErrNotExist)
	}
}
