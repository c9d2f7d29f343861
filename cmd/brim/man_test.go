package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/daemon"
)

func TestManualsNameEveryCommandAndEveryFlag(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	root := (&process{stdin: strings.NewReader(""), stdout: io.Discard, stderr: io.Discard}).commands(experiments())
	require.NoError(t, writeManuals(root, dir, daemon.Version{Version: "v1.2.3", Date: "2026-11-21T10:00:00Z"}))
	pages := 0
	var look func(*cobra.Command)
	look = func(c *cobra.Command) {
		if !c.IsAvailableCommand() || c.Name() == "help" {
			return
		}
		pages++
		content, err := os.ReadFile(filepath.Join(dir, strings.ReplaceAll(c.CommandPath(), " ", "-")+".1"))
		require.NoError(t, err)
		text := strings.ReplaceAll(string(content), `\-`, "-")
		assert.Contains(t, text, `"Nov 2026" "brim v1.2.3" "Brim"`, c.CommandPath())
		assert.Contains(t, text, c.Short, c.CommandPath())
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden {
				assert.Contains(t, text, "--"+f.Name, c.CommandPath())
			}
		})
		for _, below := range c.Commands() {
			if below.IsAvailableCommand() {
				assert.Contains(t, text, strings.ReplaceAll(below.CommandPath(), " ", "-")+"(1)", c.CommandPath())
			}
			look(below)
		}
	}
	for _, c := range root.Commands() {
		look(c)
	}
	assert.Greater(t, pages, 30)
}

func TestManualsAreWrittenWhereTheyAreAskedFor(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "share", "man1")
	got := runBrim(t, nil, "man", dir)
	require.NoError(t, got.err)
	assert.Empty(t, got.stdout)
	assert.FileExists(t, filepath.Join(dir, "brim-serve.1"))
	assert.NoFileExists(t, filepath.Join(dir, "brim-man.1"))

	got = runBrim(t, nil, "man")
	assert.ErrorContains(t, got.err, "brim man takes a folder")
	assert.NotContains(t, runBrim(t, nil).stdout, "man ")
}
