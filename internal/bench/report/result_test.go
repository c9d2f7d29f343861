package report

import (
	"math"
	"time"

	"github.com/brim-telemetry/brim/internal/bench"
)

// aResult is a plausible result of an experiment.
func aResult() *bench.Result {
	r := &bench.Result{
		Experiment: "granularity", Answer: "Use 5m, because it is so.", Question: "What does an append cost as the bucket fills, and what do further indexes change?",
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
	r.Rows = []bench.Row{
		{Claim: "from 12 to 360 readings in a bucket an append slows", Unit: bench.Times, Published: 7.6, PublishedAs: "85 → 650 µs", Measured: 4.2, MeasuredAs: "115 µs → 480 µs, 4.20x", Verdict: bench.SizeDiffers, Why: "This mongod pays more for each update as such."},
		{Claim: "a bucket of 12 readings has 0.5 KB", Unit: bench.Bytes, Published: 500, PublishedAs: "0.5 KB", Measured: 520, MeasuredAs: "520 B", Verdict: bench.Confirmed, Why: "The measured figure agrees with the published one."},
		{Claim: "three indexes slow an append", Unit: bench.Times, Published: 2, PublishedAs: "with each index", Measured: 1, MeasuredAs: "1.00x", Verdict: bench.NotSeen, Why: "WiredTiger touches no index entry for a $push."},
		{Claim: "appends become faster", Unit: bench.Times, Published: 0.5, PublishedAs: "85 → 42 µs", Measured: 4.2, MeasuredAs: "4.20x", Verdict: bench.Opposite, Why: "a|b <b>"},
	}
	round := &bench.Table{
		Name: "round", Title: "Round trip of an append", Variant: "readings", Measures: []bench.Measure{{Name: "round trip", Unit: bench.Seconds}, {Name: "remote", Unit: bench.Seconds}},
		Note:  "The median of 500 appends.",
		Plots: []bench.Plot{{Title: "Cost of an append", Caption: "It rises."}, {Title: "As bars", Caption: "They rise.", Bars: true}},
	}
	round.Add("12", "round trip", 115e-6, 111e-6, 119e-6)
	round.Add("360", "round trip", 482e-6)
	round.Add("12", "remote", math.NaN())
	hidden := &bench.Table{Name: "line", Title: "Over time", Variant: "seconds", Unit: bench.Bytes, Hidden: true, Plots: []bench.Plot{{Title: "Dirty", Caption: "Dirty data."}}}
	for _, at := range []string{"0.1", "0.2", "0.3"} {
		hidden.Add(at, "dirty", 1e6)
	}
	r.Tables = []*bench.Table{round, hidden}
	return r
}

// aFailure is an experiment that could not continue.
func aFailure() *bench.Result {
	r := aResult()
	r.Experiment, r.Rows, r.Tables = "fill", nil, nil
	r.Environment.Database = "brim_bench_20261121_164900_77"
	r.Error = "fill: mongod said <b>\x1b[2J</b>\nno"
	return r
}
