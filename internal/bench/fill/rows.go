package fill

import (
	"github.com/brim-telemetry/brim/internal/bench"
)

// samples are a figure of all repeats of a cell; empty where it was not
// measured.
func (f *found) samples(cell string, figure func(*Figures) float64) bench.Samples {
	return samplesOf(f.windows[cell], figure)
}

func samplesOf(all []*Figures, figure func(*Figures) float64) bench.Samples {
	out := make(bench.Samples, len(all))
	for i, one := range all {
		out[i] = figure(one)
	}
	return out
}

// What rows go by is the clock: where MongoDB falls behind, the readings of the
// last minutes are written when the load has ended, which is no write after 55
// minutes.
func atStart(f *Figures) float64 { return f.Start.P50 }
func after40(f *Figures) float64 { return f.After40.P50 }
func after55(f *Figures) float64 { return f.After55.P50 }

const (
	hourSingle = "1h-single"
	fiveSingle = "5m-single"

	grows = "an update changes the document in the server's memory and is logged alone, so a full bucket costs it more copying but no more disk at once; " +
		"as long as that stays a part of what the processors can do, nothing queues, and only what queues takes tens of milliseconds"
	costsMore = "what an update of a full bucket costs the server's processors bounds what it can store, and the guard, the command and the log cost their share whatever the bucket holds"
)

// rows hold what was published against what came.
func (f *found) rows() (rows []bench.Row) {
	if len(f.windows[hourSingle]) > 0 {
		start := f.samples(hourSingle, atStart)
		rows = append(rows,
			bench.Claim{
				Says: "hourly buckets, one reading per update: p50 of a write after 40 min against the start", Published: 45. / 2, PublishedAs: "2 → 45 ms", Because: grows,
			}.Paired(start, f.samples(hourSingle, after40), bench.Seconds),
			bench.Claim{
				Says: "the same after 55 min", Published: 80. / 2, PublishedAs: "2 → 80 ms", Because: grows,
			}.Paired(start, f.samples(hourSingle, after55), bench.Seconds),
		)
	}
	if f.prefilled != nil {
		if low, high := f.prefilled.passages[5], f.prefilled.passages[95]; len(low) > 1 && len(high) > 1 {
			p50 := func(f *Figures) float64 { return f.Loaded.P50 }
			// No figure: where this is more than MongoDB stores, writes queue, and by how
			// many times they take longer hangs on how long it was measured.
			rows = append(rows, bench.Claim{
				Says:        "many sensors, one reading per update: a write into hourly buckets that are 95 % full takes longer than into those at 5 % (p50)",
				PublishedAs: "2 → 80 ms (start, after 55 min)", Because: grows,
			}.Paired(samplesOf(low, p50), samplesOf(high, p50), bench.Seconds), bench.Claim{
				Says:      "the same: the most readings that a processor of MongoDB's stores a second",
				Published: 800. / 2000, PublishedAs: "2,000 → 800/s (start, after 55 min)", Because: costsMore,
			}.Paired(f.prefilled.capacities(5, perProcessorOf), f.prefilled.capacities(95, perProcessorOf), bench.PerSecond))
		}
	}
	if len(f.windows[fiveSingle]) > 0 {
		first := f.samples(fiveSingle, func(f *Figures) float64 { return f.First.P50 })
		last := f.samples(fiveSingle, func(f *Figures) float64 { return f.Last.P50 })
		p50 := f.samples(fiveSingle, func(f *Figures) float64 { return f.Loaded.P50 })
		p99 := f.samples(fiveSingle, func(f *Figures) float64 { return f.Loaded.P99 })
		rows = append(rows,
			bench.Claim{
				Says: "5-minute buckets, one reading per update: p50 of a write in the last third of the window as in the first", PublishedAs: "2 ms, flat", Alike: 1.25,
				Because: "repeats and sizes this small differ by the machine's own unrest",
			}.Same(first, last, bench.Seconds),
			bench.Claim{
				Says: "5-minute buckets, one reading per update: p99 of a write against p50", Published: 8. / 2, PublishedAs: "2 ms, 8 ms", Alike: 2.5,
				Because: "how far the slowest writes stand off depends on the machine's processors and disk, and on who else uses them",
			}.Paired(p50, p99, bench.Seconds),
		)
	}
	return rows
}
