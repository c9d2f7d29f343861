package advise

import (
	"math"
	"time"

	"github.com/brim-telemetry/brim/internal/store"
)

// A Cost is what a candidate costs with the flush and checkpoint intervals that
// are given. Where nothing else is said, figures are of one day.
type Cost struct {
	Candidate

	Flush time.Duration `json:"flush_interval_ns"`
	// Gather is how long readings gather: longer than Flush where lanes are busy.
	Gather     time.Duration `json:"gather_ns"`
	Checkpoint time.Duration `json:"checkpoint_interval_ns"`

	PerUpdate   float64 `json:"readings_per_update"`
	PerDocument float64 `json:"readings_per_document"`
	Updates     float64 `json:"updates"`
	Documents   float64 `json:"documents"`
	Data        float64 `json:"data_bytes"` // on disk: what the day adds
	Index       float64 `json:"index_bytes"`
	Disk        float64 `json:"disk_bytes"`    // of all that is kept
	Written     float64 `json:"written_bytes"` // by checkpoints

	Write      CPU     `json:"write_cpu_seconds"`
	Rewrite    float64 `json:"checkpoint_cpu_seconds"` // of mongod
	Query      CPU     `json:"query_cpu_seconds"`
	UpdateTime float64 `json:"update_cpu_seconds_each"`

	// Of one query.
	QueryDocuments float64 `json:"documents_per_query"`
	QuerySeconds   float64 `json:"seconds_per_query"`

	// A month's price of processors and disk, in the needs' money.
	CPUPrice  float64 `json:"cpu_price"`
	DiskPrice float64 `json:"disk_price"`
}

// Bytes is what a day adds on disk, data and index.
func (c Cost) Bytes() float64 { return c.Data + c.Index }

// CPU is the processor time of a day.
func (c Cost) CPU() CPU { return c.Write.plus(c.Query).plus(CPU{Mongod: c.Rewrite}) }

// Price is that of a month.
func (c Cost) Price() float64 { return c.CPUPrice + c.DiskPrice }

// Of the daemon.
const (
	lanes       = 4    // that write a stream
	mostUpdates = 1000 // in a command
	// A lane that writes for more than this share of its time lets readings gather
	// longer, up to these bounds.
	busyShare     = 0.25
	mostIntervals = 4
	longestGather = 4 * time.Second
	// laneBytes is the memory of lanes for what gathers; what it does not hold is
	// written earlier.
	laneBytes    = 32 << 20
	heldOverhead = 90 // bytes of a reading that waits, beside its fields
	heldField    = 20
)

// cost works out a candidate's. It takes what was measured of its size, and all
// else from the figures.
func (f *Figures) cost(n Needs, s Sized, flush, checkpoint time.Duration) Cost {
	c := Cost{Candidate: s.Candidate, Flush: flush, Checkpoint: checkpoint, PerDocument: s.perDocument()}
	readings := n.perDay()
	c.Documents = readings / c.PerDocument
	c.Data = readings * float64(s.Data) / float64(s.Readings)
	c.Index = readings * float64(s.Index) / float64(s.Readings)
	c.Disk = c.Bytes() * n.kept().Seconds() / day.Seconds()
	f.addWrites(&c, n, readings)
	f.addCheckpoints(&c, n, readings)
	addQueries(&c, n, s.Query)
	c.CPUPrice = c.CPU().Total() / 3600 * float64(month/day) * n.CoreHour
	c.DiskPrice = c.Disk / 1e9 * n.GBMonth
	return c
}

// addWrites adds what the lanes' updates cost. Where these keep a lane busy, it
// gathers longer by itself.
func (f *Figures) addWrites(c *Cost, n Needs, readings float64) {
	gather := c.Flush
	for {
		c.PerUpdate = min(max(1, float64(gather)/float64(n.Interval)), c.PerDocument)
		c.Updates = readings / c.PerUpdate
		each, clock := f.update(c.Storage, (c.PerDocument-c.PerUpdate)/2, c.PerUpdate)
		longest := max(c.Flush, min(mostIntervals*c.Flush, longestGather))
		if busy := c.Updates / lanes * clock / day.Seconds(); busy > busyShare && gather < longest {
			gather = longest
			continue
		}
		c.Gather, c.UpdateTime = gather, each.Total()
		c.Write = each.times(c.Updates).plus(f.Command.times(c.commands(gather)))
		return
	}
}

// commands is how many carry a day's updates: one of each lane for each flush,
// or more where there are too many updates for one, or fewer where a lane does
// not always have something to write.
func (c *Cost) commands(gather time.Duration) float64 {
	flushes := lanes * day.Seconds() / gather.Seconds()
	if c.Updates < flushes {
		return c.Updates
	}
	return flushes * math.Ceil(c.Updates/flushes/mostUpdates)
}

// addCheckpoints adds what checkpoints write: each open document to which
// something was added since the last, and those that were closed since.
func (f *Figures) addCheckpoints(c *Cost, n Needs, readings float64) {
	checkpoints := day.Seconds() / c.Checkpoint.Seconds()
	open := float64(n.Sensors) * min(1, float64(c.Checkpoint)/float64(max(n.Interval, c.Flush)))
	closed := readings / checkpoints / c.PerDocument
	bytes, mongod := f.rewrite(c.Candidate, max(1, c.PerDocument/2))
	documents := min(open+closed, readings/checkpoints) * checkpoints
	c.Written, c.Rewrite = documents*bytes, documents*mongod
}

// reach is how far before its span a query of bucket documents looks: whatever
// the granularity is now, an older bucket may be as long as the longest.
func reach(of store.Storage) time.Duration {
	if of == store.TimeSeries {
		return 0
	}
	return store.MaxGranularity
}

// touches is how many documents a query looks at.
func touches(of store.Storage, span, covers time.Duration) float64 {
	return float64(span+reach(of))/float64(covers) + 1
}

// addQueries adds what reading costs. Where the measured query was shorter, it
// grows with the documents that are looked at.
func addQueries(c *Cost, n Needs, q Queried) {
	covers := time.Duration(c.PerDocument * float64(n.Interval))
	c.QueryDocuments = touches(c.Storage, n.QuerySpan, covers)
	longer := 1.0
	if q.Documents > 0 {
		longer = max(1, c.QueryDocuments/q.Documents)
	}
	c.QuerySeconds = q.Seconds * longer
	c.Query = q.CPU.times(longer * n.Queries)
}

// held is the memory of what gathers for so long, in bytes.
func held(n Needs, flush time.Duration) float64 {
	return n.perDay() / day.Seconds() * flush.Seconds() * float64(heldOverhead+heldField*n.Fields)
}
