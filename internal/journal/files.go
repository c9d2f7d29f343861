package journal

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"github.com/gofrs/flock"
)

// Files is where a journal keeps its files. What a method has done survives a
// loss of power only after the Sync of that file, and for names after SyncDir.
type Files interface {
	// MakeDir creates a directory, and those above it, where they are missing.
	// Their names survive a loss of power.
	MakeDir(dir string) error
	// Create makes a file that must not exist; Open opens one that must, for
	// reading alone or for writing, too.
	Create(name string) (File, error)
	Open(name string, write bool) (File, error)
	Remove(name string) error
	// Rename replaces what has the new name.
	Rename(from, to string) error
	// List returns the names of the files in a directory, sorted.
	List(dir string) ([]string, error)
	SyncDir(dir string) error
	// Space returns the bytes that can still be written, and those of the whole
	// disk; both are 0 where that cannot be known.
	Space(dir string) (free, total uint64, err error)
	// Lock takes a lock that only one process can have; ErrLocked if it is taken.
	Lock(name string) (Lock, error)
}

// A Lock keeps other processes away until it is closed.
type Lock interface {
	io.Closer
	// Held returns an error if the lock no longer protects anything, because its
	// file or that file's directory was removed or replaced.
	Held() error
}

// A File may be read by several goroutines while one writes it.
type File interface {
	io.ReaderAt
	io.WriterAt
	Truncate(size int64) error
	// Sync returns when what was written survives a loss of power. After an error
	// nobody knows what does, and a later success does not change that.
	Sync() error
	Size() (int64, error)
	io.Closer
}

// ErrLocked says that another process has the lock.
var ErrLocked = errors.New("another process has it open")

const (
	filePerm = 0o640
	dirPerm  = 0o750

	tempSuffix = ".tmp" // of files that are not whole yet
)

// osFiles is the file system.
type osFiles struct{}

type osFile struct{ *os.File }

func (f osFile) Sync() error { return syncData(f.File) }

func (f osFile) Size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// MakeDir also makes the names of new directories survive a loss of power.
func (f osFiles) MakeDir(dir string) error {
	err := os.Mkdir(dir, dirPerm)
	if errors.Is(err, os.ErrNotExist) {
		if err := f.MakeDir(filepath.Dir(dir)); err != nil {
			return err
		}
		err = os.Mkdir(dir, dirPerm)
	}
	if errors.Is(err, os.ErrExist) {
		info, err := os.Stat(dir)
		if err == nil && !info.IsDir() {
			err = fmt.Errorf("%s is not a directory", dir)
		}
		return err
	}
	if err != nil {
		return err
	}
	return f.SyncDir(filepath.Dir(dir))
}

func (osFiles) Create(name string) (File, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, filePerm)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

func (osFiles) Open(name string, write bool) (File, error) {
	flag := os.O_RDONLY
	if write {
		flag = os.O_RDWR
	}
	f, err := os.OpenFile(name, flag, 0)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

func (osFiles) Remove(name string) error     { return os.Remove(name) }
func (osFiles) Rename(from, to string) error { return os.Rename(from, to) }

func (osFiles) List(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		if !e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

func (osFiles) SyncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil // it has no such call: its file system journals names by itself
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Sync(); err != nil {
		return fmt.Errorf("sync directory: %w", err)
	}
	return nil
}

func (osFiles) Space(dir string) (free, total uint64, err error) { return diskSpace(dir) }

// osLock is a lock with the files that were at its paths when it was acquired.
type osLock struct {
	*flock.Flock
	was map[string]os.FileInfo
}

// Held implements Lock.
func (l *osLock) Held() error {
	for path, was := range l.was {
		now, err := os.Stat(path)
		if err != nil {
			return err
		}
		if !os.SameFile(was, now) {
			return fmt.Errorf("%s was replaced after the start", path)
		}
	}
	return nil
}

func (osFiles) Lock(name string) (Lock, error) {
	l := flock.New(name, flock.SetPermissions(filePerm))
	got, err := l.TryLock()
	switch {
	case err != nil:
		return nil, err
	case !got:
		if pid, err := os.ReadFile(name); err == nil && len(pid) > 0 {
			return nil, fmt.Errorf("%w (pid %s)", ErrLocked, pid)
		}
		return nil, ErrLocked
	}
	// For people; a lock without it holds as well.
	_ = os.WriteFile(name, strconv.AppendInt(nil, int64(os.Getpid()), 10), filePerm)
	held := &osLock{Flock: l, was: make(map[string]os.FileInfo, 2)}
	for _, path := range []string{name, filepath.Dir(name)} {
		if held.was[path], err = os.Stat(path); err != nil {
			return nil, errors.Join(err, l.Close())
		}
	}
	return held, nil
}

// writeWhole writes a small file so that there is either all of it or what was
// there before.
func writeWhole(files Files, name string, content []byte) error {
	temp := name + tempSuffix
	if err := files.Remove(temp); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	f, err := files.Create(temp)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(content, 0)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = files.Rename(temp, name)
	}
	if err != nil {
		return errors.Join(err, files.Remove(temp)) // a full disk needs its room
	}
	return files.SyncDir(filepath.Dir(name))
}

// removeTemporary deletes what a process that was killed had not finished. Other
// files in the directory are not the journal's to delete.
func removeTemporary(files Files, dir string) error {
	names, err := files.List(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		whole, ok := strings.CutSuffix(name, tempSuffix)
		if !ok {
			continue
		}
		_, ofSegment := segmentBase(strings.TrimSuffix(strings.TrimSuffix(whole, keysSuffix), corruptSuffix))
		if !ofSegment && whole != markName && whole != lostName {
			continue
		}
		if err := files.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// readWhole returns the bytes of a file that is known to be small.
func readWhole(files Files, name string, limit int64) ([]byte, error) {
	f, err := files.Open(name, false)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	if size > limit {
		return nil, fmt.Errorf("%s has %d bytes; at most %d were expected", filepath.Base(name), size, limit)
	}
	content := make([]byte, size)
	if _, err := f.ReadAt(content, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return content, nil
}
