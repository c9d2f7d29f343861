package sealed

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/brim-telemetry/brim/internal/bench/shape"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A dataset is generated readings, equally many per sensor, that repeat with a period of one
// window. It is a shape.Source.
type dataset struct {
	name     string
	window   time.Duration // of its buckets, and the period
	together int           // readings per sensor in one write
	ids      []string
	offsets  [][]time.Duration // of each sensor's readings, from the start of the period
	fields   [][][]telemetry.Field
}

// ID implements shape.Source.
func (r *dataset) ID(sensor int) string { return r.ids[sensor] }

// Tags implements shape.Source.
func (*dataset) Tags(int) []telemetry.Tag { return nil }

// AppendFields implements shape.Source.
func (r *dataset) AppendFields(dst []telemetry.Field, sensor int, k uint64, _ time.Time) []telemetry.Field {
	return append(dst, r.fields[sensor][k%uint64(r.each())]...) //nolint:gosec // counts from 0
}

// at returns the time of a sensor's reading k.
func (r *dataset) at(sensor int, k uint64) time.Time {
	each := uint64(r.each())                                                             //nolint:gosec // counts from 0
	return shape.Begin().Add(time.Duration(k/each)*r.window + r.offsets[sensor][k%each]) //nolint:gosec // counts from 0
}

// each returns the number of readings per sensor in a period.
func (r *dataset) each() int { return len(r.offsets[0]) }

func (r *dataset) readings() shape.Readings {
	return shape.Readings{Source: r, Sensors: len(r.ids), Begin: shape.Begin(), At: r.at}
}

// add appends a reading to a sensor.
func (r *dataset) add(sensor int, at time.Duration, fields []telemetry.Field) {
	r.offsets[sensor], r.fields[sensor] = append(r.offsets[sensor], at), append(r.fields[sensor], fields)
}

func newDataset(name string, together int, ids ...string) *dataset {
	return &dataset{name: name, window: windowOf(name), together: together, ids: ids, offsets: make([][]time.Duration, len(ids)), fields: make([][][]telemetry.Field, len(ids))}
}

// Datasets.
const (
	cpuSet  = "TSBS cpu, ten integers"
	ecgSet  = "ECG, 360 Hz"
	fourSet = "four fields, ms jitter"
	daySet  = "four fields, ms jitter, windows of a day"
	skySet  = "weather, windows of a day"
)

var allSets = []string{cpuSet, ecgSet, fourSet, daySet, skySet}

// windowOf returns the bucket window of a dataset.
func windowOf(dataset string) time.Duration {
	if dataset == daySet || dataset == skySet {
		return day
	}
	return time.Hour
}

// datasets returns the datasets to measure.
func datasets(seed uint64, s scale) (all []*dataset) {
	random := rand.New(rand.NewPCG(seed, 3)) //nolint:gosec // synthetic load
	for _, of := range []struct {
		name, id string
		together int
		generate func(*rand.Rand, *dataset, int)
		sensors  int
		readings int // per sensor
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
		r := newDataset(of.name, of.together, ids...)
		of.generate(random, r, of.readings)
		all = append(all, r)
	}
	return all
}

// generateCPU makes drifting percentages, like TSBS's cpu-only use case.
func generateCPU(random *rand.Rand, r *dataset, n int) {
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

// generateECG makes heartbeats in millivolts, in steps of 0.005 like an 11-bit converter.
func generateECG(random *rand.Rand, r *dataset, n int) {
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

// generateFour makes drifting temperature, humidity, pressure and voltage, with some
// milliseconds of jitter in the timestamps.
func generateFour(random *rand.Rand, r *dataset, n int) {
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

// generateWeather makes hourly observations of weather stations. Gusts and rain are rare, and
// their fields usually absent.
func generateWeather(random *rand.Rand, r *dataset, n int) {
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
