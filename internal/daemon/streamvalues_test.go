package daemon

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/store"
)

// fromText reads a configuration file.
func fromText(t *testing.T, text string) (*Config, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "brim.yaml")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return Sources{Path: path}.Load()
}

func TestStreamsDoNotInheritFromEachOther(t *testing.T) {
	t.Parallel()
	c, err := fromText(t, `
granularity: 10m
write-concern: 2
fields: [t, h]
streams:
  audit: {write-concern: majority, write-journal: on, fields: []}
  readings: {granularity: 1m, fields: "a, b", other-fields: drop, silent-after: 5m}
  vib: {view: off, write-journal: off}
`)
	require.NoError(t, err)
	audit, readings, vib := c.stream("audit"), c.stream("readings"), c.stream("vib")
	assert.Equal(t, store.WriteConcern{}, audit.WriteConcern)
	assert.Empty(t, audit.Fields)
	assert.Equal(t, []string{"a", "b"}, readings.Fields)
	assert.Equal(t, dropField, readings.OtherFields)
	assert.Equal(t, 5*time.Minute, readings.SilentAfter)
	assert.Equal(t, On, readings.View)
	assert.Equal(t, store.WriteConcern{Members: 2}, readings.WriteConcern)
	assert.Equal(t, store.WriteConcern{Members: 2, Unjournaled: true}, vib.WriteConcern)
	assert.Equal(t, 10*time.Minute, vib.Granularity, "the default stream's own settings are its own")
	assert.Equal(t, []string{"t", "h"}, vib.Fields)
	assert.Equal(t, refuseReading, vib.OtherFields)
	assert.Equal(t, Off, vib.View)
	assert.Equal(t, readings, c.Default)
}

func TestInvalidStreamSettingsAreRefused(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"write-concern: 0":           `brim.yaml:1: write-concern: "0" is neither majority nor a whole number from 1 to 50`,
		"write-concern: most":        `"most" is neither majority`,
		"write-journal: maybe":       `"maybe" is unknown; allowed: on, off`,
		"fields: [t, t]":             `"t" is named twice`,
		"fields: [$t]":               `"$t" cannot name a field`,
		"fields: [a.b]":              `"a.b" cannot name a field`,
		"fields: ['a,b']":            `fields cannot hold "a,b"`,
		"fields: [t, '']":            `fields cannot hold ""; allowed: a list of names without commas`,
		"fields: 't,,h'":             `"" cannot name a field`,
		"fields: [[t]]":              `fields cannot hold ""`,
		"fields: {t: 1}":             "fields must have a single value",
		"lanes: [1, 2]":              "lanes must have a single value",
		"other-fields: keep":         `"keep" is unknown`,
		"silent-after: 1ms":          "is neither 0 nor a duration from 1s",
		"streams: {s: {view: half}}": `streams.s.view: "half" is unknown`,
	} {
		_, err := fromText(t, text)
		assert.ErrorContains(t, err, want, text)
	}
}

func TestPrintedListReadsBack(t *testing.T) {
	t.Parallel()
	c, err := fromText(t, "fields: [b, a]\n")
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "printed.yaml")
	require.NoError(t, os.WriteFile(path, []byte(c.Text()), 0o600))
	again, err := Sources{Path: path}.Load()
	require.NoError(t, err)
	assert.Equal(t, c.Settings, again.Settings)
}
