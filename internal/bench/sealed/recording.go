package sealed

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/bench/shape"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// dataFolder is the environment variable with a folder of recordings, NAME.csv, in the form of
// those in internal/block/testdata. One that is not there is generated.
const dataFolder = "BLOCK_DATA"

// A recording is readings of some sensors, all of the same number. It repeats after a period
// of whole windows. It is a shape.Source.
type recording struct {
	name     string
	window   time.Duration // of its buckets
	together int           // readings of a sensor that are written together
	ids      []string
	offsets  [][]time.Duration // of the readings of each sensor, from the period's start
	fields   [][][]telemetry.Field
	period   time.Duration
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
	return shape.Begin().Add(time.Duration(k/each)*r.period + r.offsets[sensor][k%each]) //nolint:gosec // counts from 0
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
	window := windowOf(name)
	return &recording{name: name, window: window, together: together, ids: ids, offsets: make([][]time.Duration, len(ids)), fields: make([][][]telemetry.Field, len(ids)), period: window}
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

// recordings returns those that are measured: recorded, or else generated.
func recordings(seed uint64, s scale) (all []*recording) {
	random := rand.New(rand.NewPCG(seed, 3)) //nolint:gosec // synthetic load
	for _, of := range []struct {
		name, file string
		together   int
		generate   func(*rand.Rand, *recording, int)
		sensors    int
		readings   int // of a sensor
	}{
		{cpuSet, "cpu", 60, generateCPU, s.sensors, 360},
		{ecgSet, "ecg", 600, generateECG, 1, s.ecg},
		{fourSet, "four-5s", 60, generateFour, s.sensors, 720},
		{daySet, "four-30s", 60, generateFour, s.sensors, 2880},
		{skySet, "weather", 24, generateWeather, s.sensors, 24},
	} {
		r := readRecording(of.name, of.file, of.together)
		if r == nil {
			var ids []string
			for i := range of.sensors {
				ids = append(ids, fmt.Sprintf("%s-%d", of.file, i))
			}
			r = newRecording(of.name, of.together, ids...)
			of.generate(random, r, of.readings)
		}
		all = append(all, r)
	}
	return all
}

// readRecording reads a file of recorded readings: sensor, milliseconds, fields. It returns
// nil if there is none.
func readRecording(name, file string, together int) *recording {
	folder := os.Getenv(dataFolder)
	if folder == "" {
		return nil
	}
	path := filepath.Join(folder, file+".csv")
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var lines [][]string
	if err == nil {
		defer f.Close()
		lines, err = csv.NewReader(f).ReadAll()
	}
	if err == nil && len(lines) < 2 {
		err = errors.New("it has no readings")
	}
	bench.Checkf(err, "read the recording %s", path)
	r, known, first := newRecording(name, together), make(map[string]int), int64(math.MaxInt64)
	var times [][]int64
	for _, line := range lines[1:] {
		i, ok := known[line[0]]
		if !ok {
			i = len(r.ids)
			known[line[0]] = i
			r.ids, r.offsets, r.fields, times = append(r.ids, line[0]), append(r.offsets, nil), append(r.fields, nil), append(times, nil)
		}
		at, fields, err := readingOf(lines[0], line)
		bench.Checkf(err, "read the recording %s", path)
		times[i], r.fields[i], first = append(times[i], at), append(r.fields[i], fields), min(first, at)
	}
	r.align(times, first)
	return r
}

func readingOf(names, line []string) (at int64, fields []telemetry.Field, err error) {
	at, err = strconv.ParseInt(line[1], 10, 64)
	for i, text := range line[2:] {
		if text == "" || err != nil {
			continue
		}
		var value telemetry.Value
		if whole, notWhole := strconv.ParseInt(text, 10, 64); notWhole == nil {
			value = telemetry.IntValue(whole)
		} else {
			var v float64
			v, err = strconv.ParseFloat(text, 64)
			value = telemetry.FloatValue(v)
		}
		fields = append(fields, telemetry.Field{Name: names[i+2], Value: value})
	}
	return at, fields, err
}

// align makes offsets of times, and cuts all sensors to the same number of readings.
func (r *recording) align(times [][]int64, first int64) {
	start, each := first-first%r.window.Milliseconds(), len(slices.MinFunc(times, func(a, b []int64) int { return len(a) - len(b) }))
	last := time.Duration(0)
	for i := range times {
		for _, at := range times[i][:each] {
			r.offsets[i] = append(r.offsets[i], time.Duration(at-start)*time.Millisecond)
		}
		r.fields[i] = r.fields[i][:each]
		last = max(last, slices.Max(r.offsets[i]))
	}
	r.period = last.Truncate(r.window) + r.window
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
			due := time.Duration(k) * r.period / time.Duration(n)
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
			r.add(sensor, time.Duration(k)*r.period/time.Duration(n), fields)
		}
	}
}
