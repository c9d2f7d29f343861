package load

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/brim-telemetry/brim/internal/fault"
)

// Config says what load is made. What is zero has the default that is named.
type Config struct {
	// Senders makes what each of the Connections sends with; ctx is that of the
	// run. Required.
	Senders     func(ctx context.Context) (Sender, error)
	Connections int // requests that can be under way; 0: 64
	// MaxInFlight is how many requests may be due and not answered, those that
	// wait for a connection among them. What is due beyond is dropped and counted.
	// 0: 10,000, which is 5 s at the 2,000 requests a second of the examples.
	MaxInFlight int
	// Grace is how long answers are waited for when nothing more is due. 0: 30 s.
	Grace time.Duration

	// Stream is what is written to; its granularity is that of by_fill, and the
	// default Start. Required.
	Stream Stream

	Sensors  int           // 0: 1,000, or as many as Rate makes necessary
	Interval time.Duration // of event time, between readings of a sensor; 0: 5 s
	Speedup  float64       // event time in a second; 0: 1
	// Rate, unless zero, is when readings are due. It sets the sensors: as many
	// as, at its larger end, report every Interval. Their number is whole and the
	// rate is kept, so that the interval becomes a little longer or shorter.
	Rate  Rate
	Steps int // in which the rate goes from end to end; 0: evenly
	// Batch is the readings in a request. They are those of so many consecutive
	// arrivals, as a gateway of many sensors gathers them, and the request is due
	// when the last of them is. 0: 1.
	Batch    int
	Duration time.Duration // in which readings are due; 0: 30 s, or the whole of From
	// Start is the event time of the begin. Zero: such that event time ends on the
	// newest boundary of a window that is not in the future.
	Start time.Time
	Seed  uint64 // 0: 1
	Fleet FleetConfig

	// From is a file to replay, instead of sensors. Its readings keep their
	// timestamps unless Start is given.
	From       string
	FromFormat Format // empty: as its first line looks
	// FromPrecision is what timestamps of line protocol count. Empty: nanoseconds,
	// and what is then before 1971 is refused, for it surely counts something else.
	FromPrecision Precision

	// Described in the result only.
	Version, Target, Protocol, Ack string

	// Progress, unless nil, is told each interval of a second when it is over; the
	// next waits for it.
	Progress func(Progress)
	// Registerer gets the generator's metrics; nil: nobody does.
	Registerer prometheus.Registerer
	// Faults, for tests.
	Faults *fault.Injector

	asked      time.Duration // Interval as it was before Rate changed it
	timersOnly bool          // for tests, whose clock moves by timers
}

// Progress is how a run goes.
type Progress struct {
	Interval

	Elapsed, Duration time.Duration // Duration is 0 where nobody knows
	Asked             float64       // readings a second, by the schedule, now
	Acked             int64         // readings so far
	TotalFailed       int64         // readings so far
	TotalDropped      int64
	Draining          bool // nothing more is due
}

// MaxDuplicates is the largest share of duplicates: something must be new.
const MaxDuplicates = 0.99

// Bounds of the settings.
const (
	maxSensors     = 1_000_000 // some 90 bytes each
	maxConnections = 10_000
	maxInFlight    = 1_000_000 // some 60 bytes each
	maxBatch       = 100_000   // the daemon's own limit is lower
	maxFields      = 256
	maxPrefix      = 1000 // bytes, with room for the number
	maxSpeedup     = 1e9  // a year in 30 ms
	maxSteps       = 1000
)

// complete returns the configuration with its defaults, or what is wrong in it;
// now is when the run begins.
func (c Config) complete(now time.Time) (Config, error) {
	if c.Senders == nil {
		return c, errors.New("load has no senders")
	}
	c.setDefaults()
	if err := c.check(); err != nil {
		return c, err
	}
	if c.From != "" {
		return c, nil
	}
	c.asked = c.Interval
	c.setSensors()
	if c.Sensors > maxSensors {
		return c, fmt.Errorf("the rate needs %d sensors, at most %d are allowed: shorten the interval, or raise the speed-up", c.Sensors, maxSensors)
	}
	if c.Fleet.SensorPrefix == "" {
		c.Fleet.SensorPrefix = "load-" + strconv.FormatInt(now.UnixMilli(), 36) + "-"
	}
	if c.Start.IsZero() {
		c.Start = DefaultStart(now, time.Duration(c.Stream.GranularitySeconds)*time.Second, c.eventSpan())
	}
	if c.Start.UnixMilli() < 0 {
		return c, fmt.Errorf("event time would begin before 1970: %v long at speed-up %g", c.Duration, c.Speedup)
	}
	return c, nil
}

