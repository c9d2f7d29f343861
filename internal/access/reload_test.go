package access

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// inPlace overwrites the file like cp and tee, unlike editors.
func (g *guarded) inPlace(t *testing.T, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(g.path, []byte(text), 0o600))
}

// knows reports whether a token is known.
func (g *guarded) knows(token string) bool {
	_, err := g.Identify(Credentials{Secret: token})
	return err == nil
}

func TestPartlyWrittenFileIsNotApplied(t *testing.T) {
	t.Parallel()
	north := entry("north", northToken, "scopes: [ingest]", "sensor_prefix: n-")
	g := guardOf(t, north)
	whole := "identities:\n" + north + entry("south", "brim_south", "scopes: [ingest]", "sensor_prefix: s-")
	first := strings.Index(whole, "    sensor_prefix: n-")
	second := strings.LastIndex(whole, "    sensor_prefix: s-")
	// Each read sees another part of the file, truncated where it is still valid.
	for _, end := range []int{first, second, first} {
		g.inPlace(t, whole[:end])
		g.poll()
		i, err := g.Identify(Credentials{Secret: northToken})
		require.NoError(t, err)
		assert.Equal(t, "n-", i.Prefix(), "what is being written is not in force")
		assert.False(t, g.knows("brim_south"))
	}
	g.inPlace(t, whole)
	g.settle()
	i, err := g.Identify(Credentials{Secret: "brim_south"})
	require.NoError(t, err)
	assert.Equal(t, "s-", i.Prefix())
	assert.NotContains(t, g.log.String(), "level=ERROR")
}

func TestTruncatedFileIsRefused(t *testing.T) {
	t.Parallel()
	north := entry("north", northToken, "scopes: [ingest]", "sensor_prefix: n-1")
	for name, c := range map[string]struct{ text, says string }{
		"nothing":           {"", ":1: the access file has no identities any more; to lock all clients out write: identities: []"},
		"a comment":         {"# ours\n", "has no identities any more"},
		"the first line":    {"identities:\n", "has no identities any more"},
		"half of a value":   {"identities:\n" + strings.TrimSuffix(north, "1\n"), ":5: the last line of the access file has no line break"},
		"without its break": {"identities: []", ":1: the last line of the access file has no line break"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := guardOf(t, north)
			g.inPlace(t, c.text)
			g.settle()
			i, err := g.Identify(Credentials{Secret: northToken})
			require.NoError(t, err)
			assert.Equal(t, "n-1", i.Prefix())
			require.ErrorContains(t, g.Reload(), c.says)
			assert.Equal(t, 1, strings.Count(g.log.String(), "level=ERROR"), g.log)
			g.inPlace(t, "identities: []\n")
			require.NoError(t, g.Reload())
			assert.False(t, g.knows(northToken), "an explicit empty list locks all clients out")
		})
	}
	path := filepath.Join(t.TempDir(), "access.yaml")
	require.NoError(t, os.WriteFile(path, []byte("identities: []"), 0o600))
	_, err := Open(Config{Path: path})
	require.ErrorContains(t, err, path+":1: the last line of the access file has no line break")
	require.NoError(t, Add(t.Context(), path, newEntry("a"), HashOf("a")), "a command writes one")
	_, err = Open(Config{Path: path})
	require.NoError(t, err)
}

func TestReloadAppliesFileAtOnce(t *testing.T) {
	t.Parallel()
	g := guardOf(t, entry("north", northToken))
	g.inPlace(t, "identities:\n"+entry("south", "brim_south"))
	require.NoError(t, g.Reload())
	assert.True(t, g.knows("brim_south"))
	assert.False(t, g.knows(northToken))
}

// TestLargeUnchangedFileIsReadOnceAMinute: its content changes, but neither time nor size.
func TestLargeUnchangedFileIsReadOnceAMinute(t *testing.T) {
	t.Parallel()
	padding := "# " + strings.Repeat("x", smallFile) + "\n"
	g := guardOf(t, entry("north", northToken)+padding)
	info, err := os.Stat(g.path)
	require.NoError(t, err)
	g.inPlace(t, "identities:\n"+entry("north", "brim_other")+padding)
	require.NoError(t, os.Chtimes(g.path, info.ModTime(), info.ModTime()))
	g.clock.pass(rereadInterval / 2)
	g.settle()
	require.True(t, g.knows(northToken))
	g.clock.pass(rereadInterval / 2)
	g.settle()
	assert.False(t, g.knows(northToken))
	assert.True(t, g.knows("brim_other"))
}

func TestFileOfAnotherUserIsRefused(t *testing.T) {
	t.Parallel()
	const other = 1234
	assert.True(t, trusted(0, other))
	assert.True(t, trusted(other, other))
	assert.False(t, trusted(other, 0), "root trusts only root")
	assert.False(t, trusted(other, other+1))
	g := guardOf(t, entry("north", northToken))
	info, err := os.Stat(g.path)
	require.NoError(t, err)
	if owner, known := ownerOf(info); known {
		assert.Equal(t, os.Geteuid(), owner)
	}
	if os.Geteuid() != 0 {
		return // only root can give files away
	}
	require.NoError(t, os.Chown(g.path, other, other))
	require.ErrorContains(t, g.Reload(), "belongs to user 1234; allowed: root and the daemon's user, 0: chown it")
	assert.True(t, g.knows(northToken))
	_, err = Open(Config{Path: g.path})
	require.ErrorContains(t, err, "belongs to user 1234")
	_, err = Load(g.path)
	require.NoError(t, err, "commands may read it, and keep its owner")
}

func TestChangeWithSameSizeAndTimeIsApplied(t *testing.T) {
	t.Parallel()
	g := guardOf(t, entry("north", northToken))
	stamp := time.Now()
	set := func(token string) { // same inode, size and time
		require.NoError(t, os.WriteFile(g.path, []byte("identities:\n"+entry("north", token)), 0o600))
		require.NoError(t, os.Chtimes(g.path, stamp, stamp))
		g.settle()
	}
	set("brim_one")
	_, err := g.Identify(Credentials{Secret: "brim_one"})
	require.NoError(t, err)
	set("brim_two")
	_, err = g.Identify(Credentials{Secret: "brim_two"})
	require.NoError(t, err)
}
