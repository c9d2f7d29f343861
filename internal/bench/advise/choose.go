package advise

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/store"
)

// Advice is what to set, why, what it costs, and what was not chosen.
type Advice struct {
	Needs       Needs             `json:"needs"`
	Environment bench.Environment `json:"environment"`
	Quick       bool              `json:"quick"`
	TookSeconds float64           `json:"took_seconds"`

	Chosen   Cost       `json:"chosen"`
	Choices  []Choice   `json:"choices"`
	Rejected []Rejected `json:"rejected"` // the cheapest first
	Fresh    []Fresh    `json:"fresh"`    // the cost of each --flush-max
	Warnings []string   `json:"warnings,omitempty"`
	Followed *Followed  `json:"followed,omitempty"`
	Figures  *Figures   `json:"figures"`
}

// A Choice is one setting with its reason.
type Choice struct {
	Setting string `json:"setting"`
	Value   string `json:"value"`
	Why     string `json:"why"`
}

// Fresh is the cost of a --flush-max, with all other settings as chosen.
type Fresh struct {
	Flush     time.Duration `json:"flush_max_ns"`
	Gather    time.Duration `json:"gather_ns"`
	PerUpdate float64       `json:"readings_per_update"`
	Mongod    float64       `json:"mongod_seconds_per_reading"` // to write it
	Cores     float64       `json:"mongod_processors"`          // likewise, of all readings
	CPUPrice  float64       `json:"cpu_price"`
}

// Rejected is a candidate that was not chosen, with the --flush-max that suits it best.
type Rejected struct {
	Cost

	Why string `json:"why"`
}

// alikePart is the part by which two prices may differ and still count as the same:
// what is measured in a minute is not more certain. Of such the simpler is
// taken: bucket documents, which keep a reading from being stored twice; those that
// hold sub-documents, which every program can read; then the smaller documents, then
// snappy. Of --flush-max and checkpoint intervals the
// shorter is.
const alikePart = 0.10

// flushes are the values of --flush-max that are tried, checkpoints the intervals.
var flushes = [...]time.Duration{
	time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second, time.Minute, 5 * time.Minute, 15 * time.Minute, time.Hour,
}

var checkpoints = [...]time.Duration{time.Minute, 2 * time.Minute, 5 * time.Minute}

var errNothing = errors.New("nothing was measured to choose from")

// Choose returns the advice that follows from what was measured. Needs must be
// complete.
func Choose(n Needs, f *Figures) (*Advice, error) {
	if !slices.ContainsFunc(f.Sizes, func(s Sized) bool { return s.may(n) }) {
		return nil, errNothing
	}
	all := make([]Cost, len(f.Sizes))
	for i, s := range f.Sizes {
		all[i] = f.cost(n, s, f.bestFlush(n, s, n.MaxWait), checkpoints[0])
	}
	best := choose(n, all)
	a := &Advice{Needs: n, Figures: f}
	sized := f.Sizes[best]
	limit := cheapest(n, all) * (1 + alikePart)
	interval, within := f.bestCheckpoint(n, sized, all[best].Flush)
	a.Chosen = f.cost(n, sized, all[best].Flush, interval)
	for i := range all {
		if i != best {
			alike := all[i].Price() <= limit
			all[i] = f.cost(n, f.Sizes[i], all[i].Flush, interval)
			a.Rejected = append(a.Rejected, Rejected{Cost: all[i], Why: a.whyNot(all[i], alike)})
		}
	}
	slices.SortStableFunc(a.Rejected, func(x, y Rejected) int { return cmp.Compare(x.Price(), y.Price()) })
	a.Fresh = f.fresh(n, sized, interval)
	a.explain()
	a.warn(within)
	return a, nil
}

// choose returns the place of the one to take, of those that the needs allow.
func choose(n Needs, all []Cost) int {
	best, limit := -1, cheapest(n, all)*(1+alikePart)
	for i := range all {
		if all[i].may(n) && all[i].Price() <= limit && (best < 0 || simpler(all[i].Candidate, all[best].Candidate)) {
			best = i
		}
	}
	return best
}

// cheapest is the least price of those that the needs allow.
func cheapest(n Needs, all []Cost) float64 {
	least := math.Inf(1)
	for i := range all {
		if all[i].may(n) {
			least = min(least, all[i].Price())
		}
	}
	return least
}

// simpler reports whether a is taken where both cost the same.
func simpler(a, b Candidate) bool {
	if a.Storage != b.Storage {
		return a.Storage == store.Bucket
	}
	if a.Columns != b.Columns {
		return !a.Columns
	}
	if a.Granularity != b.Granularity {
		return a.Granularity < b.Granularity
	}
	if a.MaxReadings != b.MaxReadings {
		return a.MaxReadings < b.MaxReadings
	}
	return a.Compressor == store.Snappy && b.Compressor != store.Snappy
}

