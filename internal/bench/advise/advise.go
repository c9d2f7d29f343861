// Package advise turns a user's own numbers into settings. It measures on this machine what
// each choice would cost, in short forms of the experiments, and chooses by a price that anyone
// can recompute.
//
//	Needs ─▶ candidates ─▶ measure each (a Lab) ─▶ Figures ─▶ cost of each ─▶ choose ─▶ Advice ─▶ Text, JSON
//
// Follow then runs a daemon and a load as advised, and compares what is stored with the
// prediction.
package advise

import (
	"context"
	"fmt"
	"time"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/config"
	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// About how long measuring and following the advice take.
const (
	fullTime   = 100 * time.Second
	quickTime  = 50 * time.Second
	followTime = 45 * time.Second
)

// Config is what to advise on, and how to measure.
type Config struct {
	Needs Needs
	Bench bench.Config
	// Follow also tries out the advice and fills Advice.Followed.
	Follow bool
}

// Run measures and advises. Everything it starts or creates is gone when it returns.
func Run(ctx context.Context, c Config) (*Advice, error) {
	if err := c.Needs.Check(); err != nil {
		return nil, err
	}
	n := c.Needs.complete()
	var advice *Advice
	e := &bench.Experiment{
		Name: "advise", Question: "Which settings suit these sensors and queries?", Full: fullTime, Quick: quickTime,
		Run: func(ctx context.Context, lab *bench.Lab) {
			lab.On(ctx, bench.Setting{}, func(m *bench.MongoDB) {
				s := newSession(lab, m, n)
				advice = bench.Must(choose(n, s.measure(ctx)))
				if c.Follow {
					m.Drop(ctx)
					advice.Followed = s.follow(ctx, advice)
				}
			})
		},
	}
	if c.Follow {
		e.Full, e.Quick = e.Full+followTime, e.Quick+followTime
	}
	r, err := bench.Run(ctx, e, c.Bench)
	if advice == nil {
		return nil, err
	}
	advice.Environment, advice.TookSeconds, advice.Quick = r.Environment, r.TookSeconds, r.Quick
	advice.Warnings = advice.warnings()
	return advice, err
}

// Needs are the user's own numbers.
type Needs struct {
	Sensors   int           `json:"sensors"`
	Interval  time.Duration `json:"interval_ns"` // between a sensor's readings
	Fields    int           `json:"fields"`      // per reading
	QuerySpan time.Duration `json:"query_span_ns"`
	// Queries per day, each of one sensor over QuerySpan. 0: enough to read every reading once.
	Queries   float64       `json:"queries_per_day"`
	Retention time.Duration `json:"retention_ns"` // 0: forever
	// MaxWait is how long a reading may gather before it is written. Until then it is only in
	// Brim's journal, where queries through Brim see it.
	MaxWait    time.Duration `json:"max_wait_ns"`
	Batch      int           `json:"batch"` // readings per request
	Duplicates Duplicates    `json:"duplicates"`
	// The prices of a CPU-hour and of a month of 10^9 bytes on disk, in the same currency,
	// which makes time and space comparable.
	CoreHour float64 `json:"price_core_hour"`
	GBMonth  float64 `json:"price_gb_month"`
	// DiskWrites is the most bytes per day that the disk should write.
	DiskWrites int64 `json:"disk_writes"`
}

// Duplicates is whether a reading may be stored twice.
type Duplicates string

// What may happen when a reading is sent again after MongoDB's answer was lost.
const (
	Never Duplicates = "never" // the database prevents duplicates: bucket documents
	Rare  Duplicates = "rare"  // Brim checks whether it is stored, which nearly always suffices: allows time series
)

// Defaults of the needs that few users specify.
const (
	// DefaultMaxWait is the daemon's own --flush-max.
	DefaultMaxWait = 5 * time.Minute
	// Rough prices of a rented core and a rented SSD, in dollars.
	DefaultCoreHour = 0.04
	DefaultGBMonth  = 0.10
	// defaultDiskWrites is 0.3 drive writes per day of 500 GB, which small SSDs are rated to
	// endure for five years.
	defaultDiskWrites = 150_000_000_000
)

const (
	day   = 24 * time.Hour
	month = 30 * day
	// foreverCounts is the time that is priced when readings are kept forever.
	foreverCounts = 365 * day
)

// Bounds of the needs, used by their flags.
const (
	MaxSensors   = 100_000_000
	MaxFields    = telemetry.MaxFields
	MaxInterval  = 30 * day
	MaxQuerySpan = 3650 * day
	MaxRetention = 24_000 * day // fits a TTL index
	MaxMaxWait   = time.Hour    // the longest --flush-max
	maxPerDay    = 1e12         // readings
)

// Check reports needs that contradict each other.
func (n Needs) Check() error {
	switch {
	case n.Retention > 0 && n.Retention < store.MinGranularity:
		return fmt.Errorf("retention: %s is shorter than the shortest bucket, of %s", config.FormatDuration(n.Retention), config.FormatDuration(store.MinGranularity))
	case n.Retention > 0 && n.QuerySpan > n.Retention:
		return fmt.Errorf("query span: %s is longer than the retention of %s, so that no query would find all it asks for", config.FormatDuration(n.QuerySpan), config.FormatDuration(n.Retention))
	case n.QuerySpan < n.Interval:
		return fmt.Errorf("query span: %s is shorter than the interval of %s, so that most queries would find nothing", config.FormatDuration(n.QuerySpan), config.FormatDuration(n.Interval))
	case n.perDay() > maxPerDay:
		return fmt.Errorf("%.3g readings a day are more than one MongoDB takes; at most %.0e are worked out", n.perDay(), maxPerDay)
	}
	return nil
}

// complete fills in the number of queries.
func (n Needs) complete() Needs {
	if n.Queries == 0 {
		n.Queries = float64(n.Sensors) * float64(day) / float64(n.QuerySpan)
	}
	return n
}

// perDay returns the readings of all sensors in a day.
func (n Needs) perDay() float64 { return float64(n.Sensors) * float64(day) / float64(n.Interval) }

// cpuPrice returns the monthly price of CPU seconds per day.
func (n Needs) cpuPrice(seconds float64) float64 {
	return seconds / 3600 * float64(month/day) * n.CoreHour
}

// kept returns how much time's readings are on disk.
func (n Needs) kept() time.Duration {
	if n.Retention == 0 {
		return foreverCounts
	}
	return n.Retention
}
