package fill

import (
	"fmt"
	"math"
	"runtime"

	"github.com/brim-telemetry/brim/internal/bench"
)

// notes say in words what was found.
func (f *found) notes(r *bench.Result) {
	for _, note := range []func() string{
		f.noteRise, f.noteKeptUp, f.noteCapacity, f.noteMerging, f.noteTimeseries, f.noteFive, f.notePrefilled, f.noteCheckpoint, f.noteHistory,
	} {
		if text := note(); text != "" {
			r.Note("%s", text)
		}
	}
}

// median is that of a figure of a cell's repeats.
func (f *found) median(cell string, figure func(*Figures) float64) float64 {
	return f.samples(cell, figure).Median()
}

func mongodCPU(f *Figures) float64      { return f.MongodCPU }
func mongodCPUFirst(f *Figures) float64 { return f.MongodCPUFirst }
func mongodCPULast(f *Figures) float64  { return f.MongodCPULast }
func perUpdate(f *Figures) float64      { return f.ReadingsPerUpdate }

// ratio tells how one of two is to the other: as a factor, or that no
// difference was seen.
func ratio(from, to bench.Samples) string {
	factor := to.Over(from).Median()
	if len(from) > 1 && from.Overlaps(to) || factor > 0.9 && factor < 1.1 {
		return "no difference seen"
	}
	return bench.Times.Format(factor)
}

// noteRise tells whether and how far latency rises with the fill.
func (f *found) noteRise() string {
	if len(f.windows[hourSingle]) == 0 {
		return ""
	}
	start, end := f.samples(hourSingle, atStart), f.samples(hourSingle, after55)
	text := fmt.Sprintf("Hourly buckets with one reading per update: a write takes %s at the start of the hour and %s after 55 minutes (p50, %s)",
		bench.Seconds.Spread(start), bench.Seconds.Spread(end), ratio(start, end))
	first, last := f.samples(hourSingle, mongodCPUFirst), f.samples(hourSingle, mongodCPULast)
	rise := last.Over(first).Median()
	if math.IsNaN(rise) || math.IsInf(rise, 0) {
		return text + "; what a reading costs mongod is not told, so nothing is said about what makes the difference."
	}
	text += fmt.Sprintf("; a reading costs mongod %s of CPU in the first third and %s in the last (%s). ", bench.Seconds.Spread(first), bench.Seconds.Spread(last), ratio(first, last))
	switch {
	case rise < 1.1:
		return text + "The fill of a bucket is not what its writes cost here."
	case rise < 10:
		return text + "So the fill is seen, since an update copies the document that it grows, but it is one cost beside others that stay: the round trip, the guard, the log."
	}
	return text + "So the fill is most of what a write costs."
}

// mostBehind is how many seconds after the last reading all must be stored for
// MongoDB to have kept up.
const mostBehind = 2

// noteKeptUp tells whether it matters at this rate.
func (f *found) noteKeptUp() string {
	if len(f.windows[hourSingle]) == 0 {
		return ""
	}
	offered := f.median(hourSingle, func(f *Figures) float64 { return f.OfferedRate })
	achieved := f.median(hourSingle, func(f *Figures) float64 { return f.AchievedRate })
	last := f.median(hourSingle, func(f *Figures) float64 { return f.LastRate })
	behind := f.median(hourSingle, func(f *Figures) float64 { return f.BehindSeconds })
	used := f.median(hourSingle, mongodCPULast) * last / float64(runtime.NumCPU())
	left := f.median(hourSingle, func(f *Figures) float64 { return f.Left })
	end := bench.Seconds.Format(behind) + " after the last reading all were stored"
	if left > 0 {
		end = fmt.Sprintf("%s after the last reading %s were not stored", bench.Seconds.Format(behind), bench.Count.Format(left))
	}
	text := fmt.Sprintf("Of %s offered the daemon took %s into its journal, and in the last sixth of the hour MongoDB stored %s; %s. ",
		bench.PerSecond.Format(offered), bench.PerSecond.Format(achieved), bench.PerSecond.Format(last), end)
	if !f.remote {
		text += fmt.Sprintf("mongod used %s of the %d processors in the last third. ", bench.Share.Format(used), runtime.NumCPU())
	}
	switch {
	case achieved >= 0.98*offered && last >= 0.9*offered && behind <= mostBehind && left == 0:
		return text + "So it kept up, and the fill does not decide at this rate."
	case f.remote:
		return text + "So full hourly buckets with one reading per update were too much for it meanwhile: from there on latency is mostly waiting, and the journal holds what waits."
	case used < 0.5:
		return text + "So it fell behind, with less than half of the processors: others had them, or the disk was waited for. On a quieter machine it may keep up."
	}
	return text + "So full hourly buckets with one reading per update are past what this machine stores beside the daemon and the load: from there on latency is mostly waiting, and the journal holds what waits."
}

