package load

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// fleetConfig describes the readings. Ratios range from 0 to 1.
type fleetConfig struct {
	Fields int    // per reading; 0: 4
	Signal Signal // empty: mixed
	// Missing is the ratio of fields that a reading lacks. At least one is left.
	Missing float64
	// Duplicates is the ratio of readings that repeat the sensor's previous one, to the
	// millisecond. At most 0.99.
	Duplicates float64
	// Late is the ratio of readings that arrive late, by a millisecond up to LateBy of event
	// time.
	Late   float64
	LateBy time.Duration // 0: 10 minutes
	// Disorder is the ratio of readings that arrive after their successor: they are one to two
	// intervals old.
	Disorder float64
	// SensorPrefix precedes the number in sensor IDs. Empty: a unique one, so that the run does
	// not add to buckets of an earlier one.
	SensorPrefix string
}

// A fleet makes readings. Reading n follows from the seed and n alone, so that senders
// can make their own, at any time and in any order. It is read-only.
type fleet struct {
	*Sensors // ordered by phase

	schedule   *schedule
	begin      float64 // event time at the start of the run, in ms since the epoch
	perSecond  float64 // ms of event time per second of the run
	intervalMs float64 // of a sensor
	config     fleetConfig
}

type sensor struct {
	id     string
	tags   []telemetry.Tag
	random random
}

// newFleet returns the sensors of a run; c is complete.
func newFleet(c *Config, s *schedule) *fleet {
	f := &fleet{
		Sensors:  makeSensors(SensorsConfig{Count: c.Sensors, Fields: c.Fleet.Fields, Signal: c.Fleet.Signal, Seed: c.Seed, Prefix: c.Fleet.SensorPrefix}),
		schedule: s, begin: float64(c.Start.UnixMilli()), perSecond: 1000 * c.Speedup,
		intervalMs: c.Interval.Seconds() * 1000, config: c.Fleet,
	}
	// Phases are shuffled, so that neighbours do not report at the same time.
	inOrder := f.all
	f.all = nil
	for _, number := range rand.New(rand.NewPCG(c.Seed, 1)).Perm(c.Sensors) {
		f.all = append(f.all, inOrder[number])
	}
	return f
}

// eventAt returns event time at a time of the run, in ms since the epoch.
func (f *fleet) eventAt(elapsed time.Duration) int64 {
	return int64(f.begin + elapsed.Seconds()*f.perSecond)
}

// A scratch holds the readings of a sender's current request.
type scratch struct {
	readings []telemetry.Reading
	fields   []telemetry.Field
}

// clear empties the scratch for readings with this many fields in total.
func (m *scratch) clear(fields int) {
	m.readings = m.readings[:0]
	if m.fields = m.fields[:0]; cap(m.fields) < fields {
		m.fields = make([]telemetry.Field, 0, fields) // must not move while readings point into it
	}
}

// fill makes the readings first to first+count-1, with those of a sensor adjacent.
func (f *fleet) fill(m *scratch, first int64, count int) {
	m.clear(count * len(f.quantities))
	apart := min(len(f.all), count)
	for i := range apart {
		for n := i; n < count; n += apart {
			f.reading(m, first+int64(n))
		}
	}
}

// reading makes reading n of the fleet.
func (f *fleet) reading(m *scratch, n int64) {
	all := int64(len(f.all))
	s, k := &f.all[n%all], uint64(n/all)
	for k > 0 && f.repeats(s, k) {
		k--
		n -= all
	}
	r := s.random.split(k + 2)
	// A whole millisecond may be computed as slightly less, and must not be truncated to the
	// one before; a thousandth exceeds the error.
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
		m.fields = append(m.fields, f.quantities[i].field(s, f.signal, i, k, ms))
	}
	m.readings = append(m.readings, telemetry.Reading{
		Sensor: s.id, Time: time.UnixMilli(max(ms, 0)).UTC(), Tags: s.tags,
		Fields: m.fields[begin:len(m.fields):len(m.fields)],
	})
}

// repeats reports whether a sensor repeats its previous reading instead of reading k.
func (f *fleet) repeats(s *sensor, k uint64) bool {
	return f.config.Duplicates > 0 && s.random.split(k+2).unit(0) < f.config.Duplicates
}

// Sensors makes the readings of a run's sensors without a run, to fill collections
// directly. A reading follows from the seed, the sensor and its number alone. It is
// read-only.
type Sensors struct {
	signal     Signal
	quantities []quantity
	all        []sensor
}

// SensorsConfig describes the sensors.
type SensorsConfig struct {
	Count  int    // at least 1
	Fields int    // per reading; 0: 4
	Signal Signal // empty: mixed
	Seed   uint64
	Prefix string // precedes the number, from 1, in sensor IDs
}

// NewSensors returns sensors with the tags that a run gives them.
func NewSensors(c SensorsConfig) (*Sensors, error) {
	if c.Count < 1 || c.Fields < 0 || c.Fields > telemetry.MaxFields {
		return nil, fmt.Errorf("make sensors: %d sensors with %d fields; allowed: at least 1, and up to %d fields", c.Count, c.Fields, telemetry.MaxFields)
	}
	return makeSensors(SensorsConfig{
		Count: c.Count, Fields: cmp.Or(c.Fields, len(named)), Signal: cmp.Or(c.Signal, mixed), Seed: c.Seed, Prefix: c.Prefix,
	}), nil
}

