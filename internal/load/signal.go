package load

import (
	"fmt"
	"math"
	"strings"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A Signal is how a sensor's values change with time.
type Signal string

// The signals.
const (
	Walk     Signal = "walk"     // drifts, as a random walk does
	Seasonal Signal = "seasonal" // rises and falls with the day and the hour, with noise
	Steps    Signal = "steps"    // stays at a level for some readings, then at another
	Mixed    Signal = "mixed"    // each of a sensor's fields has one of the others
)

// Signals lists them.
func Signals() []Signal { return []Signal{Mixed, Walk, Seasonal, Steps} }

// A random is an endless row of numbers that are drawn by their place in it,
// not in turn: whoever makes reading n, and when, makes the same one.
type random uint64

// at returns the number at a place (the finalizer of SplitMix64).
func (r random) at(place uint64) uint64 {
	z := uint64(r) + (place+1)*0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// unit returns the number at a place as one from 0 up to, not including, 1.
func (r random) unit(place uint64) float64 { return float64(r.at(place)>>11) / (1 << 53) }

// split returns a row of its own for a part of what r is for.
func (r random) split(part uint64) random { return random(r.at(part)) }

// A quantity is what a field measures: from low to high, rounded to 1/scale.
type quantity struct {
	name             string
	low, high, scale float64
}

// named are the quantities of the first fields: temperature, humidity, air
// pressure, voltage.
var named = [...]quantity{
	{"t", -10, 40, 10}, {"h", 20, 95, 10}, {"p", 980, 1040, 10}, {"v", 3, 4.2, 100},
}

// quantities returns those of n fields; the further ones are f5, f6 and so on.
func quantities(n int) []quantity {
	out := append([]quantity(nil), named[:min(n, len(named))]...)
	for i := len(out); i < n; i++ {
		out = append(out, quantity{fmt.Sprintf("f%d", i+1), 0, 100, 100})
	}
	return out
}

// of returns the signal of field i of a sensor.
func (s Signal) of(sensor random, i int) Signal {
	if s != Mixed {
		return s
	}
	kinds := [...]Signal{Walk, Seasonal, Steps}
	return kinds[(sensor.at(0)+uint64(i))%uint64(len(kinds))]
}

// level returns the signal at a sensor's reading k, measured at a time, from 0
// to 1; r belongs to the field of the sensor.
func (s Signal) level(r random, k uint64, ms int64) float64 {
	switch s {
	case Walk:
		return r.walk(k)
	case Seasonal:
		const dayMs, hourMs = 86_400_000, 3_600_000
		day := float64(ms%dayMs)/dayMs + r.unit(0)
		hour := float64(ms%hourMs)/hourMs + r.unit(1)
		return 0.5 + 0.32*math.Sin(2*math.Pi*day) + 0.12*math.Sin(2*math.Pi*hour) + 0.1*(r.unit(k+2)-0.5)
	default: // a level for 40 readings, and a little noise on it
		return 0.05 + 0.85*r.unit(k/40) + 0.05*r.split(1).unit(k)
	}
}

// walk returns a random walk's place at step k without going the way there: the
// sum of lines between random points, the wider apart the higher, so that over
// any stretch it strays with the root of its length.
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

// field is that of number i in a sensor's reading k, measured at a time.
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
	names := make([]string, 0, len(Signals()))
	for _, known := range Signals() {
		if string(known) == s {
			return known, nil
		}
		names = append(names, string(known))
	}
	return "", fmt.Errorf("signal %q is unknown; allowed are %s", s, strings.Join(names, ", "))
}
