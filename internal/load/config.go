package load

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Config of a run. Zero values mean the defaults named below; `brim load` has range-checked the
// others.
type Config struct {
	// Senders makes a Sender for each of the Connections. Required.
	Senders     func(ctx context.Context) (Sender, error)
	Connections int // requests that can be sent at once; 0: 64
	// MaxInFlight limits the requests due and not answered, including those waiting for a
	// connection. Further ones are dropped and counted. 0: 10,000, which is 5 s at 2,000
	// requests per second.
	MaxInFlight int

	// Stream to write to; its granularity applies to by_fill and the default Start. Required.
	Stream Stream

	Sensors  int           // 0: 1,000, or as many as Rate needs
	Interval time.Duration // of event time, between a sensor's readings; 0: 5 s
	Speedup  float64       // seconds of event time per second; 0: 1
	// Rate of readings. It sets the number of sensors: as many as report once every Interval at
	// its larger end. That number is whole, so the interval shifts a little.
	Rate  Rate
	Steps int // of a ramp; 0: linear
	// Batch is the readings per request, from consecutive sensors, as a gateway would collect
	// them. A request is due when its last reading is. 0: 1.
	Batch    int
	Duration time.Duration // in which readings are due; 0: 30 s
	// Start of event time. Zero: event time ends at the newest window boundary not in the
	// future.
	Start time.Time
	Seed  uint64 // 0: 1
	Fleet fleetConfig

	// For the result only.
	Version, Target, Protocol, Ack string

	// Progress, unless nil, is called every second.
	Progress func(Progress)
	// Registerer of the generator's metrics; nil: none.
	Registerer prometheus.Registerer

	asked      time.Duration // Interval before Rate changed it
	timersOnly bool          // for tests with a fake clock
}

// Progress of a run.
type Progress struct {
	Interval

	Elapsed, Duration time.Duration
	Asked             float64 // readings due per second now
	Acked             int64   // readings so far
	TotalFailed       int64   // readings so far
	TotalDropped      int64
	Draining          bool // nothing more is due
}

// MaxDuplicates is the maximum ratio of duplicates: some readings must be new.
const MaxDuplicates = 0.99

// maxSensors limits memory: a sensor takes about 90 bytes.
const maxSensors = 1_000_000

// complete fills in the defaults; now is when the run begins.
func (c Config) complete(now time.Time) (Config, error) {
	if c.Stream.GranularitySeconds < 1 {
		return c, fmt.Errorf("stream %s has windows of %d seconds; at least 1 is needed", c.Stream.Name, c.Stream.GranularitySeconds)
	}
	c.setDefaults()
	c.asked = c.Interval
	c.setSensors()
	if c.Sensors > maxSensors {
		return c, fmt.Errorf("the rate needs %d sensors; at most %d are allowed: shorten the interval or raise the speed-up", c.Sensors, maxSensors)
	}
	if c.Fleet.SensorPrefix == "" {
		c.Fleet.SensorPrefix = "load-" + strconv.FormatInt(now.UnixMilli(), 36) + "-"
	}
	if c.Start.IsZero() {
		c.Start = defaultStart(now, time.Duration(c.Stream.GranularitySeconds)*time.Second, c.eventSpan())
	}
	if c.Start = time.UnixMilli(c.Start.UnixMilli()).UTC(); c.Start.UnixMilli() < 0 {
		return c, fmt.Errorf("event time would begin before 1970, because it is %v long at speed-up %g", c.Duration, c.Speedup)
	}
	return c, nil
}

func (c *Config) setDefaults() {
	c.Connections, c.MaxInFlight, c.Batch = cmp.Or(c.Connections, 64), cmp.Or(c.MaxInFlight, 10_000), cmp.Or(c.Batch, 1)
	c.Speedup, c.Interval, c.Seed = cmp.Or(c.Speedup, 1), cmp.Or(c.Interval, 5*time.Second), cmp.Or(c.Seed, 1)
	c.Fleet.Fields, c.Fleet.Signal, c.Fleet.LateBy = cmp.Or(c.Fleet.Fields, len(named)), cmp.Or(c.Fleet.Signal, mixed), cmp.Or(c.Fleet.LateBy, 10*time.Minute)
	c.Duration = cmp.Or(c.Duration, 30*time.Second)
	if c.Rate == (Rate{}) {
		c.Sensors = cmp.Or(c.Sensors, 1000)
	}
}

// setSensors derives the sensors and the interval from the rate, or the rate from the sensors.
func (c *Config) setSensors() {
	perSensor := c.Speedup / c.Interval.Seconds() // readings a second
	if c.Rate == (Rate{}) {
		rate := float64(c.Sensors) * perSensor
		c.Rate = Rate{From: rate, To: rate}
		return
	}
	c.Sensors = int(max(1, math.Round(min(c.Rate.Max()/perSensor, 10*maxSensors))))
	c.Interval = toDuration(float64(c.Sensors) * c.Speedup / c.Rate.Max())
}

// eventSpan is the length of the run in event time.
func (c *Config) eventSpan() time.Duration {
	return toDuration(c.Duration.Seconds() * c.Speedup)
}

// defaultStart returns the start of a span of event time that ends on the newest window
// boundary not in the future.
func defaultStart(now time.Time, window, span time.Duration) time.Time {
	ms := now.UnixMilli()
	return time.UnixMilli(ms - ms%window.Milliseconds()).Add(-span).UTC()
}

// elapsedOf returns how far a time is into its window, even before 1970.
func elapsedOf(ms, windowMs int64) int64 { return (ms%windowMs + windowMs) % windowMs }
