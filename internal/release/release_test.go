package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// stamped returns a release of this machine's platform.
func stamped(t *testing.T) *release {
	t.Helper()
	return &release{
		root: filepath.Join("..", ".."), out: t.TempDir(), scratch: t.TempDir(), log: t.Output(), platforms: []string{here},
		version: "v1.2.3-try", revision: "4f0c2aa", date: released, flags: []string{"-buildvcs=false"},
		compression: gzip.BestSpeed,
	}
}

var (
	released = time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	here     = runtime.GOOS + "/" + runtime.GOARCH
)

// packHere makes the archive for this machine, as a release does but for the
// flags of the build: with those of all other builds it is compiled already. What
// is in scratch is not built again.
func packHere(t *testing.T, scratch string) []string {
	t.Helper()
	r := stamped(t)
	r.scratch = scratch
	paths, err := r.pack(t.Context())
	require.NoError(t, err)
	require.Len(t, paths, 2)
	return paths
}

// unpack returns the files of a .tar.gz by their names.
func unpack(t *testing.T, archive []byte) map[string][]byte {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(archive))
	require.NoError(t, err)
	files := make(map[string][]byte)
	for r := tar.NewReader(z); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		require.NoError(t, err)
		assert.Equal(t, released, header.ModTime.UTC(), header.Name)
		assert.Zero(t, header.Uid+header.Gid, header.Name)
		files[header.Name], err = io.ReadAll(r)
		require.NoError(t, err)
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	return content
}

func TestAReleaseForThisMachine(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("NOT RUN: it looks into a .tar.gz, and Windows gets a .zip")
	}
	scratch := t.TempDir()
	paths := packHere(t, scratch)
	again := read(t, packHere(t, scratch)[1])
	archive := read(t, paths[0])
	files := unpack(t, archive)
	top := "brim-v1.2.3-try-" + runtime.GOOS + "-" + runtime.GOARCH + "/"
	for _, name := range []string{
		"brim", "README.md", "ARCHITECTURE.md", "CHANGELOG.md", "LICENSE", "LICENSES-OF-OTHERS.txt", "docs/upgrade.md", "docs/backup.md",
		"deploy/README.md", "deploy/RUNBOOK.md", "deploy/mongodb/roles.js", "deploy/balancer/nginx.conf",
		"man/man1/brim.1", "man/man1/brim-serve.1", "man/man1/brim-journal-replay.1",
		"completions/brim.bash", "completions/_brim", "completions/brim.fish", "completions/brim.ps1",
	} {
		assert.NotEmpty(t, files[top+name], name)
	}
	if runtime.GOOS == "linux" {
		assert.Contains(t, string(files[top+"deploy/systemd/brim.service"]), "ExecStart=")
		installed := regexp.MustCompile(`(?m)^install .* (deploy/\S+) /`).FindAllSubmatch(files[top+"deploy/README.md"], -1)
		require.Len(t, installed, 3, "files that the service is installed from")
		for _, m := range installed {
			assert.NotEmpty(t, files[top+string(m[1])], "%s", m[1])
		}
	}
	for name := range files {
		assert.True(t, strings.HasPrefix(name, top), name)
	}
	assert.Contains(t, string(files[top+"man/man1/brim-serve.1"]), `"Nov 2026" "brim v1.2.3-try" "Brim"`)
	for _, module := range []string{"go.mongodb.org/mongo-driver/v2", "google.golang.org/grpc", "\nGo go1."} {
		assert.Contains(t, string(files[top+"LICENSES-OF-OTHERS.txt"]), module)
	}

	t.Run("the program says what it was stamped with", func(t *testing.T) {
		t.Parallel()
		program := filepath.Join(t.TempDir(), "brim")
		require.NoError(t, os.WriteFile(program, files[top+"brim"], 0o755))
		said, err := output(exec.CommandContext(t.Context(), program, "version", "--output", "json"))
		require.NoError(t, err)
		var version map[string]string
		require.NoError(t, json.Unmarshal([]byte(said), &version))
		assert.Equal(t, map[string]string{
			"version": "v1.2.3-try", "revision": "4f0c2aa", "date": "2026-11-21T10:00:00Z", "go": runtime.Version(), "platform": here,
		}, version)
	})
	t.Run("bash takes its completions", func(t *testing.T) {
		t.Parallel()
		cmd := exec.CommandContext(t.Context(), "bash", "-n")
		cmd.Stdin = bytes.NewReader(files[top+"completions/brim.bash"])
		_, err := output(cmd)
		assert.NoError(t, err)
	})
	t.Run("the checksums are those of the archives", func(t *testing.T) {
		t.Parallel()
		sum := sha256.Sum256(archive)
		assert.Equal(t, hex.EncodeToString(sum[:])+"  "+filepath.Base(paths[0])+"\n", string(read(t, paths[1])))
		assert.Equal(t, string(read(t, paths[1])), string(again), "what was packed a moment later has other bytes")
	})
}

