package timeseries

import (
	"fmt"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/bench/shape"
	"github.com/brim-telemetry/brim/internal/store"
)

// Why this machine shows something else: all claims are of MongoDB 5.0.3.
const (
	becauseColumns = "since 5.2 a time-series bucket keeps its readings column by column, packed; the published server did not"
	becauseMixed   = "the published figure compares zstd with snappy and is of 5.0.3; here the compressor is the same, and buckets are packed by column"
	becauseUnpack  = "a find unpacks the bucket that the reading is in, where an index leads straight to a document"
	becauseLoad    = "it hangs on the server's version, on how many writers there are, and on how many readings a bucket takes"
)

func (t *trial) claims() {
	d, r := &t.data, t.result
	a, b := &d.Shapes[documents], &d.Shapes[series]
	r.Add(t.loadClaims(a, b)...)
	if a.Finds != nil {
		because := becauseUnpack
		if b.Finds.Median() < a.Finds.Median() {
			because = "" // it explains the contrary
		}
		r.Add(bench.Claim{
			Says: "point finds take as long in a time series", PublishedAs: "1 M finds: 16.9 → 16.0 s", Because: because,
		}.SamePaired(a.Finds, b.Finds, bench.Seconds))
	}
	if a.Means.All != nil {
		r.Add(meanClaims(a, b)...)
	}
	if a.Sorts != nil {
		r.Add(sortClaim(a.Sorts[0].Failed))
	}
	if d.compressorsMeasured() {
		from, to := total(d.compressed(documents, store.Snappy)), total(d.compressed(series, store.Zstd))
		r.Add(bench.Claim{
			Says: "each with its default compressor: a time series takes 70 % less in all", Published: 0.30, PublishedAs: "snappy 175 + 233 MB → zstd 119 + 0 MB",
			Because: becauseColumns,
		}.Compare(bench.Samples{from}, bench.Samples{to}, bench.Bytes))
	}
}

func (t *trial) loadClaims(a, b *ShapeData) []bench.Row {
	if a.Load == nil || b.Total == nil {
		return nil
	}
	logical := func(s *ShapeData) bench.Samples { return bench.Samples{float64(s.Size.Logical)} }
	return []bench.Row{
		bench.Claim{
			Says: "a time series loads faster than a document per reading", Published: 0.75, PublishedAs: "279.5 → 210.1 s", Because: becauseLoad,
		}.Paired(a.Load, b.Load, bench.Seconds),
		bench.Claim{
			Says: "its data is larger before compression", Published: 1.31, PublishedAs: "570 → 748 MB", Because: becauseColumns,
		}.Compare(logical(a), logical(b), bench.Bytes),
		bench.Claim{
			Says: "its data is smaller on disk", Published: 0.68, PublishedAs: "snappy 175 → zstd 119 MB", Because: becauseMixed,
		}.Compare(a.Data, b.Data, bench.Bytes),
		indexRow(b.Index),
		bench.Claim{
			Says: "data and indexes take 70 % less in all", Published: 0.30, PublishedAs: "175 + 233 → 119 + 0 MB", Because: becauseMixed,
		}.Compare(a.Total, b.Total, bench.Bytes),
	}
}

// indexRow is for a figure that is 0, of which there is no factor.
func indexRow(index bench.Samples) bench.Row {
	row := bench.Row{
		Claim: "a time series needs no index on time", Unit: bench.Bytes, PublishedAs: "233 → 0 MB",
		Measured: index.Median(), Min: index.Min(), Max: index.Max(), MeasuredAs: bench.Bytes.Spread(index),
		Verdict: bench.Confirmed, Why: "its buckets are kept in the order of time",
	}
	if row.Measured > 0 {
		row.Verdict, row.Why = bench.NotSeen, "this server makes an index by itself"
	}
	return row
}

// alikeMeans is wide: the published factor itself goes from 0.77 to 0.52 with the
// number of queries.
const alikeMeans = 1.75

func meanClaims(a, b *ShapeData) []bench.Row {
	claim := func(queries string, factor float64, as string, from, to bench.Samples) bench.Row {
		return bench.Claim{
			Says: "means over 6 hours are faster in a time series: " + queries, Published: factor, PublishedAs: as,
			Alike: alikeMeans, Because: "all that is read is in the cache here, and a server since 5.2 reads columns that are packed",
		}.Paired(from, to, bench.Seconds)
	}
	return []bench.Row{
		claim("a tenth of the queries", 0.77, "10 K: 21.9 → 16.8 s", a.Means.Tenth, b.Means.Tenth),
		claim("half of them", 0.73, "50 K: 97.0 → 71.2 s", a.Means.Half, b.Means.Half),
		claim("all", 0.52, "100 K: 273.3 → 141.4 s", a.Means.All, b.Means.All),
	}
}

func sortClaim(failed bool) bench.Row {
	row := bench.Row{
		Claim: "a sort by time without an index fails for memory", Unit: bench.Count, Published: 1, PublishedAs: "failed",
		Measured: 0, MeasuredAs: "sorted", Verdict: bench.NotSeen, Why: "all readings fit the memory that a sort is given",
	}
	if failed {
		row.Measured, row.MeasuredAs, row.Verdict = 1, "failed", bench.Confirmed
		row.Why = "with allowDiskUse false; a server from 6.0 on spills to disk unless told otherwise"
	}
	row.Min, row.Max = row.Measured, row.Measured
	return row
}

