package mongodtest

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/gofrs/flock"
	"github.com/stretchr/testify/require"
)

func TestScratchOfDeadOwnerIsRemoved(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	var dirs [4]string
	for i := range dirs {
		var err error
		dirs[i], err = newScratch()
		require.NoError(t, err)
	}
	dead, empty, living, young := dirs[0], dirs[1], dirs[2], dirs[3]
	for _, dir := range []string{dead, living, young} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, "mongod"), 0o700))
	}
	lock := flock.New(filepath.Join(living, "mongod", "brim.lock"))
	require.NoError(t, lock.Lock())
	t.Cleanup(func() { require.NoError(t, lock.Unlock()) })
	for _, dir := range []string{dead, empty, living} {
		require.NoError(t, os.Chtimes(dir, time.Time{}, time.Now().Add(-time.Hour)))
	}

	_, err := newScratch()
	require.NoError(t, err)
	require.NoDirExists(t, dead)
	require.NoDirExists(t, empty, "its owner never got as far as to lock it")
	require.DirExists(t, living)
	require.DirExists(t, young)
}
