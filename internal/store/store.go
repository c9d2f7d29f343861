// Package store is where readings come to rest, the end of their way. Its
// sub-packages bucket, timeseries and memory each take a lane's shares and
// report what became of them; this package holds what they have in common: the
// windows of buckets, the BSON form of a reading, the connection to MongoDB,
// the making and checking of collections, and the metrics.
package store

import (
	"context"
	"fmt"
	"time"
)

// Storage is the kind of place where a stream's readings rest.
type Storage string

// The kinds of storage.
const (
	Bucket     Storage = "bucket"     // documents that hold one window of one sensor
	TimeSeries Storage = "timeseries" // MongoDB's native time-series collection
	Memory     Storage = "memory"     // this process only, to measure without a database
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
		return fmt.Errorf("granularity %v does not fit: it must divide an hour, from 1m to 1h (1m, 2m, 5m, 10m, 15m, 30m, 1h, …)", g)
	}
	return nil
}

// WindowStart returns the start of the window of length g that ms, not before
// 1970, lies in; both in milliseconds since the epoch.
func WindowStart(ms int64, g time.Duration) int64 { return ms - ms%g.Milliseconds() }

type permitKey struct{}

// WithPermit returns a context for Write with what is asked before each of its
// commands: together they can take longer than the claim is good for that the
// write began with.
func WithPermit(ctx context.Context, permit func() error) context.Context {
	return context.WithValue(ctx, permitKey{}, permit)
}

// Permitted returns why the next command of a write must not be sent, nil if it may
// be.
func Permitted(ctx context.Context) error {
	if permit, ok := ctx.Value(permitKey{}).(func() error); ok {
		return permit()
	}
	return nil
}
