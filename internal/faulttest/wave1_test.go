package faulttest_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/brim-telemetry/brim/internal/faulttest"
)

// TestWAVE1 sends the same number of readings from 10,000 sensors evenly, and in patterns
// that could make updates come in waves. Acknowledgements must not become slower: their
// 99th percentile must stay within 1.2 times that of the even load in the same round. Only
// the full form checks this, by the better of two rounds.
func TestWAVE1(t *testing.T) {
	alone(t)
	s := newScene(t)
	s.shared()
	ratios := make(map[string][]float64)
	rounds := form(1, 2)
	for round := range rounds {
		var even time.Duration
		for i, kind := range waveKinds {
			p99 := s.wave(kind, round*len(waveKinds)+i)
			if i == 0 {
				even = p99
				continue
			}
			ratio := 1.0
			if p99 > even+waveNoise {
				ratio = p99.Seconds() / even.Seconds()
			}
			ratios[kind.name] = append(ratios[kind.name], ratio)
			t.Logf("%s: 99 %% of requests are acknowledged within %v, evenly within %v", kind.name, p99, even)
		}
	}
	s.finish("WAVE-1", rounds*(len(waveKinds)-1))
	if !full() {
		return
	}
	for name, of := range ratios {
		assert.LessOrEqual(t, slices.Min(of), waveRatio, "%s: the 99th percentile as a multiple of that of an even load", name)
	}
}

const (
	waveGroups = 4
	// Readings are merged for at most this long instead of 5 minutes, so that each load
	// shows in seconds what would otherwise take minutes. Sensors that send together do so
	// at the same interval.
	waveFlushMax = 15 * time.Second
	waveRatio    = 1.2
	// waveNoise is a difference of the 99th percentiles that may be chance.
	waveNoise = 2 * time.Millisecond
)

// A wave is a way to send readings.
type wave struct {
	name    string
	daemons int                     // 0: one
	start   func(s *scene, x *wavy) // starts producers; nil: none
	burst   func(s *scene, x *wavy) // called once per cycle; nil: never
}

// A wavy load is a running wave with its own daemons.
type wavy struct {
	wave

	daemons []*daemon
	began   time.Time // in event time
	rate    float64   // readings per second
	sensors int
}

// group starts the producer for a quarter of the sensors, with one of the daemons.
func (x *wavy) group(s *scene, i int, cfg faulttest.ProducerConfig) *faulttest.Producers {
	cfg.Sensors = x.sensors / waveGroups
	cfg.FirstSensor = int64(i * cfg.Sensors)
	return s.produce(x.daemons[i%len(x.daemons)], 1, cfg)
}

// evenly starts all groups, each with a share of the rate.
func (x *wavy) evenly(s *scene, rate float64, change func(i int, cfg *faulttest.ProducerConfig)) {
	for i := range waveGroups {
		cfg := faulttest.ProducerConfig{
			Batch: 20, Rate: rate / waveGroups, Start: x.began, Step: time.Duration(float64(time.Second) * waveGroups / rate),
		}
		change(i, &cfg)
		x.group(s, i, cfg)
	}
}

// pass lets the load run.
func (x *wavy) pass(s *scene, d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		next := end
		if x.burst != nil {
			x.burst(s, x)
			next = time.Now().Add(waveFlushMax)
		}
		wait(min(time.Until(next), time.Until(end)))
	}
}

func evenly(s *scene, x *wavy) { x.evenly(s, x.rate, func(int, *faulttest.ProducerConfig) {}) }

var waveKinds = []wave{
	{name: "evenly", start: evenly},
	{name: "one sensor sends a third of all", start: func(s *scene, x *wavy) {
		x.evenly(s, x.rate*2/3, func(int, *faulttest.ProducerConfig) {})
		s.produce(x.daemons[0], 1, faulttest.ProducerConfig{
			Batch: 20, FirstSensor: int64(x.sensors), Rate: x.rate / 3, Start: x.began, Step: time.Millisecond,
		})
	}},
	// A gateway sends for all sensors as fast as it gets answers.
	{name: "at the same millisecond", burst: func(s *scene, x *wavy) {
		s.produce(x.daemons[0], 1, faulttest.ProducerConfig{
			Batch: 250, Most: int64(x.sensors), Sensors: x.sensors, Rate: 1e9, Start: time.Now(), Step: 1,
		})
	}},
	{name: "clocks are hours off", start: func(s *scene, x *wavy) {
		x.evenly(s, x.rate, func(i int, cfg *faulttest.ProducerConfig) {
			cfg.Start = x.began.Add(time.Duration(i-waveGroups) * 157 * time.Minute)
		})
	}},
	{name: "one reading in eleven is late", start: func(s *scene, x *wavy) {
		x.evenly(s, x.rate, func(_ int, cfg *faulttest.ProducerConfig) { cfg.Late = 2 * time.Hour })
	}},
	{name: "two daemons", daemons: 2, start: evenly},
}

// wave runs a load on new daemons and returns the 99th percentile of the
// acknowledgement time for a probe that sends single readings.
func (s *scene) wave(kind wave, number int) time.Duration {
	s.t.Helper()
	x := &wavy{wave: kind, rate: form(300.0, 3000), sensors: form(200, 10_000)}
	x.began = time.Now().Add(-time.Duration(number) * time.Minute) // in different windows
	for range max(1, kind.daemons) {
		x.daemons = append(x.daemons, s.daemon("", "--flush-budget", "2%", "--flush-max", waveFlushMax.String(), "--granularity", "5m"))
	}
	first := len(s.producers)
	probe := s.produce(x.daemons[0], 1, faulttest.ProducerConfig{
		FirstSensor: int64(x.sensors) + 1, Sensors: 100, Rate: 200, Start: x.began, Step: 5 * time.Millisecond, Timed: true,
	})
	if kind.start != nil {
		kind.start(s, x)
	}
	x.pass(s, form(500*time.Millisecond, waveFlushMax))
	probe.Counts.Took()
	x.pass(s, form(time.Second, 20*time.Second))
	p99 := faulttest.Slowest(probe.Counts.Took(), 0.01)
	for _, p := range s.producers[first:] {
		p.Stop()
	}
	for _, d := range x.daemons {
		s.flush(d)
		d.kill()
	}
	return p99
}
