package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"

	"github.com/gofrs/flock"
)

// Files is the file system of a journal: a disk or memory. The effect of a method survives a
// power failure only after Sync of the file, and for names after SyncDir.
type Files interface {
	// MakeDir creates a directory and its missing parents, durably.
	MakeDir(dir string) error
	// Create creates a file that must not exist. Open opens an existing file, for reading only
	// or also for writing.
	Create(name string) (File, error)
	Open(name string, write bool) (File, error)
	Remove(name string) error
	// Rename replaces an existing file with the new name.
	Rename(from, to string) error
	// List returns the sorted names of the files in a directory.
	List(dir string) ([]string, error)
	SyncDir(dir string) error
	// Space returns the free bytes and the size of the disk, or 0 if they are unknown.
	Space(dir string) (free, total uint64, err error)
	// Lock takes a lock that only one process can hold; ErrLocked if it is taken.
	Lock(name string) (Lock, error)
}

// A Lock keeps other processes out until it is closed.
type Lock interface {
	io.Closer
	// Held returns an error if the lock file or its directory was removed or
	// replaced, so that the lock protects nothing.
	Held() error
}

// A File may be read by several goroutines while one writes it.
type File interface {
	io.ReaderAt
	io.WriterAt
	Truncate(size int64) error
	// Sync returns when everything written survives a power failure. After an error it is
	// unknown what survives, and a later success does not change that.
	Sync() error
	Size() (int64, error)
	io.Closer
}

// ErrLocked means that another process holds the lock.
var ErrLocked = errors.New("another process has it open")

const (
	filePerm = 0o640
	dirPerm  = 0o750
)

// Disk is the file system, the default of a Config.
func Disk() Files { return osFiles{} }

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

func (f osFiles) MakeDir(dir string) error {
	if info, err := os.Stat(dir); err == nil {
		if !info.IsDir() {
			return fmt.Errorf("%s is not a directory", dir)
		}
		return nil
	}
	parent := filepath.Dir(dir)
	if err := f.MakeDir(parent); err != nil {
		return err
	}
	if err := os.Mkdir(dir, dirPerm); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return f.SyncDir(parent)
}

func (osFiles) Create(name string) (File, error) {
	return openFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL)
}

func (osFiles) Open(name string, write bool) (File, error) {
	if write {
		return openFile(name, os.O_RDWR)
	}
	return openFile(name, os.O_RDONLY)
}

func openFile(name string, flag int) (File, error) {
	f, err := os.OpenFile(name, flag, filePerm)
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
		return nil // NTFS journals names; directories cannot be synced
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

// osLock remembers the files at its paths at the time of locking.
type osLock struct {
	*flock.Flock
	was map[string]os.FileInfo
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
	// The pid is for operators; the lock works without it.
	_ = os.WriteFile(name, strconv.AppendInt(nil, int64(os.Getpid()), 10), filePerm)
	held := &osLock{Flock: l, was: make(map[string]os.FileInfo, 2)}
	for _, path := range []string{name, filepath.Dir(name)} {
		if held.was[path], err = os.Stat(path); err != nil {
			return nil, errors.Join(err, l.Close())
		}
	}
	return held, nil
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

// memoryFiles implements Files in memory, for a journal that does not outlive its process.
type memoryFiles struct {
	mu    sync.Mutex
	files map[string]*memoryFile
}

type memoryFile struct {
	mu      sync.RWMutex
	content []byte
}

func newMemoryFiles() *memoryFiles { return &memoryFiles{files: make(map[string]*memoryFile)} }

func (*memoryFiles) MakeDir(string) error                         { return nil }
func (*memoryFiles) SyncDir(string) error                         { return nil }
func (*memoryFiles) Space(string) (free, total uint64, err error) { return 0, 0, nil }

func (*memoryFiles) Lock(string) (Lock, error) {
	return nil, errors.New("files in memory belong to one process")
}

func (m *memoryFiles) Create(name string) (File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.files[name] != nil {
		return nil, os.ErrExist
	}
	f := &memoryFile{}
	m.files[name] = f
	return f, nil
}

func (m *memoryFiles) Open(name string, _ bool) (File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if f := m.files[name]; f != nil {
		return f, nil
	}
	return nil, os.ErrNotExist
}

func (m *memoryFiles) Remove(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.files, name)
	return nil
}

func (m *memoryFiles) Rename(from, to string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.files[to] = m.files[from]
	delete(m.files, from)
	return nil
}

func (m *memoryFiles) List(string) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var names []string
	for name := range m.files {
		names = append(names, filepath.Base(name))
	}
	slices.Sort(names)
	return names, nil
}

