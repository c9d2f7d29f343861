package advise

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/bench/shape"
	"github.com/brim-telemetry/brim/internal/config"
	"github.com/brim-telemetry/brim/internal/load"
	"github.com/brim-telemetry/brim/internal/store"
)

// A session measures on one MongoDB.
type session struct {
	lab        *bench.Lab
	m          *bench.MongoDB
	needs      Needs
	candidates []Candidate
	amounts
}

// amounts are how much to measure.
type amounts struct {
	sizeReadings, sizeDocuments int // per size, at most
	grownReadings               int // added to documents before an update is measured
	updating                    time.Duration
	ingestTime                  time.Duration
	followReadings              int
	followTime                  time.Duration
}

func newSession(lab *bench.Lab, m *bench.MongoDB, n Needs) *session {
	s := &session{lab: lab, m: m, needs: n, candidates: candidates(n, lab.Quick)}
	s.amounts = amounts{
		sizeReadings: 160_000, sizeDocuments: 12_000, grownReadings: 60_000, updating: 300 * time.Millisecond,
		ingestTime: 4 * time.Second, followReadings: 600_000, followTime: 20 * time.Second,
	}
	if lab.Quick {
		s.amounts = amounts{
			sizeReadings: 80_000, sizeDocuments: 5000, grownReadings: 20_000, updating: 150 * time.Millisecond,
			ingestTime: 2 * time.Second, followReadings: 300_000, followTime: 10 * time.Second,
		}
	}
	return s
}

// seriesReadings is the most readings in a time-series bucket.
const seriesReadings = 1000

// full returns the readings per full document.
func (c Candidate) full(interval time.Duration) int {
	most := c.MaxReadings
	if c.Storage == store.TimeSeries {
		most = seriesReadings
	}
	return min(most, perWindow(c.Granularity, interval))
}

// perUpdates returns the readings per update to measure: one, and roughly as many as can be
// merged.
func (s *session) perUpdates(c Candidate) []int {
	const fewest, most = 12, 500
	many := min(max(int(s.needs.MaxWait/s.needs.Interval), fewest), most, c.full(s.needs.Interval))
	return slices.Compact([]int{1, many})
}

// measure measures each candidate, and what all of them share.
func (s *session) measure(ctx context.Context) *Figures {
	f := &Figures{}
	for i, c := range s.candidates {
		s.lab.Step("%s: an update and a checkpoint", c)
		m := Measured{Candidate: c}
		// Updates do not depend on the compressor.
		if i > 0 && c.shape() == s.candidates[i-1].shape() {
			m.Updates = f.Candidates[i-1].Updates
		}
		s.grow(ctx, &m, max(1, c.full(s.needs.Interval)/2))
		s.lab.Step("%s: size and query", c)
		s.size(ctx, &m)
		f.Candidates = append(f.Candidates, m)
	}
	s.lab.Step("a command of one update")
	const resident = 150 // average, in both
	alone, among := s.command(ctx, 1, 1, 2*resident), s.command(ctx, manySensors/8, resident, mostRounds/8)
	f.Command = CPU{max(0, alone.Mongod-among.Mongod), max(0, alone.Brim-among.Brim)}
	f.Ingest = s.ingest(ctx)
	return f
}

// command measures a one-reading update in commands of one update per sensor.
func (s *session) command(ctx context.Context, sensors, resident, rounds int) CPU {
	c := s.grown(ctx, Candidate{Storage: store.Bucket, Compressor: store.Snappy}, sensors, resident, rounds)
	update := s.update(ctx, c, resident, 1, rounds)
	c.Drop(ctx)
	return update.CPU
}

// cpuOf returns the CPU time spent; 0 for a mongod that does not report its own, which the
// advice warns about.
func cpuOf(s bench.Spent) CPU {
	if math.IsNaN(s.CPU) {
		s.CPU = 0
	}
	return CPU{s.CPU, s.Own}
}

// ingest measures what accepting and journaling readings costs Brim, with a daemon that writes
// nothing meanwhile.
func (s *session) ingest(ctx context.Context) float64 {
	s.lab.Step("ingest, %d readings in a request", s.needs.Batch)
	d := s.lab.Daemon(ctx, s.m, "--flush-interval", MaxMaxWait.String())
	var r *load.Result
	spent := d.Measure(ctx, s.m, func(ctx context.Context) {
		r = d.Load(ctx, "--rate", "2000", "--batch", strconv.Itoa(s.needs.Batch), "--fields", strconv.Itoa(s.needs.Fields), "--duration", s.ingestTime.String())
	})
	bench.Check(d.Close())
	if r.Acked == 0 {
		return 0
	}
	return spent.Brim / float64(r.Acked)
}

