package load

import (
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// FleetConfig is what the readings are like. Shares are from 0 to 1.
type FleetConfig struct {
	Fields int    // of a reading; 0: 4
	Signal Signal // empty: Mixed
	// Missing is the share of fields that a reading lacks. At least one is left.
	Missing float64
	// Duplicates is the share of arrivals at which a sensor sends its reading
	// before once more, the same to the millisecond, instead of a new one. At most
	// 0.99.
	Duplicates float64
	// Late is the share of readings that were measured before they arrive, by a
	// millisecond up to LateBy of event time.
	Late   float64
	LateBy time.Duration // 0: 10 minutes
	// Disorder is the share of readings that arrive after their successor: they
	// are one to two of the sensor's intervals old.
	Disorder float64
	// SensorPrefix stands before the number in a sensor's id. Empty: one that no
	// other run has, so that buckets of an earlier run are not filled further.
	SensorPrefix string
}

// A fleet makes readings. What arrival n is follows from the seed and n alone,
// so that senders can make their own, at any time and in any order. It is
// read-only.
type fleet struct {
	schedule   *schedule
	begin      float64 // event time of the run's begin, in ms since the epoch
	perSecond  float64 // ms of event time in a second of the run
	intervalMs float64 // of a sensor
	config     FleetConfig
	quantities []quantity
	sensors    []sensor // in the order of their phases
	seed       random
}

type sensor struct {
	id     string
	tags   []telemetry.Tag
	random random
}

// newFleet returns the sensors of a run; c is complete.
func newFleet(c *Config, s *schedule) *fleet {
	f := &fleet{
		schedule: s, begin: float64(c.Start.UnixMilli()), perSecond: 1000 * c.Speedup,
		intervalMs: c.Interval.Seconds() * 1000,
		config:     c.Fleet, quantities: quantities(c.Fleet.Fields), seed: random(c.Seed).split(0),
	}
	tags := siteTags()
	f.sensors = make([]sensor, c.Sensors)
	// Sensors are numbered from 1; their phases follow each other in any order,
	// so that neighbours do not all report at one time.
	for i, number := range rand.New(rand.NewPCG(c.Seed, 1)).Perm(c.Sensors) {
		r := f.seed.split(uint64(number))
		f.sensors[i] = sensor{
			id: c.Fleet.SensorPrefix + strconv.Itoa(number+1), random: r, tags: tags[r.at(1)%uint64(len(tags))],
		}
	}
	return f
}

// siteTags returns the sets of tags that sensors can have.
func siteTags() [][]telemetry.Tag {
	var out [][]telemetry.Tag
	for _, site := range []string{"north", "east", "south", "west"} {
		for _, model := range []string{"a1", "a2", "b1"} {
			out = append(out, []telemetry.Tag{{Name: "site", Value: site}, {Name: "model", Value: model}})
		}
	}
	return out
}

// A scratch is where a sender makes its readings. They are valid until the next
// are made.
type scratch struct {
	readings []telemetry.Reading
	fields   []telemetry.Field
}

// clear empties the scratch for readings with so many fields together.
func (m *scratch) clear(fields int) {
	m.readings = m.readings[:0]
	if m.fields = m.fields[:0]; cap(m.fields) < fields {
		m.fields = make([]telemetry.Field, 0, fields) // never moves while readings point into it
	}
}

// fill makes the readings of arrivals first to first+count-1, those of a sensor
// behind each other.
func (f *fleet) fill(m *scratch, first int64, count int) {
	m.clear(count * len(f.quantities))
	apart := min(len(f.sensors), count)
	for i := range apart {
		for n := i; n < count; n += apart {
			f.reading(m, first+int64(n))
		}
	}
}

// reading makes that of arrival n.
func (f *fleet) reading(m *scratch, n int64) {
	all := int64(len(f.sensors))
	s, k := &f.sensors[n%all], uint64(n/all)
	for k > 0 && f.repeats(s, k) {
		k--
		n -= all
	}
	r := s.random.split(k + 2)
	// What is due at a whole millisecond can be computed as a little less, which
	// must not be cut to the one before it; a thousandth is more than the error.
	ms := int64(f.begin + f.schedule.due(n)*f.perSecond + 0.001)
	if f.config.Late > 0 && r.unit(1) < f.config.Late {
		ms -= 1 + int64(r.unit(2)*float64(f.config.LateBy.Milliseconds()))
	}
	if f.config.Disorder > 0 && r.unit(3) < f.config.Disorder {
		ms -= int64((1 + r.unit(4)) * f.intervalMs)
	}
	begin := len(m.fields)
	for i := range f.quantities {
		if f.config.Missing > 0 && r.unit(uint64(i)+8) < f.config.Missing && (i < len(f.quantities)-1 || len(m.fields) > begin) {
			continue
		}
		m.fields = append(m.fields, f.quantities[i].field(s, f.config.Signal, i, k, ms))
	}
	m.readings = append(m.readings, telemetry.Reading{
		Sensor: s.id, Time: time.UnixMilli(max(ms, 0)).UTC(), Tags: s.tags,
		Fields: m.fields[begin:len(m.fields):len(m.fields)],
	})
}

// repeats reports whether a sensor sends its reading before, instead of reading k.
func (f *fleet) repeats(s *sensor, k uint64) bool {
	return f.config.Duplicates > 0 && s.random.split(k+2).unit(0) < f.config.Duplicates
}
