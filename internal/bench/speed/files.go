package speed

import (
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/brim-telemetry/brim/internal/journal"
)

// unsynced is files in the page cache that are never made durable, and counts
// what is written. It implements journal.Files.
type unsynced struct{ written atomic.Int64 }

type unsyncedFile struct {
	*os.File
	written *atomic.Int64
}

func (unsyncedFile) Sync() error { return nil }

func (f unsyncedFile) WriteAt(p []byte, at int64) (int, error) {
	n, err := f.File.WriteAt(p, at)
	f.written.Add(int64(n))
	return n, err
}

func (f unsyncedFile) Size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

func (u *unsynced) open(name string, flag int) (journal.File, error) {
	f, err := os.OpenFile(filepath.Clean(name), flag, 0o600)
	if err != nil {
		return nil, err
	}
	return unsyncedFile{f, &u.written}, nil
}

func (*unsynced) MakeDir(dir string) error { return os.MkdirAll(dir, 0o750) }

func (u *unsynced) Create(name string) (journal.File, error) {
	return u.open(name, os.O_RDWR|os.O_CREATE|os.O_EXCL)
}

func (u *unsynced) Open(name string, _ bool) (journal.File, error) { return u.open(name, os.O_RDWR) }
func (*unsynced) Remove(name string) error                         { return os.Remove(name) }
func (*unsynced) Rename(from, to string) error                     { return os.Rename(from, to) }
func (*unsynced) SyncDir(string) error                             { return nil }

func (*unsynced) List(dir string) (names []string, err error) {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if !e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, err
}

// Space is unknown, so the journal heeds its own limit alone.
func (*unsynced) Space(string) (free, total uint64, err error) { return 0, 0, nil }

// Lock is not needed: the directory is ours alone.
func (*unsynced) Lock(string) (journal.Lock, error) { return noLock{}, nil }

// noLock is not needed: the directory is ours alone.
type noLock struct{}

func (noLock) Close() error { return nil }
func (noLock) Held() error  { return nil }
