package settings

import (
	"context"
	"fmt"
	"math"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/brim-telemetry/brim/internal/config"
	"github.com/brim-telemetry/brim/internal/doctor"
)

// A Look is the server's counters at one moment.
type Look struct {
	counters doctor.Counters
	own      ownStatus
	err      error // why it is empty
}

// ownStatus is what is read of serverStatus beside the counters.
type ownStatus struct {
	Host   string  `bson:"host"`
	PID    float64 `bson:"pid"`
	Uptime float64 `bson:"uptimeMillis"`
	Flow   struct {
		Target float64 `bson:"targetRateLimit"` // locks a second for writes
		Waited float64 `bson:"timeAcquiringMicros"`
	} `bson:"flowControl"`
	Metrics struct {
		LastError struct {
			Waits struct {
				Number float64 `bson:"num"`
				Millis float64 `bson:"totalMillis"`
			} `bson:"wtime"`
		} `bson:"getLastError"`
	} `bson:"metrics"`
}

// TakeLook looks now. What cannot be seen is said by Check.
func TakeLook(ctx context.Context, db *mongo.Database) *Look { return takeLook(ctx, newServer(db)) }

func takeLook(ctx context.Context, s server) *Look {
	// The longest sections that are not read; a server does not mind names that
	// it does not know.
	raw, err := s.run(ctx, true, bson.D{
		{Key: "serverStatus", Value: 1}, {Key: "repl", Value: 0}, {Key: "locks", Value: 0}, {Key: "tcmalloc", Value: 0},
		{Key: "transactions", Value: 0}, {Key: "shardingStatistics", Value: 0}, {Key: "queryStats", Value: 0},
	})
	if err != nil {
		return &Look{err: err}
	}
	l := &Look{}
	if l.counters, l.err = doctor.ParseCounters(raw, time.Now()); l.err != nil {
		return l
	}
	if err := bson.Unmarshal(raw, &l.own); err != nil {
		l.err = fmt.Errorf("read serverStatus: %w", err)
	}
	return l
}

// value is a counter, NaN if it cannot be seen.
func (l *Look) value(name string) float64 {
	if l == nil || l.err != nil {
		return math.NaN()
	}
	return l.counters.Value(name)
}

// A span is the time between two looks, or since the server's start.
type span struct {
	before, now *Look
	seconds     float64 // NaN: there is no look
}

func spanOf(before, now *Look) span {
	switch {
	case now.err != nil:
		return span{now: now, seconds: math.NaN()}
	case before == nil || before.err != nil || before.own.Host != now.own.Host || before.own.PID != now.own.PID || before.own.Uptime >= now.own.Uptime:
		return span{now: now, seconds: now.own.Uptime / 1000} // all counters were 0 then
	}
	return span{before: before, now: now, seconds: (now.own.Uptime - before.own.Uptime) / 1000}
}

// growth is how much a counter has grown.
func (s span) growth(name string) float64 {
	if s.before == nil {
		return s.now.value(name)
	}
	return s.now.value(name) - s.before.value(name)
}

// rate is a counter's growth in a second.
func (s span) rate(name string) float64 { return s.growth(name) / s.seconds }

// waits are the writes that waited for others, and for how long each.
func (s span) waits() (number float64, each time.Duration) {
	w := s.now.own.Metrics.LastError.Waits
	if s.before != nil {
		w.Number -= s.before.own.Metrics.LastError.Waits.Number
		w.Millis -= s.before.own.Metrics.LastError.Waits.Millis
	}
	if w.Number <= 0 {
		return 0, 0
	}
	return w.Number, time.Duration(w.Millis / w.Number * float64(time.Millisecond))
}

// heldBack is for how many seconds in a second writes waited, all of them added
// up, because the primary held them back.
func (s span) heldBack() float64 {
	micros := s.now.own.Flow.Waited
	if s.before != nil {
		micros -= s.before.own.Flow.Waited
	}
	return micros / 1e6 / s.seconds
}

// String says it in words, as in "in the last 10s".
func (s span) String() string {
	d := time.Duration(s.seconds * float64(time.Second))
	if s.before != nil {
		return "in the last " + config.FormatDuration(d.Round(time.Second/10))
	}
	return "on average since the server's start " + config.FormatDuration(coarse(d)) + " ago"
}

// coarse leaves out what nobody wants to read of a long time.
func coarse(d time.Duration) time.Duration {
	switch {
	case d >= time.Hour:
		return d.Round(time.Minute)
	default:
		return d.Round(time.Second)
	}
}