// noteCapacity tells where it would matter.
func (f *found) noteCapacity() string {
	if f.prefilled == nil {
		return ""
	}
	low, high := f.prefilled.capacities(5, perProcessorOf), f.prefilled.capacities(95, perProcessorOf)
	if len(low) == 0 || len(high) == 0 {
		return ""
	}
	return fmt.Sprintf("Where it becomes a problem: with one reading per update a processor of mongod's stores %s into hourly buckets that are 5 %% full, and %s into those that are 95 %% full; as fast as it went, MongoDB stored %s and %s here. Short of the smaller figure a fuller bucket costs CPU, and little time; near it writes queue, and a write takes many times as long as its work.",
		bench.PerSecond.Format(low.Median()), bench.PerSecond.Format(high.Median()),
		bench.PerSecond.Format(f.prefilled.capacities(5, rateOf).Median()), bench.PerSecond.Format(f.prefilled.capacities(95, rateOf).Median()))
}

const (
	hourMerged     = "1h-merged"
	hourTimeseries = "1h-timeseries"
)

// noteMerging tells what it changes.
func (f *found) noteMerging() string {
	if len(f.windows[hourSingle]) == 0 || len(f.windows[hourMerged]) == 0 {
		return ""
	}
	single, merged := f.median(hourSingle, mongodCPU), f.median(hourMerged, mongodCPU)
	text := fmt.Sprintf("Merging puts %.1f readings into an update of an hourly bucket here: a reading costs mongod %s of CPU, not %s, and %s in its log, not %s. ",
		f.median(hourMerged, perUpdate), bench.Seconds.Format(merged), bench.Seconds.Format(single),
		bench.Bytes.Format(f.median(hourMerged, journalBytes)), bench.Bytes.Format(f.median(hourSingle, journalBytes)))
	if single == 0 { // not told
		return text
	}
	if merged > 0.9*single {
		return text + "It saves nothing to speak of at this rate."
	}
	return text + "What an update costs beside its readings, the copy of the document above all, is shared, so the number of updates decides, more than the length of the bucket. " +
		"How many merge hangs on how often a sensor reports against the flush interval: here a sensor reports more often than one every 5 s of the clock, because event time is sped up; to gain as much in real time, raise --flush-interval, or send several readings of a sensor at once."
}

func journalBytes(f *Figures) float64 { return f.JournalBytes }
func fileBytes(f *Figures) float64    { return f.FileBytes }

// noteTimeseries tells what a time-series collection changes.
func (f *found) noteTimeseries() string {
	if len(f.windows[hourTimeseries]) == 0 || len(f.windows[hourMerged]) == 0 {
		return ""
	}
	t, merged := f.windows[hourTimeseries], f.windows[hourMerged]
	compare := func(figure func(*Figures) float64, unit bench.Unit) string {
		a, b := samplesOf(merged, figure), samplesOf(t, figure)
		return fmt.Sprintf("%s (bucket documents, merged: %s)", unit.Format(b.Median()), unit.Format(a.Median()))
	}
	p50, p99 := func(f *Figures) float64 { return f.Write.P50 }, func(f *Figures) float64 { return f.Write.P99 }
	first, last := samplesOf(t, mongodCPUFirst).Median(), samplesOf(t, mongodCPULast).Median()
	text := fmt.Sprintf("A time-series collection, whose readings are inserted together as well: p50 %s, p99 %s, mongod CPU per reading %s, log per reading %s. ",
		compare(p50, bench.Seconds), compare(p99, bench.Seconds), compare(mongodCPU, bench.Seconds), compare(journalBytes, bench.Bytes))
	if first == 0 { // not told
		return text
	}
	if last > 1.2*first {
		return text + fmt.Sprintf("Its buckets are filled by the server, and a reading costs more in the last third than in the first there too (%s, %s).", bench.Seconds.Format(last), bench.Seconds.Format(first))
	}
	return text + "Its buckets are filled by the server, and what a reading costs does not rise through the hour."
}

