package access

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func newEntry(name string) Entry {
	return Entry{Name: name, Scopes: []Scope{Ingest}, Quota: NoQuota()}
}

func TestEditKeepsCommentsAndOrder(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "access.yaml")
	require.NoError(t, os.WriteFile(path, []byte(`# ours
identities:
  # the first
  - name: a # of the roof
    scopes: [read] # only
    certificate: cn:a
  # the second
  - {name: b, scopes: [admin], certificate: cn:b}
# the end
`), 0o640))
	e := newEntry("c: d")
	e.SensorPrefix, e.Certificate, e.Quota.ActiveSensors = "#x", "dns:c", 5
	e.Expires = time.Date(2027, 1, 2, 3, 4, 5, 0, time.UTC)
	require.NoError(t, Add(t.Context(), path, e, ""))
	require.NoError(t, Remove(t.Context(), path, "b"))
	require.ErrorIs(t, Remove(t.Context(), path, "b"), ErrNoIdentity)
	require.ErrorIs(t, Add(t.Context(), path, newEntry("a"), HashOf("x")), ErrIdentityExists)
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, `# ours
identities:
  # the first
  - name: a # of the roof
    scopes: [read] # only
    certificate: cn:a
  - name: 'c: d'
    certificate: dns:c
    sensor_prefix: '#x'
    expires: "2027-01-02T03:04:05Z"
    scopes: [ingest]
    quota:
      active_sensors: 5
# the end
`, string(content))
	info, err := os.Stat(path)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o640), info.Mode().Perm(), "the mode stays")
}

func TestNewFileIsPrivate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	link := filepath.Join(dir, "link")
	path := filepath.Join(dir, "access.yaml")
	require.NoError(t, Add(t.Context(), path, newEntry("a"), HashOf("a")))
	require.NoError(t, os.Symlink(path, link))
	require.NoError(t, Add(t.Context(), link, newEntry("b"), HashOf("b")))
	info, err := os.Lstat(link)
	require.NoError(t, err)
	assert.Equal(t, os.ModeSymlink, info.Mode().Type(), "a link stays one")
	info, err = os.Stat(path)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	entries, err := Load(path)
	require.NoError(t, err)
	assert.Len(t, entries, 2)
	for _, text := range []string{"# mine", "identities: [] # none\n", "identities:\n"} {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		require.NoError(t, Add(t.Context(), path, newEntry("a"), HashOf("a")), text)
		content, err := os.ReadFile(path)
		require.NoError(t, err)
		assert.Contains(t, string(content), "\n  - name: a\n", text)
		if i := len("# mine"); text[0] == '#' {
			assert.Equal(t, "# mine\n", string(content[:i+1]))
		}
	}
}

func TestInvalidFileIsNotEdited(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "access.yaml")
	require.NoError(t, os.WriteFile(path, []byte("identities: {}\n"), 0o600))
	require.ErrorContains(t, Add(t.Context(), path, newEntry("a"), HashOf("a")), path+":1: identities: expected a list")
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, "identities: {}\n", string(content))
	bad := newEntry("\x00")
	bad.SensorPrefix = "\t"
	require.ErrorContains(t, Add(t.Context(), path, bad, HashOf("a")), "sensor_prefix: only printable characters")
}

func TestConcurrentEditsLoseNothing(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "access.yaml")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var changing sync.WaitGroup
	const n = 20
	for i := range n {
		changing.Go(func() {
			name := fmt.Sprint("n", i)
			assert.NoError(t, Add(ctx, path, newEntry(name), HashOf(name)))
		})
	}
	changing.Wait()
	entries, err := Load(path)
	require.NoError(t, err)
	assert.Len(t, entries, n)
	left, err := filepath.Glob(filepath.Join(filepath.Dir(path), ".new-*"))
	require.NoError(t, err)
	assert.Empty(t, left)
}
