package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"time"
)

// stamp is what a build is told about itself.
type stamp struct {
	version  string    // v1.2.0, or what git describe makes of a commit between releases
	revision string    // of the commit, with "+dirty" if the checkout had changes
	date     time.Time // of the commit, UTC
}

// String is the form that the program reads.
func (s stamp) String() string {
	return s.version + " " + s.revision + " " + s.date.Format(time.RFC3339)
}

// errVersion says what can be in the name of a file and in the stamp.
var errVersion = errors.New("a version is of letters, digits and . - + _, and begins with a letter or a digit")

func checkVersion(version string) error {
	if ok, err := regexp.MatchString(`^[A-Za-z0-9][A-Za-z0-9.+_-]{0,99}$`, version); !ok {
		return fmt.Errorf("use version %q: %w", version, errors.Join(errVersion, err))
	}
	return nil
}

// readStamp asks git about a checkout. version, if not empty, stands in place of
// what git describe says.
func readStamp(ctx context.Context, root, version string) (stamp, error) {
	var s stamp
	revision, err := git(ctx, root, "rev-parse", "HEAD")
	if err != nil {
		return s, err
	}
	changes, err := git(ctx, root, "status", "--porcelain")
	if err != nil {
		return s, err
	}
	if changes != "" {
		revision += "+dirty"
	}
	date, err := git(ctx, root, "show", "--no-patch", "--format=%cI", "HEAD")
	if err != nil {
		return s, err
	}
	at, err := time.Parse(time.RFC3339, date)
	if err != nil {
		return s, fmt.Errorf("read the commit's date: %w", err)
	}
	if version == "" {
		if version, err = git(ctx, root, "describe", "--tags", "--always", "--dirty"); err != nil {
			return s, err
		}
	}
	return stamp{version: version, revision: revision, date: at.UTC()}, checkVersion(version)
}

func git(ctx context.Context, root string, args ...string) (string, error) {
	return output(ctx, exec.CommandContext(ctx, "git", append([]string{"-C", root}, args...)...))
}

// output runs a command and returns what it printed, without the white space
// around it. Its error has what the command said.
func output(ctx context.Context, cmd *exec.Cmd) (string, error) {
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	switch {
	case ctx.Err() != nil:
		return "", fmt.Errorf("run %s: %w", cmd.Args[0], ctx.Err())
	case err != nil:
		return "", fmt.Errorf("run %s: %w: %s", strings.Join(cmd.Args, " "), err, strings.TrimSpace(said.String()))
	}
	return strings.TrimSpace(string(out)), nil
}
