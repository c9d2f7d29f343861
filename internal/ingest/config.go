package ingest

import (
	"cmp"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/brim-telemetry/brim/internal/access"
	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A Stream is what a Server knows of one stream.
type Stream struct {
	Name        string
	Storage     string        // bucket, timeseries or memory
	Granularity time.Duration // length of a bucket's window
	MaxReadings int           // cap of a bucket's part; 0 where there is none
	MaxBytes    int64         // cap of a bucket's part; 0 where there is none
	Retention   time.Duration // readings older than this are refused; 0 keeps all
	Fields      []string      // that readings may have; none: any
	OtherFields string        // what to do with other fields: refuse (also if empty) or drop
}

// The default limits.
const (
	DefaultBodyBytes     = 8 << 20              // 10,000 readings of 800 bytes uncompressed
	DefaultInflatedBytes = 8 * DefaultBodyBytes // what gzip does to JSON
	// DefaultInflateRatio lets real readings pass, which inflate 6 to 30 times (gzip and zstd
	// at any level), and 10,000 readings of which none ever changes, 120 times; gzip of zeros
	// inflates 1,000 times.
	DefaultInflateRatio = 200
	DefaultReadings     = 10_000
	DefaultMaxFuture    = 10 * time.Minute
	// MostReadings is the maximum of MaxReadings.
	MostReadings = 1_000_000
)

// Config configures a Server. Limits of 0 stand for the defaults. The daemon's settings
// check their ranges.
type Config struct {
	Streams       []Stream // at least one
	DefaultStream string   // name of one of them

	MaxBodyBytes     int64 // on the wire
	MaxInflatedBytes int64
	// MaxInflateRatio is the maximum ratio of inflated to received bytes, at any point of a
	// body after the first inflated MiB.
	MaxInflateRatio int64
	MaxReadings     int // in one request
	// MaxBytes bounds the memory of all requests that are not in the journal yet;
	// at least LeastBudget, which is also the default.
	MaxBytes int64
	// Connections returns the number of open connections, which take a part of MaxBytes; nil:
	// none.
	Connections func() int64
	// BodyGrace is how long a body may take before its pace is checked; 0: 10 s. After that,
	// MinBodyRate bytes must have arrived for every second; 0: 1 KiB, half of what a modem of
	// 20 kbit/s sends. Long bodies must arrive faster, see heavyRate.
	BodyGrace   time.Duration
	MinBodyRate int64
	MinTime     time.Time     // earlier readings are refused; zero: 2000-01-01 UTC
	MaxFuture   time.Duration // how far ahead of the clock a timestamp may be

	MapDots   byte   // replaces dots in names of fields and tags; 0: such names are refused
	SensorTag string // line protocol: the tag that holds the sensor id; empty: the series key

	Ack  telemetry.Ack   // the default level; empty: the first of Acks
	Acks []telemetry.Ack // the possible levels, at least one

	// Guard authenticates clients; nil: everyone may send.
	Guard *access.Guard

	// Interner remembers series and shapes between requests; nil: a new one.
	Interner *batch.Interner

	// Available returns why no readings can be accepted now, for /health only; nil: they
	// always can.
	Available func() error

	Version    string // shown by /health and /ping
	Logger     *slog.Logger
	Registerer prometheus.Registerer // nil: a new registry
	Now        func() time.Time      // nil: time.Now
}

func (c Config) withDefaults() Config {
	if c.Connections == nil {
		c.Connections = func() int64 { return 0 }
	}
	c.MaxBodyBytes = cmp.Or(c.MaxBodyBytes, DefaultBodyBytes)
	c.MaxInflatedBytes = cmp.Or(c.MaxInflatedBytes, max(DefaultInflatedBytes, c.MaxBodyBytes))
	c.MaxInflateRatio = cmp.Or(c.MaxInflateRatio, DefaultInflateRatio)
	c.MaxBytes = cmp.Or(c.MaxBytes, LeastBudget(c.MaxBodyBytes))
	c.BodyGrace, c.MinBodyRate = cmp.Or(c.BodyGrace, 10*time.Second), cmp.Or(c.MinBodyRate, 1<<10)
	c.MaxReadings = cmp.Or(c.MaxReadings, DefaultReadings)
	if c.MinTime.IsZero() {
		c.MinTime = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	}
	c.MaxFuture = cmp.Or(c.MaxFuture, DefaultMaxFuture)
	if c.Ack == "" && len(c.Acks) > 0 {
		c.Ack = c.Acks[0]
	}
	if c.Interner == nil {
		c.Interner = batch.NewInterner(0)
	}
	c.Version = cmp.Or(c.Version, "unknown")
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Registerer == nil {
		c.Registerer = prometheus.NewRegistry()
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

// check checks what the daemon's settings do not check.
func (c Config) check() error {
	switch {
	case !slices.ContainsFunc(c.Streams, func(s Stream) bool { return s.Name == c.DefaultStream }):
		return fmt.Errorf("default stream %s is not configured; configured are: %s", telemetry.Quote([]byte(c.DefaultStream)), listStreams(c.Streams))
	case c.MinTime.UnixMilli() < 0:
		return fmt.Errorf("--min-time %s is before 1970", c.MinTime.Format(time.RFC3339))
	case !slices.Contains(c.Acks, c.Ack):
		return fmt.Errorf("--ack %s is not available; allowed: %s", c.Ack, listAcks(c.Acks))
	}
	return nil
}

func listAcks(acks []telemetry.Ack) string {
	var names []string
	for _, a := range acks {
		names = append(names, string(a))
	}
	return strings.Join(names, ", ")
}

// listStreams lists the streams for an error message, at most 20 of them.
func listStreams(streams []Stream) string {
	const most = 20
	var names []string
	for _, s := range streams[:min(len(streams), most)] {
		names = append(names, s.Name)
	}
	if more := len(streams) - most; more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
}