// readings returns count readings per sensor, like those of `brim load`.
func (s *session) readings(sensors, count int, interval time.Duration) shape.Readings {
	source := bench.Must(load.NewSensors(load.SensorsConfig{Count: sensors, Fields: s.needs.Fields, Seed: s.lab.Seed, Prefix: prefix}))
	r := shape.Readings{Source: source, Sensors: sensors, Count: count, Begin: shape.Begin(), Interval: interval}
	r.At = func(sensor int, k uint64) time.Time { // sensors start at scattered, distinct times
		part := math.Mod(float64(sensor)*math.Phi, 1)
		return r.Time(k).Add(time.Duration(part * float64(interval)).Truncate(time.Millisecond))
	}
	return r
}

// prefix makes sensor IDs as long as a load run's.
const prefix = "load-mi8dk3f2-"

// collection creates an empty collection.
func (s *session) collection(ctx context.Context, c Candidate, r shape.Readings, perUpdate int, expiry time.Duration) *shape.Collection {
	kind := shape.Shape{Kind: shape.Buckets, Granularity: c.Granularity}
	switch {
	case c.Storage == store.TimeSeries:
		kind.Kind = shape.TimeSeries
	case c.Columns:
		kind.Format = store.Columns
	}
	return shape.New(ctx, s.m, shape.Config{
		Name: "advise", Shape: kind, Compressor: c.Compressor, Readings: r, PerUpdate: perUpdate,
		MaxReadings: c.MaxReadings, MaxBytes: c.MaxBytes, Retention: expiry,
	})
}

const (
	manySensors = 1000
	mostRounds  = 64
)

// updateTurns per measurement; the median ignores a slow moment.
const updateTurns = 3

// update measures adding readings to documents that hold resident ones, in at most rounds
// rounds. All documents grow alike.
func (s *session) update(ctx context.Context, c *shape.Collection, resident, perUpdate, rounds int) Update {
	var mongod, brim, seconds bench.Samples
	for range updateTurns {
		done := 0
		spent := s.m.Measure(ctx, func(ctx context.Context) {
			for began := time.Now(); done == 0 || done < rounds/updateTurns && time.Since(began) < s.updating; done++ {
				c.Write(ctx, shape.Portions(c.Readings.Sensors, resident+done*perUpdate, perUpdate))
			}
		})
		resident += done * perUpdate
		each, n := cpuOf(spent), 1/float64(done*c.Readings.Sensors)
		mongod, brim, seconds = append(mongod, each.Mongod*n), append(brim, each.Brim*n), append(seconds, spent.Seconds*n)
	}
	return Update{perUpdate, CPU{mongod.Median(), brim.Median()}, seconds.Median()}
}

// grown creates documents with resident readings each, and room for further ones in their
// window. The caller drops the collection.
func (s *session) grown(ctx context.Context, of Candidate, sensors, resident, further int) *shape.Collection {
	of.Granularity, of.MaxReadings, of.MaxBytes = time.Hour, 1_000_000, mostBytes
	interval := max(time.Millisecond, (time.Hour / time.Duration(resident+further+1)).Truncate(time.Millisecond))
	c := s.collection(ctx, of, s.readings(sensors, resident, interval), resident, 0)
	c.Load(ctx)
	s.m.Checkpoint(ctx)
	return c
}

const (
	fewestRewritten = 20
	rewriteRounds   = 2
)

// grow measures updates, unless they are known, and what a checkpoint writes after each
// document got one more reading.
func (s *session) grow(ctx context.Context, m *Measured, resident int) {
	perUpdates := s.perUpdates(m.Candidate)
	if m.Updates != nil {
		perUpdates = nil
	}
	sensors := min(max(s.grownReadings/resident, fewestRewritten), manySensors)
	for _, perUpdate := range perUpdates {
		// Few enough that documents stay about half full.
		rounds := max(updateTurns, min(mostRounds, resident/perUpdate/2))
		c := s.grown(ctx, m.Candidate, sensors, resident, rounds*perUpdate)
		m.Updates = append(m.Updates, s.update(ctx, c, resident, perUpdate, rounds))
		c.Drop(ctx)
	}
	c := s.grown(ctx, m.Candidate, sensors, resident, rewriteRounds)
	n := 1 / float64(sensors*rewriteRounds)
	for i := range rewriteRounds {
		checkpoint := bench.Spent{}
		written := s.m.Measure(ctx, func(ctx context.Context) {
			c.Write(ctx, shape.Portions(sensors, resident+i, 1))
			checkpoint = s.m.Measure(ctx, s.m.Checkpoint)
		})
		m.Rewrite.Bytes += written.Since("block_written_bytes_total") * n
		m.Rewrite.Mongod += cpuOf(checkpoint).Mongod * n
	}
	c.Drop(ctx)
}

