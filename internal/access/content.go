package access

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
)

// readAccessFile returns the content of the file and what was read. A file that
// others than its owner may write is refused: who can write it can do all.
func readAccessFile(path string) ([]byte, os.FileInfo, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, fmt.Errorf("read the access file: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, nil, fmt.Errorf("look at the access file: %w", err)
	case !info.Mode().IsRegular():
		return nil, nil, fmt.Errorf("read the access file: %s is not a file", path)
	case info.Size() > maxFileBytes:
		return nil, nil, fmt.Errorf("read the access file: %s has %d bytes; allowed are %d", path, info.Size(), maxFileBytes)
	}
	if mode := info.Mode().Perm(); hasModes && mode&0o022 != 0 {
		return nil, nil, fmt.Errorf("refuse the access file: others than its owner may write %s, its mode is %04o; set it right with: chmod 600 %s", path, mode, path)
	}
	content, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err != nil {
		return nil, nil, fmt.Errorf("read the access file: %w", err)
	}
	if len(content) > maxFileBytes {
		return nil, nil, fmt.Errorf("read the access file: %s grew beyond %d bytes", path, maxFileBytes)
	}
	return content, info, nil
}

// read returns the content of the file. One that belongs to somebody else is
// refused: he can write it, whatever its mode.
func (g *Guard) read() ([]byte, os.FileInfo, error) {
	content, info, err := readAccessFile(g.path)
	if err != nil {
		return nil, nil, err
	}
	if owner, ok := ownerOf(info); ok && !trusted(owner, os.Geteuid()) {
		return nil, nil, fmt.Errorf("refuse the access file: %s belongs to the user %d; allowed are root and the user of the daemon, %d: chown it", g.path, owner, os.Geteuid())
	}
	return content, info, nil
}

// trusted reports whether a file of that owner may say who may do what.
func trusted(owner, self int) bool { return owner == 0 || owner == self }

// hasModes is false on Windows, whose files have no such bits.
const hasModes = runtime.GOOS != "windows"

// warn says that others may read the file, which holds no tokens, or may put
// another in its place. Both are common, and so no reason to refuse it.
func (g *Guard) warn(info os.FileInfo) {
	if !hasModes {
		return
	}
	if mode := info.Mode().Perm(); mode&0o004 != 0 {
		g.logger.Warn("everybody on this machine may read the access file; it holds no tokens, but names and what they may do", "file", g.path, "mode", fmt.Sprintf("%04o", mode))
	}
	dirs := []string{filepath.Dir(g.path)}
	if target, err := filepath.EvalSymlinks(g.path); err == nil && filepath.Dir(target) != dirs[0] {
		dirs = append(dirs, filepath.Dir(target))
	}
	for _, dir := range dirs {
		if d, err := os.Stat(dir); err == nil && d.Mode().Perm()&0o022 != 0 && d.Mode()&os.ModeSticky == 0 {
			g.logger.Warn("others than its owner may write to the folder of the access file, and so replace it; set it right with chmod go-w", "folder", dir, "mode", fmt.Sprintf("%04o", d.Mode().Perm()))
		}
	}
}
