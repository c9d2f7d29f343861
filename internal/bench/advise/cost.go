package advise

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/brim-telemetry/brim/internal/config"
	"github.com/brim-telemetry/brim/internal/store"
)

// Figures are all that was measured, on one machine and of one user's readings.
type Figures struct {
	Candidates []Measured `json:"candidates"`
	Command    CPU        `json:"command"` // of one, beside its updates
	// Ingest is what a reading costs in Brim before it is written: to take it in and
	// to journal it; seconds of a processor.
	Ingest float64 `json:"door_seconds"`
}

// Measured is what readings cost in one way to store them.
type Measured struct {
	Candidate

	Readings  int   `json:"readings"`
	Documents int64 `json:"documents"`
	// Data and Index are bytes of the files after a checkpoint, without what is
	// free in them.
	Data  int64 `json:"data_bytes"`
	Index int64 `json:"index_bytes"`
	Seal  CPU   `json:"seal_cpu_seconds"` // of all readings
	// Updates of documents that are half full: with one reading, and with many. They have
	// one form if a document has only one reading.
	Updates []Update `json:"updates"`
	Rewrite Rewrite  `json:"rewrite"`
	Query   Queried  `json:"query"`
}

// An Update is what it costs to add readings to a document, in commands of many updates.
type Update struct {
	PerUpdate int     `json:"per_update"`
	CPU       CPU     `json:"cpu_seconds"` // of one update
	Seconds   float64 `json:"seconds"`     // by the clock, of one writer
}

// A Rewrite is what it costs that a checkpoint writes a document, half full, to which
// something was added.
type Rewrite struct {
	Bytes  float64 `json:"bytes"`
	Mongod float64 `json:"mongod_seconds"`
}

// Queried is what a query costs that reads a span of one sensor, as the daemon
// reads it.
type Queried struct {
	Span      time.Duration `json:"span_ns"`   // that could be measured
	Documents float64       `json:"documents"` // that were read
	Seconds   float64       `json:"seconds"`   // by the clock, median
	CPU       CPU           `json:"cpu_seconds"`
}

// perDocument is the readings of a document.
func (m Measured) perDocument() float64 { return float64(m.Readings) / float64(m.Documents) }

// update returns what an update with so many readings costs, by a line through those that
// were measured. It does not fall.
func (m Measured) update(perUpdate float64) (each CPU, seconds float64) {
	one, many := m.Updates[0], m.Updates[len(m.Updates)-1]
	line := func(y func(Update) float64) float64 {
		low := y(one)
		if many.PerUpdate > one.PerUpdate {
			low += max(0, y(many)-low) / float64(many.PerUpdate-one.PerUpdate) * (perUpdate - float64(one.PerUpdate))
		}
		return low
	}
	return CPU{
		Mongod: line(func(u Update) float64 { return u.CPU.Mongod }), Brim: line(func(u Update) float64 { return u.CPU.Brim }),
	}, line(func(u Update) float64 { return u.Seconds })
}

// CPU is CPU time, in seconds.
type CPU struct {
	Mongod float64 `json:"mongod"`
	Brim   float64 `json:"brim"`
}

// Total is that of both.
func (c CPU) Total() float64 { return c.Mongod + c.Brim }

func (c CPU) plus(d CPU) CPU { return CPU{c.Mongod + d.Mongod, c.Brim + d.Brim} }

func (c CPU) times(n float64) CPU { return CPU{c.Mongod * n, c.Brim * n} }

// A Candidate is a way to store, with what can be chosen of it.
type Candidate struct {
	Storage     store.Storage    `json:"storage"`
	Granularity time.Duration    `json:"granularity_ns"`
	MaxReadings int              `json:"bucket_max_readings"` // in a part; 0 of a time series
	MaxBytes    int              `json:"bucket_max_bytes"`
	Compressor  store.Compressor `json:"compressor"`
	Columns     bool             `json:"columns"` // buckets: updates carry blocks, and ended windows are sealed
}

// Caps of a part.
const (
	defaultReadings = 1000
	manyReadings    = 4000
	mostReadings    = 40_000 // of a part that is tried: one that takes a minute at 660 readings a second
	columnReadings  = 20_000 // with columns
	defaultBytes    = 256 << 10
	mostBytes       = 2 << 20
)

// granularities that are tried.
var granularities = [...]time.Duration{
	time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 30 * time.Minute, time.Hour,
}

var compressors = [...]store.Compressor{store.Snappy, store.Zstd}

