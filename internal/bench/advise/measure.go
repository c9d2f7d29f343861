package advise

import (
	"context"
	"errors"
	"math"
	"os"
	"strconv"
	"time"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/bench/shape"
	"github.com/brim-telemetry/brim/internal/load"
	"github.com/brim-telemetry/brim/internal/machine"
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

// amounts are how much is measured.
type amounts struct {
	sizeReadings, sizeDocuments int // of a size, at most
	grownReadings               int // that documents are given before an update is measured
	updating                    time.Duration
	doorTime                    time.Duration
	followReadings              int
	followTime                  time.Duration
}

func newSession(lab *bench.Lab, m *bench.MongoDB, n Needs) *session {
	s := &session{lab: lab, m: m, needs: n, candidates: candidates(n, lab.Quick)}
	s.amounts = amounts{
		sizeReadings: 160_000, sizeDocuments: 12_000, grownReadings: 60_000, updating: 700 * time.Millisecond,
		doorTime: 4 * time.Second, followReadings: 600_000, followTime: 20 * time.Second,
	}
	if lab.Quick {
		s.amounts = amounts{
			sizeReadings: 80_000, sizeDocuments: 5000, grownReadings: 20_000, updating: 250 * time.Millisecond,
			doorTime: 2 * time.Second, followReadings: 300_000, followTime: 10 * time.Second,
		}
	}
	return s
}

// storages that are considered.
var storages = [...]store.Storage{store.Bucket, store.TimeSeries}

// largest is how many readings the largest document of a storage has.
func (s *session) largest(of store.Storage) int {
	most := 1
	for _, c := range s.candidates {
		if c.Storage == of {
			most = max(most, c.full(s.needs.Interval))
		}
	}
	return most
}

// seriesReadings is how many a time-series bucket holds at most.
const seriesReadings = 1000

// full is how many readings a full document has.
func (c Candidate) full(interval time.Duration) int {
	most := c.MaxReadings
	if c.Storage == store.TimeSeries {
		most = seriesReadings
	}
	return min(most, perWindow(c.Granularity, interval))
}

// residents are the sizes of documents that updates are measured on: nearly
// empty, and up to the mean of the largest ones.
func (s *session) residents(of store.Storage) []int {
	mean := max(1, s.largest(of)/2)
	switch {
	case mean < 8:
		return []int{mean}
	case of == store.TimeSeries:
		return []int{1, mean}
	}
	return []int{1, mean / 4, mean}
}

// perUpdates are the readings an update that are measured: one, and about as
// many as can be merged.
func (s *session) perUpdates() []int {
	const fewest, most = 12, 500
	return []int{1, min(max(int(s.needs.MaxWait/s.needs.Interval), fewest), most)}
}

// rewritten are the sizes of documents that checkpoints are measured with.
func (s *session) rewritten(of store.Storage) []int {
	mean := max(1, s.largest(of)/2)
	if mean < 8 || of == store.TimeSeries {
		return []int{mean}
	}
	return []int{max(1, mean/12), mean}
}

// steps is how many there will be.
func (s *session) steps(follow bool) int {
	n := 2 + len(s.candidates)
	for _, of := range storages {
		n += len(s.residents(of))*len(s.perUpdates()) + len(s.rewritten(of))*len(compressors)
	}
	if follow {
		n++
	}
	return n
}

// measure carries all measurements out.
func (s *session) measure(ctx context.Context) (*Figures, error) {
	f := &Figures{}
	for _, of := range storages {
		for _, resident := range s.residents(of) {
			for _, perUpdate := range s.perUpdates() {
				s.lab.Step("an update of %d to a document of %d, %s", perUpdate, resident, of)
				u, err := s.update(ctx, updateOf{of, resident, perUpdate, manySensors})
				if err != nil {
					return nil, err
				}
				f.Updates = append(f.Updates, u)
			}
		}
	}
	if err := s.command(ctx, f); err != nil {
		return nil, err
	}
	for _, of := range storages {
		for _, resident := range s.rewritten(of) {
			for _, compressor := range compressors {
				s.lab.Step("a checkpoint of documents of %d, %s, %s", resident, of, compressor)
				r, err := s.rewrite(ctx, rewriteOf{of, compressor, resident})
				if err != nil {
					return nil, err
				}
				f.Rewrites = append(f.Rewrites, r)
			}
		}
	}
	for _, c := range s.candidates {
		s.lab.Step("size and query: %s", c)
		sized, err := s.size(ctx, c)
		if err != nil {
			return nil, err
		}
		f.Sizes = append(f.Sizes, sized)
	}
	var err error
	f.Door, err = s.door(ctx)
	return f, err
}

// command measures what a command costs beside the updates that it carries: it
// has one, and that costs what it does in the company of others.
func (s *session) command(ctx context.Context, f *Figures) error {
	s.lab.Step("a command of one update")
	const of = store.Bucket
	alone, err := s.update(ctx, updateOf{of, 1, 1, 1})
	if err != nil {
		return err
	}
	together, _ := f.update(of, alone.Resident, 1)
	f.Command = CPU{max(0, alone.CPU.Mongod-together.Mongod), max(0, alone.CPU.Brim-together.Brim)}
	return nil
}

// door measures what it costs Brim to take readings in and to journal them: a
// daemon that writes nothing meanwhile.
func (s *session) door(ctx context.Context) (_ float64, err error) {
	s.lab.Step("taking readings in, %d in a request", s.needs.Batch)
	d, err := s.lab.Daemon(ctx, s.m, "--flush-interval", MaxMaxWait.String())
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	before, err := machine.CPU(d.Pid())
	if err != nil {
		return 0, err
	}
	r, err := d.Load(ctx, "--rate", "2000", "--batch", strconv.Itoa(s.needs.Batch), "--fields", strconv.Itoa(s.needs.Fields), "--duration", s.doorTime.String())
	if err != nil {
		return 0, err
	}
	after, err := machine.CPU(d.Pid())
	if err != nil || r.Acked == 0 {
		return 0, err
	}
	return (after - before).Seconds() / float64(r.Acked), nil
}

// readings are those of a run of `brim load`, so many of each sensor.
func (s *session) readings(sensors, count int, interval time.Duration) (shape.Readings, error) {
	source, err := load.NewSensors(load.SensorsConfig{Count: sensors, Fields: s.needs.Fields, Seed: s.lab.Seed, Prefix: prefix})
	phase := func(sensor int) time.Duration { // in no order, and all different
		part := math.Mod(float64(sensor)*math.Phi, 1)
		return time.Duration(part * float64(interval)).Truncate(time.Millisecond)
	}
	return shape.Readings{Source: source, Sensors: sensors, Count: count, Begin: shape.Begin(), Interval: interval, Phase: phase}, err
}

// prefix of sensors is as long as that of a run.
const prefix = "load-mi8dk3f2-"

// collection makes an empty one.
func (s *session) collection(ctx context.Context, c Candidate, r shape.Readings, perUpdate int) (*shape.Collection, error) {
	kind := shape.Shape{Kind: shape.Buckets, Granularity: c.Granularity}
	if c.Storage == store.TimeSeries {
		kind.Kind = shape.TimeSeries
	}
	return shape.New(ctx, s.m, shape.Config{
		Name: collectionName, Shape: kind, Compressor: c.Compressor, Readings: r, PerUpdate: perUpdate,
		MaxReadings: c.MaxReadings, MaxBytes: c.MaxBytes,
	})
}

const collectionName = "advise"

// used is the processor time of mongod and of this program, which makes the
// readings and sends them as a daemon does.
func (s *session) used(ctx context.Context) (CPU, error) {
	mongod, err := s.m.CPU(ctx)
	if err != nil {
		return CPU{}, err
	}
	own, err := machine.CPU(os.Getpid())
	return CPU{mongod.Seconds(), own.Seconds()}, err
}
