package machine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// ReplaceFile replaces a file atomically and durably, or leaves it as it is. Only this user
// can read the new file, unless prepare, which may be nil, changes that.
func ReplaceFile(path string, content []byte, prepare func(*os.File) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*") // with mode 0600
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer func() { _ = os.Remove(f.Name()) }() // if it was not renamed
	if prepare != nil {
		err = prepare(f)
	}
	if err == nil {
		_, err = f.Write(content)
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if dir, err := os.Open(filepath.Dir(path)); err == nil { // not possible on every system
		_ = dir.Sync()
		_ = dir.Close()
	}
	return nil
}