// Figures are all that was measured, on one machine and of one user's readings.
type Figures struct {
	Updates  []Update  `json:"updates"`
	Command  CPU       `json:"command"` // of one, beside its updates
	Rewrites []Rewrite `json:"rewrites"`
	Sizes    []Sized   `json:"sizes"`
	// Ingest is what a reading costs in Brim before it is written: to take it in and
	// to journal it; seconds of a processor.
	Ingest float64 `json:"door_seconds"`
}

// fresh returns what each --flush-max costs.
func (f *Figures) fresh(n Needs, s Sized, checkpoint time.Duration) (out []Fresh) {
	for _, flush := range flushes {
		if flush > s.Granularity {
			break
		}
		c := f.cost(n, s, flush, checkpoint)
		out = append(out, Fresh{
			Flush: flush, Gather: c.Gather, PerUpdate: c.PerUpdate, Mongod: c.Write.Mongod / n.perDay(), Cores: c.Write.Mongod / day.Seconds(), CPUPrice: c.CPUPrice,
		})
	}
	return out
}

// bestFlush returns the shortest --flush-max up to a longest wait whose price is about
// that of the best.
func (f *Figures) bestFlush(n Needs, s Sized, longest time.Duration) time.Duration {
	var can []time.Duration
	for _, flush := range flushes {
		if flush <= min(longest, s.Granularity) && (len(can) == 0 || held(n, gather(n, flush)) <= laneBytes) {
			can = append(can, flush)
		}
	}
	if len(can) == 0 {
		return longest
	}
	price := func(flush time.Duration) float64 { return f.cost(n, s, flush, checkpoints[0]).CPUPrice }
	least := price(can[0])
	for _, flush := range can {
		least = min(least, price(flush))
	}
	for _, flush := range can {
		if price(flush) <= least*(1+alikePart) {
			return flush
		}
	}
	return can[0]
}

// bestCheckpoint returns the shortest interval with which checkpoints write no
// more than the disk should, and whether there is one.
func (f *Figures) bestCheckpoint(n Needs, s Sized, flush time.Duration) (interval time.Duration, within bool) {
	for _, interval = range checkpoints {
		if f.cost(n, s, flush, interval).Written <= float64(n.DiskWrites) {
			return interval, true
		}
	}
	return interval, false
}

// A Candidate is a way to store, with what can be chosen of it.
type Candidate struct {
	Storage     store.Storage    `json:"storage"`
	Granularity time.Duration    `json:"granularity_ns"`
	MaxReadings int              `json:"bucket_max_readings"` // in a part; 0 of a time series
	MaxBytes    int              `json:"bucket_max_bytes"`
	Compressor  store.Compressor `json:"compressor"`
	Columns     bool             `json:"columns"` // buckets: updates carry blocks, and ended windows are sealed
}

// A form is what updates and checkpoints cost depends on.
type form struct {
	Storage store.Storage `json:"storage"`
	Columns bool          `json:"columns"`
}

func (c Candidate) form() form { return form{c.Storage, c.Columns} }

