package load

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/brim-telemetry/brim/internal/store/storetest"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

var testNow = time.Date(2026, 11, 21, 10, 17, 0, 0, time.UTC)

func noSenders(context.Context) (Sender, error) { return nil, nil }

// A testedFleet is a fleet with its complete configuration.
type testedFleet struct {
	*fleet

	batch int
}

func testFleet(t testing.TB, c Config) testedFleet {
	t.Helper()
	c.Senders = noSenders
	if c.Stream.GranularitySeconds == 0 {
		c.Stream.GranularitySeconds = 3600
	}
	c, err := c.complete(testNow)
	require.NoError(t, err)
	return fleetOf(&c)
}

func fleetOf(c *Config) testedFleet {
	return testedFleet{newFleet(c, newSchedule(c.Rate, c.Duration, c.Steps)), c.Batch}
}

// all copies the readings of every job.
func all(f testedFleet) []telemetry.Reading {
	var out []telemetry.Reading
	var m scratch
	for j := range f.schedule.jobs(f.batch) {
		f.fill(&m, j.first, j.count)
		for _, r := range m.readings {
			r.Fields = append([]telemetry.Field(nil), r.Fields...)
			out = append(out, r)
		}
	}
	return out
}

func bySensor(readings []telemetry.Reading) map[string][]telemetry.Reading {
	out := make(map[string][]telemetry.Reading)
	for _, r := range readings {
		out[r.Sensor] = append(out[r.Sensor], r)
	}
	return out
}

// requireApart avoids testify, because it is called too often.
func requireApart(t *testing.T, want time.Duration, a, b telemetry.Reading) {
	t.Helper()
	if off := b.Time.Sub(a.Time) - want; off.Abs() > time.Millisecond {
		t.Fatalf("%v and %v are %v apart, not %v", a, b, b.Time.Sub(a.Time), want)
	}
}

// TestAnHourFillsInAMinute is the example of the documentation.
func TestAnHourFillsInAMinute(t *testing.T) {
	t.Parallel()
	s := testFleet(t, Config{Sensors: 167, Interval: 5 * time.Second, Speedup: 60, Duration: time.Minute})
	assert.InDelta(t, 2004, s.schedule.rateAt(1), 1e-9)
	assert.Equal(t, time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC), time.UnixMilli(s.eventAt(0)).UTC())
	sensors := bySensor(all(s))
	assert.Len(t, sensors, 167)
	phases := make(map[int64]bool)
	for id, readings := range sensors {
		require.Len(t, readings, 720, id)
		for i, r := range readings {
			if r.Time.Hour() != 9 || len(r.Fields) != 4 {
				t.Fatal(r)
			}
			if i > 0 {
				requireApart(t, 5*time.Second, readings[i-1], r)
			}
		}
		phases[readings[0].Time.UnixMilli()] = true
	}
	assert.Len(t, phases, 167, "each sensor has its own phase")
}

// TestWhatIsDueAtAWholeMillisecondSaysSo starts in 1970, where a float has more digits for a
// time, so that its errors are not rounded away.
func TestWhatIsDueAtAWholeMillisecondSaysSo(t *testing.T) {
	t.Parallel()
	for i, r := range all(testFleet(t, Config{Sensors: 100, Interval: time.Second, Duration: 10 * time.Second, Start: time.UnixMilli(0)})) {
		require.EqualValues(t, 10*i, r.Time.UnixMilli())
	}
}

func TestALittleLateIsLate(t *testing.T) {
	t.Parallel()
	c := Config{Sensors: 10, Interval: time.Second, Duration: 10 * time.Second}
	due := all(testFleet(t, c))
	c.Fleet = fleetConfig{Late: 1, LateBy: time.Millisecond}
	for i, r := range all(testFleet(t, c)) {
		require.Equal(t, time.Millisecond, due[i].Time.Sub(r.Time))
	}
}

func TestAFleetFollowsFromItsSeed(t *testing.T) {
	t.Parallel()
	for _, signal := range []Signal{mixed, Walk, seasonal, stepped} {
		c := Config{
			Sensors: 7, Speedup: 10, Duration: 40 * time.Second, Seed: 3,
			Fleet: fleetConfig{Fields: 6, Signal: signal, Missing: 0.2, Duplicates: 0.1, Late: 0.1, Disorder: 0.1, SensorPrefix: "s-"},
		}
		one := all(testFleet(t, c))
		assert.Equal(t, one, all(testFleet(t, c)))
		// Other batches have the same readings in another order.
		c.Batch = 50
		assert.ElementsMatch(t, one, all(testFleet(t, c)))
		c.Seed = 4
		assert.NotEqual(t, one, all(testFleet(t, c)))
	}
}