func (c *Config) setDefaults() {
	for _, d := range []struct {
		place *int
		value int
	}{
		{&c.Connections, 64}, {&c.MaxInFlight, 10_000}, {&c.Batch, 1}, {&c.Fleet.Fields, len(named)},
	} {
		if *d.place == 0 {
			*d.place = d.value
		}
	}
	if c.Speedup == 0 {
		c.Speedup = 1
	}
	if c.Interval == 0 {
		c.Interval = 5 * time.Second
	}
	if c.Grace == 0 {
		c.Grace = 30 * time.Second
	}
	if c.Duration == 0 && c.From == "" {
		c.Duration = 30 * time.Second
	}
	if c.Sensors == 0 && c.Rate == (Rate{}) && c.From == "" {
		c.Sensors = 1000
	}
	if c.Seed == 0 {
		c.Seed = 1
	}
	if c.Fleet.Signal == "" {
		c.Fleet.Signal = Mixed
	}
	if c.Fleet.LateBy == 0 {
		c.Fleet.LateBy = 10 * time.Minute
	}
}

func (c *Config) check() error {
	for _, bound := range []struct {
		name        string
		is          float64
		least, most float64
	}{
		{"connections", float64(c.Connections), 1, maxConnections},
		{"requests in flight", float64(c.MaxInFlight), 1, maxInFlight},
		{"sensors", float64(c.Sensors), 0, maxSensors},
		{"readings in a request", float64(c.Batch), 1, maxBatch},
		{"fields", float64(c.Fleet.Fields), 1, maxFields},
		{"steps", float64(c.Steps), 0, maxSteps},
		{"speed-up", c.Speedup, 1e-3, maxSpeedup},
		{"rate at the start", c.Rate.From, 0, maxRate},
		{"rate at the end", c.Rate.To, 0, maxRate},
		{"seconds of interval", c.Interval.Seconds(), 1e-3, 1e7},
		{"seconds of duration", c.Duration.Seconds(), 0, 1e7},
		{"seconds of grace", c.Grace.Seconds(), 0, 1e5},
		{"share of missing fields", c.Fleet.Missing, 0, 1},
		{"share of duplicates", c.Fleet.Duplicates, 0, MaxDuplicates},
		{"share of late readings", c.Fleet.Late, 0, 1},
		{"share of readings out of order", c.Fleet.Disorder, 0, 1},
		{"seconds that readings are late by", c.Fleet.LateBy.Seconds(), 1e-3, 1e8},
		{"seconds of a window", float64(c.Stream.GranularitySeconds), 1, 86_400},
		{"bytes of the sensors' prefix", float64(len(c.Fleet.SensorPrefix)), 0, maxPrefix},
	} {
		if math.IsNaN(bound.is) || bound.is < bound.least || bound.is > bound.most {
			return fmt.Errorf("%s: %v is not allowed; from %v to %v", bound.name, bound.is, bound.least, bound.most)
		}
	}
	if _, err := ParseSignal(string(c.Fleet.Signal)); err != nil {
		return err
	}
	switch {
	case c.Rate != (Rate{}) && c.Sensors != 0:
		return errors.New("rate and sensors are both given; the rate sets the number of sensors")
	case c.Steps > 0 && (c.Steps < 2 || c.Rate.From == c.Rate.To):
		return errors.New("steps, of which there must be at least 2, need a rate with two ends, like 500..5000")
	case c.From != "" && (c.Rate != (Rate{}) || c.Sensors != 0):
		return errors.New("a file is replayed at its own pace and with its own sensors; use speed-up for another pace")
	}
	return nil
}

// setSensors sets the sensors and the interval by the rate, or the rate by the
// sensors.
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

// eventSpan is how much event time the run takes.
func (c *Config) eventSpan() time.Duration {
	return toDuration(c.Duration.Seconds() * c.Speedup)
}

// DefaultStart returns where event time begins if it takes so long: it ends on
// the newest boundary of a window that is not in the future.
func DefaultStart(now time.Time, window, span time.Duration) time.Time {
	ms := now.UnixMilli()
	return time.UnixMilli(ms - ms%window.Milliseconds()).Add(-span).UTC()
}

// elapsedOf returns how far a time lies in its window, also before 1970.
func elapsedOf(ms, windowMs int64) int64 { return (ms%windowMs + windowMs) % windowMs }
