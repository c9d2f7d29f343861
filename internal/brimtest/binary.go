// Package brimtest runs brim, and other programs, as processes beside tests.
package brimtest

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// A Binary is brim, built when the first test asks. A test package has one and
// removes it when its tests have run.
type Binary struct {
	Tags  string // of the build
	Plain bool   // without the race detector, even where the tests have it

	once sync.Once
	dir  string
	err  error
}

// Path returns where the binary is. It has the race detector in it if the
// tests have, as those of other packages, so that it is compiled once.
func (b *Binary) Path(t testing.TB) string {
	t.Helper()
	b.once.Do(func() { b.err = b.build(t.Context()) })
	require.NoError(t, b.err)
	return b.path()
}

func (b *Binary) path() string { return filepath.Join(b.dir, "brim") }

func (b *Binary) build(ctx context.Context) (err error) {
	if b.dir, err = os.MkdirTemp("", "brim-test-"); err != nil {
		return fmt.Errorf("make directory for brim: %w", err)
	}
	args := []string{"build", "-o", b.path(), "-tags", b.Tags}
	if Race && !b.Plain {
		args = append(args, "-race")
	}
	out, err := exec.CommandContext(ctx, "go", append(args, "github.com/brim-telemetry/brim/cmd/brim")...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("build brim: %w\n%s", err, out)
	}
	return nil
}

// Run runs brim with these variables and arguments, and returns what it printed.
func (b *Binary) Run(t testing.TB, env []string, args ...string) (output string, err error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), b.Path(t), args...)
	cmd.Env = append(Env(), env...)
	text, err := cmd.CombinedOutput()
	return string(text), err
}

// Settings returns what `brim serve` would run with, by names of settings,
// given these variables and flags.
func (b *Binary) Settings(t testing.TB, env []string, flags ...string) map[string]string {
	t.Helper()
	out, err := b.Run(t, env, append([]string{"config", "print", "--output", "json"}, flags...)...)
	require.NoError(t, err, out)
	var printed struct {
		Settings []struct{ Name, Value string }
	}
	require.NoError(t, json.Unmarshal([]byte(out), &printed), out)
	settings := make(map[string]string)
	for _, s := range printed.Settings {
		settings[s.Name] = s.Value
	}
	return settings
}

// Remove deletes the binary if it was built.
func (b *Binary) Remove() {
	if b.dir != "" {
		_ = os.RemoveAll(b.dir)
	}
}

// Env is the environment without settings of brim, which refuses those that it
// does not know, except the ones to keep. BRIM_MONGOD_BIN tells where a mongod is.
func Env(keep ...string) []string {
	return slices.DeleteFunc(os.Environ(), func(pair string) bool {
		name, _, _ := strings.Cut(pair, "=")
		return strings.HasPrefix(name, "BRIM_") && !slices.Contains(keep, name)
	})
}
