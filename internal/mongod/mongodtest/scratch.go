package mongodtest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"
)

// newScratch creates a directory for a shared mongod's data, and removes those of
// killed test binaries, whose data directory is not locked. A recent one may not be
// locked yet.
func newScratch() (string, error) {
	root := filepath.Join(os.TempDir(), fmt.Sprintf("brim-mongodtest-%d", os.Getuid()))
	if err := os.MkdirAll(root, 0o700); err != nil {
		return "", fmt.Errorf("make %s: %w", root, err)
	}
	old, err := os.ReadDir(root)
	if err != nil {
		return "", fmt.Errorf("list %s: %w", root, err)
	}
	for _, entry := range old {
		path := filepath.Join(root, entry.Name())
		info, err := entry.Info()
		if err != nil || time.Since(info.ModTime()) < startTimeout {
			continue
		}
		lock := flock.New(filepath.Join(path, "mongod", "brim.lock"))
		if free, err := lock.TryLock(); free || errors.Is(err, fs.ErrNotExist) {
			if err := errors.Join(os.RemoveAll(path), lock.Unlock()); err != nil {
				return "", fmt.Errorf("remove %s: %w", path, err)
			}
		}
	}
	return os.MkdirTemp(root, "")
}
