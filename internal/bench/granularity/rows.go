package granularity

import (
	"fmt"
	"strings"
	"time"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/config"
)

// report tells all that there is.
func (t *trial) report(r *bench.Result) {
	r.Data = &t.found
	t.appendRows(r)
	t.indexRow(r)
	t.sizeRows(r)
	t.tables(r)
	t.plots(r)
	t.notes(r)
}

// published is a row of the published table.
type published struct {
	granularity   time.Duration
	held          float64 // readings in a bucket when the append was timed
	latency       string
	seconds       float64
	documentBytes float64
	documents     float64 // a day
}

// table is that of the published figures, in the order of granularities.
var table = [...]published{
	{time.Minute, 12, "85 µs", 85e-6, 0.5e3, 14.4e6},
	{5 * time.Minute, 60, "180 µs", 180e-6, 2.4e3, 2.88e6},
	{15 * time.Minute, 180, "350 µs", 350e-6, 7.2e3, 960e3},
	{time.Hour, 360, "650 µs", 650e-6, 28e3, 240e3},
}

const becauseFixed = "an append has a price here that does not hang on the bucket (a command, the guard, a version of the document, the oplog), and only the rest of it grows with what the bucket holds"

const becauseSteep = "little is paid here beside the document's new version, which is made of all that the bucket holds"

// because says why a cost grows less, or more, than was published.
func because(from, to bench.Samples, published float64) string {
	if to.Over(from).Median() > published {
		return becauseSteep
	}
	return becauseFixed
}

// appendRows hold the published latencies against one another: the machines
// differ, but each page's figures are of one machine.
func (t *trial) appendRows(r *bench.Result) {
	c := t.ones(t.Topology)
	if c == nil || c.Time == nil {
		return
	}
	from := table[0]
	for _, to := range table[1:] {
		low, high, factor := c.times(from.held), c.times(to.held), to.seconds/from.seconds
		claim := bench.Claim{
			Says:        fmt.Sprintf("time of an append, %s to %s (%g to %g readings in the bucket)", config.FormatDuration(from.granularity), config.FormatDuration(to.granularity), from.held, to.held),
			Published:   factor,
			PublishedAs: from.latency + " → " + to.latency, Because: because(low, high, factor),
		}
		r.Add(claim.Paired(low, high, bench.Seconds))
	}
	hour := table[len(table)-1]
	low, high, factor := c.cpus(from.held), c.cpus(hour.held), hour.seconds/from.seconds
	r.Add(bench.Claim{
		Says:      fmt.Sprintf("mongod's CPU for an append among many in a command, %s to %s", config.FormatDuration(from.granularity), config.FormatDuration(hour.granularity)),
		Published: factor, PublishedAs: from.latency + " → " + hour.latency + " (time)", Because: because(low, high, factor),
	}.Paired(low, high, bench.Seconds))
}

// indexRow is about what an append does to indexes.
func (t *trial) indexRow(r *bench.Result) {
	none, most := t.indexEnds()
	if none == nil {
		return
	}
	r.Add(bench.Claim{
		Says:        "an append is dearer with " + several(len(most.indexes), "further index"),
		PublishedAs: "documents grow and move, and every index with them",
		Because:     "WiredTiger keeps a document's place in the indexes when the document grows, and an append touches no index whose keys it leaves as they are",
	}.Paired(none.CPU, most.CPU, bench.Seconds))
}

// indexEnds are the variants with none and with the most of the indexes that
// appends do not change.
func (f *found) indexEnds() (none, most *variant) {
	for _, v := range f.Indexes {
		switch {
		case len(v.CPU) == 0 || v.changing():
		case len(v.indexes) == 0:
			none = v
		case most == nil || len(v.indexes) > len(most.indexes):
			most = v
		}
	}
	if none == nil || most == nil {
		return nil, nil
	}
	return none, most
}

// changing reports whether appends change the keys of its index.
func (v *variant) changing() bool { return len(v.indexes) == 1 && v.indexes[0][0].Key == changedKey }

const becauseDoubles = "every reading has its fields' names and numbers of 64 bits here, and the document has its key twice, statistics of each field and the write guard beside them"

// sizeRows hold documents and bytes against the published ones.
func (t *trial) sizeRows(r *bench.Result) {
	for i, s := range t.Sizes {
		p := table[i]
		r.Add(bench.Claim{
			Says: fmt.Sprintf("a full document at %s, before compression", s.Granularity), Published: p.documentBytes, Unit: bench.Bytes,
			PublishedAs: bench.Bytes.Format(p.documentBytes), Because: becauseDoubles,
		}.Check(bench.Samples{s.DocumentBytes}))
	}
	for i, s := range t.Sizes {
		p := table[i]
		r.Add(bench.Claim{
			Says: "documents a day at " + s.Granularity, Published: p.documents, PublishedAs: bench.Count.Format(p.documents),
			Alike: 1.01, Because: "buckets begin with the hour, and each sensor has its own",
		}.Check(bench.Samples{s.DocumentsADay}))
	}
	t.dayRows(r)
}

// What was published of the bytes of a day.
const (
	publishedFiveMinutes = 8.2e9
	publishedHour        = 6.72e9
)

func (t *trial) dayRows(r *bench.Result) {
	five, hour := t.sizeAt(5*time.Minute), t.sizeAt(time.Hour)
	if five == nil || hour == nil {
		return
	}
	for _, d := range []struct {
		s         *size
		published float64
	}{{five, publishedFiveMinutes}, {hour, publishedHour}} {
		r.Add(bench.Claim{
			Says: fmt.Sprintf("bytes of documents a day at %s, before compression", d.s.Granularity), Published: d.published, Unit: bench.Bytes,
			PublishedAs: bench.Bytes.Format(d.published), Because: becauseDoubles,
		}.Check(bench.Samples{d.s.BytesADay}))
	}
	// A factor of 1.2 is alike to none and to the opposite; what is spared is not.
	r.Add(bench.Claim{
		Says: "part of the bytes a day at 5m that 1h spares", Published: 1 - publishedHour/publishedFiveMinutes, Unit: bench.Share,
		PublishedAs: bench.Bytes.Format(publishedFiveMinutes) + " → " + bench.Bytes.Format(publishedHour) + " (" + percentLess(publishedHour/publishedFiveMinutes) + " less)",
		Because:     "only what a document has beside its readings is spared",
	}.Check(bench.Samples{1 - hour.BytesADay/five.BytesADay}))
}

func (f *found) sizeAt(g time.Duration) *size {
	for _, s := range f.Sizes {
		if s.window == g {
			return s
		}
	}
	return nil
}

// several counts things: 1 reading, 2 readings, 3 indexes.
func several(n int, what string) string {
	switch {
	case n == 1:
	case strings.HasSuffix(what, "x"):
		what += "es"
	default:
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}
