// Package advise goes from a user's own numbers to settings: it measures on the
// machine at hand what each choice costs those numbers, in short forms of the
// experiments, and chooses by a cost that anyone can recompute.
//
//	Needs ─▶ candidates ─▶ measure each (a Lab) ─▶ Figures ─▶ cost of each ─▶ choose ─▶ Advice ─▶ Text, JSON
//
// Follow then runs a daemon and its load as advised, and compares what is stored
// with what was predicted.
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

// About how long measuring takes, and following the advice.
const (
	fullTime   = 100 * time.Second
	quickTime  = 50 * time.Second
	followTime = 45 * time.Second
)

// Config says what to advise on, and how.
type Config struct {
	Needs Needs
	Bench bench.Config
	// Follow has the advice followed, and fills Advice.Followed.
	Follow bool
}

// Run measures and advises. What it starts and makes is gone when it returns.
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

// Needs are a user's own numbers.
type Needs struct {
	Sensors   int           `json:"sensors"`
	Interval  time.Duration `json:"interval_ns"` // between readings of a sensor
	Fields    int           `json:"fields"`      // of a reading
	QuerySpan time.Duration `json:"query_span_ns"`
	// Queries a day, each of one sensor over QuerySpan. 0: as many as read every
	// reading once.
	Queries   float64       `json:"queries_per_day"`
	Retention time.Duration `json:"retention_ns"` // 0: for ever
	// MaxWait is how long a reading may gather before it is written. Until then it
	// is only in Brim's journal, where queries through Brim see it.
	MaxWait    time.Duration `json:"max_wait_ns"`
	Batch      int           `json:"batch"` // readings in a request
	Duplicates Duplicates    `json:"duplicates"`
	// What an hour of a processor costs, and a month of 10^9 bytes on disk, in the
	// same money: which compares time with space.
	CoreHour float64 `json:"price_core_hour"`
	GBMonth  float64 `json:"price_gb_month"`
	// DiskWrites is how many bytes a day the disk should write at most.
	DiskWrites int64 `json:"disk_writes"`
}

// Duplicates says whether a reading may be stored twice.
type Duplicates string

// What may happen after MongoDB's answer was lost and a reading is sent again.
const (
	Never Duplicates = "never" // the database keeps it from being stored twice: bucket documents
	Rare  Duplicates = "rare"  // Brim checks whether it is there, which is nearly always enough: a time series, too
)

// Defaults of the needs that few will want to give.
const (
	// DefaultMaxWait is the daemon's own --flush-max.
	DefaultMaxWait = 5 * time.Minute
	// What a rented core and a rented SSD cost in dollars, about.
	DefaultCoreHour = 0.04
	DefaultGBMonth  = 0.10
	// defaultDiskWrites is 0.3 times a day a drive of 500 GB, which small ones are
	// made to bear for five years.
	defaultDiskWrites = 150_000_000_000
)

const (
	day   = 24 * time.Hour
	month = 30 * day
	// foreverCounts is the time whose readings are counted where they are kept for
	// ever.
	foreverCounts = 365 * day
)

// Bounds of the needs, for the flags that set them.
const (
	MaxSensors   = 100_000_000
	MaxFields    = telemetry.MaxFields
	MaxInterval  = 30 * day
	MaxQuerySpan = 3650 * day
	MaxRetention = 24_000 * day // what fits a TTL index
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

// complete fills in how many queries there are.
func (n Needs) complete() Needs {
	if n.Queries == 0 {
		n.Queries = float64(n.Sensors) * float64(day) / float64(n.QuerySpan)
	}
	return n
}

// perDay is the readings a day of all sensors.
func (n Needs) perDay() float64 { return float64(n.Sensors) * float64(day) / float64(n.Interval) }

// cpuPrice is what so much CPU time a day costs a month.
func (n Needs) cpuPrice(seconds float64) float64 {
	return seconds / 3600 * float64(month/day) * n.CoreHour
}

// kept is the time whose readings are on disk.
func (n Needs) kept() time.Duration {
	if n.Retention == 0 {
		return foreverCounts
	}
	return n.Retention
}
