package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/faulttest"
)

const page = "# Durability\n\n<!-- fault table: begin (make test-fault) -->\n| old |\n<!-- fault table: end -->\n\nMore.\n"

// output is the output of `go test -json` with a row per test.
func output(t *testing.T, lost int) io.Reader {
	t.Helper()
	var b bytes.Buffer
	for _, name := range faulttest.Names() {
		row, err := json.Marshal(faulttest.Row{Test: name, Faults: 1, Acked: 10, Lost: lost})
		require.NoError(t, err)
		require.NoError(t, json.NewEncoder(&b).Encode(map[string]string{"Action": "output", "Package": "brim/internal/faulttest", "Test": "Test" + name, "Output": "FAULT-ROW " + string(row) + "\n"}))
	}
	return &b
}

// patches returns a folder with two sabotages.
func patches(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, test := range map[string]string{"lookup": "./internal/faulttest ^TestCRASH-1$", "own-tags": "./internal/store ^TestCRASH-1$"} {
		text := "Protection: a sentence.\nTest: " + test + "\nSays: twice\n\n--- a/x.go\n+++ b/x.go\n@@ -1,1 +1,1 @@\n-Test: ./internal/faulttest ^TestFS-2$\n+Test: ./internal/faulttest ^TestFS-1$\n"
		require.NoError(t, os.WriteFile(filepath.Join(dir, name+".patch"), []byte(text), 0o600))
	}
	return dir
}

func TestTableReplacesTheOneInThePage(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "durability.md")
	require.NoError(t, os.WriteFile(file, []byte(page), 0o600))
	for range 2 { // the second run finds the markers again
		var stdout bytes.Buffer
		require.NoError(t, run([]string{"--into", file, "--sabotages", patches(t)}, output(t, 0), &stdout, io.Discard))
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		assert.Equal(t, "# Durability\n\n<!-- fault table: begin (make test-fault) -->\n"+stdout.String()+"<!-- fault table: end -->\n\nMore.\n", string(text))
		assert.Contains(t, string(text), "| CRASH-1 | 1 | 10 | 0 | 0 | lookup |\n")
		assert.Contains(t, string(text), "\nOther tests fail without own-tags.\n")
	}
}

func TestABadRunLeavesThePageAlone(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "durability.md")
	require.NoError(t, os.WriteFile(file, []byte(page), 0o600))
	require.ErrorContains(t, run([]string{"--into", file, "--sabotages", patches(t)}, output(t, 1), io.Discard, io.Discard), "the promise was not kept")
	require.ErrorContains(t, run([]string{"--into", file, "--sabotages", patches(t)}, bytes.NewReader(nil), io.Discard, io.Discard), "no row for CRASH-1")
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, page, string(text))

	_, err = replace("a page without markers", "table")
	assert.ErrorContains(t, err, "it needs the lines")
}
