package report

import (
	"errors"
	"html/template"
	"math"
	"time"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/chart"
)

// aResult is what an experiment might have found.
func aResult() *bench.Result {
	r := &bench.Result{
		Experiment: "granularity", Question: "What does an append cost as the bucket fills, and what do further indexes change?",
		Environment: bench.Environment{
			Time: time.Date(2026, 11, 21, 16, 49, 0, 0, time.UTC), Cores: 2, Processor: "EPYC", MemoryMiB: 24 << 10, FileSystem: "ext4", Disk: "nvme",
			System: "linux/amd64", Brim: "v1.2.3", Driver: "v2.9.3", Mongod: "8.0.4", Topologies: []string{"replica_set", "standalone"},
			Compressor: []string{"snappy"}, CacheMiB: []int64{1024},
		},
		Quick: true, Repeats: 3, Seed: 7, TookSeconds: 55,
	}
	r.Pin("compressor snappy")
	r.Reduce("5 of 10 fills")
	r.LeaveOut("the standalone mongod", bench.OwnOnly)
	r.Note("An update of a document with 720 readings costs 4.2 times one with 12.")
	slow, fast := bench.Samples{115e-6, 111e-6, 119e-6}, bench.Samples{480e-6, 470e-6, 500e-6}
	r.Add(
		bench.Claim{Says: "from 12 to 360 readings in a bucket an append slows", Published: 7.6, PublishedAs: "85 → 650 µs", Because: "this mongod pays more for each update as such"}.Compare(slow, fast, bench.Seconds),
		bench.Claim{Says: "a bucket of 12 readings has 0.5 KB", Unit: bench.Bytes, Published: 500, PublishedAs: "0.5 KB"}.Check(bench.Samples{520}),
		bench.Claim{Says: "three indexes slow an append", Published: 2, PublishedAs: "with each index", Because: "WiredTiger touches no index entry for a $push"}.Compare(slow, slow, bench.Seconds),
		bench.Claim{Says: "appends become faster", Published: 0.5, PublishedAs: "85 → 42 µs"}.Compare(slow, fast, bench.Seconds),
	)
	r.Tables = []bench.Table{{
		Title: "Round trip of an append", Head: []string{"topology", "readings", "round trip", "remark"},
		Rows:  [][]string{{"replica set", "12", "115 µs", "a|b <b>"}, {"standalone", "3,600", "–", "left out"}},
		Notes: []string{"The median of 500 appends."},
	}}
	r.Data = struct {
		Cost []float64      `json:"cost_seconds"`
		Took time.Duration  `json:"took"`
		None map[string]int `json:"none,omitempty"`
	}{Cost: []float64{1e-4, math.NaN(), math.Inf(1)}, Took: time.Second}
	r.Plot(chart.Lines{
		Title: "Cost of an append", X: chart.Axis{Label: "readings", Unit: chart.Count, Log: true}, Y: chart.Axis{Unit: chart.Seconds},
		Series: []chart.LineSeries{{Name: "replica set", X: []float64{12, 360}, Y: []float64{115e-6, 482e-6}}}, Width: 460, Height: 280,
	}, "It rises.")
	return r
}

// aFailure is an experiment that could not go on.
func aFailure() *bench.Result {
	r := aResult()
	r.Experiment, r.Rows, r.Tables, r.Plots, r.Notes = "fill", nil, nil, nil, nil
	r.Environment.Database = "brim_bench_20261121_164900_77"
	r.Error = "fill: mongod said <b>\x1b[2J</b>\nno"
	return r
}

var errNoPlace = errors.New("no place for it")

// unpaintable is a drawing that cannot be drawn.
type unpaintable struct{}

func (unpaintable) SVG() (template.HTML, error) { return "", errNoPlace }
