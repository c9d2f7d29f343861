package compression

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// dropCache takes what the system has in memory of a mongod's files away, so
// that a read of them goes to the disk. The disk's own memory, or that of a
// virtual machine's host, is out of reach.
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

// forget drops a file's pages that are not to be written any more.
func forget(file *os.File) error { return unix.Fadvise(int(file.Fd()), 0, 0, unix.FADV_DONTNEED) }

// ignoreGone is for files that the mongod removes meanwhile.
func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

var errStays = errors.New("files stay in memory")

// provesCold tries with a file of its own whether the file system in a folder
// lets pages be dropped.
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
	const attempts = 3 // the kernel may just be using a page
	for range attempts {
		if err := forget(file); err != nil {
			return fmt.Errorf("try to drop a file from memory: %w", err)
		}
		// A read that must not wait ends at once where the page is not in memory.
		switch _, err := unix.Preadv2(int(file.Fd()), [][]byte{make([]byte, 1)}, size/2, unix.RWF_NOWAIT); {
		case errors.Is(err, unix.EAGAIN):
			return nil
		case err != nil:
			return fmt.Errorf("see whether a file is in memory: %w", err)
		}
	}
	return errStays
}
