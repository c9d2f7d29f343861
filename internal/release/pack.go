package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// config says what to pack. Every field is required but flags and env.
type config struct {
	root      string // of the checkout
	out       string // folder of the archives
	stamp     stamp
	platforms []platform
	flags     []string // of go build
	env       []string // NAME=value, over that of this process
	log       io.Writer
}

// platform as Go names them.
type platform struct{ system, machine string }

func (p platform) String() string { return p.system + "/" + p.machine }

// binary is the program's name.
func (p platform) binary() string {
	if p.system == "windows" {
		return "brim.exe"
	}
	return "brim"
}

// program is the file that it is built as.
func (p platform) program(scratch string) string {
	return filepath.Join(scratch, p.system+"-"+p.machine, p.binary())
}

// archive is the file's name, as people there are used to unpack.
func (p platform) archive(version string) string {
	suffix := ".tar.gz"
	if p.system == "windows" {
		suffix = ".zip"
	}
	return p.folder(version) + suffix
}

// folder is the one in the archive that all is in.
func (p platform) folder(version string) string {
	return fmt.Sprintf("brim-%s-%s-%s", version, p.system, p.machine)
}

// reproducible are flags and environment that leave a build with no trace of
// the machine that made it. Without cgo the program needs no C library.
func reproducible() (flags, env []string) {
	return []string{"-trimpath", "-buildvcs=false"},
		[]string{"CGO_ENABLED=0", "GOFLAGS=-mod=readonly", "GOAMD64=v1", "GOARM64=v8.0", "GOEXPERIMENT="}
}

// pack makes the archives and their checksums, and returns the paths of all.
// What is built is in the folder scratch, and what is there is not built again.
func (c config) pack(ctx context.Context, scratch string) ([]string, error) {
	for _, pattern := range []string{"brim-*.tar.gz", "brim-*.zip", sumsName} {
		old, err := filepath.Glob(filepath.Join(c.out, pattern))
		if err != nil {
			return nil, fmt.Errorf("look for former archives: %w", err)
		}
		for _, path := range old {
			if err := os.Remove(path); err != nil {
				return nil, fmt.Errorf("remove a former archive: %w", err)
			}
		}
	}
	if err := os.MkdirAll(c.out, 0o755); err != nil {
		return nil, fmt.Errorf("make the folder of the archives: %w", err)
	}
	common, err := c.common(ctx, scratch)
	if err != nil {
		return nil, err
	}
	var paths []string
	var sums strings.Builder
	for _, p := range c.platforms {
		path := filepath.Join(c.out, p.archive(c.stamp.version))
		sum, err := c.packOne(ctx, p, path, scratch, common)
		if err != nil {
			return nil, fmt.Errorf("pack for %s: %w", p, err)
		}
		paths = append(paths, path)
		fmt.Fprintf(&sums, "%s  %s\n", sum, filepath.Base(path))
	}
	path := filepath.Join(c.out, sumsName)
	if err := os.WriteFile(path, []byte(sums.String()), 0o644); err != nil {
		return nil, fmt.Errorf("write checksums: %w", err)
	}
	return append(paths, path), nil
}

// sumsName is the file that `sha256sum --check` reads.
const sumsName = "SHA256SUMS"

// packOne makes one archive and returns its SHA-256 in hex.
func (c config) packOne(ctx context.Context, p platform, path, scratch string, common []entry) (string, error) {
	program := p.program(scratch)
	if err := c.build(ctx, p, program); err != nil {
		return "", err
	}
	licences, err := c.licences(ctx, p)
	if err != nil {
		return "", err
	}
	entries := slices.Concat(common, []entry{{name: p.binary(), path: program, executable: true}, {name: "LICENSES-OF-OTHERS.txt", content: licences}})
	if p.system == "linux" {
		unit, err := c.folder("deploy/systemd")
		if err != nil {
			return "", err
		}
		entries = append(entries, unit...)
	}
	sum := sha256.New()
	if err := writeFile(path, func(w io.Writer) error {
		return writeArchive(io.MultiWriter(w, sum), path, archived{folder: p.folder(c.stamp.version), entries: entries, at: c.stamp.date})
	}); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// build compiles the program for a platform, unless it is there.
func (c config) build(ctx context.Context, p platform, path string) error {
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	_, _ = fmt.Fprintf(c.log, "building for %s\n", p)
	args := append([]string{"build"}, c.flags...)
	args = append(args, "-ldflags", fmt.Sprintf("-s -w -X 'main.stamp=%s'", c.stamp), "-o", path, "./cmd/brim")
	_, err := output(ctx, c.goCommand(ctx, p, args...))
	return err
}

// goCommand is a command of the Go toolchain for a platform.
func (c config) goCommand(ctx context.Context, p platform, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = c.root
	cmd.Env = slices.Concat(os.Environ(), c.env, []string{"GOOS=" + p.system, "GOARCH=" + p.machine})
	return cmd
}

// here is the platform that this runs on.
func here() platform { return platform{runtime.GOOS, runtime.GOARCH} }
