package advise

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/brim-telemetry/brim/internal/config"
	"github.com/brim-telemetry/brim/internal/store"
)

// Figures are all measurements, for one machine and one user's readings.
type Figures struct {
	Candidates []Measured `json:"candidates"`
	Command    CPU        `json:"command"` // of one command, without its updates
	// Ingest is the CPU seconds that Brim spends per reading before it is written: accepting
	// and journaling it.
	Ingest float64 `json:"door_seconds"`
}

// Measured is what readings cost in one form of storage.
type Measured struct {
	Candidate

	Readings  int   `json:"readings"`
	Documents int64 `json:"documents"`
	// Data and Index are bytes in the files after a checkpoint, without free space.
	Data  int64 `json:"data_bytes"`
	Index int64 `json:"index_bytes"`
	Seal  CPU   `json:"seal_cpu_seconds"` // of all readings
	// Updates of half-full documents, with one reading and with many; just one if a document
	// has only one reading.
	Updates []Update `json:"updates"`
	Rewrite Rewrite  `json:"rewrite"`
	Query   Queried  `json:"query"`
}

// An Update is the cost of adding readings to a document, in commands of many updates.
type Update struct {
	PerUpdate int     `json:"per_update"`
	CPU       CPU     `json:"cpu_seconds"` // per update
	Seconds   float64 `json:"seconds"`     // wall-clock time with one writer
}

// A Rewrite is the cost of a checkpoint writing a changed, half-full document.
type Rewrite struct {
	Bytes  float64 `json:"bytes"`
	Mongod float64 `json:"mongod_seconds"`
}

// Queried is the cost of a query for a span of one sensor, read as the daemon does.
type Queried struct {
	Span      time.Duration `json:"span_ns"`   // as long as could be measured
	Documents float64       `json:"documents"` // documents read
	Seconds   float64       `json:"seconds"`   // wall-clock time, median
	CPU       CPU           `json:"cpu_seconds"`
}

// perDocument returns the readings per document.
func (m Measured) perDocument() float64 { return float64(m.Readings) / float64(m.Documents) }

// update returns the cost of an update of perUpdate readings, linear between the measured ones
// and never falling.
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

// CPU is CPU time in seconds.
type CPU struct {
	Mongod float64 `json:"mongod"`
	Brim   float64 `json:"brim"`
}

// Total returns the CPU time of both processes.
func (c CPU) Total() float64 { return c.Mongod + c.Brim }

func (c CPU) plus(d CPU) CPU { return CPU{c.Mongod + d.Mongod, c.Brim + d.Brim} }

func (c CPU) times(n float64) CPU { return CPU{c.Mongod * n, c.Brim * n} }

// A Candidate is a form of storage with its settings.
type Candidate struct {
	Storage     store.Storage    `json:"storage"`
	Granularity time.Duration    `json:"granularity_ns"`
	MaxReadings int              `json:"bucket_max_readings"` // per part; 0 for a time series
	MaxBytes    int              `json:"bucket_max_bytes"`
	Compressor  store.Compressor `json:"compressor"`
	Columns     bool             `json:"columns"` // buckets: updates carry blocks, and ended windows are sealed
}

// Caps of a part.
const (
	defaultReadings = 1000
	manyReadings    = 4000
	mostReadings    = 40_000 // largest part to try; it takes a minute at 660 readings per second
	columnReadings  = 20_000 // with columns
	defaultBytes    = 256 << 10
	mostBytes       = 2 << 20
)

// granularities to try.
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

// may reports whether the needs allow the candidate.
func (c Candidate) may(n Needs) bool { return c.Storage == store.Bucket || n.Duplicates == Rare }

// shape returns the candidate without its compressor.
func (c Candidate) shape() Candidate {
	c.Compressor = ""
	return c
}

// readingBytes approximates what a reading adds to a part: its array element with the time, and
// a double with a short name per field.
func readingBytes(fields int) int { return 30 + 14*fields }

// perWindow returns the readings of a sensor per window.
func perWindow(granularity, interval time.Duration) int {
	return int(max(1, math.Ceil(float64(granularity)/float64(interval))))
}

// candidates lists what to consider. Once windows exceed a part, longer ones produce the same
// documents, so the shortest represents them and larger caps are tried instead.
func candidates(n Needs, quick bool) []Candidate {
	var out []Candidate
	add := func(c Candidate) {
		for _, compressor := range compressors {
			c.Compressor = compressor
			out = append(out, c)
		}
	}
	var seen []int // readings per full document
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
	// Servers that allow a choice of span get the longest; others have only one.
	add(Candidate{Storage: store.TimeSeries, Granularity: store.MaxGranularity})
	return out
}

// caps returns the caps to try for windows of that many readings.
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

// capBytes returns the smallest cap in bytes with room for readings, starting from the default.
func capBytes(readings, fields int) int {
	for size := defaultBytes; size < mostBytes; size *= 2 {
		if readings*readingBytes(fields) <= size {
			return size
		}
	}
	return mostBytes
}