func TestABatchIsDueWithItsLast(t *testing.T) {
	t.Parallel()
	s := testFleet(t, Config{Sensors: 4, Interval: 4 * time.Second, Duration: 10 * time.Second, Batch: 8})
	jobs := slices.Collect(s.schedule.jobs(s.batch))
	require.Len(t, jobs, 2)
	assert.Equal(t, 7*time.Second, jobs[0].due)
	var m scratch
	s.fill(&m, jobs[0].first, jobs[0].count)
	ids := m.readings
	for i := 0; i < 8; i += 2 {
		assert.Equal(t, ids[i].Sensor, ids[i+1].Sensor, "readings of a sensor stand together")
		assert.Equal(t, 4*time.Second, ids[i+1].Time.Sub(ids[i].Time))
	}
	assert.Equal(t, 9*time.Second, jobs[1].due)
	assert.Equal(t, 2, jobs[1].count)
}

func TestRatiosAreKept(t *testing.T) {
	t.Parallel()
	c := Config{Sensors: 10, Interval: time.Second, Speedup: 100, Duration: 20 * time.Second}
	c.Fleet = fleetConfig{Missing: 0.1, Duplicates: 0.05, Late: 0.04, LateBy: time.Hour, Disorder: 0.03}
	readings := all(testFleet(t, c))
	require.Len(t, readings, 20_000)
	plain := c
	plain.Fleet = fleetConfig{}
	due := all(testFleet(t, plain))
	fields, repeated, late, disordered := 0, 0, 0, 0
	before := make(map[string]telemetry.Reading)
	for i, r := range readings {
		fields += len(r.Fields)
		if b, ok := before[r.Sensor]; ok && b.Time.Equal(r.Time) {
			repeated++
			assert.Equal(t, b, r)
		} else if old := due[i].Time.Sub(r.Time); old > 2*time.Second {
			late++
			assert.LessOrEqual(t, old, time.Hour+2*time.Second)
		} else if old >= time.Second {
			disordered++
		}
		before[r.Sensor] = r
	}
	assert.InDelta(t, 0.9*80_000, fields, 800)
	assert.InDelta(t, 0.05*20_000, repeated, 120)
	assert.InDelta(t, 0.04*20_000, late, 120)
	assert.InDelta(t, 0.03*20_000, disordered, 150)
}

func TestEveryReadingHasAFieldAndIsOneTheDaemonTakes(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		ratio := rapid.SampledFrom([]float64{0, 0.3, 1})
		c := Config{
			Senders: noSenders, Stream: Stream{GranularitySeconds: 300}, Duration: 500 * time.Millisecond,
			Sensors: rapid.IntRange(1, 20).Draw(t, "sensors"), Interval: time.Second, Speedup: 30,
			Batch: rapid.IntRange(1, 50).Draw(t, "batch"), Seed: rapid.Uint64Min(1).Draw(t, "seed"),
			Fleet: fleetConfig{
				Fields: rapid.IntRange(1, 9).Draw(t, "fields"), Signal: rapid.SampledFrom([]Signal{mixed, Walk, seasonal, stepped}).Draw(t, "signal"),
				Missing: ratio.Draw(t, "missing"), Duplicates: min(ratio.Draw(t, "duplicates"), MaxDuplicates), Late: ratio.Draw(t, "late"), Disorder: ratio.Draw(t, "disorder"),
			},
		}
		c, err := c.complete(testNow)
		if err != nil {
			t.Fatal(err)
		}
		storetest.Batch(t, "session", 1, all(fleetOf(&c))...) // fails if a reading breaks a rule
	})
}

