package sealed

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/brim-telemetry/brim/internal/bench/shape"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A recording is generated readings of some sensors, all of the same number, in a period of one
// window, after which it repeats. It is a shape.Source.
type recording struct {
	name     string
	window   time.Duration // of its buckets, and its period
	together int           // readings of a sensor that are written together
	ids      []string
	offsets  [][]time.Duration // of the readings of each sensor, from the period's start
	fields   [][][]telemetry.Field
}

// ID implements shape.Source.
func (r *recording) ID(sensor int) string { return r.ids[sensor] }

// Tags implements shape.Source.
func (*recording) Tags(int) []telemetry.Tag { return nil }

// AppendFields implements shape.Source.
func (r *recording) AppendFields(dst []telemetry.Field, sensor int, k uint64, _ time.Time) []telemetry.Field {
	return append(dst, r.fields[sensor][k%uint64(r.each())]...) //nolint:gosec // counts from 0
}

// at returns the time of a reading.
func (r *recording) at(sensor int, k uint64) time.Time {
	each := uint64(r.each())                                                             //nolint:gosec // counts from 0
	return shape.Begin().Add(time.Duration(k/each)*r.window + r.offsets[sensor][k%each]) //nolint:gosec // counts from 0
}

// each is the number of a sensor's readings in a period.
func (r *recording) each() int { return len(r.offsets[0]) }

func (r *recording) readings() shape.Readings {
	return shape.Readings{Source: r, Sensors: len(r.ids), Begin: shape.Begin(), At: r.at}
}

// add adds a reading to a sensor, which has been added before.
func (r *recording) add(sensor int, at time.Duration, fields []telemetry.Field) {
	r.offsets[sensor], r.fields[sensor] = append(r.offsets[sensor], at), append(r.fields[sensor], fields)
}

func newRecording(name string, together int, ids ...string) *recording {
	return &recording{name: name, window: windowOf(name), together: together, ids: ids, offsets: make([][]time.Duration, len(ids)), fields: make([][][]telemetry.Field, len(ids))}
}

// The recordings.
const (
	cpuSet  = "TSBS cpu, ten integers"
	ecgSet  = "ECG, 360 Hz"
	fourSet = "four fields, ms jitter"
	daySet  = "four fields, ms jitter, windows of a day"
	skySet  = "weather, windows of a day"
)

var allSets = []string{cpuSet, ecgSet, fourSet, daySet, skySet}

// windowOf returns the window of a recording's buckets.
func windowOf(recording string) time.Duration {
	if recording == daySet || recording == skySet {
		return day
	}
	return time.Hour
}

// recordings returns those that are measured.
func recordings(seed uint64, s scale) (all []*recording) {
	random := rand.New(rand.NewPCG(seed, 3)) //nolint:gosec // synthetic load
	for _, of := range []struct {
		name, id string
		together int
		generate func(*rand.Rand, *recording, int)
		sensors  int
		readings int // of a sensor
	}{
		{cpuSet, "cpu", 60, generateCPU, s.sensors, 360},
		{ecgSet, "ecg", 600, generateECG, 1, s.ecg},
		{fourSet, "four-5s", 60, generateFour, s.sensors, 720},
		{daySet, "four-30s", 60, generateFour, s.sensors, 2880},
		{skySet, "weather", 24, generateWeather, s.sensors, 24},
	} {
		var ids []string
		for i := range of.sensors {
			ids = append(ids, fmt.Sprintf("%s-%d", of.id, i))
		}
		r := newRecording(of.name, of.together, ids...)
		of.generate(random, r, of.readings)
		all = append(all, r)
	}
	return all
}

// generateCPU makes percentages that drift, as TSBS does for its use case cpu-only.
func generateCPU(random *rand.Rand, r *recording, n int) {
	for sensor := range r.ids {
		var level [10]float64
		for i := range level {
			level[i] = 100 * random.Float64()
		}
		for k := range n {
			fields := make([]telemetry.Field, len(level))
			for i := range level {
				level[i] = min(max(level[i]+random.NormFloat64(), 0), 100)
				fields[i] = telemetry.Field{Name: fmt.Sprintf("usage_%02d", i), Value: telemetry.IntValue(int64(level[i]))}
			}
			r.add(sensor, time.Duration(k)*time.Hour/time.Duration(n), fields)
		}
	}
}

// generateECG makes heartbeats in millivolts, in steps of 0.005 as an 11-bit converter has
// them.
func generateECG(random *rand.Rand, r *recording, n int) {
	const rate, step, beat = 360, 0.005, 0.8
	for k := range n {
		at := float64(k) / rate
		phase := math.Mod(at, beat) / beat
		peak := func(height, place, width float64) float64 {
			return height * math.Exp(-(phase-place)*(phase-place)/(2*width*width))
		}
		mv := -0.3 + peak(0.15, 0.2, 0.03) + peak(1.3, 0.4, 0.012) - peak(0.3, 0.43, 0.012) + peak(0.3, 0.7, 0.05) + 0.05*math.Sin(at) + 0.012*random.NormFloat64()
		ms := time.Duration(math.Round(at*1000)) * time.Millisecond
		r.add(0, ms, []telemetry.Field{{Name: "mv", Value: telemetry.FloatValue(math.Round(mv/step) / (1 / step))}})
	}
}

// generateFour makes temperature, humidity, pressure and voltage that drift, at times with
// some milliseconds of jitter.
func generateFour(random *rand.Rand, r *recording, n int) {
	quantities := []struct {
		name               string
		start, step, scale float64
	}{{"t", 20, 0.02, 100}, {"h", 50, 0.1, 10}, {"p", 1013, 0.02, 100}, {"v", 230, 0.1, 10}}
	for sensor := range r.ids {
		var drift [4]float64
		for k := range n {
			fields := make([]telemetry.Field, len(quantities))
			for i, q := range quantities {
				drift[i] += q.step * random.NormFloat64()
				fields[i] = telemetry.Field{Name: q.name, Value: telemetry.FloatValue(math.Round((q.start+drift[i])*q.scale) / q.scale)}
			}
			due := time.Duration(k) * r.window / time.Duration(n)
			r.add(sensor, due+time.Duration(random.IntN(60))*time.Millisecond, fields)
		}
	}
}

// generateWeather makes hourly observations of stations. Gusts and rain are rare, and are missing
// otherwise.
func generateWeather(random *rand.Rand, r *recording, n int) {
	for sensor := range r.ids {
		temperature, pressure := 40+20*random.NormFloat64(), 1015+5*random.NormFloat64()
		for k := range n {
			temperature, pressure = temperature+2*random.NormFloat64(), pressure+random.NormFloat64()/2
			wind := 5 * float64(random.IntN(8))
			fields := []telemetry.Field{
				{Name: "temp", Value: telemetry.FloatValue(math.Round(temperature*100) / 100)},
				{Name: "humid", Value: telemetry.FloatValue(math.Round(4000+5000*random.Float64()) / 100)},
				{Name: "wind_speed", Value: telemetry.FloatValue(wind)},
				{Name: "pressure", Value: telemetry.FloatValue(math.Round(pressure*10) / 10)},
				{Name: "visib", Value: telemetry.IntValue(10)},
			}
			if wind > 20 {
				fields = append(fields, telemetry.Field{Name: "wind_gust", Value: telemetry.FloatValue(1.5 * wind)})
			}
			if random.IntN(10) == 0 {
				fields = append(fields, telemetry.Field{Name: "precip", Value: telemetry.FloatValue(float64(random.IntN(30)) / 100)})
			}
			r.add(sensor, time.Duration(k)*r.window/time.Duration(n), fields)
		}
	}
}