// compressorsMeasured reports whether all of them were.
func (d *Data) compressorsMeasured() bool {
	return len(d.Compressors) == len(shapes())*(1+len(otherCompressors()))
}

// compressed returns the size of a shape with a compressor.
func (d *Data) compressed(at int, compressor store.Compressor) shape.Size {
	for i := range d.Compressors {
		if c := &d.Compressors[i]; c.Shape == d.Shapes[at].Shape && c.Compressor == compressor {
			return c.Size
		}
	}
	return shape.Size{}
}

// defaultOf is the compressor that the server gives to a shape.
func defaultOf(name string) store.Compressor {
	for _, s := range shapes() {
		if s.String() == name && (s.Kind == shape.Series || s.Kind == shape.TimeSeries) {
			return store.Zstd
		}
	}
	return store.Snappy
}

// notes say what follows from the figures.
func (t *trial) notes() {
	d := &t.data
	d.noteSizes(t.result)
	d.noteReads(t.result)
	d.noteLate(t.result)
	if s := d.Shapes[series].Sorts; s != nil && d.Shapes[documents].Sorts[0].Failed {
		if s[0].Failed {
			t.result.Note("Without an index a sort of everything by time fails in a time series as it does elsewhere, unless the server may use the disk.")
		} else {
			t.result.Note("A time series without a metaField is sorted by time where a document per reading fails for memory: its buckets are in that order already.")
		}
	}
}

func (d *Data) noteSizes(r *bench.Result) {
	if !d.compressorsMeasured() {
		return
	}
	base := total(d.compressed(documents, store.Snappy))
	defaults, pinned := total(d.compressed(series, store.Zstd))/base, total(d.compressed(series, store.Snappy))/base
	r.Note("Of a document per reading with its indexes a time series leaves %s with the compressors that the server gives to each; with the same one on both, %s. "+
		"The compressor makes %s of the difference to 1, the shape and the index that is not needed the rest.",
		bench.Share.Format(defaults), bench.Share.Format(pinned), bench.Share.Format((pinned-defaults)/(1-defaults)))
	d.noteIndexes(r, base)
	ours := total(d.compressed(buckets, store.Snappy)) / base
	r.Note("Brim's hourly buckets take %s of a document per reading (snappy), a time series with a metaField and Brim's index %s.",
		bench.Share.Format(ours), bench.Share.Format(total(d.compressed(brims, store.Snappy))/base))
}

// noteIndexes says what part of a saving is that of the indexes; base is what a
// document per reading takes.
func (d *Data) noteIndexes(r *bench.Result, base float64) {
	from := d.compressed(documents, store.Snappy)
	share := func(at int) float64 {
		to := d.compressed(at, store.Snappy)
		return float64(from.Index()-to.Index()) / (base - total(to))
	}
	r.Note("Indexes are %s of what a document per reading takes. That there are few entries in them is %s of what Brim's buckets save, and %s of what a time series does (snappy).",
		bench.Share.Format(float64(from.Index())/base), bench.Share.Format(share(buckets)), bench.Share.Format(share(series)))
}

func (d *Data) noteReads(r *bench.Result) {
	a := d.Shapes[documents].Means.All
	if len(d.Shapes[brims].Means.All) == 0 { // the last of them
		return
	}
	median := a.Median()
	r.Note("A mean over 6 hours takes, of a document per reading's time: time series without a metaField %s, with one %s, Brim's buckets %s by $unwind and %s by stats.",
		bench.Times.Format(d.Shapes[series].Means.All.Median()/median), bench.Times.Format(d.Shapes[brims].Means.All.Median()/median),
		bench.Times.Format(d.Shapes[buckets].Means.All.Median()/median), bench.Times.Format(d.Shapes[buckets].StatsMeans.All.Median()/median))
}

func (d *Data) noteLate(r *bench.Result) {
	if !d.lateMeasured() {
		return
	}
	n := len(lateShares())
	worst := func(name string) (float64, float64) {
		for i := n - 1; i < len(d.Late); i += n {
			if d.Late[i].Shape == name {
				return d.lateGrowth(i), d.Late[i].Size.PerReading(d.Late[i].Size.Data())
			}
		}
		return 0, 0
	}
	plain, plainBytes := worst(d.Shapes[series].Shape)
	own, ownBytes := worst(d.Shapes[buckets].Shape)
	r.Note("With %s of the readings late, a time series has %s the buckets (%s of data a reading), Brim's own buckets %s (%s): %s",
		bench.Share.Format(lateShares()[n-1]), bench.Times.Format(plain), bench.Bytes.Format(plainBytes), bench.Times.Format(own), bench.Bytes.Format(ownBytes),
		lateAdvice(plain, own))
}

// lateAdvice follows from how much the buckets of both grew.
func lateAdvice(series, own float64) string {
	if series > 2*own {
		return "where sensors deliver late, buckets by key are the safer choice."
	}
	return fmt.Sprintf("late readings decide nothing here (%s apart).", bench.Times.Format(series/own))
}
