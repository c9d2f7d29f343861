// Package store holds what the stores of readings have in common. Each of its
// sub-packages bucket, timeseries and memory writes what a lane has pending, reports the
// outcome of each, and answers queries:
//
//	           ┌─▶ bucket ─────┐
//	claim ─────┤               ├─▶ Base: settings, the prepared collection ─▶ Connection ─▶ MongoDB
//	 ▲         └─▶ timeseries ─┘
//	lanes ───────▶ memory
//
// Here are also the windows of buckets, the BSON form of a reading (document.go), the
// parts of answers (answer.go), MongoDB's error codes (outcome.go), and the metrics.
package store

import (
	"context"
	"fmt"
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
	MinGranularity = time.Minute
	MaxGranularity = time.Hour
)

// CheckGranularity returns why g cannot be the length of a bucket's window, or
// nil: it must be whole seconds between a minute and an hour that divide an
// hour, so that windows never straddle one.
func CheckGranularity(g time.Duration) error {
	if g < MinGranularity || g > MaxGranularity || g%time.Second != 0 || MaxGranularity%g != 0 {
		return fmt.Errorf("granularity %s is invalid: it must divide an hour evenly, from 1m to 1h, like 1m, 5m, 10m, 15m, 30m or 1h", config.FormatDuration(g))
	}
	return nil
}

// WindowStart returns the start of the window of length g that ms, not before
// 1970, lies in; both in milliseconds since the epoch.
func WindowStart(ms int64, g time.Duration) int64 { return ms - ms%g.Milliseconds() }

type permitKey struct{}

// WithPermit returns a context for Write with a function that is called before each of
// its commands: together they can take longer than the claim is valid that the write
// began with.
func WithPermit(ctx context.Context, permit func() error) context.Context {
	return context.WithValue(ctx, permitKey{}, permit)
}

// Permitted returns why the next command of a write must not be sent, or nil.
func Permitted(ctx context.Context) error {
	if permit, ok := ctx.Value(permitKey{}).(func() error); ok {
		return permit()
	}
	return nil
}