func makeSensors(c SensorsConfig) *Sensors {
	var tags [][]telemetry.Tag // possible tags
	for _, site := range []string{"north", "east", "south", "west"} {
		for _, model := range []string{"a1", "a2", "b1"} {
			tags = append(tags, []telemetry.Tag{{Name: "site", Value: site}, {Name: "model", Value: model}})
		}
	}
	s := &Sensors{signal: c.Signal, quantities: quantities(c.Fields), all: make([]sensor, c.Count)}
	seed := random(c.Seed).split(0)
	for i := range s.all {
		r := seed.split(uint64(i))
		s.all[i] = sensor{id: c.Prefix + strconv.Itoa(i+1), random: r, tags: tags[r.at(1)%uint64(len(tags))]}
	}
	return s
}

// Len is the number of sensors.
func (s *Sensors) Len() int { return len(s.all) }

// ID returns the ID of sensor i, from 0.
func (s *Sensors) ID(i int) string { return s.all[i].id }

// Tags returns the tags of sensor i, which are shared.
func (s *Sensors) Tags(i int) []telemetry.Tag { return s.all[i].tags }

// AppendFields appends the fields of reading k of sensor i, measured at the given time.
func (s *Sensors) AppendFields(dst []telemetry.Field, i int, k uint64, at time.Time) []telemetry.Field {
	for q := range s.quantities {
		dst = append(dst, s.quantities[q].field(&s.all[i], s.signal, q, k, at.UnixMilli()))
	}
	return dst
}

// A Signal is how a sensor's values change over time.
type Signal string

// The signals.
const (
	Walk     Signal = "walk"     // drifts, as a random walk does
	seasonal Signal = "seasonal" // rises and falls with the day and the hour, with noise
	stepped  Signal = "steps"    // stays at a level for some readings, then changes
	mixed    Signal = "mixed"    // each of a sensor's fields has one of the others
)

// A random is a sequence of random numbers with random access, so that reading n is the
// same whenever it is made.
type random uint64

// at returns the number at an index (the finalizer of SplitMix64).
func (r random) at(index uint64) uint64 {
	z := uint64(r) + (index+1)*0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// unit returns the number at an index, scaled to [0, 1).
func (r random) unit(index uint64) float64 { return float64(r.at(index)>>11) / (1 << 53) }

// split returns an independent sequence.
func (r random) split(part uint64) random { return random(r.at(part)) }

// A quantity measured by a field: from low to high, rounded to 1/scale.
type quantity struct {
	name             string
	low, high, scale float64
}

// named are the quantities of the first fields: temperature, humidity, air pressure, voltage.
var named = [...]quantity{
	{"t", -10, 40, 10}, {"h", 20, 95, 10}, {"p", 980, 1040, 10}, {"v", 3, 4.2, 100},
}

// quantities returns n quantities; beyond the named ones they are f5, f6 and so on.
func quantities(n int) []quantity {
	out := append([]quantity(nil), named[:min(n, len(named))]...)
	for i := len(out); i < n; i++ {
		out = append(out, quantity{fmt.Sprintf("f%d", i+1), 0, 100, 100})
	}
	return out
}

// of returns the signal of field i of a sensor.
func (s Signal) of(sensor random, i int) Signal {
	if s != mixed {
		return s
	}
	kinds := [...]Signal{Walk, seasonal, stepped}
	return kinds[(sensor.at(0)+uint64(i))%uint64(len(kinds))]
}

// level returns the signal at reading k, from 0 to 1, measured at the given time; r belongs to
// the sensor's field.
func (s Signal) level(r random, k uint64, ms int64) float64 {
	switch s {
	case Walk:
		return r.walk(k)
	case seasonal:
		const dayMs, hourMs = 86_400_000, 3_600_000
		day := float64(ms%dayMs)/dayMs + r.unit(0)
		hour := float64(ms%hourMs)/hourMs + r.unit(1)
		return 0.5 + 0.32*math.Sin(2*math.Pi*day) + 0.12*math.Sin(2*math.Pi*hour) + 0.1*(r.unit(k+2)-0.5)
	default: // a level for 40 readings, with a little noise
		return 0.05 + 0.85*r.unit(k/40) + 0.05*r.split(1).unit(k)
	}
}

// walk returns a random walk at step k without computing the earlier steps: a sum of lines
// between random points, higher the farther the points are apart, so that it strays with the
// square root of the distance.
func (r random) walk(k uint64) float64 {
	const octaves = 6
	sum, height, all := 0.0, 1.0, 0.0
	for i := range uint64(octaves) {
		shift := 2 * (octaves - i) // points are 4^6 readings apart, then 4^5, …, 4
		octave := r.split(i)
		a, b := octave.unit(k>>shift), octave.unit(k>>shift+1)
		sum += height * (a + (b-a)*float64(k&(1<<shift-1))/float64(uint64(1)<<shift))
		all += height
		height /= 2
	}
	return sum / all
}

// field returns field i of a sensor's reading k, measured at the given time.
func (q *quantity) field(s *sensor, signal Signal, i int, k uint64, ms int64) telemetry.Field {
	level := signal.of(s.random, i).level(s.random.split(uint64(i)), k, ms)
	return telemetry.Field{Name: q.name, Value: telemetry.FloatValue(q.value(level))}
}

// value returns the level as a value of the quantity.
func (q *quantity) value(level float64) float64 {
	v := q.low + (q.high-q.low)*min(max(level, 0), 1)
	return math.Round(v*q.scale) / q.scale
}

// ParseSignal returns the signal that s names.
func ParseSignal(s string) (Signal, error) {
	switch signal := Signal(s); signal {
	case mixed, Walk, seasonal, stepped:
		return signal, nil
	}
	return "", fmt.Errorf("signal %q is unknown; allowed: %s, %s, %s, %s", s, mixed, Walk, seasonal, stepped)
}
