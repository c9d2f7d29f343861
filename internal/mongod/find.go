package mongod

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"time"
)

// Binary is a mongod that was seen to start.
type Binary struct {
	Path    string
	Version string // 6.0.5
}

const (
	// minMajor is the oldest release that Brim is tested with.
	minMajor = 6
	// versionTimeout bounds mongod --version, which takes 50 ms; a cold disk
	// must read its 140 MB first.
	versionTimeout = 30 * time.Second
)

// errNotFound: there is no mongod on this machine that could be started.
var errNotFound = errors.New("no mongod found")

// Obtain finds a mongod, or installs the pinned one when there is none.
func Obtain(ctx context.Context, config Config) (Binary, error) {
	config, err := config.withDefaults()
	if err != nil {
		return Binary{}, err
	}
	return obtain(ctx, config)
}

// obtain is Obtain with checked settings.
func obtain(ctx context.Context, config Config) (Binary, error) {
	if err := supported(); err != nil {
		return Binary{}, err
	}
	binary, err := find(ctx, config)
	if !errors.Is(err, errNotFound) {
		return binary, err
	}
	return install(ctx, config, pinned())
}

// find looks at config.Bin and nowhere else when it is given; then at PATH,
// where one that cannot be used is passed over; then into the cache. The
// error is errNotFound when an installation can help.
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
		config.Logger.Warn("the mongod on PATH cannot be used, looking for another", "error", err)
	}
	dir, err := config.cacheDir()
	if err != nil {
		return Binary{}, err
	}
	path := filepath.Join(dir, pinned().name())
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Binary{}, errNotFound
	}
	if err != nil {
		return Binary{}, fmt.Errorf("look for mongod in the cache: %w", err)
	}
	// It was checked against its sum before it got this name; its size is a
	// cheap guard against a disk that lost its end.
	if info.Size() != pinned().size {
		config.Logger.Warn("the cached mongod is damaged, installing it again", slog.String("path", path))
		return Binary{}, errNotFound
	}
	return probe(ctx, path)
}

var versionLine = regexp.MustCompile(`db version v((\d+)\.[0-9A-Za-z.\-]+)`)

// probe runs mongod --version: proof that it starts here.
func probe(ctx context.Context, path string) (Binary, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return Binary{}, fmt.Errorf("use mongod %s: %w", path, err)
	}
	limited, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	cmd := exec.CommandContext(limited, path, "--version")
	cmd.WaitDelay = time.Second
	output, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return Binary{}, fmt.Errorf("run %s --version: %w", path, ctx.Err())
	}
	if err != nil {
		return Binary{}, explainStart(ctx, path, output, err)
	}
	match := versionLine.FindSubmatch(output)
	if match == nil {
		return Binary{}, fmt.Errorf("use mongod %s: it is no mongod, --version printed %q", path, firstLine(output))
	}
	major, err := strconv.Atoi(string(match[2]))
	if err != nil || major < minMajor {
		return Binary{}, fmt.Errorf("use mongod %s: it is version %s, and Brim needs %d.0 or newer", path, match[1], minMajor)
	}
	return Binary{Path: path, Version: string(match[1])}, nil
}

// explainStart turns a mongod that does not start into what is missing.
func explainStart(ctx context.Context, path string, output []byte, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		// The file is there, or it would not have been tried: the system
		// means the program's loader.
		return unavailable("start %s: its loader is missing; it needs a Linux with glibc", path)
	}
	if libraries := missingLibraries(ctx, path); len(libraries) > 0 {
		return unavailable("start %s: %s", path, missingText(libraries))
	}
	if bytes.Contains(output, []byte("GLIBC_")) {
		return unavailable("start %s: this system's C library is too old for it: %s", path, firstLine(output))
	}
	if line := firstLine(output); line != "" {
		return fmt.Errorf("use mongod %s: %w: %s", path, err, line)
	}
	return fmt.Errorf("use mongod %s: %w", path, err)
}

func firstLine(text []byte) string {
	line, _, _ := bytes.Cut(bytes.TrimSpace(text), []byte("\n"))
	return string(bytes.TrimSpace(line))
}
