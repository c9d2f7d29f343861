package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestDashboardsAreUpToDate(t *testing.T) {
	t.Parallel()
	var names []string
	for _, d := range dashboards() {
		path := filepath.Join("..", "dashboards", d.file())
		names = append(names, path)
		committed, err := os.ReadFile(path)
		require.NoError(t, err)
		var out bytes.Buffer
		require.NoError(t, d.write(&out))
		assert.True(t, bytes.Equal(committed, out.Bytes()), "%s is not what the tables say: go generate ./deploy/...", path)
	}
	there, err := filepath.Glob("../dashboards/*")
	require.NoError(t, err)
	assert.ElementsMatch(t, names, there)
}

// Every panel says what to look for, and lies where no other does.
func TestPanelsAreComplete(t *testing.T) {
	t.Parallel()
	for _, d := range dashboards() {
		assert.NotEmpty(t, d.about, d.name)
		taken := make(map[[2]int]string)
		for _, p := range d.model().Panels {
			name := d.name + ": " + p.Title
			for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
				for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
					assert.Less(t, x, width, name)
					require.Empty(t, taken[[2]int{x, y}], "%s lies on another", name)
					taken[[2]int{x, y}] = name
				}
			}
			if p.Type == "row" {
				continue
			}
			assert.NotEmpty(t, p.Title, name)
			assert.NotEmpty(t, p.Description, name)
			assert.NotEmpty(t, p.Targets, name)
			assert.NotEmpty(t, p.FieldConfig.Defaults["unit"], name)
			for _, target := range p.Targets {
				assert.NotEmpty(t, target.LegendFormat, name)
			}
		}
	}
}

func TestRunWritesWhereItIsTold(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, run([]string{dir}))
	for _, d := range dashboards() {
		assert.FileExists(t, filepath.Join(dir, d.file()))
	}
	require.Error(t, run(nil))
	require.ErrorContains(t, run([]string{filepath.Join(dir, "none")}), "create dashboard")
}