// size measures the disk space of readings in one form of storage, and the cost of a query.
func (s *session) size(ctx context.Context, m *Measured) {
	r, perUpdate := s.sample(m.Candidate)
	expiry := time.Duration(0)
	if s.needs.Retention > 0 { // adds an index; the readings stay
		expiry = MaxRetention
	}
	c := s.collection(ctx, m.Candidate, r, perUpdate, expiry)
	for at := 0; at < r.Count; at += perUpdate {
		c.Write(ctx, shape.Portions(r.Sensors, at, min(perUpdate, r.Count-at)))
	}
	begun := 0
	if m.Storage == store.TimeSeries {
		// The next reading packs the previous bucket; in the long run nearly all are packed.
		c.Write(ctx, shape.Portions(r.Sensors, r.Count, 1))
		begun = r.Sensors
	}
	if m.Columns {
		m.Seal = cpuOf(s.m.Measure(ctx, c.Seal))
	}
	s.m.Checkpoint(ctx)
	size := c.Size(ctx)
	m.Readings, m.Documents = r.Sensors*r.Count, max(1, size.Documents-int64(begun))
	m.Data, m.Index = size.Data(), size.Index()
	m.Query = s.query(ctx, m.Candidate, c, m.perDocument())
	c.Drop(ctx)
}

const (
	sampledDocuments = 4    // per sensor, at least
	sampledSensors   = 60   // at most
	querySlack       = 1.25 // times the span of a query
	// A sensor faster than this fills documents with many updates at any --flush-max, and
	// the caps' cuts show in the document count.
	fastInterval = 100 * time.Millisecond
	// A single sensor's documents are written one per command.
	alonesDocuments = 1500
	usualFields     = 4
)

// sample chooses the readings to measure a size with: whole windows, or full parts if a window
// has too many readings.
func (s *session) sample(c Candidate) (r shape.Readings, perUpdate int) {
	interval, document := s.needs.Interval, c.full(s.needs.Interval)
	sensors := min(s.needs.Sensors, sampledSensors)
	total := float64(s.sizeReadings) * min(max(usualFields/float64(s.needs.Fields), 0.2), 2)
	if c.Storage == store.TimeSeries { // cheaper per reading
		total *= 2
	}
	most := min(int(total), s.sizeDocuments*document, alonesDocuments*document*sensors)
	count := int(querySlack * float64(s.needs.QuerySpan+reach(c.Storage)) / float64(interval))
	count = max(sampledDocuments*document, min(count, most/sensors))
	unit := perWindow(c.Granularity, interval)
	if c.Storage == store.TimeSeries || unit > most/sampledDocuments {
		unit = document
	}
	count = max(sampledDocuments, count/unit) * unit
	perUpdate = document
	if interval < fastInterval {
		perUpdate = min(document, int(time.Second/interval))
	}
	return s.readings(min(max(most/count, 1), s.needs.Sensors), count, interval), perUpdate
}

const (
	mostQueries  = 60
	queryingTime = 400 * time.Millisecond
)

// query measures reading the span of a query for random sensors at random times; a shorter span
// if the sample lacks so much.
func (s *session) query(ctx context.Context, c Candidate, coll *shape.Collection, perDocument float64) (q Queried) {
	r := coll.Readings
	count := max(1, min(int(s.needs.QuerySpan/r.Interval), r.Count*4/5))
	q.Span = time.Duration(count) * r.Interval
	random := rand.New(rand.NewPCG(s.lab.Seed, 0)) //nolint:gosec // no secret
	look := float64(reach(c.Storage)) / float64(r.Interval)
	var took bench.Samples
	spent := s.m.Measure(ctx, func(ctx context.Context) {
		began := time.Now()
		for len(took) < mostQueries && (len(took) < 2 || time.Since(began) < queryingTime) {
			span := shape.Portion{Sensor: random.IntN(r.Sensors), First: uint64(random.IntN(r.Count - count + 1)), Count: count} //nolint:gosec // counts from 0
			start := time.Now()
			coll.Read(ctx, span)
			took = append(took, time.Since(start).Seconds())
			q.Documents += (float64(count)+min(look, float64(span.First)))/perDocument + 1
		}
	})
	n := 1 / float64(len(took))
	q.Documents *= n
	q.Seconds, q.CPU = took.Median(), cpuOf(spent).times(n)
	return q
}