// String names the candidate in tables.
func (c Candidate) String() string {
	if c.Storage == store.TimeSeries {
		return "time series, " + string(c.Compressor)
	}
	text := fmt.Sprintf("bucket %s, %s", config.FormatDuration(c.Granularity), c.Compressor)
	if c.Columns {
		text += ", columns"
	} else if c.MaxReadings != defaultReadings {
		text += fmt.Sprintf(", parts of %d", c.MaxReadings)
	}
	return text
}

// may reports whether the needs allow it.
func (c Candidate) may(n Needs) bool { return c.Storage == store.Bucket || n.Duplicates == Rare }

// shape is the candidate whatever its compressor.
func (c Candidate) shape() Candidate {
	c.Compressor = ""
	return c
}

// readingBytes is about what a reading counts for in a part's bytes: its element
// in the array with the time, and a double with a short name for each field.
func readingBytes(fields int) int { return 30 + 14*fields }

// perWindow is how many readings of a sensor are in a window.
func perWindow(granularity, interval time.Duration) int {
	return int(max(1, math.Ceil(float64(granularity)/float64(interval))))
}

// candidates lists what is to be considered. Where windows hold more than a part
// may, longer windows make no other documents, so the shortest stands for them;
// there, other caps are tried instead.
func candidates(n Needs, quick bool) []Candidate {
	var out []Candidate
	add := func(c Candidate) {
		for _, compressor := range compressors {
			c.Compressor = compressor
			out = append(out, c)
		}
	}
	var seen []int // readings of a full document
	for i, g := range granularities {
		if quick && i%2 == 1 {
			continue
		}
		for _, most := range caps(perWindow(g, n.Interval), n.Fields) {
			if document := min(most, perWindow(g, n.Interval)); !slices.Contains(seen, document) {
				seen = append(seen, document)
				add(Candidate{Storage: store.Bucket, Granularity: g, MaxReadings: most, MaxBytes: capBytes(document, n.Fields)})
			}
		}
	}
	columns := perWindow(store.MaxGranularity, n.Interval)
	add(Candidate{Storage: store.Bucket, Granularity: store.MaxGranularity, MaxReadings: columnReadings, MaxBytes: capBytes(min(columns, columnReadings), n.Fields), Columns: true})
	// Servers that let the span be chosen get the longest, others know no other.
	add(Candidate{Storage: store.TimeSeries, Granularity: store.MaxGranularity})
	return out
}

// caps are those to be tried for windows of so many readings.
func caps(window, fields int) []int {
	most := min(mostReadings, mostBytes/readingBytes(fields))
	out := []int{min(defaultReadings, most)}
	for _, further := range []int{manyReadings, window} {
		if window >= further && further > out[len(out)-1] && further <= most {
			out = append(out, further)
		}
	}
	return out
}

// capBytes is the cap of bytes that leaves room for so many readings: the
// default where that does.
func capBytes(readings, fields int) int {
	for size := defaultBytes; size < mostBytes; size *= 2 {
		if readings*readingBytes(fields) <= size {
			return size
		}
	}
	return mostBytes
}

