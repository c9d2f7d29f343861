package storage

import (
	"fmt"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/chart"
)

// compactions are all of them.
type compactions []*compaction

// of are those of one pattern.
func (cs compactions) of(pattern string) compactions {
	var out compactions
	for _, c := range cs {
		if c.Pattern == pattern {
			out = append(out, c)
		}
	}
	return out
}

// each is a value of each compaction, where it is known.
func (cs compactions) each(of func(*compaction) number) bench.Samples {
	var out bench.Samples
	for _, c := range cs {
		if v := of(c); v.known() {
			out = append(out, float64(v))
		}
	}
	return out
}

func (c *compaction) deletedFile() number { return c.Deleted.File }
func (c *compaction) fullFile() number    { return c.Full.File }
func (c *compaction) afterFile() number   { return c.After.File }
func (c *compaction) beforeP99() number   { return c.Before.P99 }
func (c *compaction) duringP99() number   { return c.During.P99 }
func (c *compaction) laterP99() number    { return c.Later.P99 }

// extra is by how much the collection's file was larger than before, at most.
func (c *compaction) extra() number { return max(c.Peak-c.Deleted.File, 0) }

// rows hold the compactions against what was published.
func (cs compactions) rows(r *bench.Result, patterns []string) {
	for _, pattern := range patterns {
		r.Add(cs.of(pattern).spaceRow(pattern))
	}
	r.Add(bench.Claim{
		Says: "write p99 falls when a collection was compacted", Published: 10.0 / 35, PublishedAs: "35 → 10 ms",
		Because: "an append changes a page in the cache, and waits for no free space inside the file",
	}.Compare(cs.each((*compaction).beforeP99), cs.each((*compaction).laterP99), bench.Seconds))
}

const (
	// alikeSpace is narrow: from what is left of the published file, 0.77, to the
	// whole of it is only 1.3x.
	alikeSpace = 1.15
	// muchLarger is from which factor on a file was made larger by deleting from it.
	muchLarger = 1.1
)

// spaceRow holds what is left of the file, after one pattern of deletion, against
// what was published.
func (cs compactions) spaceRow(pattern string) bench.Row {
	because := "compaction moves what is at the end of the file into what is free before it, and how much that is hangs on where the free parts are"
	if cs.grown() > muchLarger {
		because = "where what was deleted lies between what stays, pages were written anew beside the old ones, and the file had grown before it was compacted"
	}
	return bench.Claim{
		Says: "compaction takes the file to 0.77x after deleting " + pattern, Published: 460.0 / 600, PublishedAs: "600 → 460 GB for 450 GB live",
		Unit: bench.Times, Alike: alikeSpace, Because: because,
	}.Check(cs.each(func(c *compaction) number { return c.After.File / c.Deleted.File }))
}

// grown is the file after the deletion by that before it.
func (cs compactions) grown() float64 {
	return cs.each((*compaction).deletedFile).Over(cs.each((*compaction).fullFile)).Median()
}

// table shows the compactions by pattern.
func (cs compactions) table(patterns []string) bench.Table {
	t := bench.Table{
		Title: "Compaction while writing",
		Head:  []string{"deleted", "file when full", "file after deleting", "free in it", "file after compaction", "free in it", "took", "file larger by", "all files larger by", "p99 before", "p99 during", "p99 after"},
		Notes: []string{
			fmt.Sprintf("%d writes/s of %d readings to the same collection; a time counts from when the write was due.", moderate, readingsPerWrite),
			"Larger by: at most, while it was compacted; all files are those of mongod, with the journal and the oplog that the writes fill.",
		},
	}
	for _, pattern := range patterns {
		of := cs.of(pattern)
		t.Rows = append(t.Rows, []string{
			pattern, bench.Bytes.Spread(of.each((*compaction).fullFile)), bench.Bytes.Spread(of.each((*compaction).deletedFile)),
			bench.Bytes.Spread(of.each(func(c *compaction) number { return c.Deleted.Free })),
			bench.Bytes.Spread(of.each((*compaction).afterFile)), bench.Bytes.Spread(of.each(func(c *compaction) number { return c.After.Free })),
			bench.Seconds.Spread(of.each(func(c *compaction) number { return c.Took })), bench.Bytes.Spread(of.each((*compaction).extra)),
			bench.Bytes.Spread(of.each(func(c *compaction) number { return c.FilesMore })),
			bench.Seconds.Spread(of.each((*compaction).beforeP99)), bench.Seconds.Spread(of.each((*compaction).duringP99)), bench.Seconds.Spread(of.each((*compaction).laterP99)),
		})
	}
	return t
}

// notes say what follows.
func (cs compactions) notes(r *bench.Result, patterns []string) {
	for _, pattern := range patterns {
		of := cs.of(pattern)
		full, after := of.each((*compaction).fullFile), of.each((*compaction).afterFile)
		switch grown := of.grown(); {
		case grown > muchLarger:
			r.Note("Deleting %s made the file larger, %s of what it was, since the pages that stay were written anew; compaction took it to %s of the full one. Deleting alone gives nothing back.",
				pattern, bench.Times.Format(grown), bench.Times.Format(after.Over(full).Median()))
		default:
			r.Note("Deleting %s left the file as it was, with %s of it free for what comes; compaction took it to %s of the full one. Where as much will be written again, there is no need to compact.",
				pattern, bench.Share.Format(of.each(func(c *compaction) number { return c.Deleted.Free / c.Deleted.File }).Median()), bench.Times.Format(after.Over(full).Median()))
		}
	}
	before, during, later := cs.each((*compaction).beforeP99), cs.each((*compaction).duringP99), cs.each((*compaction).laterP99)
	if during.Median() > before.Median()*1.5 {
		r.Note("While a collection was compacted, p99 of writes to it was %s of what it was before (%s → %s): nothing was refused, but do it when there is little load.",
			bench.Times.Format(during.Median()/before.Median()), bench.Seconds.Format(before.Median()), bench.Seconds.Format(during.Median()))
	} else {
		r.Note("While a collection was compacted, writes to it took hardly longer (p99 %s → %s).", bench.Seconds.Format(before.Median()), bench.Seconds.Format(during.Median()))
	}
	if before.Overlaps(later) {
		r.Note("No difference was seen between writes after the compaction and before it: compact for the sake of space, not of latency.")
	}
	if extra := cs.each((*compaction).extra); len(extra) > 0 && extra.Max() < 0.05*cs.each((*compaction).deletedFile).Min() {
		r.Note("Compaction needed next to no further space: it moves blocks inside the file and cuts its end off.")
	}
}

// plot draws the last compaction of a pattern.
func (cs compactions) plot(r *bench.Result, pattern string) {
	of := cs.of(pattern)
	if len(of) == 0 {
		return
	}
	line := of[len(of)-1].timeline
	r.Plot(chart.Time{
		Title: "Write p99 around a compaction, after deleting " + pattern, X: line.at, XLabel: "since the beginning",
		Y:      chart.Axis{Label: "p99 of a quarter of a second", Unit: chart.Seconds},
		Series: []chart.Series{{Name: "p99", Y: line.p99, Tone: chart.A}},
		Beneath: &chart.Panel{Y: chart.Axis{Label: "file", Unit: chart.DecimalBytes}, Series: []chart.Series{
			{Name: "the collection's file", Y: line.file, Tone: chart.C, Filled: true},
		}},
		Marks: []float64{line.begin, line.end}, Width: 760, Height: 360,
	}, "Write p99 and the size of the file around a compaction, which is between the two upright lines.")
}
