package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/bench/fit"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
)

func TestGridMeasuresEachShapeOnce(t *testing.T) {
	t.Parallel()
	g := fullGrid()
	shapes := g.shapes()
	assert.Len(t, shapes, 20)
	assert.Contains(t, shapes, g.centre)
	for i, s := range shapes[1:] {
		assert.LessOrEqual(t, shapes[i].Sensors, s.Sensors)
		assert.NotContains(t, shapes[:i+1], s)
	}
	for _, k := range g.perUpdate {
		assert.Zero(t, 360%k, "an hour of %d readings an update ends with one", k)
	}
	for _, sw := range g.sweeps() {
		for _, s := range sw.shapes {
			assert.Contains(t, shapes, s)
		}
	}
}

func TestStrideLeadsToEverySensor(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 2, 3, 10, 1000, 6180} {
		seen := make(map[int]bool)
		for _, w := range (shape{Sensors: n, Writers: 3}).writers(nil) {
			for _, sensor := range w.sensors {
				seen[sensor] = true
			}
		}
		assert.Len(t, seen, n)
	}
}

// pretended is a growth whose costs follow lines.
func pretended() *growth {
	g := &growth{grid: fullGrid(), Time: "5s", Lines: passage{Rate: 2e5, Merged: 30, BrimCPU: 2, MongodCPU: 6}}
	for _, s := range g.grid.shapes() {
		update := 40 + 0.4*float64(s.PerUpdate*s.Fields)
		p := growthPoint{
			shape: s, Created: s.Sensors, Touched: s.Sensors, Readings: 1e6, Updates: int64(1e6 / s.PerUpdate), Documents: int64(s.Sensors), Seconds: 5,
			MongodUpdate: update, MongodReading: update / float64(s.PerUpdate), ClientReading: 1, Rate: 1e6 * float64(s.PerUpdate) / update,
			TripUpdate: 100 + 10*float64(s.PerUpdate), TripP50: 1000, TripP99: 2000, Bytes: 5000, Held: 50,
		}
		g.Points = append(g.Points, p)
	}
	g.conclude()
	return g
}

func TestGrowthTellsTheKneeAndThePlan(t *testing.T) {
	t.Parallel()
	g := pretended()
	require.Len(t, g.Fits, 4)
	require.Len(t, g.Plan, 10)
	r := report{Setting: setting{Cores: 2}, Growth: g}
	var out strings.Builder
	require.NoError(t, r.printText(&out))
	for _, want := range []string{
		"| sensors | readings/s |", "| 1,000,000 | ",
		"an update costs mongod 40.0 us of CPU whatever it carries and 4.00 us more for each reading: as much by itself as 10.0 readings. From 45 readings an update on, within what was measured",
		"91 % at 1, 67 % at 5, 45 % at 12, 14 % at 60 readings an update",
		"By round trip it is 100.0 us an update and 10.00 us a reading, with the knee at 45.",
		"a field more costs mongod 0.40 us",
		"| 1,000,000 | 30.0 | 2.00 | 2.0 | 1 | 6.00 | 6.0 | 1 |",
		"10,000,000 readings/s take 3 daemons and 7 shards as merged here; 5 shards, with 60.0 readings an update, are the fewest.",
	} {
		assert.Contains(t, out.String(), want)
	}
	for _, not := range []string{"| what | bar |", "medians of", "NaN", "Inf", "%!"} {
		assert.NotContains(t, out.String(), not)
	}
	for _, table := range g.mergeTables() {
		for _, row := range table.Rows {
			assert.Len(t, row, len(table.Heads))
		}
	}
}

func TestGrowthWithoutAKneeSaysSo(t *testing.T) {
	t.Parallel()
	f := mergeFit{Sensors: 10, Mongod: fit.Line{Base: 100, Each: -1}}
	assert.Contains(t, strings.Join(f.words([]int{1, 60}), " "), "no knee")
}

func TestPageNeedsNothingFromElsewhere(t *testing.T) {
	t.Parallel()
	r := report{Growth: pretended()}
	path := filepath.Join(t.TempDir(), "growth.html")
	require.NoError(t, r.writePage(path))
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	page := string(content)
	assert.Equal(t, 10, strings.Count(page, "<svg "))
	assert.Contains(t, page, "Past one machine")
	assert.Contains(t, page, "prefers-color-scheme")
	assert.NotContains(t, page, "src=")
	assert.NotContains(t, page, "href=")
	require.ErrorContains(t, checkPage(filepath.Join(path, "no", "page.html")), "--report")
	require.ErrorContains(t, run(t.Context(), []string{"--rows", "lines", "--report", path}, &strings.Builder{}, &strings.Builder{}), "--rows growth")
}

func TestGrowthIsMeasuredOnlyIfNamed(t *testing.T) {
	t.Parallel()
	all, err := choose("")
	require.NoError(t, err)
	for _, m := range all {
		assert.NotEqual(t, growthName, m.name)
	}
	named, err := choose(growthName)
	require.NoError(t, err)
	require.Len(t, named, 1)
	var stdout, stderr strings.Builder
	require.NoError(t, run(t.Context(), []string{"--list"}, &stdout, &stderr))
	assert.Contains(t, stdout.String(), "only if named")
	for args, want := range map[string]time.Duration{"": growthTime, "--time=300ms": 300 * time.Millisecond} {
		c, err := parse(strings.Fields(args), &stderr)
		require.NoError(t, err)
		assert.Equal(t, want, c.growthTime)
	}
}

// TestGrowthIsMeasured writes a few points with few sensors into a real mongod.
func TestGrowthIsMeasured(t *testing.T) {
	mongodtest.URI(t) // skips where there is none
	var stderr text
	y := &yardstick{
		config: config{brim: program.Path(t), connections: 1, growthTime: 300 * time.Millisecond},
		dir:    t.TempDir(), progress: &stderr,
	}
	grown, err := y.measureGrowth(t.Context(), grid{
		sensors: []int{20, 50}, perUpdate: []int{1, 60}, fields: []int{2}, writers: []int{1, 2},
		centre: shape{Sensors: 20, PerUpdate: 60, Fields: 2, Writers: 2},
	})
	require.NoError(t, err, stderr.String())
	require.Len(t, grown.Points, 5)
	for _, p := range grown.Points {
		assert.Equal(t, p.Sensors, p.Created)
		assert.Equal(t, p.Updates*int64(p.PerUpdate), p.Readings, "every update has its readings")
		assert.Positive(t, p.Touched)
		assert.Positive(t, p.TripP50)
		assert.GreaterOrEqual(t, p.TripP99, p.TripP50)
		assert.GreaterOrEqual(t, p.Documents, int64(p.Sensors))
		assert.Positive(t, p.Bytes)
	}
	assert.Positive(t, grown.Lines.BrimCPU)
	assert.NotEmpty(t, y.setting.Mongod)
	_, err = json.Marshal(grown)
	require.NoError(t, err)
	left, err := os.ReadDir(y.dir)
	require.NoError(t, err)
	assert.Empty(t, left)
}
