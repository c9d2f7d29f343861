package mongod

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestUnusableMongodIsExplained(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, row := range map[string]struct {
		text string
		mode os.FileMode
		want string
	}{
		"is not there":                {want: "no such file"},
		"may not be run":              {text: "#!/bin/sh\n", mode: 0o644, want: "permission denied"},
		"is no mongod":                {text: "#!/bin/sh\necho hello\n", mode: 0o755, want: `it is not a mongod, --version printed "hello"`},
		"is too old":                  {text: "#!/bin/sh\necho db version v4.4.29\n", mode: 0o755, want: "it is version 4.4.29, and Brim needs 6.0 or newer"},
		"fails and says why":          {text: "#!/bin/sh\necho broken >&2; exit 7\n", mode: 0o755, want: "exit status 7: broken"},
		"needs a loader that is gone": {text: "#!/no/such/shell\n", mode: 0o755, want: "its loader is missing"},
		"needs a newer C library": {
			text: "#!/bin/sh\necho \"mongod: libc.so.6: version 'GLIBC_2.34' not found\" >&2; exit 1\n", mode: 0o755, want: "C library is too old",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(dir, name)
			if row.mode != 0 {
				writeProgram(t, path, []byte(row.text), row.mode)
			}
			_, err := Obtain(t.Context(), Config{DataDir: dir, Bin: path})
			require.ErrorContains(t, err, row.want)
			require.ErrorContains(t, err, path)
		})
	}
}

// writeProgram prevents forks by other tests: they would inherit the open file,
// and a file that is open for writing cannot be executed.
func writeProgram(t *testing.T, path string, text []byte, mode os.FileMode) {
	t.Helper()
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	require.NoError(t, os.WriteFile(path, text, mode))
}

// The loader itself is used, so the program must be a real one: a copy of the
// shell with a changed name of its C library.
func TestMissingLibraryIsNamed(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("how a missing library is reported differs")
	}
	program, err := os.ReadFile("/bin/sh")
	require.NoError(t, err)
	broken := bytes.Replace(program, []byte("libc.so.6\x00"), []byte("libcurl.s\x00"), 1)
	require.NotEqual(t, program, broken, "/bin/sh is not linked to libc.so.6")
	path := filepath.Join(t.TempDir(), "mongod")
	writeProgram(t, path, broken, 0o755)

	_, err = Obtain(t.Context(), Config{DataDir: t.TempDir(), Bin: path})
	require.ErrorIs(t, err, ErrUnavailable)
	require.ErrorContains(t, err, "these shared libraries are missing on this machine: libcurl.s")
}

func TestMissingLibrariesNameTheirPackages(t *testing.T) {
	t.Parallel()
	require.Equal(t, "these shared libraries are missing on this machine: libcurl.so.4; "+
		"install with apt-get install libcurl4 (Debian, Ubuntu) or dnf install libcurl (Fedora, RHEL)",
		missingText([]string{"libcurl.so.4"}))
	require.Equal(t, "these shared libraries are missing on this machine: libssl.so.3, liblzma.so.5, libcrypto.so.3; "+
		"install with apt-get install liblzma5 libssl3 (Debian, Ubuntu) or dnf install openssl-libs xz-libs (Fedora, RHEL)",
		missingText([]string{"libssl.so.3", "liblzma.so.5", "libcrypto.so.3"}))
	require.Equal(t, "these shared libraries are missing on this machine: libodd.so.1; install the packages that contain them", missingText([]string{"libodd.so.1"}))
}
