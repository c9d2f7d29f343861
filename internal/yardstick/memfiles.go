package main

import (
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/brim-telemetry/brim/internal/journal"
)

// memoryFiles are files that no system knows: writing one copies its bytes and
// does nothing else. It implements journal.Files.
type memoryFiles struct {
	mu      sync.Mutex
	files   map[string]*memoryFile
	free    [][]byte // chunks of files that were removed, so that the system need not find new memory
	written atomic.Int64
}

// chunk is the bytes of a piece of a file.
const chunk = 1 << 20

// A memoryFile is one; pieces that were never written are missing and hold
// zeros.
type memoryFile struct {
	of     *memoryFiles
	mu     sync.RWMutex
	chunks [][]byte
	size   int64
}

func newMemoryFiles() *memoryFiles { return &memoryFiles{files: map[string]*memoryFile{}} }

// MakeDir implements journal.Files: a directory is nothing but part of a name.
func (*memoryFiles) MakeDir(string) error { return nil }

// Create implements journal.Files.
func (m *memoryFiles) Create(name string) (journal.File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.files[name] != nil {
		return nil, fmt.Errorf("create %s: %w", name, fs.ErrExist)
	}
	f := &memoryFile{of: m}
	m.files[name] = f
	return f, nil
}

// Open implements journal.Files.
func (m *memoryFiles) Open(name string, _ bool) (journal.File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if f := m.files[name]; f != nil {
		return f, nil
	}
	return nil, fmt.Errorf("open %s: %w", name, fs.ErrNotExist)
}

// Remove implements journal.Files.
func (m *memoryFiles) Remove(name string) error {
	m.mu.Lock()
	f := m.files[name]
	delete(m.files, name)
	m.mu.Unlock()
	if f == nil {
		return fmt.Errorf("remove %s: %w", name, fs.ErrNotExist)
	}
	return f.Truncate(0)
}

// Rename implements journal.Files.
func (m *memoryFiles) Rename(from, to string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	f := m.files[from]
	if f == nil {
		return fmt.Errorf("rename %s: %w", from, fs.ErrNotExist)
	}
	m.files[to] = f
	delete(m.files, from)
	return nil
}

// List implements journal.Files.
func (m *memoryFiles) List(dir string) (names []string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name := range m.files {
		if filepath.Dir(name) == filepath.Clean(dir) {
			names = append(names, filepath.Base(name))
		}
	}
	slices.Sort(names)
	return names, nil
}

// SyncDir implements journal.Files.
func (*memoryFiles) SyncDir(string) error { return nil }

// Space is unknown, so the journal heeds its own limit alone.
func (*memoryFiles) Space(string) (free, total uint64, err error) { return 0, 0, nil }

// Lock is not needed: nobody else sees the files.
func (*memoryFiles) Lock(string) (journal.Lock, error) { return memoryLock{}, nil }

type memoryLock struct{}

func (memoryLock) Close() error { return nil }
func (memoryLock) Held() error  { return nil }

// take returns a chunk of zeros.
func (m *memoryFiles) take() []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.free) == 0 {
		return make([]byte, chunk)
	}
	c := m.free[len(m.free)-1]
	m.free = m.free[:len(m.free)-1]
	clear(c)
	return c
}

// WriteAt implements io.WriterAt.
func (f *memoryFile) WriteAt(p []byte, at int64) (n int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for n < len(p) {
		piece := int((at + int64(n)) / chunk)
		for len(f.chunks) <= piece {
			f.chunks = append(f.chunks, nil)
		}
		if f.chunks[piece] == nil {
			f.chunks[piece] = f.of.take()
		}
		n += copy(f.chunks[piece][(at+int64(n))%chunk:], p[n:])
	}
	f.size = max(f.size, at+int64(n))
	f.of.written.Add(int64(n))
	return n, nil
}

// ReadAt implements io.ReaderAt.
func (f *memoryFile) ReadAt(p []byte, at int64) (n int, err error) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	for n < len(p) && at+int64(n) < f.size {
		place := at + int64(n)
		most := min(int64(len(p)-n), f.size-place, chunk-place%chunk)
		into := p[n : n+int(most)]
		if piece := int(place / chunk); piece < len(f.chunks) && f.chunks[piece] != nil {
			copy(into, f.chunks[piece][place%chunk:])
		} else {
			clear(into)
		}
		n += len(into)
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// Truncate implements journal.File.
func (f *memoryFile) Truncate(size int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if keep := int((size + chunk - 1) / chunk); keep < len(f.chunks) {
		f.of.give(f.chunks[keep:])
		f.chunks = f.chunks[:keep]
	}
	if last := size % chunk; last > 0 && int(size/chunk) < len(f.chunks) && f.chunks[size/chunk] != nil {
		clear(f.chunks[size/chunk][last:])
	}
	f.size = size
	return nil
}

// give takes back chunks.
func (m *memoryFiles) give(chunks [][]byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range chunks {
		if c != nil {
			m.free = append(m.free, c)
		}
	}
}

// Size implements journal.File.
func (f *memoryFile) Size() (int64, error) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.size, nil
}

// Sync implements journal.File.
func (*memoryFile) Sync() error { return nil }

// Close implements journal.File.
func (*memoryFile) Close() error { return nil }
