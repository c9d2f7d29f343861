// Package transfer moves readings between a daemon and files. It needs memory independent of their
// number, and continues where an earlier run was interrupted.
//
//	daemon ─▶ Source ─▶ spool of a day ─▶ files.Writer ─▶ DIR/day=2026-11-22/readings.parquet
//	files.Read ─▶ chunks of readings, each with a key ─▶ Send ─▶ daemon
//
// export.go implements the first line, in two passes because all files of an export have the same
// columns; its files between runs are in spool.go. import.go implements the second; its progress
// is in progress.go.
package transfer

import (
	"context"
	"errors"
	"time"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A Source is the daemon and stream that readings are exported from. It retries requests, and is
// called by several goroutines.
type Source interface {
	// Sensors returns a page of at most limit sensors whose ids begin with the prefix, in the order of
	// their ids, and the id after which the next page begins; empty: this is the last page.
	Sensors(ctx context.Context, prefix, after string, limit int) (page []telemetry.SensorSeen, next string, err error)
	// Readings returns a page of the readings of sensors, one sensor after the other and
	// each in time order, a line each, and where the next page begins. ErrPageTooLarge asks
	// for a smaller one.
	Readings(ctx context.Context, q PageQuery) (page Page, err error)
}

// A PageQuery asks for readings with From <= Time < To, both in milliseconds.
type PageQuery struct {
	Sensors  []string // sorted; at most 100
	From, To int64
	Limit    int
	After    string // Next of the page before
}

// A Page of readings.
type Page struct {
	Lines []byte // NDJSON
	Next  string // empty: this is the last page
}

// ErrPageTooLarge says that a page would not fit into memory.
var ErrPageTooLarge = errors.New("the page is too large")

const day = 24 * time.Hour

// dayOf returns the start of the UTC day of a time, in milliseconds.
func dayOf(ms int64) int64 {
	return time.UnixMilli(ms).Truncate(day).UnixMilli()
}

func dayName(start int64) string { return time.UnixMilli(start).UTC().Format(time.DateOnly) }