func TestWindowsGetsAZip(t *testing.T) {
	t.Parallel()
	r := stamped(t)
	program := filepath.Join(r.scratch, "windows-amd64", "brim.exe") // what is there is not built
	require.NoError(t, os.MkdirAll(filepath.Dir(program), 0o755))
	require.NoError(t, os.WriteFile(program, []byte("MZ"), 0o755))
	name, archive, err := r.packOne(t.Context(), "windows/amd64", make(map[string][]byte))
	require.NoError(t, err)
	assert.Equal(t, "brim-v1.2.3-try-windows-amd64.zip", name)
	z, err := zip.NewReader(bytes.NewReader(archive), int64(len(archive)))
	require.NoError(t, err)
	require.Len(t, z.File, 3)
	assert.Equal(t, "brim-v1.2.3-try-windows-amd64/", z.File[0].Name)
	assert.Equal(t, os.FileMode(0o755)|os.ModeDir, z.File[0].Mode())
	assert.Equal(t, "brim-v1.2.3-try-windows-amd64/brim.exe", z.File[2].Name)
	assert.Equal(t, released, z.File[2].Modified.UTC())
	assert.Equal(t, os.FileMode(0o755), z.File[2].Mode())
}

func TestAVersionFitsAFileAndTheStamp(t *testing.T) {
	t.Parallel()
	for _, good := range []string{"v1.2.0", "4f0c2aa-dirty", "v1.0.0-rc.1+linux", "v1.2.0-4-g4f0c2aa"} {
		assert.Regexp(t, versionForm, good)
	}
	for _, bad := range []string{"", "v1 2", "../v1", "v1/2", "-v1", "v1'", strings.Repeat("1", 101)} {
		assert.NotRegexp(t, versionForm, bad)
	}
}

func TestACheckoutIsStampedWithItsCommit(t *testing.T) {
	t.Parallel()
	r := &release{root: t.TempDir()}
	git := func(args ...string) {
		_, err := output(exec.CommandContext(t.Context(), "git", append([]string{"-C", r.root, "-c", "user.name=n", "-c", "user.email=n@example.org"}, args...)...))
		require.NoError(t, err)
	}
	git("init", "-q")
	require.NoError(t, os.WriteFile(filepath.Join(r.root, "a"), nil, 0o600))
	git("add", "a")
	git("commit", "-q", "-m", "a", "--date", "2026-11-21T10:00:00+01:00")
	git("tag", "-a", "-m", "v", "v1.0.0")
	require.NoError(t, r.readStamp(t.Context(), ""))
	assert.Equal(t, "v1.0.0", r.version)
	assert.Len(t, r.revision, 40)
	assert.Equal(t, time.UTC, r.date.Location())

	require.NoError(t, os.WriteFile(filepath.Join(r.root, "a"), []byte("changed"), 0o600))
	require.NoError(t, r.readStamp(t.Context(), "v9"))
	assert.Equal(t, "v9", r.version)
	assert.True(t, strings.HasSuffix(r.revision, "+dirty"), r.revision)
	assert.ErrorContains(t, r.readStamp(t.Context(), "v/9"), "allowed: letters")
}

func TestWhatCannotBeReleased(t *testing.T) {
	t.Parallel()
	err := run(context.Background(), []string{"--platforms", "linux/amd64,plan9/mips"}, io.Discard, io.Discard)
	assert.ErrorContains(t, err, `"plan9/mips" does not fit; allowed: linux/amd64, linux/arm64,`)
	assert.ErrorContains(t, run(context.Background(), []string{"now"}, io.Discard, io.Discard), "takes no arguments")
	var text bytes.Buffer
	assert.ErrorContains(t, addLicences(&text, "example.org/bare v1", t.TempDir()), "there is none")
}