// A Cost is what a candidate costs at a --flush-max and a checkpoint interval. Figures are per
// day unless stated otherwise.
type Cost struct {
	Candidate

	Flush time.Duration `json:"flush_max_ns"`
	// MergeReadings is how many readings of a document trigger an update before Flush.
	MergeReadings int `json:"merge_readings"`
	// Gather is how long readings gather: less than Flush if --flush-budget allows, more if
	// lanes are busy.
	Gather     time.Duration `json:"gather_ns"`
	Checkpoint time.Duration `json:"checkpoint_interval_ns"`

	PerUpdate   float64 `json:"readings_per_update"`
	PerDocument float64 `json:"readings_per_document"`
	Updates     float64 `json:"updates"`
	Documents   float64 `json:"documents"`
	Data        float64 `json:"data_bytes"` // on disk, added per day
	Index       float64 `json:"index_bytes"`
	Disk        float64 `json:"disk_bytes"`    // of everything kept
	Written     float64 `json:"written_bytes"` // by checkpoints

	Write      CPU     `json:"write_cpu_seconds"`
	Rewrite    float64 `json:"checkpoint_cpu_seconds"` // of mongod
	Seal       CPU     `json:"seal_cpu_seconds"`
	Query      CPU     `json:"query_cpu_seconds"`
	UpdateTime float64 `json:"update_cpu_seconds_each"`

	// Per query.
	QueryDocuments float64 `json:"documents_per_query"`
	QuerySeconds   float64 `json:"seconds_per_query"`

	// Monthly prices of CPU and disk, in the currency of the needs.
	CPUPrice  float64 `json:"cpu_price"`
	DiskPrice float64 `json:"disk_price"`
}

// Bytes returns the data and index bytes that a day adds on disk.
func (c Cost) Bytes() float64 { return c.Data + c.Index }

// CPU returns the CPU time of a day.
func (c Cost) CPU() CPU { return c.Write.plus(c.Query).plus(c.Seal).plus(CPU{Mongod: c.Rewrite}) }

// Price returns the price of a month.
func (c Cost) Price() float64 { return c.CPUPrice + c.DiskPrice }

// Properties of the daemon.
const (
	lanes       = 4    // per stream
	mostUpdates = 1000 // per command
	// A lane that spends more than this share of its time writing lets readings gather longer,
	// up to these bounds.
	busyPart      = 0.25
	mostIntervals = 4
	longestGather = 4 * time.Second
	// laneBytes is the lanes' memory for waiting readings: --queue-max-bytes minus the part for
	// the newest requests. When it is full, readings are written early.
	laneBytes    = 112 << 20
	heldOverhead = 90 // bytes per waiting reading, plus its fields
	heldField    = 20
)

// cost computes the cost of a candidate.
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
	flushInterval = time.Second // minimum time between updates of a document
	mergeReadings = 60
	flushBudget   = 0.02 // of a CPU, for early updates
	// The daemon's estimates of MongoDB's CPU seconds per update and per reading.
	budgetUpdate, budgetReading = 300e-6, 5e-6
)

// gather returns how long readings gather with a --flush-max. The budget pays for a number of
// rounds of updates. Each round updates every sensor once, with the readings that arrived since
// the previous round.
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

// addWrites adds the cost of the lanes' updates. A lane that they keep busy gathers longer.
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

// commands returns how many commands carry a day's updates: one per flush and lane, more if the
// updates exceed one command, fewer if a lane is sometimes idle.
func (c *Cost) commands(apart time.Duration) float64 {
	flushes := lanes * day.Seconds() / apart.Seconds()
	if c.Updates < flushes {
		return c.Updates
	}
	return flushes * math.Ceil(c.Updates/flushes/mostUpdates)
}

// addCheckpoints adds the cost of checkpoints, which write each open document that changed
// since the previous one, and those closed since.
func (c *Cost) addCheckpoints(n Needs, each Rewrite) {
	readings, checkpoints := n.perDay(), day.Seconds()/c.Checkpoint.Seconds()
	open := float64(n.Sensors) * min(1, float64(c.Checkpoint)/float64(max(n.Interval, c.Gather)))
	closed := readings / checkpoints / c.PerDocument
	documents := min(open+closed, readings/checkpoints) * checkpoints
	c.Written, c.Rewrite = documents*each.Bytes, documents*each.Mongod
}

// reach is how far before its span a query of bucket documents looks: whatever the current
// granularity, an older bucket may have the longest.
func reach(of store.Storage) time.Duration {
	if of == store.TimeSeries {
		return 0
	}
	return store.MaxGranularity
}

// touches returns how many documents a query reads.
func touches(of store.Storage, span, covers time.Duration) float64 {
	return float64(span+reach(of))/float64(covers) + 1
}

// addQueries adds the cost of queries. If the measured query was shorter, its cost scales with
// the documents read.
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

// held returns the memory in bytes of what gathers in a time.
func held(n Needs, gather time.Duration) float64 {
	return n.perDay() / day.Seconds() * gather.Seconds() * float64(heldOverhead+heldField*n.Fields)
}
