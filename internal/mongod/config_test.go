package mongod

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestArgumentsOfADefaultServer(t *testing.T) {
	t.Parallel()
	config := Config{}.withDefaults()
	args := config.args(files{db: "/d/db", log: "/d/log"}, 20_001)
	assert.True(t, startedWith(args, "--dbpath", "/d/db", "--logpath", "/d/log", "--bind_ip", "127.0.0.1", "--port", "20001",
		"--wiredTigerCollectionBlockCompressor", "snappy", "--replSet", "brim", "--oplogSize", "1024"), args)
	assert.Contains(t, args, "--nounixsocket")
	assert.NotContains(t, args, "--wiredTigerCacheSizeGB", "mongod chooses by itself")
	assert.Contains(t, strings.Join(args, " "), "--setParameter minSnapshotHistoryWindowInSeconds=0")
}

func TestGivenParameterOverridesTheDefault(t *testing.T) {
	t.Parallel()
	config := Config{Parameters: map[string]string{"minSnapshotHistoryWindowInSeconds": "300"}}.withDefaults()
	args := strings.Join(config.args(files{}, 1), " ")
	require.Contains(t, args, "minSnapshotHistoryWindowInSeconds=300")
	require.NotContains(t, args, "minSnapshotHistoryWindowInSeconds=0")
}

func TestCheckpointsAndTheEngineAreSetByArguments(t *testing.T) {
	t.Parallel()
	config := Config{CheckpointInterval: 30 * time.Second, EngineConfig: "checkpoint=(wait=30)"}.withDefaults()
	args := config.args(files{}, 1)
	require.True(t, startedWith(args, "--syncdelay", "30", "--wiredTigerEngineConfigString", "checkpoint=(wait=30)"), args)

	config = Config{}.withDefaults()
	args = config.args(files{}, 1)
	require.NotContains(t, args, "--syncdelay", "mongod has its own")
	require.NotContains(t, args, "--wiredTigerEngineConfigString")
}

func TestStartedWith(t *testing.T) {
	t.Parallel()
	args := []string{"mongod", "--dbpath", "/a", "--port", "1"}
	require.True(t, startedWith(args, "--dbpath", "/a"))
	require.True(t, startedWith(args, "--port", "1", "--dbpath", "/a"))
	require.False(t, startedWith(args, "--dbpath", "/a/b"))
	require.False(t, startedWith(args, "--dbpath", "/a", "--logpath", "/l"))
	require.False(t, startedWith([]string{"--dbpath"}, "--dbpath", ""))
	require.False(t, startedWith(nil, "--dbpath", "/a"))
}

func TestCacheDirectory(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_CACHE_HOME", filepath.Join(home, "x"))
	for want, config := range map[string]Config{
		filepath.Join(home, "given"):     {CacheDir: filepath.Join(home, "given")},
		filepath.Join(home, "x", "brim"): {},
	} {
		got, err := config.cacheDir()
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	t.Setenv("XDG_CACHE_HOME", "")
	got, err := Config{}.cacheDir()
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(got, home), got)
	require.Equal(t, "brim", filepath.Base(got))
}

func TestDrawnPortIsBelowTheEphemeralOnes(t *testing.T) {
	t.Parallel()
	for range 20 {
		port, err := pickPort(context.Background())
		require.NoError(t, err)
		require.GreaterOrEqual(t, port, firstPort)
		require.LessOrEqual(t, port, lastPort)
	}
}

func TestStateFileIsKeptAndDamagedOneIgnored(t *testing.T) {
	t.Parallel()
	f, err := openFiles(t.TempDir())
	require.NoError(t, err)
	require.Zero(t, f.loadLastRun())
	require.NoError(t, f.saveLastRun(lastRun{Port: 20_001, Pid: 7}))
	require.Equal(t, lastRun{Port: 20_001, Pid: 7}, f.loadLastRun())
	require.NoError(t, f.saveLastRun(lastRun{Port: 70_000}))
	require.Zero(t, f.loadLastRun(), "no port has that number")
}

// TestCredentialsAreRepaired: missing or damaged files, or those readable by other
// users, are created again; the rest is kept.
func TestCredentialsAreRepaired(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		damage         func(f files)
		newURI, newKey bool
	}{
		"nothing":                   {damage: func(files) {}},
		"the URI is gone":           {damage: func(f files) { _ = os.Remove(f.uri) }, newURI: true},
		"the URI is cut off":        {damage: func(f files) { _ = os.Truncate(f.uri, 30) }, newURI: true},
		"the URI is open to others": {damage: func(f files) { _ = os.Chmod(f.uri, 0o644) }, newURI: true},
		"the key is gone":           {damage: func(f files) { _ = os.Remove(f.key) }, newKey: true},
		"the key is empty":          {damage: func(f files) { _ = os.Truncate(f.key, 0) }, newKey: true},
		"the key is open to others": {damage: func(f files) { _ = os.Chmod(f.key, 0o644) }, newKey: true},
		"the folder is open":        {damage: func(f files) { _ = os.Chmod(f.dir, 0o755) }},
	} {
		f, err := openFiles(t.TempDir())
		require.NoError(t, err)
		s := &Server{files: f, port: 20_001, config: Config{Auth: true, Database: "test"}}
		s.credentials, err = f.credentials()
		require.NoError(t, err)
		require.NoError(t, s.writeURI())
		before := s.credentials
		c.damage(f)
		s.credentials, err = f.credentials()
		require.NoError(t, err)
		require.NoError(t, s.writeURI())
		assert.Equal(t, c.newURI, s.credentials.owner != before.owner, name)
		assert.Equal(t, c.newKey, s.credentials.key != before.key, name)
		assert.NotEqual(t, before.daemon, s.credentials.daemon, name)
		for path, want := range map[string]os.FileMode{f.uri: 0o600, f.key: 0o600, f.dir: 0o700} {
			info, err := os.Stat(path)
			require.NoError(t, err)
			assert.Equal(t, want, info.Mode().Perm(), "%s: %s", name, path)
		}
		assert.Contains(t, readSecret(f.uri), "owner:"+s.credentials.owner+"@", name)
	}
}