// Followed is what a daemon with the advised settings stored from `brim load`.
type Followed struct {
	Serve []string `json:"serve"` // flags of the daemon
	Load  []string `json:"load"`  // of the load
	Trial
	Documents Against `json:"documents_per_day"`
	Bytes     Against `json:"bytes_per_day"`
}

// Against is a prediction and the observed value.
type Against struct {
	Predicted float64 `json:"predicted"`
	Seen      float64 `json:"seen"`
}

// Off is the relative deviation from the prediction.
func (a Against) Off() float64 { return a.Seen/a.Predicted - 1 }

// A Trial is a load that covers much event time in little time.
type Trial struct {
	Sensors int           `json:"sensors"`
	Event   time.Duration `json:"event_time_ns"`
	Time    time.Duration `json:"time_ns"`
}

const (
	trialDocuments = 20 // per sensor, at least
	trialBatch     = 1000
	// longestTrial keeps rare readings within the valid times, which begin in 1970.
	longestTrial = 20 * 365 * day
)

// trial chooses the load: whole windows within the retention.
func (a *Advice) trial(readings int, within time.Duration) Trial {
	n, c := a.Needs, a.Chosen
	each := min(max(trialDocuments*int(c.PerDocument), readings/n.Sensors), readings, int(longestTrial/n.Interval))
	t := Trial{Sensors: min(max(readings/each, 1), n.Sensors), Time: within}
	whole := c.Granularity
	if c.Storage == store.TimeSeries {
		whole = min(whole, time.Minute)
	}
	t.Event = time.Duration(min(readings/t.Sensors, int(longestTrial/n.Interval))) * n.Interval
	if n.Retention > 0 {
		t.Event = min(t.Event, n.Retention/10*9)
	}
	t.Event = max(t.Event.Truncate(whole), whole)
	return t
}

// LoadFlags returns the flags of `brim load` for the trial.
func (a *Advice) LoadFlags(t Trial) []string {
	flags := []string{
		"--sensors", strconv.Itoa(t.Sensors), "--interval", a.Needs.Interval.String(), "--fields", strconv.Itoa(a.Needs.Fields),
		"--speedup", strconv.FormatFloat(t.Event.Seconds()/t.Time.Seconds(), 'g', 10, 64), "--duration", t.Time.String(), "--batch", strconv.Itoa(trialBatch),
	}
	if a.Chosen.Storage == store.TimeSeries {
		// At high event speed, requests that overtake each other are minutes apart, and the
		// server opens a bucket for each late one.
		flags = append(flags, "--connections", "1")
	}
	return flags
}

// errLost means that a load lost readings, so a prediction cannot be checked against it.
var errLost = errors.New("not all readings of the load were taken: try again on a machine that is less busy")

// follow starts a daemon as advised, applies the trial's load, and compares what is stored,
// scaled to a day of all sensors, with the prediction.
func (s *session) follow(ctx context.Context, a *Advice) *Followed {
	t := a.trial(s.followReadings, s.followTime)
	out := &Followed{Serve: a.Flags(), Load: a.LoadFlags(t), Trial: t}
	s.lab.Step("following it: %d sensors, %s in %s", t.Sensors, config.FormatDuration(t.Event), config.FormatDuration(t.Time))
	// The trial speeds up event time but not waiting, so readings must not wait for later
	// windows.
	d := s.lab.Daemon(ctx, s.m, append(slices.Clone(out.Serve), "--flush-interval", "1s", "--merge-readings", "1")...)
	r := d.Load(ctx, out.Load...)
	if r.Failed > 0 || r.Dropped > 0 || r.Acked == 0 {
		bench.Check(fmt.Errorf("%d failed, %d dropped: %w", r.Failed, r.Dropped, errLost))
	}
	const patience = time.Minute
	bench.Check(d.Flush(ctx, patience))
	if a.Chosen.Columns { // the daemon would seal hours later
		stream := shape.Shape{Kind: shape.Buckets, Granularity: a.Chosen.Granularity, Format: store.Columns}
		shape.Open(ctx, s.m, shape.Config{Name: "readings", Shape: stream, Compressor: a.Chosen.Compressor}).Seal(ctx)
	}
	s.m.Checkpoint(ctx)
	size := shape.SizeOf(ctx, s.m.Database(), "readings", a.Chosen.Storage == store.TimeSeries)
	share := a.Needs.perDay() / float64(r.Acked)
	out.Documents = Against{a.Chosen.Documents, float64(size.Documents) * share}
	out.Bytes = Against{a.Chosen.Bytes(), float64(size.Data()+size.Index()) * share}
	bench.Check(d.Close())
	return out
}
