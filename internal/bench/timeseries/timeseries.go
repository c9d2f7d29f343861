// Package timeseries is the experiment that holds a native time-series
// collection against an ordinary one, and both against Brim's: one series, a
// reading a minute, a single field, as in the published comparison. All shapes
// get the same readings, compressor, cache, write concern and readings a
// command.
package timeseries

import (
	"context"
	"errors"
	"time"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/bench/shape"
	"github.com/brim-telemetry/brim/internal/store"
)

// The cells.
const (
	cellLoad      = "load"
	cellFinds     = "finds"
	cellAggregate = "aggregate"
	cellSort      = "sort"
	cellLate      = "late"
	cellDefaults  = "defaults"
)

// Experiment returns it.
func Experiment() *bench.Experiment {
	return &bench.Experiment{
		Name:     "timeseries",
		Question: "Does a native time-series collection load faster, take less space and answer faster than an ordinary one?",
		Full:     6 * time.Minute,
		Quick:    60 * time.Second,
		Restarts: "the sort, whose limit of memory is set",
		Cells: []bench.Cell{
			{Name: cellLoad, What: "time to load, bytes of data and of indexes"},
			{Name: cellFinds, What: "readings found by their time, one after another"},
			{Name: cellAggregate, What: "the mean over random 6-hour windows"},
			{Name: cellSort, What: "a sort of everything by time, without an index"},
			{Name: cellLate, What: "readings that come 12 to 36 hours late, and the number of buckets"},
			{Name: cellDefaults, What: "bytes with each compressor, to see what of the published saving is the compressor's"},
		},
		Run: run,
	}
}

const (
	interval  = time.Minute
	pinned    = store.Snappy
	queryTime = 6 * time.Hour
	// published is how many readings the published comparison has.
	published = 10_000_000
	// serverSortLimit is what the server gives to a sort, in bytes.
	serverSortLimit = 100 << 20
)

// scale is how much is done.
type scale struct {
	readings int
	finds    int
	// means is the number of queries of the longest run; the published 10,000 and
	// 50,000 are a tenth and a half of it.
	means int
	late  int // readings
}

func scaleOf(quick bool) scale {
	if quick {
		return scale{readings: 100_000, finds: 1500, means: 800, late: 3000}
	}
	return scale{readings: 1_000_000, finds: 10_000, means: 3000, late: 10_000}
}

// A trial is one run of the experiment.
type trial struct {
	lab     *bench.Lab
	m       *bench.MongoDB
	result  *bench.Result
	scale   scale
	source  shape.Ratings
	subject []*subject
	data    Data
}

// A subject is a shape that is measured, with its collection once it is loaded.
type subject struct {
	shape.Shape
	*ShapeData
	name string
	coll *shape.Collection
}

// shapes are those that are compared. The windows of all are of an hour: the
// server before 6.3 knows no other that is as short.
func shapes() []shape.Shape {
	return []shape.Shape{
		{Kind: shape.Documents}, {Kind: shape.Buckets, Granularity: time.Hour}, {Kind: shape.Series}, {Kind: shape.TimeSeries, Granularity: time.Hour},
	}
}

// The places of the shapes.
const (
	documents = iota
	buckets
	series
	brims // time series with a metaField
)

func run(ctx context.Context, lab *bench.Lab, r *bench.Result) error {
	return runScale(ctx, lab, r, scaleOf(lab.Quick))
}

// runScale is run at another scale, for tests.
func runScale(ctx context.Context, lab *bench.Lab, r *bench.Result, s scale) (err error) {
	m, err := lab.Start(ctx, bench.Setting{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	t := &trial{lab: lab, m: m, result: r, scale: s, source: shape.Ratings{Seed: lab.Seed}}
	t.data.Shapes = make([]ShapeData, len(shapes()))
	for i, s := range shapes() {
		t.data.Shapes[i].Shape = s.String()
		t.subject = append(t.subject, &subject{Shape: s, name: "shape_" + string(s.Kind), ShapeData: &t.data.Shapes[i]})
	}
	t.tell()
	t.lab.Steps(t.steps())
	err = t.measure(ctx)
	t.report()
	return err
}

// measure runs the cells that are wanted.
func (t *trial) measure(ctx context.Context) error {
	cells := []struct {
		name   string
		loaded bool // needs the collections
		run    func(context.Context) error
	}{
		{cellLoad, false, t.loads},
		{cellFinds, true, t.finds},
		{cellAggregate, true, t.means},
		{cellSort, true, t.sorts},
		{cellLate, false, t.lates},
		{cellDefaults, false, t.defaults},
	}
	for _, c := range cells {
		if !t.lab.Has(c.name) {
			continue
		}
		if c.loaded && t.subject[0].coll == nil {
			if err := t.loadOnce(ctx); err != nil {
				return err
			}
		}
		if err := c.run(ctx); err != nil {
			return err
		}
	}
	return nil
}

// steps counts those that will be told.
func (t *trial) steps() int {
	n := 0
	for _, c := range []struct {
		cell  string
		steps int
	}{
		{cellLoad, t.lab.Repeats * len(t.subject)}, {cellFinds, t.lab.Repeats}, {cellAggregate, t.lab.Repeats}, {cellSort, 1}, {cellLate, 1},
		{cellDefaults, len(t.subject) * len(otherCompressors())},
	} {
		if t.lab.Has(c.cell) {
			n += c.steps
		}
	}
	return n
}

// readings are those of all shapes.
func (t *trial) readings(n int) shape.Readings {
	return shape.Readings{Source: t.source, Sensors: 1, Count: n, Begin: shape.Begin(), Interval: interval}
}

// tell says what is held fast and what is smaller.
func (t *trial) tell() {
	r, s := t.result, t.scale
	r.Pin("compressor %s for every collection, time series included (their default is zstd), except where compressors are compared", pinned)
	r.Pin("index prefix compression on, as by default")
	r.Pin("the same %s readings {ts, rating}, one a minute of one series, ratings 0.5 to 5.0 at random, by seed", count(s.readings))
	r.Pin("%d readings a command, one client, write concern majority with journal", shape.CommandReadings)
	r.Pin("windows of 1h in buckets and in time series (a server before 6.3 has none shorter), so 60 readings a document")
	r.Pin("point finds, means and sorts with everything in the cache")
	r.Pin("%s readings for the published 10,000,000; point finds %s for 1,000,000; queries %s, %s and %s for 10,000, 50,000 and 100,000: factors are compared, not seconds",
		count(s.readings), count(s.finds), count(s.means/10), count(s.means/2), count(s.means))
	if full := scaleOf(false); s != full {
		r.Reduce("%s readings, %s point finds and %s queries; a full run has %s, %s and %s",
			count(s.readings), count(s.finds), count(s.means), count(full.readings), count(full.finds), count(full.means))
	}
}

func count(n int) string { return bench.Count.Format(float64(n)) }
