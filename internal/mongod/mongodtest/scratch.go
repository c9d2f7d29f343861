package mongodtest

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/gofrs/flock"
)

// scratch is a directory for a shared mongod's data. If its test binary is killed, the
// next one removes it. Beside each directory NAME is a file NAME.lock that its owner
// locks.
type scratch struct {
	path string
	lock *flock.Flock
}

const lockSuffix = ".lock"

// scratchRoot is that of one user.
func scratchRoot() string {
	return filepath.Join(os.TempDir(), fmt.Sprintf("brim-mongodtest-%d", os.Getuid()))
}

func newScratch() (_ *scratch, err error) {
	root := scratchRoot()
	if err := os.MkdirAll(root, 0o700); err != nil {
		return nil, fmt.Errorf("make %s: %w", root, err)
	}
	// No process sweeps between the creation of a directory and its locking.
	sweeping := flock.New(filepath.Join(root, "sweep"))
	if err := sweeping.Lock(); err != nil {
		return nil, fmt.Errorf("lock %s: %w", sweeping.Path(), err)
	}
	defer func() { err = errors.Join(err, sweeping.Unlock()) }()
	if err := sweep(root); err != nil {
		return nil, err
	}
	path := filepath.Join(root, rand.Text())
	s := &scratch{path: path, lock: flock.New(path + lockSuffix)}
	if err := s.lock.Lock(); err != nil {
		return nil, fmt.Errorf("lock %s: %w", s.lock.Path(), err)
	}
	if err := os.Mkdir(path, 0o700); err != nil {
		return nil, errors.Join(fmt.Errorf("make %s: %w", path, err), s.lock.Unlock())
	}
	return s, nil
}

// sweep removes the directories whose owners are gone.
func sweep(root string) error {
	locks, err := filepath.Glob(filepath.Join(root, "*"+lockSuffix))
	if err != nil {
		return fmt.Errorf("list %s: %w", root, err)
	}
	for _, path := range locks {
		lock := flock.New(path)
		ok, err := lock.TryLock()
		if err != nil {
			return fmt.Errorf("lock %s: %w", path, err)
		}
		if !ok {
			continue
		}
		old := &scratch{path: strings.TrimSuffix(path, lockSuffix), lock: lock}
		if err := old.remove(); err != nil {
			return err
		}
	}
	return nil
}

// remove removes the directory first: a lock without one is swept, a directory without a
// lock would stay.
func (s *scratch) remove() error {
	return errors.Join(os.RemoveAll(s.path), os.Remove(s.lock.Path()), s.lock.Unlock())
}

// databaseName is unique, among other test binaries too.
func databaseName() string { return "test_" + strings.ToLower(rand.Text()) }