// A Cost is what a candidate costs with the --flush-max and the checkpoint interval that
// are given. Where nothing else is said, figures are of one day.
type Cost struct {
	Candidate

	Flush time.Duration `json:"flush_max_ns"`
	// MergeReadings is how many readings of a document cause an update before Flush.
	MergeReadings int `json:"merge_readings"`
	// Gather is how long readings gather: less than Flush where --flush-budget allows
	// it, and longer where lanes are busy.
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
	Seal       CPU     `json:"seal_cpu_seconds"`
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

// CPU is the CPU time of a day.
func (c Cost) CPU() CPU { return c.Write.plus(c.Query).plus(c.Seal).plus(CPU{Mongod: c.Rewrite}) }

// Price is that of a month.
func (c Cost) Price() float64 { return c.CPUPrice + c.DiskPrice }

// Of the daemon.
const (
	lanes       = 4    // that write a stream
	mostUpdates = 1000 // in a command
	// A lane that writes for more than this share of its time lets readings gather
	// longer, up to these bounds.
	busyPart      = 0.25
	mostIntervals = 4
	longestGather = 4 * time.Second
	// laneBytes is the lanes' memory for waiting readings: --queue-max-bytes, less the part
	// for the newest requests. When it is full, readings are written earlier.
	laneBytes    = 112 << 20
	heldOverhead = 90 // bytes of a reading that waits, beside its fields
	heldField    = 20
)

// cost works out a candidate's.
func (f *Figures) cost(n Needs, m Measured, flush, checkpoint time.Duration) Cost {
	c := Cost{Candidate: m.Candidate, Flush: flush, Checkpoint: checkpoint, PerDocument: m.perDocument()}
	readings := n.perDay()
	each := readings / float64(m.Readings)
	c.Documents, c.Data, c.Index = readings/c.PerDocument, each*float64(m.Data), each*float64(m.Index)
	c.Disk = c.Bytes() * n.kept().Seconds() / day.Seconds()
	c.addWrites(n, m, f.Command)
	c.addCheckpoints(n, m.Rewrite)
	c.addQueries(n, m.Query)
	c.Seal = m.Seal.times(each)
	c.CPUPrice = n.cpuPrice(c.CPU().Total())
	c.DiskPrice = c.Disk / 1e9 * n.GBMonth
	return c
}

// Defaults of the daemon.
const (
	flushInterval = time.Second // shortest time between two updates of a document
	mergeReadings = 60
	flushBudget   = 0.02 // of a processor, for updates before they are due
	// The daemon's estimate of what an update and a reading cost MongoDB, in CPU seconds.
	budgetUpdate, budgetReading = 300e-6, 5e-6
)

// gather returns how long readings gather with a --flush-max. The budget allows rounds of
// updates, as many as it pays for. Each round updates every sensor once, with the readings
// that arrived since the last round.
func gather(n Needs, flush time.Duration) time.Duration {
	left := flushBudget - budgetReading*n.perDay()/day.Seconds()
	if left <= 0 {
		return flush
	}
	round := float64(n.Sensors) * budgetUpdate / left
	if round >= flush.Seconds() {
		return flush
	}
	return max(time.Duration(round*float64(time.Second)), min(flush, flushInterval))
}

// addWrites adds what the lanes' updates cost. Where these keep a lane busy, it
// gathers longer by itself.
func (c *Cost) addWrites(n Needs, m Measured, command CPU) {
	c.MergeReadings = max(mergeReadings, int(math.Ceil(float64(c.Flush)/float64(n.Interval))))
	gather, apart := gather(n, c.Flush), min(c.Flush, flushInterval)
	longest := min(mostIntervals*apart, longestGather)
	for {
		c.PerUpdate = min(max(1, float64(gather)/float64(n.Interval)), c.PerDocument)
		c.Updates = n.perDay() / c.PerUpdate
		each, clock := m.update(c.PerUpdate)
		if busy := c.Updates / lanes * clock / day.Seconds(); busy > busyPart && apart < longest {
			gather, apart = max(gather, longest), longest
			continue
		}
		c.Gather, c.UpdateTime = gather, each.Total()
		c.Write = each.times(c.Updates).plus(command.times(c.commands(apart)))
		return
	}
}

// commands returns how many commands carry a day's updates: one for each flush of each
// lane, more if there are too many updates for one command, or fewer if a lane does not
// always have something to write.
func (c *Cost) commands(apart time.Duration) float64 {
	flushes := lanes * day.Seconds() / apart.Seconds()
	if c.Updates < flushes {
		return c.Updates
	}
	return flushes * math.Ceil(c.Updates/flushes/mostUpdates)
}

// addCheckpoints adds what checkpoints write: each open document to which
// something was added since the last, and those that were closed since.
func (c *Cost) addCheckpoints(n Needs, each Rewrite) {
	readings, checkpoints := n.perDay(), day.Seconds()/c.Checkpoint.Seconds()
	open := float64(n.Sensors) * min(1, float64(c.Checkpoint)/float64(max(n.Interval, c.Gather)))
	closed := readings / checkpoints / c.PerDocument
	documents := min(open+closed, readings/checkpoints) * checkpoints
	c.Written, c.Rewrite = documents*each.Bytes, documents*each.Mongod
}

// reach is how far before its span a query of bucket documents looks: whatever
// the granularity is now, an older bucket may be as long as the longest.
func reach(of store.Storage) time.Duration {
	if of == store.TimeSeries {
		return 0
	}
	return store.MaxGranularity
}

// touches is how many documents a query reads.
func touches(of store.Storage, span, covers time.Duration) float64 {
	return float64(span+reach(of))/float64(covers) + 1
}

// addQueries adds what reading costs. Where the measured query was shorter, it
// grows with the documents that it reads.
func (c *Cost) addQueries(n Needs, q Queried) {
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
func held(n Needs, gather time.Duration) float64 {
	return n.perDay() / day.Seconds() * gather.Seconds() * float64(heldOverhead+heldField*n.Fields)
}