func (f form) String() string {
	if f.Columns {
		return "columns"
	}
	return string(f.Storage)
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
	text := fmt.Sprintf("bucket %s, %s", Span(c.Granularity), c.Compressor)
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
	c.Seal = s.Seal.times(readings / float64(s.Readings))
	c.CPUPrice = c.CPU().Total() / 3600 * float64(month/day) * n.CoreHour
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
func (f *Figures) addWrites(c *Cost, n Needs, readings float64) {
	c.MergeReadings = max(mergeReadings, int(math.Ceil(float64(c.Flush)/float64(n.Interval))))
	gather, apart := gather(n, c.Flush), min(c.Flush, flushInterval)
	longest := min(mostIntervals*apart, longestGather)
	for {
		c.PerUpdate = min(max(1, float64(gather)/float64(n.Interval)), c.PerDocument)
		c.Updates = readings / c.PerUpdate
		each, clock := f.update(c.form(), (c.PerDocument-c.PerUpdate)/2, c.PerUpdate)
		if busy := c.Updates / lanes * clock / day.Seconds(); busy > busyPart && apart < longest {
			gather, apart = max(gather, longest), longest
			continue
		}
		c.Gather, c.UpdateTime = gather, each.Total()
		c.Write = each.times(c.Updates).plus(f.Command.times(c.commands(apart)))
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
func (f *Figures) addCheckpoints(c *Cost, n Needs, readings float64) {
	checkpoints := day.Seconds() / c.Checkpoint.Seconds()
	open := float64(n.Sensors) * min(1, float64(c.Checkpoint)/float64(max(n.Interval, c.Gather)))
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

// touches is how many documents a query reads.
func touches(of store.Storage, span, covers time.Duration) float64 {
	return float64(span+reach(of))/float64(covers) + 1
}

// addQueries adds what reading costs. Where the measured query was shorter, it
// grows with the documents that it reads.
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
func held(n Needs, gather time.Duration) float64 {
	return n.perDay() / day.Seconds() * gather.Seconds() * float64(heldOverhead+heldField*n.Fields)
}

// reportsMongod reports whether the CPU time of mongod was reported.
func (f *Figures) reportsMongod() bool {
	return slices.ContainsFunc(f.Updates, func(u Update) bool { return u.CPU.Mongod > 0 })
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

// An Update is what it costs to add readings to a document that has some
// already, in commands of many updates.
type Update struct {
	form
	Resident  float64 `json:"resident"` // readings in the document, on average
	PerUpdate int     `json:"per_update"`
	CPU       CPU     `json:"cpu_seconds"` // of one update
	Seconds   float64 `json:"seconds"`     // by the clock, of one writer
}

// A Rewrite is what it costs that a checkpoint writes a document to which
// something was added.
type Rewrite struct {
	form
	Compressor store.Compressor `json:"compressor"`
	Resident   float64          `json:"resident"` // readings in the document
	Bytes      float64          `json:"bytes"`    // written, of one document
	Mongod     float64          `json:"mongod_seconds"`
}

// Sized is what readings take in one way to store them.
type Sized struct {
	Candidate

	Readings  int   `json:"readings"`
	Documents int64 `json:"documents"`
	// Data and Index are bytes of the files after a checkpoint, without what is
	// free in them.
	Data  int64   `json:"data_bytes"`
	Index int64   `json:"index_bytes"`
	Query Queried `json:"query"`
	Seal  CPU     `json:"seal_cpu_seconds"` // of all readings
}

// perDocument is the readings of a document.
func (s Sized) perDocument() float64 { return float64(s.Readings) / float64(s.Documents) }

// Queried is what a query costs that reads a span of one sensor, as the daemon
// reads it.
type Queried struct {
	Span      time.Duration `json:"span_ns"`   // that could be measured
	Documents float64       `json:"documents"` // that were read
	Seconds   float64       `json:"seconds"`   // by the clock, median
	CPU       CPU           `json:"cpu_seconds"`
}

// update returns what an update costs, between and beyond what was measured: a
// line through the documents' sizes for the fewest readings an update and one for
// the most, and a line between these two.
func (f *Figures) update(of form, resident, perUpdate float64) (CPU, float64) {
	few, many := 0, 0
	for _, u := range f.Updates {
		if u.form == of {
			if few == 0 || u.PerUpdate < few {
				few = u.PerUpdate
			}
			many = max(many, u.PerUpdate)
		}
	}
	at := func(k int, y func(Update) float64) float64 {
		var through points
		for _, u := range f.Updates {
			if u.form == of && u.PerUpdate == k {
				through.add(u.Resident, y(u))
			}
		}
		return through.at(resident)
	}
	between := func(y func(Update) float64) float64 {
		low := at(few, y)
		if many == few {
			return low
		}
		each := max(0, (at(many, y)-low)/float64(many-few))
		return low + each*(perUpdate-float64(few))
	}
	return CPU{
		Mongod: between(func(u Update) float64 { return u.CPU.Mongod }),
		Brim:   between(func(u Update) float64 { return u.CPU.Brim }),
	}, between(func(u Update) float64 { return u.Seconds })
}

// rewrite returns what a checkpoint's writing of a document costs.
func (f *Figures) rewrite(c Candidate, resident float64) (bytes, mongod float64) {
	var size, cpu points
	for _, r := range f.Rewrites {
		if r.form == c.form() && r.Compressor == c.Compressor {
			size.add(r.Resident, r.Bytes)
			cpu.add(r.Resident, r.Mongod)
		}
	}
	return size.at(resident), cpu.at(resident)
}

// points are measurements that a line goes through.
type points struct{ x, y []float64 }

func (p *points) add(x, y float64) {
	if y > 0 { // or it was too little to be measured
		p.x, p.y = append(p.x, x), append(p.y, y)
	}
}

// at returns the line's value at a place: 0 of no points, their mean if they are
// all at one place, and never less than half of the least value, which a line that
// noise has bent would give. It does not fall: nothing here costs less if there is
// more of it.
func (p *points) at(x float64) float64 {
	line, ok := bench.FitLine(p.x, p.y)
	switch values := bench.Samples(p.y); {
	case len(values) == 0:
		return 0
	case !ok || line.Each < 0:
		return values.Mean()
	default:
		return max(line.At(x), values.Min()/2)
	}
}
