package compression

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// dropCache evicts a mongod's files from the page cache, so that reads go to the disk. The
// caches of the disk and of a VM's host are out of reach.
func dropCache(dir string) error {
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".wt" {
			return ignoreGone(err)
		}
		file, err := os.Open(path)
		if err != nil {
			return ignoreGone(err)
		}
		defer file.Close()
		return forget(file)
	})
	if err != nil {
		return fmt.Errorf("drop the page cache of %s: %w", dir, err)
	}
	return nil
}

// forget drops a file's clean pages from memory.
func forget(file *os.File) error { return unix.Fadvise(int(file.Fd()), 0, 0, unix.FADV_DONTNEED) }

// ignoreGone ignores files that mongod removes meanwhile.
func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

var errStays = errors.New("files stay in memory")

// provesCold checks with a file of its own whether the file system allows dropping pages.
func provesCold(dir string) (err error) {
	file, err := os.CreateTemp(dir, "cold-")
	if err != nil {
		return fmt.Errorf("try to drop a file from memory: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close(), os.Remove(file.Name())) }()
	const size = 1 << 20
	if _, err := file.Write(make([]byte, size)); err != nil {
		return fmt.Errorf("try to drop a file from memory: %w", err)
	}
	if err := file.Sync(); err != nil {
		return fmt.Errorf("try to drop a file from memory: %w", err)
	}
	const attempts = 3 // the kernel may be using a page
	for range attempts {
		if err := forget(file); err != nil {
			return fmt.Errorf("try to drop a file from memory: %w", err)
		}
		// A non-blocking read fails at once if the page is not in memory.
		switch _, err := unix.Preadv2(int(file.Fd()), [][]byte{make([]byte, 1)}, size/2, unix.RWF_NOWAIT); {
		case errors.Is(err, unix.EAGAIN):
			return nil
		case err != nil:
			return fmt.Errorf("see whether a file is in memory: %w", err)
		}
	}
	return errStays
}
