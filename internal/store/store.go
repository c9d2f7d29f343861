// Package store has the code that the stores of readings share. Each of its sub-packages bucket,
// timeseries and memory writes a lane's pending readings, reports the outcome for each bucket, and
// answers queries:
//
//	           ┌─▶ bucket ─────┐
//	claim ─────┤               ├─▶ Base: settings, the prepared collection ─▶ Connection ─▶ MongoDB
//	 ▲         └─▶ timeseries ─┘
//	lanes ───────▶ memory
//
// The package also has the windows of buckets, the BSON form of readings (document.go), shared
// parts of answers (answer.go), MongoDB's error codes (errorclass.go), and the metrics.
package store

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/brim-telemetry/brim/internal/config"
)

// Storage is how a stream's readings are stored.
type Storage string

// The kinds of storage.
const (
	Bucket     Storage = "bucket"     // documents that hold one window of one sensor
	TimeSeries Storage = "timeseries" // MongoDB's native time-series collection
	Memory     Storage = "memory"     // this process only, to measure without a database
)

// Format is how an update of a bucket document holds its readings. A document may have
// readings in both formats.
type Format string

// The formats of buckets.
const (
	Documents Format = "documents" // a sub-document for each reading, in measurements
	Columns   Format = "columns"   // one block of columns for each update, in blocks
)

// Bounds of a bucket's granularity.
const (
	MinGranularity        = time.Minute
	MaxGranularity        = time.Hour
	maxColumnsGranularity = 24 * time.Hour // with Columns
)

// CheckGranularity returns an error unless g can be the length of a bucket's window: whole
// seconds, between a minute and an hour, that divide an hour evenly, so that no window crosses the
// start of an hour. With Columns, the limit is a day instead of an hour.
func CheckGranularity(g time.Duration, format Format) error {
	longest, advice := MaxGranularity, "it must divide an hour evenly, from 1m to 1h, like 1m, 5m, 10m, 15m, 30m or 1h; with --bucket-format columns it must divide a day, and may be up to 24h"
	if format == Columns {
		longest, advice = maxColumnsGranularity, "it must divide a day evenly, from 1m to 24h, like 5m, 1h, 6h, 12h or 24h"
	}
	if g < MinGranularity || g > longest || g%time.Second != 0 || longest%g != 0 {
		return fmt.Errorf("granularity %s is invalid: %s", config.FormatDuration(g), advice)
	}
	return nil
}

// LongWindows returns, in order, the starts of all windows longer than MaxGranularity that
// may contain ms and began at least MaxGranularity before it. There are at most 14, so a reader
// can look up each of them, and need not know which granularities a stream has had:
//
//	00:00 ├──────────── 24h ───────────▶
//	06:00            ├──── 6h ──────────▶
//	08:00                  ├─ 2h, 4h, 8h ▶
//	                              09:30 ms
func LongWindows(ms int64) (starts []int64) {
	if ms <= 0 {
		return nil
	}
	for parts := time.Duration(1); maxColumnsGranularity/parts > MaxGranularity; parts++ { // of a day
		g := maxColumnsGranularity / parts
		if CheckGranularity(g, Columns) != nil {
			continue
		}
		if start := WindowStart(ms, g); start <= ms-MaxGranularity.Milliseconds() {
			starts = append(starts, start)
		}
	}
	slices.Sort(starts)
	return slices.Compact(starts)
}

// WindowStart returns the start of the window of length g that ms, not before
// 1970, lies in; both in milliseconds since the epoch.
func WindowStart(ms int64, g time.Duration) int64 { return ms - ms%g.Milliseconds() }

type permitKey struct{}

// WithPermit returns a context for Write with a function that Write calls before each command. All
// its commands together can take longer than the claim is valid.
func WithPermit(ctx context.Context, permit func() error) context.Context {
	return context.WithValue(ctx, permitKey{}, permit)
}

// Permitted returns nil if the next command of a write may be sent, and otherwise the reason.
func Permitted(ctx context.Context) error {
	if permit, ok := ctx.Value(permitKey{}).(func() error); ok {
		return permit()
	}
	return nil
}
