package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/brim-telemetry/brim/internal/doctor"
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

// Every panel says what to look for, and panels do not overlap.
func TestPanelsAreComplete(t *testing.T) {
	t.Parallel()
	for _, d := range dashboards() {
		assert.NotEmpty(t, d.about, d.name)
		taken := make(map[[2]int]string)
		var out bytes.Buffer
		require.NoError(t, d.write(&out))
		var page struct {
			Panels []struct {
				Type, Title, Description string
				GridPos                  struct{ X, Y, W, H int }
				Targets                  []struct{ LegendFormat string }
				FieldConfig              struct{ Defaults map[string]any }
			}
		}
		require.NoError(t, json.Unmarshal(out.Bytes(), &page))
		for _, p := range page.Panels {
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

func TestRunWritesToTheGivenFolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, run([]string{dir}))
	for _, d := range dashboards() {
		assert.FileExists(t, filepath.Join(dir, d.file()))
	}
	require.Error(t, run(nil))
	require.ErrorContains(t, run([]string{filepath.Join(dir, "none")}), "create dashboard")
}

// A signal's panel has lines at the doctor's bounds, in the unit that the panel
// uses.
func TestLinesAreTheDoctorsBounds(t *testing.T) {
	t.Parallel()
	client, err := mongo.Connect() // does not connect
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Disconnect(context.Background()) })
	monitor, err := doctor.New(doctor.Config{Database: client.Database("brim")})
	require.NoError(t, err)
	panels := map[string]string{
		"Disk busy": "disk_busy", "Disk await": "disk_await", // await: the bounds of an unknown disk, which counts as an SSD
		"Disk space": "disk_free", "Cache dirty": "cache_dirty", "Cache updates": "cache_updates", "Cache used": "cache_used",
		"Application evictions": "application_evictions", "Checkpoints": "checkpoint_duration",
		"Free space inside the files": "fragmentation", "CPU busy": "processor",
	}
	scale := map[string]float64{"%": 0.01, "ms": 0.001, "s": 1, "pages/s": 1}
	held := make(map[string]doctor.Threshold)
	for _, signal := range monitor.Signals() {
		by := scale[signal.Unit]
		held[signal.Name] = doctor.Threshold{Degrading: by * signal.Threshold.Degrading, Bottleneck: by * signal.Threshold.Bottleneck}
	}
	for _, r := range storageEngine().rows {
		for _, p := range r.panels {
			signal, ok := panels[p.title]
			if !ok {
				continue
			}
			delete(panels, p.title)
			assert.InDelta(t, held[signal].Degrading, p.warn, 1e-9, p.title)
			assert.InDelta(t, held[signal].Bottleneck, p.alarm, 1e-9, p.title)
			assert.NotZero(t, p.alarm, p.title)
		}
	}
	assert.Empty(t, panels, "no such panels")
}