// noteFive tells what shorter buckets change.
func (f *found) noteFive() string {
	if len(f.windows[fiveSingle]) == 0 || len(f.windows[hourSingle]) == 0 {
		return ""
	}
	return fmt.Sprintf("5-minute buckets, one reading per update, cost mongod %s of CPU a reading, against %s with hourly ones; their p99 is %s in the first third of the window and %s in the last.",
		bench.Seconds.Format(f.median(fiveSingle, mongodCPU)), bench.Seconds.Format(f.median(hourSingle, mongodCPU)),
		bench.Seconds.Format(f.median(fiveSingle, func(f *Figures) float64 { return f.First.P99 })), bench.Seconds.Format(f.median(fiveSingle, func(f *Figures) float64 { return f.Last.P99 })))
}

// notePrefilled tells of many sensors.
func (f *found) notePrefilled() string {
	if f.prefilled == nil {
		return ""
	}
	low, high := f.prefilled.passages[5], f.prefilled.passages[95]
	if len(low) == 0 || len(high) == 0 {
		return ""
	}
	p50 := func(f *Figures) float64 { return f.Loaded.P50 }
	return fmt.Sprintf("With %d sensors whose buckets were filled beforehand, a write takes %s at 5 %% and %s at 95 %% (p50, %s), and a reading costs mongod %s and %s of CPU. To its files mongod wrote %s and %s for a reading meanwhile: what leaves the cache, by a checkpoint or because too much of it is dirty, is the whole bucket, however little of it is new.",
		f.plan.prefilledSensors, bench.Seconds.Format(samplesOf(low, p50).Median()), bench.Seconds.Format(samplesOf(high, p50).Median()), ratio(samplesOf(low, p50), samplesOf(high, p50)),
		bench.Seconds.Format(samplesOf(low, mongodCPU).Median()), bench.Seconds.Format(samplesOf(high, mongodCPU).Median()),
		bench.Bytes.Format(samplesOf(low, fileBytes).Median()), bench.Bytes.Format(samplesOf(high, fileBytes).Median()))
}

// noteCheckpoint tells what one does to the writes beside it.
func (f *found) noteCheckpoint() string {
	if f.prefilled == nil || f.prefilled.checkpoint == nil || f.prefilled.checkpoint.During.P99 == 0 {
		return ""
	}
	c := f.prefilled.checkpoint
	text := fmt.Sprintf("A checkpoint while %d hourly buckets at %d %% are written to took %s and made mongod write %s to its files. In the half seconds that it touched, p99 of a write was %s, in the others %s (p50 %s and %s). ",
		f.plan.prefilledSensors, f.prefilled.percent, bench.Seconds.Format(c.CheckpointSeconds), bench.Bytes.Format(c.FileBytes*c.Readings),
		bench.Seconds.Format(c.During.P99), bench.Seconds.Format(c.Outside.P99), bench.Seconds.Format(c.During.P50), bench.Seconds.Format(c.Outside.P50))
	if c.During.P99 > 1.5*c.Outside.P99 {
		return text + "So it is seen in p99: a checkpoint writes every bucket anew that got a reading since the one before, whole."
	}
	return text + "So it is not what makes p99 here; what it writes is every bucket anew, whole, that got a reading since the one before."
}

// noteHistory tells what the server's own default costs.
func (f *found) noteHistory() string {
	if len(f.windows[historyCell]) == 0 || len(f.windows[hourSingle]) == 0 {
		return ""
	}
	inserts := func(f *Figures) float64 { return f.HistoryInserts }
	return fmt.Sprintf("With %s at MongoDB's default of 300 s the same load made %.2f inserts into the history store a reading (%.2f without), %s written to files a reading (%s without), and cost %s of mongod's CPU a reading (%s without). A mongod of Brim's own keeps no history; on another it is a setting to look at.",
		historyWindow, f.median(historyCell, inserts), f.median(hourSingle, inserts), bench.Bytes.Format(f.median(historyCell, fileBytes)), bench.Bytes.Format(f.median(hourSingle, fileBytes)),
		bench.Seconds.Format(f.median(historyCell, mongodCPU)), bench.Seconds.Format(f.median(hourSingle, mongodCPU)))
}