func TestSignalsHaveTheirShape(t *testing.T) {
	t.Parallel()
	const n = 4000
	change := make(map[Signal]float64) // mean change between readings
	for _, s := range []Signal{Walk, seasonal, stepped} {
		r := random(5).split(9)
		low, high, before := 1.0, 0.0, 0.0
		for k := range uint64(n) {
			v := s.level(r, k, 1_795_255_200_000+int64(k)*5000)
			require.True(t, v >= 0 && v <= 1, "%s %f", s, v)
			low, high = min(low, v), max(high, v)
			if k > 0 {
				change[s] += math.Abs(v-before) / n
			}
			before = v
		}
		assert.Greater(t, high-low, 0.2, s)
		assert.Less(t, change[s], (high-low)/5, "%s does not jump about", s)
	}
	q := named[0]
	assert.Equal(t, 15.1, q.value(0.5016))
}

func TestARateSetsTheSensors(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		rate     Rate
		interval time.Duration
		speedup  float64
		want     int
	}{
		{Rate{2000, 2000}, 5 * time.Second, 60, 167}, {Rate{100, 1000}, time.Second, 1, 1000}, {Rate{1000, 100}, time.Second, 1, 1000}, {Rate{1, 1}, 100 * time.Millisecond, 1, 1},
	} {
		s := testFleet(t, Config{Rate: c.rate, Interval: c.interval, Speedup: c.speedup, Duration: time.Second})
		assert.Len(t, s.all, c.want)
		assert.Equal(t, c.rate.From, s.schedule.rateAt(0), "the rate is kept")
	}
}

// TestTheIntervalIsTheOneThatHappens has a rate that no whole number of sensors makes: readings
// are a little farther apart, and the setup shows it.
func TestTheIntervalIsTheOneThatHappens(t *testing.T) {
	t.Parallel()
	g, err := New(Config{
		Senders: noSenders, Stream: Stream{GranularitySeconds: 3600}, Rate: Rate{2000, 2000}, Interval: 5 * time.Second, Speedup: 60, Duration: time.Minute,
	})
	require.NoError(t, err)
	s := g.Setup()
	assert.Equal(t, 167, s.Sensors)
	assert.InDelta(t, 5.010, s.IntervalSeconds, 1e-9)
	assert.Equal(t, 5.0, s.AskedIntervalSeconds)
	for _, readings := range bySensor(all(testedFleet{g.fleet, 1})) {
		for i := 1; i < len(readings); i++ {
			requireApart(t, 5010*time.Millisecond, readings[i-1], readings[i])
		}
	}
	for _, c := range []Config{{Rate: Rate{100, 1000}, Interval: time.Second}, {Sensors: 7}} {
		c.Senders, c.Stream.GranularitySeconds = noSenders, 60
		g, err := New(c)
		require.NoError(t, err)
		assert.Zero(t, g.Setup().AskedIntervalSeconds)
	}
}

func TestSensorsOfTwoRunsDiffer(t *testing.T) {
	t.Parallel()
	a, err := Config{Senders: noSenders, Stream: Stream{GranularitySeconds: 60}}.complete(testNow)
	require.NoError(t, err)
	b, err := Config{Senders: noSenders, Stream: Stream{GranularitySeconds: 60}}.complete(testNow.Add(time.Second))
	require.NoError(t, err)
	assert.NotEqual(t, a.Fleet.SensorPrefix, b.Fleet.SensorPrefix)
}

func TestWrongSettingsAreRefused(t *testing.T) {
	t.Parallel()
	for want, spoil := range map[string]func(*Config){
		"windows of 0 seconds":    func(c *Config) { c.Stream.GranularitySeconds = 0 },
		"sensors; at most":        func(c *Config) { c.Rate, c.Interval = Rate{1e8, 1e8}, time.Hour },
		"would begin before 1970": func(c *Config) { c.Speedup, c.Duration = 1e6, 1000*time.Hour },
	} {
		c := Config{Senders: noSenders, Stream: Stream{GranularitySeconds: 60}}
		spoil(&c)
		_, err := c.complete(testNow)
		assert.ErrorContains(t, err, want)
	}
}

// BenchmarkFleet reports the cost of one reading.
func BenchmarkFleet(b *testing.B) {
	for _, batch := range []int{1, 100} {
		b.Run(fmt.Sprint("batch=", batch), func(b *testing.B) {
			s := testFleet(b, Config{Sensors: 1000, Speedup: 60, Duration: time.Hour, Batch: batch})
			var m scratch
			j := job{count: batch}
			b.ReportAllocs()
			made := 0
			for b.Loop() {
				s.fill(&m, j.first, j.count)
				j.first += int64(batch)
				made += batch
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(made), "ns/reading")
		})
	}
}