func (f *memoryFile) ReadAt(p []byte, at int64) (int, error) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return bytes.NewReader(f.content).ReadAt(p, at)
}

func (f *memoryFile) WriteAt(p []byte, at int64) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if missing := at - int64(len(f.content)); missing > 0 {
		f.content = append(f.content, make([]byte, missing)...)
	}
	n := copy(f.content[at:], p)
	f.content = append(f.content, p[n:]...)
	return len(p), nil
}

func (f *memoryFile) Truncate(size int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.content = f.content[:min(size, int64(len(f.content)))]
	return nil
}

func (f *memoryFile) Size() (int64, error) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return int64(len(f.content)), nil
}

func (*memoryFile) Sync() error  { return nil }
func (*memoryFile) Close() error { return nil }

const tempSuffix = ".tmp" // of files that are not complete yet

// replaceFile writes a file under a temporary name and renames it when its content
// is durable, so that a crash leaves the old file or the new one.
func replaceFile(files Files, name string, fill func(File) error) error {
	temp := name + tempSuffix
	if err := files.Remove(temp); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	f, err := files.Create(temp)
	if err != nil {
		return err
	}
	if err = fill(f); err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = files.Rename(temp, name)
	}
	if err != nil {
		return errors.Join(err, files.Remove(temp)) // the disk may be full
	}
	return files.SyncDir(filepath.Dir(name))
}

// writeFile replaces a file by one with this content.
func writeFile(files Files, name string, content []byte) error {
	return replaceFile(files, name, func(f File) error {
		_, err := f.WriteAt(content, 0)
		return err
	})
}

// copyContent writes the content of a file to the same offsets of another one.
func copyContent(files Files, from string, to File) error {
	src, err := files.Open(from, false)
	if err != nil {
		return err
	}
	defer src.Close()
	size, err := src.Size()
	if err != nil {
		return err
	}
	_, err = io.CopyBuffer(io.NewOffsetWriter(to, 0), io.NewSectionReader(src, 0, size), make([]byte, min(size+1, scanAhead)))
	return err
}

// readFile returns the content of a file of at most limit bytes.
func readFile(files Files, name string, limit int64) ([]byte, error) {
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
	return io.ReadAll(io.NewSectionReader(f, 0, size))
}

// readJSON leaves the value as it is if there is no such file.
func readJSON(files Files, path string, into any) error {
	content, err := readFile(files, path, 64<<20)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(content, into)
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	return nil
}

func writeJSON(files Files, path string, value any) error {
	content, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	return writeFile(files, path, append(content, '\n'))
}

// A window buffers reads of a file.
type window struct {
	file  File
	limit int64 // end of what may be read
	ahead int   // bytes to read at least
	buf   []byte
	at    int64 // offset of buf in the file
}

// peek returns n bytes at an offset, fewer at the end. They are valid until the
// next call.
func (w *window) peek(offset int64, n int) ([]byte, error) {
	n = int(min(int64(n), max(w.limit-offset, 0)))
	if n == 0 {
		return nil, nil
	}
	if from := offset - w.at; from >= 0 && from+int64(n) <= int64(len(w.buf)) {
		return w.buf[from:][:n], nil
	}
	want := int(min(int64(max(n, w.ahead)), w.limit-offset))
	if cap(w.buf) < want {
		w.buf = make([]byte, want)
	}
	w.buf, w.at = w.buf[:want], offset
	got, err := w.file.ReadAt(w.buf, offset)
	if err != nil && !errors.Is(err, io.EOF) {
		w.buf = w.buf[:0]
		return nil, err
	}
	w.buf = w.buf[:got]
	return w.buf[:min(n, got)], nil
}

// shrink frees a large buffer.
func (w *window) shrink() {
	if cap(w.buf) > 4*w.ahead {
		w.buf = nil
	}
}
